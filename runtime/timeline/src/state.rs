//! The state of one semaphore: the submitted and the reached values, the failure, and the waiters.
//!
//! One lock protects it and is held for a few lines. No driver call and no user code runs under it, so a callback of a device may signal at
//! any time. `state_model` checks every interleaving.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::task::Waker;

use super::error::{Error, Failure};
use super::history::History;
use warpline_core::fork::Home;
use warpline_core::panics::caught;
use warpline_core::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// The number of points that may gather before the device is queried for the middle one.
const THIN_AT: usize = 64;

/// A position on a stream at which a value is reached.
pub(super) trait Point: Clone {
    /// Returns the stream's id. Points of one stream are reached in the order in which they were submitted.
    fn stream(&self) -> u64;

    /// Returns whether the device must be queried. If not, the point reports to the semaphore by itself.
    fn has_to_be_asked(&self) -> bool;

    /// Queries whether the stream has reached the point.
    fn is_reached(&self) -> Result<bool, Error>;
}

/// The state of a value at which a waiter is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Submitted,
    Reached,
}

/// A thread, a task or a queue that waits.
#[derive(Clone)]
pub(super) enum Waiter {
    /// A thread or a task. It is woken after the lock is released, because an executor's code may run then.
    Waker(Waker),
    /// A queue's submission. It is notified under the lock, so that the queue learns the order in which two submissions became ready.
    Nudge(Arc<dyn Nudge>),
}

/// A queue that is notified of a possible change. The notification must take no lock under which a semaphore is queried.
pub(super) trait Nudge: Send + Sync {
    fn nudge(&self);
}

/// The state of a value.
pub(super) enum Seen<P> {
    Reached,
    /// A stream will reach it.
    Submitted(P),
    /// It has not been submitted.
    Waiting,
}

/// A waiter's entry in a core.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaiterKey {
    stage: Stage,
    value: u64,
    id: u64,
}

pub(super) struct Core<P> {
    name: Arc<str>,
    /// The value that the next signal must exceed, for readers without the lock; `u64::MAX` after the semaphore has failed.
    ahead: AtomicU64,
    /// The signals that a session has recorded.
    pub(super) history: History,
    /// The process that created it. In a forked child, the lock may be held forever.
    home: Home,
    state: Mutex<SemaphoreState<P>>,
}

struct SemaphoreState<P> {
    reached: u64,
    submitted: u64,
    failure: Option<Failure>,
    /// The points that streams will reach, by value; all values are greater than `reached`.
    points: VecDeque<(u64, P)>,
    until_submitted: Waiters,
    until_reached: Waiters,
    next_id: u64,
    /// The number of points at which the middle one is queried.
    thin_at: usize,
    /// Whether the watcher's thread queries the points.
    watched: bool,
}

type Waiters = BTreeMap<(u64, u64), Waiter>;

