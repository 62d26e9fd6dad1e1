//! The streams of a session: for each, its ring of zones, its counts, and what a thread caches of it.
//!
//! `recorder` owns the contexts of a session, `current` holds the recorder, and `thread` finds the contexts for a launching thread. `ring`
//! and `slot` hold the zones between the threads and the collector.

pub mod context;
pub mod current;
pub mod drain_barrier;
pub mod memory;
pub mod pauses;
pub mod recorder;
mod registry;
pub mod ring;
#[cfg(all(test, loom))]
mod ring_model;
pub(crate) mod roots;
pub mod slot;
pub mod snapshot;
#[cfg_attr(not(feature = "tracing"), path = "no_spans.rs")]
pub mod spans;
pub mod thread;
pub mod waits;
pub(crate) mod waker;
