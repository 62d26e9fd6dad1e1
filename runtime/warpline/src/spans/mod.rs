//! Spans and events of the crate `tracing`, beside the zones of a session.
//!
//! `layer` is what a program adds to its subscriber, and `stream` the value of a field that makes a span a zone. The bounded queue to the collector is `warpline_core::stream::spans`. Without the
//! feature `enable` the layer exists and does nothing.

#[cfg(feature = "enable")]
pub(crate) mod layer;
mod stream;

pub use stream::{OnStream, on_stream};

/// Returns a layer that passes the spans and events of `tracing` to the running session. It works with every subscriber that stores
/// its spans as `tracing_subscriber::Registry` does.
///
/// Each time a thread enters and leaves a span, a [`SpanRecord`](warpline_core::record::SpanRecord) is made, which is a slice on the
/// thread's track; each event is an instant there. A zone that begins within a span names it in
/// [`ZoneRecord::parent`](warpline_core::record::ZoneRecord::parent). A span with a field `gpu = ?warpline::tracing::on_stream(&stream)` is also a
/// zone on that stream: see [`on_stream`].
///
/// ```no_run
/// use tracing_subscriber::filter::LevelFilter;
/// use tracing_subscriber::prelude::*;
///
/// tracing_subscriber::registry().with(warpline::tracing::layer().with_filter(LevelFilter::INFO)).init();
/// let session = warpline::Session::from_env_or("perfetto=trace.pftrace");
/// // … the program, its spans and its zones …
/// session.finish();
/// # Ok::<(), warpline::Error>(())
/// ```
///
/// Without a session, entering a span costs one relaxed load here, and leaving it one access to a thread local. Spans that a filter on
/// the layer excludes cost nothing. While a session runs, threads in different spans share no lock; a span that finds the
/// buffer full is counted in [`Report::spans`](warpline_report::Report::spans) and not recorded.
pub fn tracing_layer() -> TracingLayer {
    layer::observe();
    TracingLayer(())
}

/// The layer that [`layer`](tracing_layer) returns. It has no state of its own, so several subscribers can each have one. Two layers in
/// one subscriber record everything twice.
#[derive(Debug)]
pub struct TracingLayer(());

#[cfg(not(feature = "enable"))]
mod layer {
    //! A layer that does nothing: no zone has a parent.

    use tracing_core::Subscriber;
    use tracing_subscriber::Layer;
    use tracing_subscriber::registry::LookupSpan;

    use super::TracingLayer;

    pub(super) fn observe() {}

    // With the bounds of the layer that records.
    impl<S> Layer<S> for TracingLayer where S: Subscriber + for<'a> LookupSpan<'a> {}
}
