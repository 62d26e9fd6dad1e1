//! The values of fields as JSON, for Chrome traces and the replies of the control server.

use serde_json::Value;

use warpline_core::fields::{self, Item};
use warpline_report::export::json_object;

/// Converts a value. JSON has no infinities and no NaN, so these become text.
pub fn json_value(value: &fields::Value) -> Value {
    match value {
        fields::Value::List(list) => list.iter().map(json_item).collect(),
        fields::Value::Map(map) => json_object(map.iter().map(|(name, item)| (name, json_item(item)))),
        other => other.item().map_or_else(|| other.to_string().into(), json_item),
    }
}

fn json_item(item: Item<'_>) -> Value {
    match item {
        Item::U64(value) => value.into(),
        Item::I64(value) => value.into(),
        Item::F64(value) if value.is_finite() => value.into(),
        Item::Bool(value) => value.into(),
        Item::Text(value) => value.into(),
        other => other.to_string().into(),
    }
}
