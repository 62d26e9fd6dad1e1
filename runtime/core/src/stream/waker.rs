//! How zones wake the collector, which rests the longer the less there is to do.
//!
//! A collector that looked at empty rings two hundred times a second would cost an idle program more than its zones do; one
//! that rests for long must hear of the first zone after the rest.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::Thread;

/// So many zones of one stream wake the collector, however long it means to rest.
const EVERY: u64 = 1024;

#[derive(Default)]
pub struct Waker {
    /// The collector, once it runs.
    collector: OnceLock<Thread>,
    /// It rests until somebody wakes it.
    rests: AtomicBool,
}

impl Waker {
    /// Tells who reads the rings.
    pub fn set(&self, collector: Thread) {
        let _ = self.collector.set(collector);
    }

    /// A zone has begun, as the `sequence`th of its ring.
    #[inline]
    pub(crate) fn on_publish(&self, sequence: u64) {
        if sequence.is_multiple_of(EVERY) || self.rests.load(Ordering::Relaxed) {
            self.wake(sequence);
        }
    }

    /// Something has to be read at once.
    pub(crate) fn wake_now(&self) {
        self.rests.store(false, Ordering::Relaxed);
        if let Some(collector) = self.collector.get() {
            collector.unpark();
        }
    }

    #[cold]
    fn wake(&self, sequence: u64) {
        // Of many zones at once, one wakes it.
        if (self.rests.swap(false, Ordering::Relaxed) || sequence.is_multiple_of(EVERY))
            && let Some(collector) = self.collector.get()
        {
            collector.unpark();
        }
    }

    /// The collector means to rest, unless zones have begun meanwhile: it has to look once more after this. A zone that
    /// begins in between and is seen by neither side waits until the rest is over.
    pub fn rest(&self) {
        self.rests.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The rest is over.
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
