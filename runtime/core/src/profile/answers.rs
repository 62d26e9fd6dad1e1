//! How answers come to the handle on zones that somebody asked for.
//!
//! Answers are put in by the collector, or by the thread that drops the zone; they are taken out by whoever holds the handle.
//! A future's waker is called outside of all locks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::caught::caught;
use crate::fork::Home;
use crate::lock::{Locked, lock};
use crate::profile::error::ProfileError;
use crate::profile::waiting;
use crate::record::ZoneRecord;

/// What a handle and those who answer it share.
pub struct Shared {
    /// The process in which somebody asked.
    home: Home,
    state: Mutex<State>,
    came: Condvar,
    /// Somebody holds the handle, and answers are to come.
    is_open: AtomicBool,
}

pub(super) struct State {
    pub(super) answers: VecDeque<Result<ZoneRecord, ProfileError>>,
    pub(super) to_come: u32,
    /// Zones that are on their way.
    under_way: u32,
    captured: u64,
    waker: Option<Waker>,
}

impl State {
    pub(super) fn timed_out(&self) -> ProfileError {
        ProfileError::TimedOut { has_begun: self.under_way > 0, captured: self.captured }
    }
}

/// The task is woken with the next answer. The waker that it had before goes when the lock is free: it may be an executor's
/// last hold on a task, whose end may ask for zones.
pub(super) fn wake_later<T>(mut state: Locked<'_, State>, waker: Waker) -> Poll<T> {
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
    pub fn failed(error: ProfileError) -> Arc<Shared> {
        Shared::new(0, VecDeque::from([Err(error)]))
    }

    fn lock(&self) -> Locked<'_, State> {
        lock(&self.state)
    }

    /// None in a process that was forked from the one that asked: there the lock may be held for ever.
    pub(super) fn lock_here(&self) -> Option<Locked<'_, State>> {
        self.is_here().then(|| self.lock())
    }

    /// None as for [`lock_here`](Self::lock_here).
    pub(super) fn wait_until(
        &self,
        timeout: Duration,
        is_enough: impl Fn(&State) -> bool,
    ) -> Option<Locked<'_, State>> {
        Some(self.lock_here()?.wait_while(&self.came, timeout, |state| !is_enough(state)))
    }

    /// Whether this process asked.
    pub(super) fn is_here(&self) -> bool {
        self.home.is_here()
    }

    /// For a request of so many zones.
    pub(super) fn waiting(zones: u32) -> Arc<Shared> {
        Shared::new(zones, VecDeque::new())
    }

    /// Whether somebody waits.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Nobody waits for answers any more.
    pub(super) fn close(&self) {
        if self.is_open.swap(false, Ordering::Relaxed) {
            waiting::end();
        }
    }

    /// A zone has begun.
    pub(super) fn begin(&self) {
        self.lock().under_way += 1;
    }

    /// A zone ran that cannot be timed; it does not answer the request.
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
