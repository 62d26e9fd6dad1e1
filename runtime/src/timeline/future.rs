//! A semaphore's value as a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::core::{Place, Waiter};
use super::error::Error;
use super::semaphore::Semaphore;

/// Ready when a semaphore has reached a value, or has failed: made by [`Semaphore::wait_async`].
///
/// Dropping it before then costs nothing and leaves nothing behind.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Reached {
    semaphore: Semaphore,
    value: u64,
    place: Option<Place>,
}

impl Reached {
    pub(super) fn new(semaphore: Semaphore, value: u64) -> Reached {
        Reached { semaphore, value, place: None }
    }
}

impl Future for Reached {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.semaphore.poll(this.value, &mut this.place, &Waiter::Waker(context.waker().clone()), |_| false)
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        self.semaphore.leave(&mut self.place);
    }
}
