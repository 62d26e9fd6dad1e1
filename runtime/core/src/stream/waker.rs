//! How zones wake the collector, which rests longer the less there is to do.
//!
//! If the collector polled empty rings two hundred times a second, it would cost an idle program more than the zones do. While it rests for
//! long, the first zone must wake it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::Thread;

/// Every zone of a stream whose number is a multiple of this wakes the collector, even from a long rest.
const EVERY: u64 = 1024;

#[derive(Default)]
pub struct Waker {
    /// The collector, once it runs.
    collector: OnceLock<Thread>,
    /// The collector rests until it is woken.
    rests: AtomicBool,
}

impl Waker {
    /// Sets the collector's thread.
    pub fn set(&self, collector: Thread) {
        let _ = self.collector.set(collector);
    }

    /// Reports that a zone has begun, with this number in its ring.
    #[inline]
    pub(crate) fn on_publish(&self, sequence: u64) {
        if sequence.is_multiple_of(EVERY) || self.rests.load(Ordering::Relaxed) {
            self.wake(sequence);
        }
    }

    /// Wakes the collector at once.
    pub(crate) fn wake_now(&self) {
        self.rests.store(false, Ordering::Relaxed);
        if let Some(collector) = self.collector.get() {
            collector.unpark();
        }
    }

    #[cold]
    fn wake(&self, sequence: u64) {
        // If many zones begin at once, only one wakes the collector.
        if (self.rests.swap(false, Ordering::Relaxed) || sequence.is_multiple_of(EVERY))
            && let Some(collector) = self.collector.get()
        {
            collector.unpark();
        }
    }

    /// Announces a rest. The collector must check the rings once more after this call, and not rest if zones have begun. A zone that begins
    /// in between and that neither side sees waits until the rest is over.
    pub fn rest(&self) {
        self.rests.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Ends the rest.
    pub fn clear_idle(&self) {
        self.rests.store(false, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_first_zone_after_a_rest_wakes_the_collector_and_later_ones_do_not() {
        let waker = Arc::new(Waker::default());
        let its = Arc::clone(&waker);
        let collector = std::thread::spawn(move || {
            its.set(std::thread::current());
            its.rest();
            let begin = Instant::now();
            while its.rests.load(Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(60) {
                std::thread::park_timeout(Duration::from_secs(60));
            }
            begin.elapsed()
        });
        while !waker.rests.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        waker.on_publish(1);
        assert!(collector.join().is_ok_and(|rested| rested < Duration::from_secs(30)));
        assert!(!waker.rests.load(Ordering::Relaxed), "the next zone finds nobody to wake");
    }
}
