//! Whether this thread is inside warpline: then no zone begins on it.
//!
//! A global allocator may be marked, and is called where warpline allocates: under a lock, in the middle of a zone's begin, on
//! warpline's own threads. A zone that began there could deadlock or recurse without end, so it is refused and counted.
//!
//! What may allocate is guarded where it does, out of the way of a zone whose thread, stream and slot are known already.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    // Without a destructor: it is there before all else of a thread, and after, and takes no memory to make.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Zones that were refused since the session began.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// This thread is inside warpline until this is dropped.
pub(crate) struct Inside {
    was_inside: bool,
}

impl Inside {
    #[inline]
    pub(crate) fn enter() -> Inside {
        Inside { was_inside: INSIDE.replace(true) }
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        INSIDE.set(self.was_inside);
    }
}

/// Calls a tool of the program's. Zones that its code begins are the program's own.
#[inline]
pub(crate) fn outside<T>(call: impl FnOnce() -> T) -> T {
    let was_inside = INSIDE.replace(false);
    let result = call();
    INSIDE.set(was_inside);
    result
}

/// Whether a zone must not begin on this thread; then it is counted.
#[inline]
pub(crate) fn refuses() -> bool {
    let refuses = INSIDE.get();
    if refuses {
        count();
    }
    refuses
}

#[cold]
fn count() {
    REFUSED.fetch_add(1, Ordering::Relaxed);
}

/// This thread is one of warpline's own: it never leaves.
pub(crate) fn stay() {
    INSIDE.set(true);
}

/// A session begins.
pub(crate) fn reset() {
    REFUSED.store(0, Ordering::Relaxed);
}

/// What the report says of zones that were refused since a session began.
pub(crate) fn note() -> Option<String> {
    let refused = REFUSED.load(Ordering::Relaxed);
    (refused > 0).then(|| {
        format!(
            "zones that began inside warpline are not recorded, and count neither as begun nor as dropped: {refused}; take the marks \
             off what warpline calls, such as a global allocator"
        )
    })
}
