//! The value of a span's field `gpu`: the stream of its zones.
//!
//! The values of `tracing` are numbers and texts, and no crate can add others. A subscriber formats all else, and that is where the stream passes: the
//! layer asks on its thread, and formatting an [`OnStream`] answers. Any other subscriber gets a text.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use warpline_core::backend::AsStream;

/// A stream that outlives the call in which a span was created.
pub(super) type SharedStream = Arc<dyn AsStream + Send + Sync>;

thread_local! {
    pub(super) static THREAD: OnThread = const { OnThread { is_asked: Cell::new(false), answer: Cell::new(None) } };
}

/// Whether the layer asks on this thread, and the answer.
pub(super) struct OnThread {
    pub(super) is_asked: Cell<bool>,
    pub(super) answer: Cell<Option<SharedStream>>,
}

/// Returns the value of a field `gpu` that makes a span of `tracing` a zone on this stream. While a session records, the span keeps a clone of
/// the stream until it is closed, so give an `Arc` of a stream that cannot be cloned.
///
/// `#[tracing::instrument(skip(stream), fields(gpu = ?warpline::tracing::on_stream(stream)))]` and `tracing::info_span!("step", gpu =
/// ?warpline::tracing::on_stream(&stream))` are such spans; [the guide](crate::guide::tracing) has a whole program.
///
/// Each time that a thread enters the span, a zone begins on the stream, and it ends when the thread leaves the span. Its range has the span's
/// name, file and line, and its fields are those that the span has at that time. In other subscribers the field is the text `stream`.
pub fn on_stream<S>(stream: &S) -> OnStream<'_, S>
where
    S: AsStream + Clone + Send + Sync + 'static,
{
    OnStream(stream)
}

/// The value that [`on_stream`] returns.
pub struct OnStream<'a, S>(&'a S);

impl<S> fmt::Debug for OnStream<'_, S>
where
    S: AsStream + Clone + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _ = THREAD.try_with(|thread| {
            // Cloning is code of the program, which may use spans.
            if thread.is_asked.take() {
                thread.answer.set(Some(Arc::new(self.0.clone())));
            }
        });
        f.write_str("stream")
    }
}