impl<P: Point> Core<P> {
    pub(super) fn new(name: Arc<str>, initial: u64) -> Core<P> {
        Core {
            name,
            ahead: AtomicU64::new(initial),
            history: History::new(initial),
            home: Home::here(),
            state: Mutex::new(SemaphoreState::new(initial)),
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Takes the lock. No user code runs under it, so the state under a poisoned lock is sound.
    fn lock(&self) -> Result<MutexGuard<'_, SemaphoreState<P>>, Error> {
        if self.home.is_here() {
            Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
        } else {
            Err(Error::Inherited { name: Arc::clone(&self.name) })
        }
    }

    fn check(&self, state: &SemaphoreState<P>) -> Result<(), Error> {
        let Some(failure) = &state.failure else { return Ok(()) };
        Err(Error::Failed { semaphore: Arc::clone(&self.name), failure: failure.clone() })
    }

    fn check_forward(&self, state: &SemaphoreState<P>, value: u64) -> Result<(), Error> {
        self.check(state)?;
        if value > state.submitted {
            return Ok(());
        }
        Err(Error::NotMonotonic { semaphore: Arc::clone(&self.name), current: state.submitted, asked: value })
    }

    /// Returns the greatest value that is known to be reached, and the greatest that was submitted.
    pub(super) fn values(&self) -> Result<(u64, u64), Error> {
        let state = self.lock()?;
        self.check(&state).map(|()| (state.reached, state.submitted))
    }

    /// Checks early whether a signal of this value is greater than the submitted one; [`submit`](Self::submit) decides.
    pub(super) fn may_submit(&self, value: u64) -> Result<(), Error> {
        if value > self.ahead.load(Ordering::Relaxed) {
            return Ok(());
        }
        let state = self.lock()?;
        self.check_forward(&state, value)
    }

    /// Reaches the value now, for a signal of the host.
    pub(super) fn signal(&self, value: u64) -> Result<(), Error> {
        let mut state = self.lock()?;
        self.check_forward(&state, value)?;
        let woken = state.reach(value);
        self.ahead.store(state.submitted, Ordering::Relaxed);
        drop(state);
        woken.wake();
        Ok(())
    }

    /// Submits a value that a stream will reach. If many points have gathered, returns the middle one, to [`thin`](Self::thin) them.
    ///
    /// Calls `start_watch` if the watcher's thread must query the points from now on. The call comes before the waiters are woken, because
    /// an executor's waker may block.
    pub(super) fn submit(&self, value: u64, point: P, start_watch: impl FnOnce()) -> Result<Option<(u64, P)>, Error> {
        let mut state = self.lock()?;
        self.check_forward(&state, value)?;
        state.submitted = value;
        self.ahead.store(value, Ordering::Relaxed);
        state.points.push_back((value, point));
        let is_many = state.points.len() >= state.thin_at;
        let middle = if is_many { state.points.get(state.points.len() / 2).cloned() } else { None };
        let woken = up_to(&mut state.until_submitted, value);
        let starts_watch = state.start_watch();
        drop(state);
        if starts_watch {
            start_watch();
        }
        woken.wake();
        Ok(middle)
    }

    /// Records that the value has been reached.
    pub(super) fn reach(&self, value: u64) {
        let Ok(mut state) = self.lock() else { return };
        if state.failure.is_none() && value > state.reached {
            self.history.reached(value);
            let woken = state.reach(value);
            self.ahead.store(state.submitted, Ordering::Relaxed);
            drop(state);
            woken.wake();
        }
    }

    /// Fails the semaphore. The first failure stays; returns whether this was the first.
    pub(super) fn fail(&self, failure: Failure) -> bool {
        let Ok(mut state) = self.lock() else { return false };
        if state.failure.is_some() {
            return false;
        }
        state.failure = Some(failure);
        self.ahead.store(u64::MAX, Ordering::Relaxed);
        let woken = Woken {
            wakers: [up_to(&mut state.until_submitted, u64::MAX), up_to(&mut state.until_reached, u64::MAX)],
            _points: std::mem::take(&mut state.points),
        };
        drop(state);
        woken.wake();
        true
    }

    /// Returns the state of a value.
    pub(super) fn see(&self, value: u64) -> Result<Seen<P>, Error> {
        let state = self.lock()?;
        self.check(&state)?;
        if value <= state.reached {
            return Ok(Seen::Reached);
        }
        // The last point shows without a search that a value has not been submitted.
        let at = match state.points.back() {
            Some((last, _)) if *last < value => None,
            _ => state.points.get(state.points.partition_point(|(of, _)| *of < value)),
        };
        Ok(at.map_or(Seen::Waiting, |(_, point)| Seen::Submitted(point.clone())))
    }

    /// Adds a waiter to the list, to be woken once, or returns none if there is nothing to wait for.
    pub(super) fn enlist(&self, value: u64, stage: Stage, waiter: &Waiter) -> Option<WaiterKey> {
        // The clone is made before the lock is taken, and an unneeded one is dropped after it, because both run an executor's code.
        let waiter = waiter.clone();
        let mut state = self.lock().ok()?;
        let far = if stage == Stage::Reached { state.reached } else { state.submitted };
        if state.failure.is_some() || value <= far {
            return None;
        }
        let id = state.next_id;
        state.next_id += 1;
        state.waiters(stage).insert((value, id), waiter);
        Some(WaiterKey { stage, value, id })
    }

    /// Removes a waiter from the list, whether or not it was woken.
    pub(super) fn delist(&self, place: WaiterKey) {
        let waiter = self.lock().ok().and_then(|mut state| state.waiters(place.stage).remove(&(place.value, place.id)));
        drop(waiter);
    }

    /// Queries the devices for their progress.
    pub(super) fn poll_devices(&self) {
        let to_ask = |state: MutexGuard<'_, SemaphoreState<P>>| -> Vec<_> {
            state.points.iter().filter(|(_, point)| point.has_to_be_asked()).cloned().collect()
        };
        let points = self.lock().map(to_ask).unwrap_or_default();
        let mut streams: Vec<u64> = points.iter().map(|(_, point)| point.stream()).collect();
        streams.sort_unstable();
        streams.dedup();
        for stream in streams {
            let of_stream: Vec<_> = points.iter().filter(|(_, point)| point.stream() == stream).collect();
            let mut failed = None;
            let reached = of_stream.partition_point(|(_, point)| {
                point.is_reached().unwrap_or_else(|error| {
                    failed = Some(error);
                    false
                })
            });
            if let Some((value, _)) = reached.checked_sub(1).and_then(|last| of_stream.get(last)) {
                self.reach(*value);
            }
            if let Some(error) = failed {
                self.fail(Failure::new(Arc::clone(&self.name), error));
            }
        }
    }

