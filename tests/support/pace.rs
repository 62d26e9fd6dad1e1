//! A clock for bounds on how long a call waits. It does not count the time in which the program waits for a processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The length of a tick.
const TICK: Duration = Duration::from_millis(2);

/// A clock that runs from its start until it is dropped. A thread sleeps for one tick after another, and the clock counts each
/// as two ticks at most, however late the machine wakes the thread. On a quiet machine it shows the time, to a tick; on a busy
/// one it is slow, as the program is.
///
/// A call that sleeps for too long exceeds a bound on every machine. A call that is slow because other programs use the
/// processors does not.
pub struct Pace {
    ns: Arc<AtomicU64>,
    /// It ends when the clock, which owns the count, is dropped.
    _thread: JoinHandle<()>,
}

impl Pace {
    /// Starts the clock.
    pub fn start() -> Pace {
        let ns = Arc::new(AtomicU64::new(0));
        let count = Arc::downgrade(&ns);
        let _thread = thread::spawn(move || {
            loop {
                let begin = Instant::now();
                thread::sleep(TICK);
                let Some(ns) = count.upgrade() else { break };
                ns.fetch_add(begin.elapsed().min(2 * TICK).as_nanos() as u64, Ordering::Relaxed);
            }
        });
        Pace { ns, _thread }
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.ns.load(Ordering::Relaxed))
    }
}
