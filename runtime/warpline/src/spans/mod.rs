//! Spans and events of the crate `tracing`, beside the zones of a session.
//!
//! `layer` is what a program adds to its subscriber. The bounded queue to the collector is `warpline_core::stream::spans`. Without the
//! feature `enable` the layer exists and does nothing.

#[cfg_attr(not(feature = "enable"), path = "no_layer.rs")]
mod layer;

#[cfg(feature = "enable")]
pub(crate) use layer::{log, mute};

/// A layer that hands the spans and events of `tracing` to the session that is on, for any subscriber that keeps its spans
/// as `tracing_subscriber::Registry` does.
///
/// Each time that a thread enters a span and leaves it is a [`SpanRecord`](warpline_core::record::SpanRecord), and a slice on the thread's
/// track; each event is an instant there. A zone that is begun within a span says so in
/// [`ZoneRecord::parent`](warpline_core::record::ZoneRecord::parent).
///
/// ```no_run
/// use tracing_subscriber::filter::LevelFilter;
/// use tracing_subscriber::prelude::*;
///
/// tracing_subscriber::registry().with(warpline::tracing_layer().with_filter(LevelFilter::INFO)).init();
/// let session = warpline::Session::from_env_or("perfetto=trace.pftrace")?;
/// // … the program, its spans and its zones …
/// session.finish();
/// # Ok::<(), warpline::Error>(())
/// ```
///
/// With no session, entering a span costs one relaxed load here, and leaving it a look at a thread local. What a filter on
/// the layer leaves out costs nothing. While a session is on, threads in different spans share no lock; a span that finds the
/// buffer full is counted in [`Report::spans`](warpline_core::report::Report::spans) and not recorded.
pub fn tracing_layer() -> TracingLayer {
    layer::observe();
    TracingLayer(())
}

/// See [`tracing_layer`]. `Send` and `Sync`; it has no state of its own, so one can be in each of several subscribers. Two in
/// one subscriber record everything twice.
#[derive(Debug)]
pub struct TracingLayer(());
