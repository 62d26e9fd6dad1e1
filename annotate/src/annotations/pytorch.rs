//! Annotations that PyTorch recorded: `torch.cuda.graph_annotations.get_kernel_annotations()`, saved as JSON or as a pickle.
//!
//! The file maps the id of a node, `exec_id << 32 | n`, to the annotations of its scopes: a list with one object; in older files with
//! several objects, of which later ones win, or with plain texts. It does not say where a scope begins, and contains only nodes inside
//! scopes. Nodes whose ids follow one another, with equal annotations, therefore form one zone; a node between them that has none ends it.

use serde_json::{Map, Value};

use super::{Annotations, Graph, Node, Unreadable, Zone};

/// The members of an annotation that name its scope, the first that there is.
const NAMES: [&str; 3] = ["name", "module_fqn", "module_name"];

pub(super) fn read(value: Value) -> Result<Annotations, Unreadable> {
    let Value::Object(entries) = value else {
        return Err(Unreadable(
            "neither warpline's annotations nor PyTorch's, both of which are JSON objects".to_owned(),
        ));
    };
    let mut nodes = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let id: u64 = key.parse().map_err(|_| Unreadable(format!("`{key}` is not a node id")))?;
        nodes.push((
            id,
            parse_object(value).ok_or_else(|| Unreadable(format!("node {id} has no list of annotations")))?,
        ));
    }
    nodes.sort_by_key(|(id, _)| *id);
    let mut annotations = Annotations::default();
    let (mut exec, mut before) = (None, None);
    for (id, args) in nodes {
        if exec != Some(id >> 32) {
            exec = Some(id >> 32);
            annotations.graphs.push(Graph {
                title: format!("graph {}", id >> 32),
                no_order: Some("PyTorch's annotations contain only nodes inside a scope"),
                ..Graph::default()
            });
        }
        let number = annotations.graphs.len() - 1;
        let Some(graph) = annotations.graphs.last_mut() else { continue };
        let index = graph.nodes.len();
        let name = NAMES.iter().find_map(|key| args.get(*key)).map(text).unwrap_or_else(|| "annotated".to_owned());
        let follows = before.replace(id).is_some_and(|before| before + 1 == id);
        if !follows || graph.zones.last().is_none_or(|last| last.args != args) {
            let lane = args.get("stream").map_or_else(|| name.clone(), |stream| format!("stream {}", text(stream)));
            graph.zones.push(Zone { name, lane: Some(lane), args, entries: Vec::new() });
        }
        graph.nodes.push(Node { work: None, kernel: None, zones: vec![graph.zones.len() as u32 - 1] });
        annotations.add_id(id, number, index);
    }
    Ok(annotations)
}

/// The merged annotations of all scopes of a node.
fn parse_object(value: Value) -> Option<Map<String, Value>> {
    let scopes = match value {
        Value::Array(scopes) => scopes,
        scope @ Value::Object(_) => vec![scope],
        _ => return None,
    };
    let mut args = Map::new();
    for scope in scopes {
        match scope {
            // Older files have `{"str": …}` for a plain text.
            Value::Object(said) => {
                args.extend(
                    said.into_iter().map(|(key, value)| (if key == "str" { "name".to_owned() } else { key }, value)),
                );
            }
            other => {
                args.insert("name".to_owned(), text(&other).into());
            }
        }
    }
    Some(args)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn zones(value: Value) -> Vec<(String, usize)> {
        let annotations = read(value).expect("annotations");
        let graph = &annotations.graphs[0];
        let nodes = |zone: usize| graph.nodes.iter().filter(|node| node.zones == [zone as u32]).count();
        graph.zones.iter().enumerate().map(|(at, zone)| (zone.name.clone(), nodes(at))).collect()
    }

    fn id(node: u64) -> String {
        (7_u64 << 32 | node).to_string()
    }

    #[test]
    fn an_unmarked_node_between_equal_annotations_ends_the_zone() {
        let mlp = json!([{"name": "mlp"}]);
        let value = json!({id(1): mlp, id(2): mlp, id(4): mlp, id(5): [{"name": "norm"}], id(6): mlp});
        let found = [("mlp", 2), ("mlp", 1), ("norm", 1), ("mlp", 1)].map(|(name, nodes)| (name.to_owned(), nodes));
        assert_eq!(zones(value), found);
    }

    #[test]
    fn the_later_scope_wins_and_names_have_several_forms() {
        let value = json!({
            id(1): [{"name": "outer", "a": 1}, {"name": "inner"}],
            id(2): ["outer", "text"],
            id(3): [{"str": "older"}],
            id(4): [{"module_fqn": "model.layers.0.mlp"}],
            id(5): {"module_name": "MLP"},
            id(6): [{"phase": "backward"}],
        });
        let names: Vec<String> = zones(value).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["inner", "text", "older", "model.layers.0.mlp", "MLP", "annotated"]);
        assert!(read(json!({id(1): 7})).is_err());
    }
}
