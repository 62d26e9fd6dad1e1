//! The state that a handle on requested zones shares with those that answer it.
//!
//! The collector, or the thread that drops a zone, adds answers. The holder of the handle takes them. A future's waker is called without
//! any lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::fork::Home;
use crate::lock::{Locked, lock};
use crate::panics::caught;
use crate::profile::error::ProfileError;
use crate::profile::waiting;
use crate::record::ZoneRecord;

/// The state that a handle shares with those that answer it.
pub struct Shared<T = ZoneRecord> {
    /// The process that made the request.
    home: Home,
    state: Mutex<AnswerState<T>>,
    came: Condvar,
    /// The handle exists, and more answers are expected.
    is_open: AtomicBool,
    /// Held while the caller's event is put on a stream. The handle that is dropped takes it, because the event may be destroyed next.
    signalling: Mutex<()>,
}

pub(super) struct AnswerState<T = ZoneRecord> {
    pub(super) answers: VecDeque<Result<T, ProfileError>>,
    pub(super) to_come: u32,
    /// The number of zones that have begun and have not answered.
    under_way: u32,
    captured: u64,
    waker: Option<Waker>,
}

impl<T> AnswerState<T> {
    pub(super) fn timed_out(&self) -> ProfileError {
        ProfileError::TimedOut { has_begun: self.under_way > 0, captured: self.captured }
    }
}

/// Stores the waker for the next answer. The old waker is dropped without the lock, because it may own the last reference to a task, and
/// dropping the task may make requests.
pub(super) fn wake_later<A, T>(mut state: Locked<'_, AnswerState<A>>, waker: Waker) -> Poll<T> {
    let old = state.waker.replace(waker);
    drop(state);
    drop(old);
    Poll::Pending
}

impl<T> Shared<T> {
    fn new(to_come: u32, answers: VecDeque<Result<T, ProfileError>>) -> Arc<Shared<T>> {
        let state = AnswerState { answers, to_come, under_way: 0, captured: 0, waker: None };
        let home = Home::here();
        Arc::new(Shared {
            home,
            state: Mutex::new(state),
            came: Condvar::new(),
            is_open: AtomicBool::new(to_come > 0),
            signalling: Mutex::default(),
        })
    }

    /// Creates the state of a request that cannot have a zone.
    pub fn failed(error: ProfileError) -> Arc<Shared<T>> {
        Shared::new(0, VecDeque::from([Err(error)]))
    }

    fn lock(&self) -> Locked<'_, AnswerState<T>> {
        lock(&self.state)
    }

    /// Locks the state. Returns none in a process that was forked from the requesting one, where the lock may be held for ever.
    pub(super) fn lock_here(&self) -> Option<Locked<'_, AnswerState<T>>> {
        self.is_here().then(|| self.lock())
    }

    /// Waits until `is_enough` returns true or the timeout expires. Returns none as [`lock_here`](Self::lock_here) does.
    pub(super) fn wait_until(
        &self,
        timeout: Duration,
        is_enough: impl Fn(&AnswerState<T>) -> bool,
    ) -> Option<Locked<'_, AnswerState<T>>> {
        Some(self.lock_here()?.wait_while(&self.came, timeout, |state| !is_enough(state)))
    }

    /// Returns whether this process made the request.
    pub(super) fn is_here(&self) -> bool {
        self.home.is_here()
    }

    /// Creates the state of a request for one submission, which counts as waiting.
    pub fn one() -> Arc<Shared<T>> {
        waiting::begin();
        Shared::waiting(1)
    }

    /// Creates the state of a request for this many zones.
    pub(super) fn waiting(zones: u32) -> Arc<Shared<T>> {
        Shared::new(zones, VecDeque::new())
    }

    /// Returns whether the handle still waits.
    pub fn is_wanted(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Calls `signal`, unless the handle was dropped. A handle that is dropped meanwhile waits for it.
    pub(super) fn while_wanted(&self, signal: impl FnOnce()) {
        let _turn = lock(&self.signalling);
        if self.is_wanted() {
            signal();
        }
    }

    /// Ends the waiting of the handle that is dropped. From then on, no event of the caller's is put on a stream.
    pub(super) fn close_for_handle(&self) {
        let _turn = lock(&self.signalling);
        self.close();
    }

    /// Ends the waiting of the handle.
    pub(super) fn close(&self) {
        if self.is_open.swap(false, Ordering::Relaxed) {
            waiting::end();
        }
    }

    /// Counts a zone that has begun.
    pub(super) fn begin(&self) {
        self.lock().under_way += 1;
    }

    /// Counts a matching zone that was captured. It cannot be timed and does not answer the request.
    pub(super) fn pass_captured(&self) {
        self.lock().captured += 1;
    }

    /// Adds the answer of a zone that has begun.
    pub fn answer(&self, answer: Result<T, ProfileError>) {
        let mut state = self.lock();
        state.under_way = state.under_way.saturating_sub(1);
        self.put(state, answer);
    }

    /// Fails the `left` zones that have not begun and never will.
    pub(super) fn fail(&self, left: u32, error: &ProfileError) {
        let mut state = self.lock();
        // One answer stands for all of them.
        state.to_come = state.to_come.saturating_sub(left.saturating_sub(1));
        self.put(state, Err(error.clone()));
    }

    fn put(&self, mut state: Locked<'_, AnswerState<T>>, answer: Result<T, ProfileError>) {
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
            // A panic in an executor must not affect the thread that answers.
            caught(|| waker.wake());
        }
    }
}
