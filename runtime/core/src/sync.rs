//! The atomics and locks that the model checker observes: those of std here, those of loom in `sync_loom`.
//!
//! Code that the models run (the ring, the switch, semaphores) takes them from here; all other code takes them from std.

pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
pub use std::sync::{Mutex, MutexGuard};

/// Declares a static of such atomics. Loom's atomics can only be created at run time.
macro_rules! static_of_atomics {
    (static $name:ident: $type:ty = $value:expr;) => {
        static $name: $type = $value;
    };
}
pub(crate) use static_of_atomics;
