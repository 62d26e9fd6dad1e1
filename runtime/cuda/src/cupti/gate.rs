//! The gate through which launching threads call CUPTI. Any call would start CUPTI again after it has been ended.
//!
//! Launching threads make each of their calls inside [`inside`], which never waits. The thread that ends CUPTI closes the gate first, and
//! gives up if a thread stays inside a call.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The number of counters that threads share, so that they seldom write to one at the same time.
const LANES: usize = 16;

/// The number of CUPTI's current start; 0 while CUPTI may not be called.
static OPEN: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicU64 = AtomicU64::new(0);

static INSIDE: [Lane; LANES] = [const { Lane(AtomicUsize::new(0)) }; LANES];

/// The number of threads in a call, on a cache line of its own.
#[repr(align(128))]
struct Lane(AtomicUsize);

impl Lane {
    /// Returns the calling thread's counter.
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

/// Opens the gate, if it is closed, because CUPTI is being started or is still there.
pub(super) fn open() {
    if OPEN.load(Ordering::SeqCst) == 0 {
        OPEN.store(LAST.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    }
}

/// Calls `calls` with the number of CUPTI's current start; none if CUPTI was ended.
#[inline]
pub(super) fn inside<T>(calls: impl FnOnce(u64) -> T) -> Option<T> {
    struct Leave(&'static Lane);
    impl Drop for Leave {
        fn drop(&mut self) {
            self.0.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let lane = Lane::of_thread();
    // The thread is counted before it checks the gate; `close` closes the gate before it checks the counters.
    lane.0.fetch_add(1, Ordering::SeqCst);
    let _leave = Leave(lane);
    match OPEN.load(Ordering::SeqCst) {
        0 => None,
        begun => Some(calls(begun)),
    }
}

/// Closes the gate. If threads are still inside at the end of the limit, opens it again and returns false.
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

/// Opens the gate with the same number, because CUPTI was not ended. The threads' state in it is still valid.
pub(super) fn reopen() {
    OPEN.store(LAST.load(Ordering::SeqCst), Ordering::SeqCst);
}
