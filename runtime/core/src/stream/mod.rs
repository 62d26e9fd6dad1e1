//! One context a stream while a session runs: its ring of zones, its counts, and what a thread remembers of it.
//!
//! `recorder` has the contexts of a session and `current` the recorder, `thread` finds them for a launching thread, `ring` and `slot`
//! hold the zones between threads and the collector.

pub(crate) mod context;
pub(crate) mod current;
pub(crate) mod cut;
pub(crate) mod depths;
pub(crate) mod note;
pub(crate) mod pauses;
pub(crate) mod recorder;
pub(crate) mod ring;
#[cfg(all(test, loom))]
mod ring_model;
pub(crate) mod slot;
#[cfg(feature = "tracing")]
pub(crate) mod spans;
pub(crate) mod thread;
pub(crate) mod wait_tally;
pub(crate) mod waited;
pub(crate) mod waits;
pub(crate) mod waker;
