//! The handles on zones that somebody asked for. Without feature `enable` they hold nothing, and each call says so.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::profile::answers::{Shared, wake_later};
use crate::profile::error::ProfileError;
use crate::profile::requests;
use crate::record::ZoneRecord;

/// A zone that somebody asked for: its record, as soon as the stream is through with it.
///
/// Nothing here waits for a device but [`wait`](Self::wait), and that only for so long. As a future it needs no particular
/// executor; it is ready when the zone is there, or will never be. Dropping it takes the request back: then no zone is timed
/// for it. `Send` and `Sync`.
#[must_use = "dropping it takes the request back"]
pub struct PendingZone(Handle);

/// Several zones that somebody asked for, each as soon as its stream is through with it: see [`PendingZone`].
///
/// A zone that is lost counts as one of them, as an error; where none can begin any more, one error stands for all that are
/// left. What has come is kept until it is taken.
#[must_use = "dropping it takes the request back"]
pub struct PendingZones(Handle);

/// Whoever holds it waits for answers.
struct Handle(Arc<Shared>);

impl Deref for Handle {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.is_here() && self.is_wanted() {
            self.close();
            requests::take_back(&self.0);
        }
    }
}

impl PendingZone {
    #[doc(hidden)]
    pub fn new(shared: Arc<Shared>) -> PendingZone {
        PendingZone(Handle(shared))
    }

    /// A request that nothing answers, in a build that records nothing.
    #[doc(hidden)]
    pub fn not_enabled() -> PendingZone {
        PendingZone(Handle(Shared::failed(ProfileError::NotEnabled)))
    }

    /// The zone, or why there will be none; none as long as it may still come.
    pub fn try_get(&self) -> Option<Result<ZoneRecord, ProfileError>> {
        match self.0.lock_here() {
            Some(state) => state.answers.front().cloned(),
            None => Some(Err(ProfileError::Inherited)),
        }
    }

    /// Waits for the zone.
    ///
    /// # Errors
    /// [`ProfileError::TimedOut`] when the time is up; the request stands. The others say why there will be no zone.
    pub fn wait(&self, timeout: Duration) -> Result<ZoneRecord, ProfileError> {
        let state = self.0.wait_until(timeout, |state| !state.answers.is_empty());
        let state = state.ok_or(ProfileError::Inherited)?;
        state.answers.front().cloned().unwrap_or_else(|| Err(state.timed_out()))
    }
}

impl PendingZones {
    #[doc(hidden)]
    pub fn new(shared: Arc<Shared>) -> PendingZones {
        PendingZones(Handle(shared))
    }

    /// A request that nothing answers, in a build that records nothing.
    #[doc(hidden)]
    pub fn not_enabled() -> PendingZones {
        PendingZones(Handle(Shared::failed(ProfileError::NotEnabled)))
    }

    /// How many zones are still to come, begun or not.
    pub fn to_come(&self) -> u32 {
        self.0.lock_here().map_or(0, |state| state.to_come)
    }

    /// The next zone that is complete; none where there is none now.
    pub fn try_next(&self) -> Option<Result<ZoneRecord, ProfileError>> {
        self.0.lock_here()?.answers.pop_front()
    }

    /// Waits for the next zone; none when all have come and been taken.
    pub fn next(&self, timeout: Duration) -> Option<Result<ZoneRecord, ProfileError>> {
        let mut state = self.0.wait_until(timeout, |state| !state.answers.is_empty() || state.to_come == 0)?;
        let timed_out = (state.to_come > 0).then(|| Err(state.timed_out()));
        state.answers.pop_front().or(timed_out)
    }

    /// Waits for all of them. When the time is up it gives those that have come, and [`ProfileError::TimedOut`] as the last
    /// one; the request stands.
    pub fn wait(&self, timeout: Duration) -> Vec<Result<ZoneRecord, ProfileError>> {
        let Some(mut state) = self.0.wait_until(timeout, |state| state.to_come == 0) else {
            return vec![Err(ProfileError::Inherited)];
        };
        let timed_out = (state.to_come > 0).then(|| Err(state.timed_out()));
        state.answers.drain(..).chain(timed_out).collect()
    }
}

impl Future for PendingZone {
    type Output = Result<ZoneRecord, ProfileError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // An executor's code is not called under the lock.
        let waker = context.waker().clone();
        let Some(state) = self.0.lock_here() else { return Poll::Ready(Err(ProfileError::Inherited)) };
        match state.answers.front() {
            Some(answer) => Poll::Ready(answer.clone()),
            None => wake_later(state, waker),
        }
    }
}

impl Future for PendingZones {
    type Output = Vec<Result<ZoneRecord, ProfileError>>;

    /// Ready when all have come.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // An executor's code is not called under the lock.
        let waker = context.waker().clone();
        let Some(mut state) = self.0.lock_here() else { return Poll::Ready(vec![Err(ProfileError::Inherited)]) };
        if state.to_come == 0 { Poll::Ready(state.answers.drain(..).collect()) } else { wake_later(state, waker) }
    }
}

impl fmt::Debug for PendingZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingZone").field("is_there", &self.try_get().is_some()).finish()
    }
}

impl fmt::Debug for PendingZones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingZones").field("to_come", &self.to_come()).finish_non_exhaustive()
    }
}
