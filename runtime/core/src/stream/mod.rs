//! One context a stream while a session runs: its ring of zones, its counts, and what a thread remembers of it.
//!
//! `recorder` has the contexts of a session and `current` the recorder, `thread` finds them for a launching thread, `ring` and `slot`
//! hold the zones between threads and the collector.

pub mod context;
pub mod current;
pub(crate) mod depths;
pub mod drain_barrier;
pub mod pauses;
pub mod recorder;
pub mod ring;
#[cfg(all(test, loom))]
mod ring_model;
pub mod slot;
pub mod snapshot;
#[cfg(feature = "tracing")]
pub mod spans;
#[cfg(not(feature = "tracing"))]
#[path = "no_spans.rs"]
pub mod spans;
pub mod thread;
pub mod wait_stats;
pub mod waited;
pub(crate) mod waits;
pub(crate) mod waker;
