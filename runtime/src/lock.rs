//! Locks that outlive a panic.
//!
//! The collector, a session's handle and those who ask from outside share small states under locks. No code of a user's runs under
//! one of them, so a poisoned one holds a sound state. Zones that begin or end never come here.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
