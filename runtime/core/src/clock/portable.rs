//! A clock and thread ids that need only the standard library: for systems other than Linux, and for builds that record nothing.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Now, in ns of a monotonic clock that starts when the process first reads it.
pub(super) fn now_ns() -> i64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as i64 + 1
}

/// The id of this thread.
pub(crate) fn thread_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static ID: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    ID.try_with(|id| *id).unwrap_or(0)
}