    /// Drops the older half of the points if the device has reached the middle one, which takes one query.
    pub(super) fn thin(&self, middle: &(u64, P)) {
        match middle.1.is_reached() {
            Ok(true) => self.reach(middle.0),
            Ok(false) => {}
            Err(error) => drop(self.fail(Failure::new(Arc::clone(&self.name), error))),
        }
        if let Ok(mut state) = self.lock() {
            state.thin_at = THIN_AT.max(2 * state.points.len());
        }
    }

    /// Marks the semaphore as watched if that is needed; returns true for the first caller, which must start to watch.
    pub(super) fn watch(&self) -> bool {
        self.lock().is_ok_and(|mut state| state.start_watch())
    }

    /// Returns whether the semaphore must still be watched. If not, it is no longer marked as watched.
    pub(super) fn keep_watching(&self) -> bool {
        let Ok(mut state) = self.lock() else { return false };
        state.watched = state.has_to_be_watched();
        state.watched
    }
}

impl<P> Drop for Core<P> {
    /// Leaks the points in a forked process, where they must not be dropped and another thread may have been changing them.
    fn drop(&mut self) {
        if !self.home.is_here() {
            std::mem::forget(std::mem::replace(&mut self.state, Mutex::new(SemaphoreState::new(0))));
        }
    }
}

/// The work to do after the lock is released.
struct Woken<P> {
    wakers: [Wakers; 2],
    /// Dropping a point may take another lock.
    _points: VecDeque<(u64, P)>,
}

impl<P> Woken<P> {
    fn wake(self) {
        self.wakers.into_iter().for_each(Wakers::wake);
    }
}

impl<P: Point> SemaphoreState<P> {
    /// Marks the semaphore as watched if that is needed; returns whether it was not marked before.
    fn start_watch(&mut self) -> bool {
        self.has_to_be_watched() && !std::mem::replace(&mut self.watched, true)
    }

    /// Returns whether there are waiters, and points that do not report by themselves.
    fn has_to_be_watched(&self) -> bool {
        !self.until_reached.is_empty() && self.points.iter().any(|(_, point)| point.has_to_be_asked())
    }
}

impl<P> SemaphoreState<P> {
    fn new(initial: u64) -> SemaphoreState<P> {
        SemaphoreState {
            reached: initial,
            submitted: initial,
            failure: None,
            points: VecDeque::new(),
            until_submitted: BTreeMap::new(),
            until_reached: BTreeMap::new(),
            next_id: 0,
            thin_at: THIN_AT,
            watched: false,
        }
    }

    fn waiters(&mut self, stage: Stage) -> &mut Waiters {
        match stage {
            Stage::Submitted => &mut self.until_submitted,
            Stage::Reached => &mut self.until_reached,
        }
    }

    fn reach(&mut self, value: u64) -> Woken<P> {
        self.reached = value;
        self.submitted = self.submitted.max(value);
        let past = self.points.partition_point(|(of, _)| *of <= value);
        Woken {
            wakers: [up_to(&mut self.until_submitted, value), up_to(&mut self.until_reached, value)],
            _points: self.points.drain(..past).collect(),
        }
    }
}

/// Threads and tasks to wake, and queues that have been notified.
struct Wakers(Vec<Waiter>);

impl Wakers {
    /// Notifies a queue under the lock. The others are woken after it is released, and all are dropped then.
    fn notify(&mut self, waiter: Waiter) {
        if let Waiter::Nudge(queue) = &waiter {
            queue.nudge();
        }
        self.0.push(waiter);
    }

    fn wake(self) {
        for waiter in self.0 {
            if let Waiter::Waker(waker) = waiter {
                // A panic of an executor must not reach the caller that signals, and the others must be woken as well.
                let _ = caught(|| waker.wake());
            }
        }
    }
}

/// Removes the waiters for this value and all smaller ones.
fn up_to(waiters: &mut Waiters, value: u64) -> Wakers {
    let mut out = Wakers(Vec::new());
    while let Some(first) = waiters.first_entry().filter(|first| first.key().0 <= value) {
        out.notify(first.remove());
    }
    out
}
