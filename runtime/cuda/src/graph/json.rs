//! Annotations as JSON: `docs/graph.schema.json`. Each zone and node has one line, and keys have a fixed order.

use std::fmt::Write;
use std::sync::Arc;

use super::JSON_FORMAT;
use super::captured_zone::CapturedZone;
use super::label::NodeIdSource;
use super::registered::{GraphState, Node, Registered};
use warpline_core::catalog::export::quoted;
use warpline_core::catalog::{RangeSpec, catalog};
use warpline_core::collective::Message;
use warpline_core::fields::{Item, Value};

/// The largest number that every reader represents exactly.
const EXACT: u64 = 1 << 53;

pub(super) fn document(graphs: &[Arc<Registered>]) -> String {
    let mut out = String::from("{\n");
    let hash = catalog().hash();
    let _ = write!(out, "  \"format\": {},\n  \"catalog\": \"{hash:#018x}\",\n  \"graphs\": [", quoted(JSON_FORMAT));
    for (at, graph) in graphs.iter().enumerate() {
        out.push_str(if at > 0 { ",\n    {" } else { "\n    {" });
        write_graph(&mut out, graph.number, &graph.walked());
        out.push_str("\n    }");
    }
    out.push_str(if graphs.is_empty() { "]\n}\n" } else { "\n  ]\n}\n" });
    out
}

fn write_graph(out: &mut String, number: u32, state: &GraphState) {
    let member = |out: &mut String, key: &str, value: &str| {
        let _ = write!(out, ",\n      {}: {value}", quoted(key));
    };
    let _ = write!(out, "\n      \"graph\": {number}");
    member(out, "name", &text(state.name.as_deref()));
    member(out, "ids", &quoted(state.ids.as_str()));
    member(out, "graph_id", &number_or_null(state.graph_id));
    let execs = state.execs.iter().map(|exec| format!("{{\"exec_id\": {}}}", number_or_null(exec.id)));
    member(out, "execs", &list(execs));
    // Only zones with nodes are written, by new numbers.
    let mut used = vec![false; state.all_zones.len()];
    (0..state.nodes.len()).for_each(|node| state.path(node as u32).iter().for_each(|zone| used[*zone as usize] = true));
    let mut count = 0;
    let mut number = |used: &bool| {
        count += u32::from(*used);
        count.saturating_sub(1)
    };
    let renumbered: Vec<u32> = used.iter().map(&mut number).collect();
    let zones = state.all_zones.iter().zip(&used).filter(|(_, used)| **used).map(|(zone, _)| write_zone(zone));
    member(out, "zones", &list(zones));
    let nodes = (0..).zip(&state.nodes).map(|(index, node)| write_node(index, node, state, &renumbered));
    member(out, "nodes", &list(nodes));
    let unlabelled = state
        .unlabelled()
        .map(|unlabelled| format!("{{\"node\": {}, \"why\": {}}}", unlabelled.node, quoted(unlabelled.why)));
    member(out, "unlabelled", &list(unlabelled));
}

fn write_zone(zone: &CapturedZone) -> String {
    let (label, range) = (&zone.label, zone.label.range);
    let color = range.color().map(|color| format!("#{color:06x}"));
    let fields = values(label.fields.iter().map(|(name, field)| (*name, field.clone())));
    let entry = |(range, message): &(&RangeSpec, Message)| {
        let (name, lane, said) = (
            quoted(range.name()),
            text(range.lane()),
            values(message.arguments().map(|(name, said)| (name, said.value()))),
        );
        format!("{{\"name\": {name}, \"lane\": {lane}, \"collective\": {said}}}")
    };
    let entries = match label.entries.is_empty() {
        true => String::new(),
        false => format!(", \"entries\": [{}]", joined(label.entries.iter().map(entry))),
    };
    format!(
        "{{\"name\": {}, \"kind\": {}, \"lane\": {}, \"color\": {}, \"label\": {}, \"description\": {}, \"status\": {}, \
         \"fields\": {fields}, \"collective\": {}{entries}}}",
        quoted(range.name()),
        quoted(range.kind().as_str()),
        text(label.lane.or(range.lane())),
        text(color.as_deref()),
        text(label.label.as_deref()),
        quoted(range.description()),
        quoted(label.status.as_str()),
        label.message.as_ref().map_or_else(
            || "null".to_owned(),
            |message| values(message.arguments().map(|(name, said)| (name, said.value())))
        ),
    )
}

fn write_node(index: u32, node: &Node, state: &GraphState, zones: &[u32]) -> String {
    let id = |source| node.id.filter(|(_, from)| *from == source).map(|(id, _)| format!("\"{id}\""));
    let low = node.id.filter(|_| node.within.is_none()).map(|(id, _)| id & u64::from(u32::MAX));
    let replays = state.execs.iter().map(|exec| match (exec.id, low) {
        (Some(exec), Some(low)) => format!("\"{}\"", u64::from(exec) << 32 | low),
        _ => "null".to_owned(),
    });
    let null = || "null".to_owned();
    format!(
        "{{\"index\": {index}, \"within\": {}, \"kind\": {}, \"kernel\": {}, \"tools_id\": {}, \"cupti_id\": {}, \
         \"replay_ids\": [{}], \"zones\": [{}]}}",
        number_or_null(node.within),
        quoted(node.kind.as_str()),
        text(node.kernel.as_deref()),
        id(NodeIdSource::Tools).unwrap_or_else(null),
        id(NodeIdSource::Cupti).unwrap_or_else(null),
        joined(replays),
        joined(state.path(index).iter().filter(|_| node.stamp.is_none()).map(|zone| zones[*zone as usize].to_string())),
    )
}

fn values<'a>(values: impl Iterator<Item = (&'a str, Value)>) -> String {
    let member = |(name, field): (&str, Value)| {
        let len = field.cut_len().map(|len| format!(", {}: {len}", quoted(&format!("{name}.len"))));
        format!("{}: {}{}", quoted(name), value(&field), len.unwrap_or_default())
    };
    format!("{{{}}}", joined(values.map(member)))
}

fn value(value: &Value) -> String {
    match value {
        Value::List(list) => format!("[{}]", joined(list.iter().map(item))),
        Value::Map(map) => {
            format!("{{{}}}", joined(map.iter().map(|(name, value)| format!("{}: {}", quoted(name), item(value)))))
        }
        other => other.item().map_or_else(|| quoted(&other.to_string()), item),
    }
}

fn item(item: Item<'_>) -> String {
    match item {
        Item::U64(number) if number <= EXACT => number.to_string(),
        Item::I64(number) if number.unsigned_abs() <= EXACT => number.to_string(),
        Item::F64(number) if number.is_finite() => serde_json::Value::from(number).to_string(),
        Item::Bool(value) => value.to_string(),
        other => quoted(&other.to_string()),
    }
}

fn text(text: Option<&str>) -> String {
    text.map_or_else(|| "null".to_owned(), quoted)
}

fn number_or_null(number: Option<u32>) -> String {
    number.map_or_else(|| "null".to_owned(), |number| number.to_string())
}

/// Returns a list with each item on its own line.
fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    if items.is_empty() { "[]".to_owned() } else { format!("[\n        {}\n      ]", items.join(",\n        ")) }
}

fn joined(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}
