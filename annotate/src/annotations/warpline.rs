//! Annotations that warpline saved: `docs/graph.schema.json` describes them.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Annotations, Graph, Node, Unreadable, Work, Zone};

const FORMAT: &str = "warpline-graph/1";

#[derive(Deserialize)]
struct File {
    graphs: Vec<SavedGraph>,
}

#[derive(Deserialize)]
struct SavedGraph {
    graph: u64,
    name: Option<String>,
    zones: Vec<SavedZone>,
    nodes: Vec<SavedNode>,
    unlabelled: Vec<Value>,
}

#[derive(Deserialize)]
struct SavedZone {
    name: String,
    lane: Option<String>,
    label: Option<String>,
    description: String,
    status: String,
    fields: Map<String, Value>,
    collective: Option<Map<String, Value>>,
    /// The entries of a batch of collectives.
    #[serde(default)]
    entries: Vec<SavedEntry>,
}

#[derive(Deserialize)]
struct SavedEntry {
    name: String,
    lane: Option<String>,
    collective: Map<String, Value>,
}

#[derive(Deserialize)]
struct SavedNode {
    kind: String,
    kernel: Option<String>,
    replay_ids: Vec<Option<String>>,
    zones: Vec<u32>,
}

pub(super) fn read(value: Value) -> Result<Annotations, Unreadable> {
    let format = value.get("format").cloned().unwrap_or_default();
    if format != FORMAT {
        return Err(Unreadable(format!(
            "its format is {format}, but this command reads `{FORMAT}`; update warpline-cli"
        )));
    }
    let file: File = serde_json::from_value(value).map_err(|error| Unreadable(error.to_string()))?;
    let mut annotations = Annotations::default();
    for saved in file.graphs {
        let number = annotations.graphs.len();
        let name = saved.name.map(|name| format!(" ({name})")).unwrap_or_default();
        let mut graph = Graph { title: format!("graph {}{name}", saved.graph), ..Graph::default() };
        if !saved.unlabelled.is_empty() {
            graph.no_order = Some("it has conditional nodes, whose kernels cannot be counted");
        }
        graph.zones = saved.zones.into_iter().map(zone).collect();
        for (index, node) in saved.nodes.into_iter().enumerate() {
            if let Some(zone) = node.zones.iter().find(|zone| **zone as usize >= graph.zones.len()) {
                return Err(Unreadable(format!(
                    "node {index} of {} is in zone {zone}, which does not exist",
                    graph.title
                )));
            }
            for id in node.replay_ids.iter().flatten() {
                let id = id.parse().map_err(|_| Unreadable(format!("`{id}` is not a node id")))?;
                annotations.add_id(id, number, index);
            }
            let work = match node.kind.as_str() {
                // A stamp is a kernel in a trace, and belongs to no zone.
                "kernel" | "stamp" => Some(Work::Kernel),
                "memcpy" => Some(Work::Memcpy),
                "memset" => Some(Work::Memset),
                _ => None,
            };
            graph.nodes.push(Node { work, kernel: node.kernel, zones: node.zones });
        }
        annotations.graphs.push(graph);
    }
    Ok(annotations)
}

fn zone(saved: SavedZone) -> Zone {
    let mut args = Map::new();
    if let Some(label) = saved.label {
        args.insert("label".to_owned(), label.into());
    }
    args.extend(saved.fields);
    let lane = saved.lane.or_else(|| saved.collective.as_ref().map(comm_lane));
    args.extend(saved.collective.unwrap_or_default());
    let mut entries: Vec<_> = saved.entries.into_iter().map(entry).collect();
    if saved.status != "complete" {
        for args in entries.iter_mut().map(|entry| &mut entry.args).chain([&mut args]) {
            args.insert("status".to_owned(), saved.status.as_str().into());
        }
    }
    args.insert("description".to_owned(), saved.description.into());
    Zone { name: saved.name, lane, args, entries }
}

fn entry(SavedEntry { name, lane, collective }: SavedEntry) -> Zone {
    let in_group = || collective.contains_key("Process Group Name").then(|| comm_lane(&collective));
    let lane = lane.or_else(in_group);
    Zone { name, lane, args: collective, entries: Vec::new() }
}

/// The row of a collective whose range has no lane: the row of its group.
fn comm_lane(message: &Map<String, Value>) -> String {
    let text = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or("");
    let ranks = text("Process Group Ranks").replace(' ', "");
    format!("comm: {} {ranks}", text("Process Group Name")).trim_end().to_owned()
}
