//! When the steps of the warm-ups ran, whose records are thrown away.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The number of warm-ups that are remembered: a zone is read long before so many more begin.
const REMEMBERED: usize = 16;

/// The times of the last warm-ups. Launching threads write them, and the collector reads them.
pub(super) struct Warmups {
    /// The number of warm-ups that began.
    begun: AtomicU64,
    spans: [(AtomicI64, AtomicI64); REMEMBERED],
}

impl Warmups {
    pub(super) fn new() -> Warmups {
        let spans = [const { (AtomicI64::new(i64::MAX), AtomicI64::new(i64::MAX)) }; REMEMBERED];
        Warmups { begun: AtomicU64::new(0), spans }
    }

    /// Notes that steps from now on belong to a warm-up, or do not. One thread at a time calls it.
    pub(super) fn set(&self, is_warmup: bool, now_ns: i64) {
        let begun = self.begun.load(Ordering::Relaxed);
        let last = begun.checked_sub(1).map(|last| &self.spans[last as usize % REMEMBERED]);
        let is_open = last.is_some_and(|(_, end)| end.load(Ordering::Relaxed) == i64::MAX);
        match (is_warmup, last) {
            (true, _) if !is_open => {
                let (begin, end) = &self.spans[begun as usize % REMEMBERED];
                begin.store(i64::MAX, Ordering::Relaxed);
                end.store(i64::MAX, Ordering::Relaxed);
                begin.store(now_ns, Ordering::Release);
                self.begun.store(begun + 1, Ordering::Release);
            }
            (false, Some((_, end))) if is_open => end.store(now_ns, Ordering::Release),
            _ => {}
        }
    }

    pub(super) fn contain(&self, ns: i64) -> bool {
        self.begun.load(Ordering::Acquire) > 0
            && self
                .spans
                .iter()
                .any(|(begin, end)| begin.load(Ordering::Acquire) <= ns && ns < end.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_belongs_to_the_warm_up_that_it_is_in() {
        let warmups = Warmups::new();
        assert!(!warmups.contain(5));
        warmups.set(true, 10);
        warmups.set(true, 15);
        assert!(!warmups.contain(9) && warmups.contain(10) && warmups.contain(99));
        warmups.set(false, 20);
        assert!(warmups.contain(19) && !warmups.contain(20));
        warmups.set(true, 30);
        warmups.set(false, 40);
        assert!(warmups.contain(19) && warmups.contain(30) && !warmups.contain(25) && !warmups.contain(40));
    }
}
