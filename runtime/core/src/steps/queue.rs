//! The bounded queue of ended steps, from the threads that end them to the collector. Neither side waits.
//!
//! Only one thread at a time pushes, because the sequence of steps has a lock, and only the collector takes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::record::Span;

/// The most steps that wait for the collector, which takes them many times a second.
const MOST: usize = 1024;

/// A step that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub number: u64,
    /// The thread that began it.
    pub thread: u64,
    pub host: Span,
}

#[derive(Default)]
struct Cell {
    number: AtomicU64,
    thread: AtomicU64,
    begin_ns: AtomicI64,
    end_ns: AtomicI64,
}

#[derive(Default)]
pub(super) struct Queue {
    /// None until a session takes steps.
    cells: OnceLock<Box<[Cell]>>,
    /// The numbers of steps that were put in and taken out.
    put: AtomicU64,
    taken: AtomicU64,
    dropped: AtomicU64,
}

impl Queue {
    /// Makes room for steps.
    pub(super) fn open(&self) {
        self.cells.get_or_init(|| (0..MOST).map(|_| Cell::default()).collect());
    }

    /// Adds a step, or counts it if there is no room.
    pub(super) fn push(&self, ended: Ended) {
        let Some(cells) = self.cells.get() else { return };
        let put = self.put.load(Ordering::Relaxed);
        // The collector has read the cell before it stored its count.
        if put - self.taken.load(Ordering::Acquire) >= MOST as u64 {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let cell = &cells[put as usize % MOST];
        cell.number.store(ended.number, Ordering::Relaxed);
        cell.thread.store(ended.thread, Ordering::Relaxed);
        cell.begin_ns.store(ended.host.begin_ns, Ordering::Relaxed);
        cell.end_ns.store(ended.host.end_ns, Ordering::Relaxed);
        self.put.store(put + 1, Ordering::Release);
    }

    pub(super) fn collect(&self, mut each: impl FnMut(Ended)) {
        let Some(cells) = self.cells.get() else { return };
        let put = self.put.load(Ordering::Acquire);
        let taken = self.taken.load(Ordering::Relaxed);
        for at in taken..put {
            let cell = &cells[at as usize % MOST];
            let host =
                Span { begin_ns: cell.begin_ns.load(Ordering::Relaxed), end_ns: cell.end_ns.load(Ordering::Relaxed) };
            each(Ended {
                number: cell.number.load(Ordering::Relaxed),
                thread: cell.thread.load(Ordering::Relaxed),
                host,
            });
        }
        self.taken.store(put, Ordering::Release);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.put.load(Ordering::Relaxed) == self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_counted_and_the_rest_is_in_order() {
        let queue = Queue::default();
        queue.open();
        let step =
            |number| Ended { number, thread: 7, host: Span { begin_ns: number as i64, end_ns: number as i64 + 1 } };
        let mut taken = Vec::new();
        for round in 0..3_u64 {
            for number in 0..MOST as u64 + 5 {
                queue.push(step(round * 10_000 + number));
            }
            assert!(!queue.is_empty() && queue.dropped() == (round + 1) * 5);
            queue.collect(|ended| taken.push(ended));
            assert!(queue.is_empty());
        }
        let expected: Vec<_> =
            (0..3).flat_map(|round| (0..MOST as u64).map(move |number| step(round * 10_000 + number))).collect();
        assert_eq!(taken, expected);
    }
}
