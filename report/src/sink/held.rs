//! The sinks of a session, and the only code that calls them.
//!
//! A sink is the program's code, as are its errors and its panic payloads: any of them may panic, even in `Drop`. Such a panic
//! fails the sink's call, but does not affect the collector or the other sinks.

use super::Sink;
use warpline_core::panics::caught;

/// Sinks whose panics are contained.
#[derive(Default)]
pub struct HeldSinks(Vec<HeldSink>);

/// One sink; none after its [`end`](HeldSink::end).
pub struct HeldSink(Option<Box<dyn Sink>>);

impl HeldSinks {
    pub fn push(&mut self, sink: Box<dyn Sink>) {
        self.0.push(HeldSink::new(sink));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl IntoIterator for HeldSinks {
    type Item = HeldSink;
    type IntoIter = std::vec::IntoIter<HeldSink>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl HeldSink {
    pub fn new(sink: Box<dyn Sink>) -> HeldSink {
        HeldSink(Some(sink))
    }

    /// Returns the sink's own name.
    pub fn name(&self) -> String {
        self.0.as_ref().and_then(|sink| caught(|| sink.name())).unwrap_or_else(|| "a sink".to_owned())
    }

    /// Returns whether it has not been dropped yet.
    pub fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Calls the sink and converts an error or a panic to text. A sink that has ended does nothing.
    pub fn call(&mut self, call: impl FnOnce(&mut dyn Sink) -> std::io::Result<()>) -> Result<(), String> {
        let Some(sink) = &mut self.0 else { return Ok(()) };
        match caught(|| call(sink.as_mut())) {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                // The error is kept outside: unwinding from its own `Display` would drop it and could abort the program.
                let text = caught(|| error.to_string());
                caught(|| drop(error));
                Err(text.unwrap_or_else(|| "it failed, and its error's `Display` panicked".to_owned()))
            }
            None => Err("it panicked".to_owned()),
        }
    }

    /// Drops the sink. An error means that it panicked.
    pub fn end(&mut self) -> Result<(), String> {
        let sink = self.0.take();
        caught(|| drop(sink)).ok_or_else(|| "its `Drop` panicked".to_owned())
    }
}

impl Drop for HeldSink {
    fn drop(&mut self) {
        // Callers that need the result call `end`.
        let _ = self.end();
    }
}
