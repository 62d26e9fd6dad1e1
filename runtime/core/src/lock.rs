//! Locks that stay usable after a panic, and under which no zone begins.
//!
//! The collector, a session's handle and external requesters share small states under locks. The only user code that runs under
//! such a lock is the global allocator, whose zones are refused there, so a poisoned lock holds a sound state. A zone whose
//! thread and stream are already known takes none of these locks.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::reentrancy::Inside;

/// A lock that this thread holds.
pub struct Locked<'a, T> {
    // Declared first, so that the lock is released before zones begin again.
    state: MutexGuard<'a, T>,
    _inside: Inside,
}

/// Takes the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> Locked<'_, T> {
    let inside = Inside::enter();
    Locked { state: mutex.lock().unwrap_or_else(PoisonError::into_inner), _inside: inside }
}

/// Takes the lock, if it becomes free within the time.
pub fn lock_within<T>(mutex: &Mutex<T>, within: Duration) -> Option<Locked<'_, T>> {
    const PAUSE: Duration = Duration::from_millis(1);
    let inside = Inside::enter();
    let until = Instant::now() + within;
    loop {
        match mutex.try_lock() {
            Ok(state) => return Some(Locked { state, _inside: inside }),
            Err(TryLockError::Poisoned(state)) => return Some(Locked { state: state.into_inner(), _inside: inside }),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
        }
    }
}

impl<T> Locked<'_, T> {
    /// Waits until `changed` is notified.
    pub fn wait(self, changed: &Condvar) -> Self {
        let Locked { state, _inside } = self;
        Locked { state: changed.wait(state).unwrap_or_else(PoisonError::into_inner), _inside }
    }

    /// Waits until `is_so` no longer holds for the state, or until the time is over.
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
