//! How much a queue may hold back.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::trace;

/// What a submission does that finds its queue full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It is refused, with [`Error::QueueFull`].
    #[default]
    Refuse,
    /// It waits on the submitting thread until there is room. There is room when work is issued, so a thread that
    /// waits here must not be the one whose signals the work waits for. In the queue's own work it is refused.
    Wait,
}

/// The places of one queue.
pub(super) struct Room {
    queue: Arc<str>,
    capacity: usize,
    taken: Mutex<usize>,
    freed: Condvar,
}

/// A place, until it is dropped.
pub(super) struct Permit(Arc<Room>);

impl Room {
    pub(super) fn new(queue: Arc<str>, capacity: usize) -> Arc<Room> {
        Arc::new(Room { queue, capacity, taken: Mutex::new(0), freed: Condvar::new() })
    }

    pub(super) fn enter(self: &Arc<Room>, when_full: WhenFull) -> Result<Permit, Error> {
        let mut taken = self.lock();
        while *taken >= self.capacity {
            if when_full == WhenFull::Refuse {
                return Err(Error::QueueFull { queue: Arc::clone(&self.queue), capacity: self.capacity });
            }
            taken = self.freed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken += 1;
        trace::depth(&self.queue, *taken);
        Ok(Permit(Arc::clone(self)))
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut taken = self.0.lock();
        *taken -= 1;
        trace::depth(&self.0.queue, *taken);
        drop(taken);
        self.0.freed.notify_one();
    }
}
