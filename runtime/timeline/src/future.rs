//! A semaphore's value as a future.

use std::future::Future;
use std::iter;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::error::Error;
use super::semaphore::Semaphore;
use super::state::{Waiter, WaiterKey};
use super::trace::HostWait;

/// Ready when a semaphore has reached a value, or has failed: made by [`Semaphore::wait_async`].
///
/// Dropping it before then costs nothing and leaves nothing behind.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Reached {
    semaphore: Semaphore,
    value: u64,
    place: Option<WaiterKey>,
    /// What a session sees of it, from the first poll on.
    traced: Option<HostWait>,
}

impl Semaphore {
    /// A future that is ready when `value` is reached, or the semaphore has failed. It may be polled anywhere.
    ///
    /// Where a CUDA stream signals, a thread of warpline's asks the driver from time to time; so it can be late by up to about
    /// 1 ms.
    pub fn wait_async(&self, value: u64) -> Reached {
        Reached { semaphore: self.clone(), value, place: None, traced: None }
    }
}

impl Future for Reached {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let traced = this.traced.take().unwrap_or_else(|| HostWait::of_future(1, Duration::MAX));
        match this.semaphore.poll(this.value, &mut this.place, &Waiter::Waker(context.waker().clone()), |_| false) {
            Poll::Pending => {
                this.traced = Some(traced);
                Poll::Pending
            }
            Poll::Ready(waited) => {
                traced.end(iter::once((&*this.semaphore.core, this.value)), waited.as_ref().err());
                Poll::Ready(waited)
            }
        }
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        self.semaphore.leave(&mut self.place);
    }
}
