//! Limits the number of submissions that a queue holds back.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::trace;

/// The outcome of a submission to a full queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// The submission fails with [`Error::QueueFull`].
    #[default]
    Refuse,
    /// The submitting thread waits until a place is free. A place becomes free when work is issued, so a thread that waits must not be the
    /// one that signals what the work waits for. A submission from the queue's own work fails instead.
    Wait,
}

/// The places of one queue.
pub(super) struct Room {
    queue: Arc<str>,
    capacity: usize,
    taken: Mutex<usize>,
    freed: Condvar,
}

/// A place. Dropping it frees the place.
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
