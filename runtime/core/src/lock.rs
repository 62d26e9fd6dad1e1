//! Locks that outlive a panic, and under which no zone begins.
//!
//! The collector, a session's handle and those who ask from outside share small states under locks. The only code of a user's that
//! runs under one of them is the global allocator, whose zones are refused meanwhile; so a poisoned lock holds a sound state. A zone
//! takes none of these locks where its thread and its stream are known already.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::inside::Inside;

/// A lock that this thread has.
pub struct Locked<'a, T> {
    // First, so that it is free before zones begin again.
    state: MutexGuard<'a, T>,
    _inside: Inside,
}

/// Takes the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> Locked<'_, T> {
    let inside = Inside::enter();
    Locked { state: mutex.lock().unwrap_or_else(PoisonError::into_inner), _inside: inside }
}

impl<T> Locked<'_, T> {
    /// Waits until somebody says that the state has changed.
    pub fn wait(self, changed: &Condvar) -> Self {
        let Locked { state, _inside } = self;
        Locked { state: changed.wait(state).unwrap_or_else(PoisonError::into_inner), _inside }
    }

    /// Waits until the state has changed so that `is_so` no longer holds, or the time is up.
    pub fn wait_while(self, changed: &Condvar, within: Duration, is_so: impl FnMut(&mut T) -> bool) -> Self {
        let Locked { state, _inside } = self;
        let waited = changed.wait_timeout_while(state, within, is_so);
        Locked { state: waited.unwrap_or_else(PoisonError::into_inner).0, _inside }
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.state
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.state
    }
}
