//! Spans and events of the crate `tracing`, beside the zones of a session.
//!
//! `layer` is what a program adds to its subscriber, `open` knows on each thread which spans it is in, `values` turns
//! fields into values. The bounded way to the collector is `stream::spans`. Without feature `enable` the layer is there and does nothing.

#[cfg(feature = "enable")]
mod layer;
#[cfg(feature = "enable")]
mod open;
#[cfg(feature = "enable")]
mod values;

#[cfg(feature = "enable")]
pub(crate) use open::mute;

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
    #[cfg(feature = "enable")]
    open::observe();
    TracingLayer(())
}

/// See [`tracing_layer`]. `Send` and `Sync`; it has no state of its own, so one can be in each of several subscribers. Two in
/// one subscriber record everything twice.
#[derive(Debug)]
pub struct TracingLayer(());

/// Nothing, for the subscribers for which it is something with feature `enable`.
#[cfg(not(feature = "enable"))]
impl<S> tracing_subscriber::Layer<S> for TracingLayer where
    S: tracing_core::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>
{
}
