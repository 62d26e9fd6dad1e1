//! The fields and the label of a zone as values of JSON, for visitors that want them.

use serde_json::{Map, Value};
use warpline_core::collective::arguments;

use super::kinds::Args;
use super::parts::{Annotation, Said};
use super::wire::Malformed;
use crate::names::field_of;
use warpline_report::names::{Names, TooManyNames};

/// What a zone says of its declared work beside the rates that tell it from fields of the same names.
const BYTES: [&str; 2] = ["bytes", "gb_per_s"];
const FLOPS: [&str; 2] = ["flops", "tflop_per_s"];

/// What a zone in a replay says of the work in it.
const KERNELS: &str = "kernels";

impl Args {
    /// Adds an argument, unless it is what a session says of every zone.
    pub(super) fn add_field(
        &mut self,
        arg: &str,
        names: &mut Names,
        value: impl FnOnce() -> Value,
    ) -> Result<(), TooManyNames> {
        if let Some(field) = field_of(arg) {
            self.fields.push((names.number(field)?, arg.starts_with("field."), value()));
        }
        Ok(())
    }

    /// Returns the fields and the label, by name.
    pub fn fields<'a>(&'a self, names: &'a Names) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let is_own = move |name: &str| {
            self.has_byte_rate && BYTES.contains(&name)
                || self.has_flop_rate && FLOPS.contains(&name)
                || self.collective.is_some() && arguments::NAMES.contains(&name)
                || self.has_correlation && name == KERNELS
        };
        let all = self.fields.iter().map(|(name, is_field, value)| (&**names.text(*name), *is_field, value));
        all.filter(move |(name, is_field, _)| *is_field || !is_own(name)).map(|(name, _, value)| (name, value))
    }
}

/// The names and texts that annotations refer to by number.
pub(super) trait Interned {
    fn name(&self, iid: u64) -> Option<&str>;
    fn text(&self, iid: u64) -> Option<&str>;
}

/// Returns the name of an annotation; empty if it has none.
pub(super) fn name_of<'a>(annotation: &'a Annotation<'_>, interned: &'a impl Interned) -> &'a str {
    annotation.name.as_deref().or_else(|| interned.name(annotation.name_iid)).unwrap_or_default()
}

/// Returns the value of an annotation. What is nested deeper than `depth` is null.
///
/// # Errors
/// The bytes of the annotation are no message.
pub(super) fn value(annotation: &Annotation<'_>, interned: &impl Interned, depth: usize) -> Result<Value, Malformed> {
    if depth == 0 {
        return Ok(Value::Null);
    }
    let mut entries = Map::new();
    for entry in annotation.entries() {
        let entry = entry?;
        entries.insert(name_of(&entry, interned).to_owned(), value(&entry, interned, depth - 1)?);
    }
    if !entries.is_empty() {
        return Ok(entries.into());
    }
    Ok(match &annotation.value {
        None => annotation.values().map(|one| value(&one?, interned, depth - 1)).collect::<Result<_, _>>()?,
        Some(Said::Bool(value)) => (*value).into(),
        Some(Said::Uint(value)) => (*value).into(),
        Some(Said::Int(value)) => (*value).into(),
        Some(Said::Double(value)) => (*value).into(),
        Some(Said::Text(text)) => (&**text).into(),
        Some(Said::Pointer(value)) => format!("{value:#x}").into(),
        Some(Said::Json(text)) => serde_json::from_str(text).unwrap_or_else(|_| (&**text).into()),
        Some(Said::TextIid(iid)) => interned.text(*iid).into(),
    })
}
