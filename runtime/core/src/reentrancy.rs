//! The flag that this thread is inside warpline, where no zone begins.
//!
//! A global allocator may be marked, and warpline calls it when it allocates: under a lock, in the middle of a zone's
//! begin, on its own threads. A zone that began there could deadlock or recurse without end, so it is refused and
//! counted.
//!
//! Only code that may allocate sets the flag. A zone whose thread, stream and slot are already known does not.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    // Without a destructor, it exists before and after everything else of a thread, and its creation needs no memory.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The number of zones that were refused since the session began.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Marks this thread as inside warpline until it is dropped.
pub struct Inside {
    was_inside: bool,
}

impl Inside {
    #[inline]
    pub fn enter() -> Inside {
        Inside { was_inside: INSIDE.replace(true) }
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        INSIDE.set(self.was_inside);
    }
}

/// Calls a tool of the program. Zones that the tool's code begins are the program's own.
#[inline]
pub fn outside<T>(call: impl FnOnce() -> T) -> T {
    let was_inside = INSIDE.replace(false);
    let result = call();
    INSIDE.set(was_inside);
    result
}

/// Returns whether a zone must not begin on this thread. A refused zone is counted.
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

/// Marks this thread permanently as inside warpline: it is one of warpline's own.
pub fn stay() {
    INSIDE.set(true);
}

/// Resets the count for a new session.
pub fn reset() {
    REFUSED.store(0, Ordering::Relaxed);
}

/// Returns the report's note about zones that were refused since the session began.
pub fn note() -> Option<String> {
    let refused = REFUSED.load(Ordering::Relaxed);
    (refused > 0).then(|| {
        format!(
            "zones that began inside warpline are not recorded, and count neither as begun nor as dropped: {refused}; remove the marks \
             from what warpline calls, such as a global allocator"
        )
    })
}
