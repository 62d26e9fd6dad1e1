//! Annotations that PyTorch recorded: `torch.cuda.graph_annotations.get_kernel_annotations()`, saved as JSON or as a pickle.
//!
//! It is a mapping from the id of a node, `exec_id << 32 | n`, to what its scopes said: a list with one object, in older
//! files several, of which later ones win, or with bare texts. It does not say where a scope begins, and it has no nodes that
//! no scope was around: nodes that follow one another by their ids and say the same are taken for one zone.

use serde_json::{Map, Value};

use super::{Annotations, Graph, Node, Unreadable, Zone};

pub(super) fn read(value: Value) -> Result<Annotations, Unreadable> {
    let Value::Object(entries) = value else {
        return Err(Unreadable("neither warpline's annotations nor PyTorch's, which are objects".to_owned()));
    };
    let mut nodes = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let id: u64 = key.parse().map_err(|_| Unreadable(format!("`{key}` is no id of a node")))?;
        nodes.push((
            id,
            parse_object(value).ok_or_else(|| Unreadable(format!("node {id} has no list of annotations")))?,
        ));
    }
    nodes.sort_by_key(|(id, _)| *id);
    let mut annotations = Annotations::default();
    let mut exec = None;
    for (id, args) in nodes {
        if exec != Some(id >> 32) {
            exec = Some(id >> 32);
            annotations.graphs.push(Graph {
                title: format!("graph {}", id >> 32),
                no_order: Some("PyTorch's annotations have only the nodes that a scope was around"),
                ..Graph::default()
            });
        }
        let number = annotations.graphs.len() - 1;
        let Some(graph) = annotations.graphs.last_mut() else { continue };
        let index = graph.nodes.len();
        let name = args.get("name").map(text).unwrap_or_else(|| "annotated".to_owned());
        if graph.zones.last().is_none_or(|last| last.args != args) {
            let lane = args.get("stream").map_or_else(|| name.clone(), |stream| format!("stream {}", text(stream)));
            graph.zones.push(Zone { name, lane: Some(lane), args, entries: Vec::new() });
        }
        graph.nodes.push(Node { work: None, kernel: None, zones: vec![graph.zones.len() as u32 - 1] });
        annotations.add_id(id, number, index);
    }
    Ok(annotations)
}

/// What all scopes of a node say together.
fn parse_object(value: Value) -> Option<Map<String, Value>> {
    let Value::Array(scopes) = value else { return None };
    let mut args = Map::new();
    for scope in scopes {
        match scope {
            // Once, a bare text was `{"str": …}`.
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
