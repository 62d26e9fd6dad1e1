//! The atomics and locks that the model checker watches: those of std here, those of loom in `sync_loom`.
//!
//! What the models run (the ring, the switch, semaphores) takes them from here; everything else takes them from std.

pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub use std::sync::{Mutex, MutexGuard};

/// A static of such atomics. Those of loom can only be made at run time.
macro_rules! static_of_atomics {
    (static $name:ident: $type:ty = $value:expr;) => {
        static $name: $type = $value;
    };
}
pub(crate) use static_of_atomics;
