//! The handles on requested zones. Without feature `enable` they hold nothing, and each call returns an error that says so.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::profile::answers::{AnswerState, Shared, wake_later};
use crate::profile::error::ProfileError;
use crate::profile::submission::SubmissionRecord;
use crate::record::ZoneRecord;

/// A requested zone. Its record is available when the stream has completed the zone.
///
/// Only [`wait`](Self::wait) waits for a device, and only up to its timeout. As a future, it works with any executor; it is ready when the
/// record is available or the request has failed. Dropping the handle cancels the request, and then no zone is timed for it. `Send` and
/// `Sync`.
#[must_use = "dropping it takes the request back"]
pub struct PendingZone(Handle);

/// Several requested zones. Each record is available when its stream has completed the zone: see [`PendingZone`].
///
/// A lost zone counts as one of them, and its result is an error. If no more zones can begin, one error stands for all remaining ones.
/// Results are kept until they are taken.
#[must_use = "dropping it takes the request back"]
pub struct PendingZones(Handle);

/// A requested submission: the next kernel, copy, memory set, graph or barrier of a thread on a stream. Its record is available some tenths of a
/// second after the device has completed it, when CUPTI has delivered it.
///
/// It is used like a [`PendingZone`]. `Send` and `Sync`.
#[must_use = "dropping it takes the request back"]
pub struct PendingSubmission(Handle<SubmissionRecord>);

/// The owner of a request. Dropping it cancels the request.
struct Handle<T = ZoneRecord> {
    shared: Arc<Shared<T>>,
    /// Removes the request from the list.
    take_back: fn(&Shared<T>),
}

impl<T> Deref for Handle<T> {
    type Target = Shared<T>;

    fn deref(&self) -> &Shared<T> {
        &self.shared
    }
}

impl Handle {
    fn new(shared: Arc<Shared>) -> Handle {
        let take_back = crate::if_feature!("runtime", crate::profile::requests::take_back, |_: &Shared| ());
        Handle { shared, take_back }
    }
}

/// The result of a request for one record.
impl<T: Clone> Handle<T> {
    fn try_first(&self) -> Option<Result<T, ProfileError>> {
        match self.lock_here() {
            Some(state) => state.answers.front().cloned(),
            None => Some(Err(ProfileError::Inherited)),
        }
    }

    /// `timed_out` is called where the timeout has expired.
    fn wait_first(
        &self,
        timeout: Duration,
        timed_out: impl FnOnce(&AnswerState<T>) -> ProfileError,
    ) -> Result<T, ProfileError> {
        let state = self.wait_until(timeout, |state| !state.answers.is_empty());
        let state = state.ok_or(ProfileError::Inherited)?;
        state.answers.front().cloned().unwrap_or_else(|| Err(timed_out(&state)))
    }

    fn poll_first(&self, context: &Context<'_>) -> Poll<Result<T, ProfileError>> {
        // The executor's code is called without the lock.
        let waker = context.waker().clone();
        let Some(state) = self.lock_here() else { return Poll::Ready(Err(ProfileError::Inherited)) };
        match state.answers.front() {
            Some(answer) => Poll::Ready(answer.clone()),
            None => wake_later(state, waker),
        }
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        if self.is_here() && self.is_wanted() {
            self.close_for_handle();
            (self.take_back)(&self.shared);
        }
    }
}

impl PendingZone {
    #[doc(hidden)]
    pub fn new(shared: Arc<Shared>) -> PendingZone {
        PendingZone(Handle::new(shared))
    }

    /// Creates a handle without an answer, in a build that records nothing.
    #[doc(hidden)]
    pub fn not_enabled() -> PendingZone {
        PendingZone::new(Shared::failed(ProfileError::NotEnabled))
    }

    /// Returns the record or the error; none while the zone is pending.
    pub fn try_get(&self) -> Option<Result<ZoneRecord, ProfileError>> {
        self.0.try_first()
    }

    /// Waits for the zone.
    ///
    /// # Errors
    /// [`ProfileError::TimedOut`] if the timeout expires; the request stays. Other errors say why there is no record.
    pub fn wait(&self, timeout: Duration) -> Result<ZoneRecord, ProfileError> {
        self.0.wait_first(timeout, AnswerState::timed_out)
    }
}

impl PendingZones {
    #[doc(hidden)]
    pub fn new(shared: Arc<Shared>) -> PendingZones {
        PendingZones(Handle::new(shared))
    }

    /// Creates a handle without answers, in a build that records nothing.
    #[doc(hidden)]
    pub fn not_enabled() -> PendingZones {
        PendingZones::new(Shared::failed(ProfileError::NotEnabled))
    }

    /// Returns how many zones are pending, whether they have begun or not.
    pub fn to_come(&self) -> u32 {
        self.0.lock_here().map_or(0, |state| state.to_come)
    }

    /// Returns the next result; none if none is available now.
    pub fn try_next(&self) -> Option<Result<ZoneRecord, ProfileError>> {
        self.0.lock_here()?.answers.pop_front()
    }

    /// Waits for the next result; none if all results were taken.
    pub fn next(&self, timeout: Duration) -> Option<Result<ZoneRecord, ProfileError>> {
        let mut state = self.0.wait_until(timeout, |state| !state.answers.is_empty() || state.to_come == 0)?;
        let timed_out = (state.to_come > 0).then(|| Err(state.timed_out()));
        state.answers.pop_front().or(timed_out)
    }

    /// Waits for all zones. If the timeout expires, it returns the results so far with [`ProfileError::TimedOut`] as the last one, and the
    /// request stays.
    pub fn wait(&self, timeout: Duration) -> Vec<Result<ZoneRecord, ProfileError>> {
        let Some(mut state) = self.0.wait_until(timeout, |state| state.to_come == 0) else {
            return vec![Err(ProfileError::Inherited)];
        };
        let timed_out = (state.to_come > 0).then(|| Err(state.timed_out()));
        state.answers.drain(..).chain(timed_out).collect()
    }
}

impl PendingSubmission {
    /// Creates the handle of a request, which `take_back` removes from its list.
    #[doc(hidden)]
    pub fn new(shared: Arc<Shared<SubmissionRecord>>, take_back: fn(&Shared<SubmissionRecord>)) -> PendingSubmission {
        PendingSubmission(Handle { shared, take_back })
    }

    /// Creates a handle that has only an error.
    #[doc(hidden)]
    pub fn failed(error: ProfileError) -> PendingSubmission {
        PendingSubmission::new(Shared::failed(error), |_| {})
    }

    /// Returns the record or the error; none while the submission is pending.
    pub fn try_get(&self) -> Option<Result<SubmissionRecord, ProfileError>> {
        self.0.try_first()
    }

    /// Waits for the submission.
    ///
    /// # Errors
    /// [`ProfileError::NotSubmitted`] if the timeout expires; the request stays. Other errors say why there is no record.
    pub fn wait(&self, timeout: Duration) -> Result<SubmissionRecord, ProfileError> {
        self.0.wait_first(timeout, |_| ProfileError::NotSubmitted)
    }
}

impl Future for PendingSubmission {
    type Output = Result<SubmissionRecord, ProfileError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_first(context)
    }
}

impl fmt::Debug for PendingSubmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingSubmission").field("is_there", &self.try_get().is_some()).finish()
    }
}

impl Future for PendingZone {
    type Output = Result<ZoneRecord, ProfileError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_first(context)
    }
}

impl Future for PendingZones {
    type Output = Vec<Result<ZoneRecord, ProfileError>>;

    /// Ready when all results are available.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The executor's code is called without the lock.
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
