//! What a host call of a queue gets: the signals that it owes.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use super::error::{Error, Failure};
use super::semaphore::Semaphore;

/// What a host call on a [`Queue`](super::Queue) is given.
#[derive(Debug)]
pub struct HostCall {
    pub(super) signals: Option<Signals>,
}

impl HostCall {
    /// Takes the call's signals, to give them later and from anywhere: the queue does not when the call returns. A call
    /// that took them and returns an error fails nothing by that.
    ///
    /// None the second time.
    pub fn defer(&mut self) -> Option<Signals> {
        self.signals.take()
    }
}

/// Signals that somebody owes. Letting go of them without giving them fails their semaphores, so that nobody waits for ever.
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

    /// They were given elsewhere.
    pub(super) fn forget(mut self) {
        self.list.clear();
    }

    /// Reaches all of the values now. A semaphore that does not take its value fails with the reason.
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
