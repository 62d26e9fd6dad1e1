//! Converts fields of `tracing` to owned, bounded values, even if their `Debug` panics, and takes the stream out of a field `gpu`.
//!
//! It runs user code, so nothing may be locked or borrowed while it does.

use std::error::Error;
use std::fmt::{self, Debug, Write};
use std::sync::Arc;

use tracing_core::Field;
use tracing_core::field::Visit;

use super::super::stream::{OnThread, SharedStream, THREAD};
use warpline_core::fields;
use warpline_core::fields::Value;
use warpline_core::panics::caught;

/// The maximum size of a text in bytes. A longer one is cut between characters and ends in `…`.
const MAX_TEXT_BYTES: usize = 1024;

/// The maximum number of fields of a span or event. Further ones are left out.
const MAX_FIELDS: usize = 32;

const CUT: &str = "…";
const PANICKED: &str = "(its Debug panicked)";

pub(super) type Values = Arc<[(&'static str, Value)]>;

/// The name of the field that has a span's stream.
pub(super) const GPU: &str = "gpu";

/// What the fields of a span or an event say.
#[derive(Default)]
pub(super) struct Recorded {
    /// Whether it is a span: events have no zones.
    has_zones: bool,
    pub(super) values: Vec<(&'static str, Value)>,
    /// The stream in the field [`GPU`], which is not among the values then.
    pub(super) stream: Option<SharedStream>,
}

/// Returns what `record` passes to the visitor for a span.
pub(super) fn of_span(record: impl FnOnce(&mut dyn Visit)) -> Recorded {
    let mut recorded = Recorded { has_zones: true, ..Recorded::default() };
    record(&mut recorded);
    recorded
}

/// Returns the same for an event.
pub(super) fn of_event(record: impl FnOnce(&mut dyn Visit)) -> Vec<(&'static str, Value)> {
    let mut recorded = Recorded::default();
    record(&mut recorded);
    recorded.values
}

/// Returns the fields, in which later values replace earlier ones.
pub(super) fn merge(known: &Values, later: &[(&'static str, Value)]) -> Values {
    let is_new = |name: &str| later.iter().all(|(other, _)| *other != name);
    let mut merged: Vec<_> = known.iter().filter(|(name, _)| is_new(name)).cloned().collect();
    merged.extend_from_slice(later);
    merged.truncate(MAX_FIELDS);
    merged.into()
}

impl Recorded {
    fn push(&mut self, field: &Field, value: Value) {
        if self.values.len() < MAX_FIELDS {
            let name = field.name();
            self.values.push((name.strip_prefix("r#").unwrap_or(name), value));
        }
    }

    fn push_text(&mut self, field: &Field, text: impl FnOnce(&mut Text) -> fmt::Result) {
        self.push(field, as_text(text));
    }
}

fn as_text(text: impl FnOnce(&mut Text) -> fmt::Result) -> Value {
    let mut written = Text::default();
    // A text that was cut ends with an error, and one whose `Debug` fails keeps what it has written. A panic is caught, because without
    // this layer the `Debug` would not have run.
    if caught(|| text(&mut written)).is_none() {
        written.text.push_str(PANICKED);
    }
    Value::Text(written.text.into())
}

impl Visit for Recorded {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push(field, Value::F64(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, Value::I64(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, Value::U64(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, Value::Bool(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push_text(field, |text| text.write_str(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.push_text(field, |text| write!(text, "{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let asks = self.has_zones && field.name() == GPU;
        let (text, stream) = asking(asks, || as_text(|text| write!(text, "{value:?}")));
        match stream {
            Some(stream) => self.stream = Some(stream),
            None => self.push(field, text),
        }
    }
}

/// Formats a value with `format` and, if `asks` is set, returns its stream. A value that is not an [`OnStream`](super::super::OnStream) has none. A value that is formatted
/// inside another one does not provide the other's stream.
fn asking<T>(asks: bool, format: impl FnOnce() -> T) -> (T, Option<SharedStream>) {
    let before = THREAD.try_with(|thread| thread.is_asked.replace(asks)).unwrap_or(false);
    let formatted = format();
    let take = |thread: &OnThread| {
        thread.is_asked.set(before);
        asks.then(|| thread.answer.take()).flatten()
    };
    (formatted, THREAD.try_with(take).ok().flatten())
}

/// A text of at most [`MAX_TEXT_BYTES`] bytes.
#[derive(Default)]
struct Text {
    text: String,
    is_cut: bool,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.is_cut {
            return Err(fmt::Error);
        }
        // The room for the cut mark is always reserved.
        let room = MAX_TEXT_BYTES - CUT.len() - self.text.len();
        if text.len() <= room {
            self.text.push_str(text);
            return Ok(());
        }
        self.text.push_str(fields::cut(text, room));
        self.text.push_str(CUT);
        self.is_cut = true;
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters_and_stays_so() {
        let mut text = Text::default();
        for _ in 0..300 {
            // A caller that ignores the error continues to write.
            let _ = text.write_str("größe");
        }
        assert!(text.text.ends_with(CUT) && text.text.len() <= MAX_TEXT_BYTES, "{}", text.text);
        assert!(text.text.len() > MAX_TEXT_BYTES - 10 && text.text.matches(CUT).count() == 1, "{}", text.text);
        let mut exact = Text::default();
        exact.write_str(&"x".repeat(MAX_TEXT_BYTES - CUT.len())).expect("room");
        assert!(!exact.is_cut && exact.write_str("y").is_err());
    }
}
