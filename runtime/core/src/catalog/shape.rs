//! The compile-time checks of a mark on a declared range. `range!` emits the shape, and marks call it.

use super::name::{Text, equal};
use super::spec::Kind;

/// The kind and the fields of a declared range.
#[derive(Debug)]
pub struct Shape {
    name: &'static str,
    kind: Kind,
    fields: &'static [&'static str],
    /// Whether the declaration is invalid: its error is then the only one.
    is_any: bool,
}

impl Shape {
    /// The shape that fits every mark.
    pub const ANY: Shape = Shape { name: "", kind: Kind::Host, fields: &[], is_any: true };

    /// Creates the shape of a declared range.
    pub const fn new(name: &'static str, kind: Kind, fields: &'static [&'static str]) -> Shape {
        Shape { name, kind, fields, is_any: false }
    }

    /// Fails to compile if a mark has another kind or other fields. The error points to the caller's span.
    #[track_caller]
    pub const fn check(&self, kind: Kind, fields: &[&str]) {
        if self.is_any {
            return;
        }
        if kind as u8 != self.kind as u8 {
            panic!("{}", self.explain_kind(kind).as_str());
        }
        if let Some(field) = first_missing(fields, self.fields) {
            panic!(
                "{}",
                self.explain_field(field, " is not declared; write it into the `fields(…)` of its `range!`").as_str()
            );
        }
        if let Some(field) = first_missing(self.fields, fields) {
            panic!(
                "{}",
                self.explain_field(field, " has no value here; write it into the `fields(…)` of the mark").as_str()
            );
        }
    }

    const fn explain_kind(&self, kind: Kind) -> Text<640> {
        let mut text = self.start();
        text.push("` is declared with `kind = ");
        text.push(self.kind.as_str());
        text.push("`; mark with `");
        text.push(mark(self.kind));
        text.push("`, or declare it with `kind = ");
        text.push(kind.as_str());
        text.push("`");
        text
    }

    const fn explain_field(&self, field: &str, rest: &str) -> Text<640> {
        let mut text = self.start();
        text.push("`: field `");
        text.push_clipped(field, 160);
        text.push("`");
        text.push(rest);
        text
    }

    const fn start(&self) -> Text<640> {
        let mut text = Text::new();
        text.push("range `");
        text.push_clipped(self.name, 160);
        text
    }
}

/// Returns the first of `these` that is not in `those`.
const fn first_missing<'a>(these: &[&'a str], those: &[&str]) -> Option<&'a str> {
    let mut i = 0;
    while i < these.len() {
        let mut j = 0;
        while j < those.len() && !equal(these[i].as_bytes(), those[j].as_bytes()) {
            j += 1;
        }
        if j == those.len() {
            return Some(these[i]);
        }
        i += 1;
    }
    None
}

/// Returns the macro for ranges of this kind.
const fn mark(kind: Kind) -> &'static str {
    match kind {
        Kind::Gpu => "gpu_zone",
        Kind::Host => "host_zone",
        Kind::Collective => "collective",
    }
}
