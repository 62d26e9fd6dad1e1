//! The bounded queue of ended steps, from the threads that end them to the collector. Neither side waits.
//!
//! Only one thread at a time pushes, because the sequence of steps has a lock, and only the collector takes.

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

struct Cell {
    number: AtomicU64,
    thread: AtomicU64,
    begin_ns: AtomicI64,
    end_ns: AtomicI64,
}

impl Cell {
    fn new() -> Cell {
        let (number, thread) = (AtomicU64::new(0), AtomicU64::new(0));
        Cell { number, thread, begin_ns: AtomicI64::new(0), end_ns: AtomicI64::new(0) }
    }
}

pub(super) struct Queue {
    cells: Box<[Cell]>,
    /// The numbers of steps that were put in and taken out.
    put: AtomicU64,
    taken: AtomicU64,
    dropped: AtomicU64,
}

impl Queue {
    pub(super) fn new() -> Queue {
        Queue {
            cells: (0..MOST).map(|_| Cell::new()).collect(),
            put: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Adds a step, or counts it if there is no room.
    pub(super) fn push(&self, ended: Ended) {
        let put = self.put.load(Ordering::Relaxed);
        // The collector has read the cell before it stored its count.
        if put - self.taken.load(Ordering::Acquire) >= MOST as u64 {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let cell = &self.cells[put as usize % MOST];
        cell.number.store(ended.number, Ordering::Relaxed);
        cell.thread.store(ended.thread, Ordering::Relaxed);
        cell.begin_ns.store(ended.host.begin_ns, Ordering::Relaxed);
        cell.end_ns.store(ended.host.end_ns, Ordering::Relaxed);
        self.put.store(put + 1, Ordering::Release);
    }

    pub(super) fn collect(&self, mut each: impl FnMut(Ended)) {
        let put = self.put.load(Ordering::Acquire);
        let taken = self.taken.load(Ordering::Relaxed);
        for at in taken..put {
            let cell = &self.cells[at as usize % MOST];
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
        let queue = Queue::new();
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
