//! The atomics and locks of the model checker. See `sync`.

pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
pub use loom::sync::{Mutex, MutexGuard};

macro_rules! static_of_atomics {
    (static $name:ident: $type:ty = $value:expr;) => {
        static $name: std::sync::LazyLock<$type> = std::sync::LazyLock::new(|| $value);
    };
}
pub(crate) use static_of_atomics;
