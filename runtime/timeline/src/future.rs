//! The future that waits for a semaphore's value.

use std::future::Future;
use std::iter;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::error::Error;
use super::semaphore::Semaphore;
use super::state::{Waiter, WaiterKey};
use super::trace::HostWait;

/// The future that [`Semaphore::wait_async`] returns. It completes when the semaphore has reached the value or has failed.
///
/// It may be dropped at any time, which removes its waiter.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Reached {
    semaphore: Semaphore,
    value: u64,
    place: Option<WaiterKey>,
    /// The session's record of the wait, from the first poll on.
    traced: Option<HostWait>,
}

impl Semaphore {
    /// Returns a future that completes when `value` is reached or the semaphore has failed. Any executor can poll it.
    ///
    /// If a CUDA stream signals the value, a thread of warpline polls the driver, so the future can complete up to about 1 ms late.
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
