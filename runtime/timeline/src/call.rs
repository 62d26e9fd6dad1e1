//! The argument of a queue's host call, and the signals that the call must give.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use super::error::{Error, Failure};
use super::semaphore::Semaphore;

/// The argument of a host call on a [`Queue`](super::Queue), through which the call gets its signals.
#[derive(Debug)]
pub struct HostCall {
    pub(super) signals: Option<Signals>,
}

impl HostCall {
    /// Takes the call's signals, so that they can be given later and on any thread. The queue then does not signal when the call returns,
    /// and an error that the call returns does not fail them.
    ///
    /// Returns none if the signals were taken before.
    pub fn defer(&mut self) -> Option<Signals> {
        self.signals.take()
    }
}

/// The signals that a submission still has to give. If they are dropped, their semaphores fail, so that no waiter waits forever.
pub struct Signals {
    origin: Arc<str>,
    list: Vec<(Semaphore, u64)>,
}

impl Signals {
    pub(super) fn new(origin: Arc<str>, list: Vec<(Semaphore, u64)>) -> Signals {
        Signals { origin, list }
    }

    pub(super) fn list(&self) -> &[(Semaphore, u64)] {
        &self.list
    }

    /// Discards the signals, because they were given elsewhere.
    pub(super) fn forget(mut self) {
        self.list.clear();
    }

    /// Reaches all of the values now. A semaphore that rejects its value fails with that error.
    pub fn signal(mut self) {
        for (semaphore, value) in std::mem::take(&mut self.list) {
            if let Err(error) = semaphore.signal_as(value, Some(&self.origin)) {
                semaphore.core.fail(Failure::new(Arc::clone(&self.origin), error));
            }
        }
    }

    /// Fails all of the semaphores.
    pub fn fail(mut self, error: impl Into<Box<dyn StdError + Send + Sync>>) {
        let failure = Failure::new(Arc::clone(&self.origin), error);
        self.fail_all(&failure);
    }

    fn fail_all(&mut self, failure: &Failure) {
        for (semaphore, _) in std::mem::take(&mut self.list) {
            semaphore.core.fail(failure.clone());
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        if !self.list.is_empty() {
            let failure = Failure::new(Arc::clone(&self.origin), Error::SignalsDropped);
            self.fail_all(&failure);
        }
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list.iter().map(|(semaphore, value)| (semaphore.name(), value))).finish()
    }
}
