//! The handle on zones that somebody asked for, and how the answers come to it.
//!
//! Answers are put in by the collector, or by the thread that drops the zone; they are taken out by whoever holds the handle.
//! A future's waker is called outside of all locks.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::ProfileError;
use super::requests;
use crate::caught::caught;
use crate::fork::Home;
use crate::lock::{Locked, lock};
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

impl PendingZone {
    pub(super) fn new(shared: Arc<Shared>) -> PendingZone {
        PendingZone(Handle(shared))
    }

    /// The zone, or why there will be none; none as long as it may still come.
    pub fn try_get(&self) -> Option<Result<ZoneRecord, ProfileError>> {
        match self.0.lock() {
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
    pub(super) fn new(shared: Arc<Shared>) -> PendingZones {
        PendingZones(Handle(shared))
    }

    /// How many zones are still to come, begun or not.
    pub fn to_come(&self) -> u32 {
        self.0.lock().map_or(0, |state| state.to_come)
    }

    /// The next zone that is complete; none where there is none now.
    pub fn try_next(&self) -> Option<Result<ZoneRecord, ProfileError>> {
        self.0.lock()?.answers.pop_front()
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
        let Some(state) = self.0.lock() else { return Poll::Ready(Err(ProfileError::Inherited)) };
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
        let Some(mut state) = self.0.lock() else { return Poll::Ready(vec![Err(ProfileError::Inherited)]) };
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

/// Whoever holds it waits for answers.
struct Handle(Arc<Shared>);

impl Handle {
    /// None in a process that was forked from the one that asked: there the lock may be held for ever.
    fn lock(&self) -> Option<Locked<'_, State>> {
        self.0.home.is_here().then(|| self.0.lock())
    }

    /// None as for [`lock`](Self::lock).
    fn wait_until(&self, timeout: Duration, is_enough: impl Fn(&State) -> bool) -> Option<Locked<'_, State>> {
        Some(self.lock()?.wait_while(&self.0.came, timeout, |state| !is_enough(state)))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.0.home.is_here() {
            self.0.let_go();
        }
    }
}

/// What a handle and those who answer it share.
pub(crate) struct Shared {
    /// The process in which somebody asked.
    home: Home,
    state: Mutex<State>,
    came: Condvar,
    /// Somebody holds the handle, and answers are to come.
    is_open: AtomicBool,
}

struct State {
    answers: VecDeque<Result<ZoneRecord, ProfileError>>,
    to_come: u32,
    /// Zones that are on their way.
    under_way: u32,
    captured: u64,
    waker: Option<Waker>,
}

impl State {
    fn timed_out(&self) -> ProfileError {
        ProfileError::TimedOut { has_begun: self.under_way > 0, captured: self.captured }
    }
}

/// The task is woken with the next answer. The waker that it had before goes when the lock is free: it may be an executor's
/// last hold on a task, whose end may ask for zones.
fn wake_later<T>(mut state: Locked<'_, State>, waker: Waker) -> Poll<T> {
    let old = state.waker.replace(waker);
    drop(state);
    drop(old);
    Poll::Pending
}

impl Shared {
    fn new(to_come: u32, answers: VecDeque<Result<ZoneRecord, ProfileError>>) -> Arc<Shared> {
        let state = State { answers, to_come, under_way: 0, captured: 0, waker: None };
        let home = Home::here();
        Arc::new(Shared { home, state: Mutex::new(state), came: Condvar::new(), is_open: AtomicBool::new(to_come > 0) })
    }

    /// For a request that can have no zone.
    pub(crate) fn failed(error: ProfileError) -> Arc<Shared> {
        Shared::new(0, VecDeque::from([Err(error)]))
    }

    fn lock(&self) -> Locked<'_, State> {
        lock(&self.state)
    }

    /// The handle is gone.
    fn let_go(&self) {
        if self.is_wanted() {
            self.close();
            requests::take_back(self);
        }
    }

    /// For a request of so many zones.
    pub(super) fn waiting(zones: u32) -> Arc<Shared> {
        Shared::new(zones, VecDeque::new())
    }

    /// Whether somebody waits.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    fn close(&self) {
        if self.is_open.swap(false, Ordering::Relaxed) {
            requests::closed();
        }
    }

    /// A zone has begun.
    pub(super) fn begin(&self) {
        self.lock().under_way += 1;
    }

    /// A zone came by that cannot be timed, and that is not taken for one that was asked for.
    pub(super) fn pass_captured(&self) {
        self.lock().captured += 1;
    }

    /// What came of a zone that has begun.
    pub(super) fn answer(&self, answer: Result<ZoneRecord, ProfileError>) {
        let mut state = self.lock();
        state.under_way = state.under_way.saturating_sub(1);
        self.put(state, answer);
    }

    /// None of the zones that have not begun ever will: `left` of them.
    pub(super) fn fail(&self, left: u32, error: &ProfileError) {
        let mut state = self.lock();
        // One says it for all that are left.
        state.to_come = state.to_come.saturating_sub(left.saturating_sub(1));
        self.put(state, Err(error.clone()));
    }

    fn put(&self, mut state: Locked<'_, State>, answer: Result<ZoneRecord, ProfileError>) {
        state.to_come = state.to_come.saturating_sub(1);
        state.answers.push_back(answer);
        let is_over = state.to_come == 0;
        let waker = state.waker.take();
        drop(state);
        self.came.notify_all();
        if is_over {
            self.close();
        }
        if let Some(waker) = waker {
            // An executor that panics is no fault of the thread that answers.
            caught(|| waker.wake());
        }
    }
}
