//! Statics that each process creates for itself.
#![allow(unsafe_code)]

use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::Home;

/// A static that a child creates again for itself. The parent's value stays in memory and is never dropped.
pub struct PerProcess<T: 'static> {
    make: fn() -> T,
    current: AtomicPtr<Made<T>>,
}

struct Made<T> {
    home: Home,
    value: T,
}

impl<T: Sync> PerProcess<T> {
    pub const fn new(make: fn() -> T) -> PerProcess<T> {
        PerProcess { make, current: AtomicPtr::new(ptr::null_mut()) }
    }

    #[cold]
    fn renew(&self, old: *mut Made<T>) -> &'static T {
        let made = Box::into_raw(Box::new(Made { home: Home::here(), value: (self.make)() }));
        match self.current.compare_exchange(old, made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it was just created, and the static's values are never freed.
            Ok(_) => unsafe { &(*made).value },
            Err(other) => {
                // SAFETY: no other thread has seen it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: another thread of this process stored it: it is not null and never freed.
                unsafe { &(*other).value }
            }
        }
    }
}

impl<T: Sync> Deref for PerProcess<T> {
    type Target = T;

    fn deref(&self) -> &T {
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: it is null, or was stored by `renew` and is never freed.
        match unsafe { current.as_ref() } {
            Some(made) if made.home.is_here() => &made.value,
            _ => self.renew(current),
        }
    }
}
