//! Whether CUPTI may be called, for the threads that launch: any call would begin it again where it has been ended.
//!
//! Launching threads make each of their calls inside of [`inside`], which waits for nothing. Who ends CUPTI closes the gate first,
//! and gives up where a thread stays inside of a call.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Threads share so many counters, so that they seldom write to one at the same time.
const LANES: usize = 16;

/// Numbers the times that CUPTI was begun; 0 while it may not be called.
static OPEN: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicU64 = AtomicU64::new(0);

static INSIDE: [Lane; LANES] = [const { Lane(AtomicUsize::new(0)) }; LANES];

/// How many threads are in a call, on a cache line of its own.
#[repr(align(128))]
struct Lane(AtomicUsize);

impl Lane {
    /// The calling thread's.
    fn of_thread() -> &'static Lane {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static LANE: Cell<Option<&'static Lane>> = const { Cell::new(None) };
        }
        let choose = || &INSIDE[NEXT.fetch_add(1, Ordering::Relaxed) % LANES];
        let lane = LANE.try_with(|lane| {
            let chosen = lane.get().unwrap_or_else(choose);
            lane.set(Some(chosen));
            chosen
        });
        lane.unwrap_or(&INSIDE[0])
    }
}

/// CUPTI may be called from now on: it is being begun, or it is still there.
pub(super) fn open() {
    if OPEN.load(Ordering::SeqCst) == 0 {
        OPEN.store(LAST.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    }
}

/// Makes calls of CUPTI, unless it was ended; they get the number of the time that it was begun.
#[inline]
pub(super) fn inside<T>(calls: impl FnOnce(u64) -> T) -> Option<T> {
    struct Leave(&'static Lane);
    impl Drop for Leave {
        fn drop(&mut self) {
            self.0.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let lane = Lane::of_thread();
    // Counted before the gate is looked at: who closes it looks at the counters behind that.
    lane.0.fetch_add(1, Ordering::SeqCst);
    let _leave = Leave(lane);
    match OPEN.load(Ordering::SeqCst) {
        0 => None,
        begun => Some(calls(begun)),
    }
}

/// Lets no thread in from now on. Within the limit all that are inside must have left; otherwise it stays open.
pub(super) fn close(limit: Duration) -> bool {
    let begun = OPEN.swap(0, Ordering::SeqCst);
    let deadline = Instant::now() + limit;
    while INSIDE.iter().any(|lane| lane.0.load(Ordering::SeqCst) > 0) {
        if Instant::now() >= deadline {
            OPEN.store(begun, Ordering::SeqCst);
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// CUPTI was not ended, after all: what threads have of it holds.
pub(super) fn reopen() {
    OPEN.store(LAST.load(Ordering::SeqCst), Ordering::SeqCst);
}
