//! The state of one semaphore: what was submitted, what was reached, whether it failed, and who waits.
//!
//! Everything happens under one lock that is held for a few lines: no call of a driver and no code of a user's runs under it,
//! so a function that runs on the device's behalf may signal at any time. `core_model` checks it under every interleaving.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

use super::error::{Error, Failure};
use super::history::History;
use warpline_core::caught::caught;
use warpline_core::fork::Home;

/// So many points may gather before anybody asks whether the device is through with them.
const THIN_AT: usize = 64;

/// A place on a stream behind which a value is reached.
pub(super) trait Point: Clone {
    /// Points of one stream are reached in the order in which they were submitted.
    fn stream(&self) -> u64;

    /// Whether somebody has to ask for it; otherwise it tells the semaphore itself.
    fn has_to_be_asked(&self) -> bool;

    /// Asks whether the stream is known to be there.
    fn is_reached(&self) -> Result<bool, Error>;
}

/// How far a value has to be for a waiter to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Submitted,
    Reached,
}

/// Who waits.
#[derive(Clone)]
pub(super) enum Waiter {
    /// A thread or a task. It is woken when the lock is free: an executor's code may run then.
    Waker(Waker),
    /// A queue's submission. It is told under the lock, so that of two submissions the queue hears in time which one could go.
    Nudge(Arc<dyn Nudge>),
}

/// Tells a queue that something may have changed. It must take no lock under which a semaphore is asked.
pub(super) trait Nudge: Send + Sync {
    fn nudge(&self);
}

/// Where a value stands.
pub(super) enum Seen<P> {
    Reached,
    /// A stream will get there.
    Submitted(P),
    /// Nobody has submitted it.
    Waiting,
}

/// A waiter's place in a core.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaiterKey {
    stage: Stage,
    value: u64,
    id: u64,
}

pub(super) struct Core<P> {
    name: Arc<str>,
    /// What the next signal has to exceed, for who asks without the lock; the greatest number once the semaphore has failed.
    ahead: AtomicU64,
    /// What a session saw of its signals.
    pub(super) history: History,
    /// Elsewhere, the lock may be held for ever.
    home: Home,
    state: Mutex<State<P>>,
}

struct State<P> {
    reached: u64,
    submitted: u64,
    failure: Option<Failure>,
    /// What streams will reach, by value; all greater than `reached`.
    points: VecDeque<(u64, P)>,
    until_submitted: Waiters,
    until_reached: Waiters,
    next_id: u64,
    /// How many points are many.
    thin_at: usize,
    /// Somebody looks at the points from time to time.
    #[cfg(feature = "cuda")]
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
            state: Mutex::new(State::new(initial)),
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// No code of others runs under the lock, so a poisoned one holds a sound state.
    fn lock(&self) -> Result<MutexGuard<'_, State<P>>, Error> {
        if self.home.is_here() {
            Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
        } else {
            Err(Error::Inherited { name: Arc::clone(&self.name) })
        }
    }

    fn check(&self, state: &State<P>) -> Result<(), Error> {
        let Some(failure) = &state.failure else { return Ok(()) };
        Err(Error::Failed { semaphore: Arc::clone(&self.name), failure: failure.clone() })
    }

    fn check_forward(&self, state: &State<P>, value: u64) -> Result<(), Error> {
        self.check(state)?;
        if value > state.submitted {
            return Ok(());
        }
        Err(Error::NotMonotonic { semaphore: Arc::clone(&self.name), current: state.submitted, asked: value })
    }

    /// The greatest value that is known to be reached, and the greatest that was submitted.
    pub(super) fn values(&self) -> Result<(u64, u64), Error> {
        let state = self.lock()?;
        self.check(&state).map(|()| (state.reached, state.submitted))
    }

    /// Whether a signal of this value would go forward, as things stand; [`submit`](Self::submit) has the last word.
    pub(super) fn may_submit(&self, value: u64) -> Result<(), Error> {
        if value > self.ahead.load(Ordering::Relaxed) {
            return Ok(());
        }
        let state = self.lock()?;
        self.check_forward(&state, value)
    }

    /// The host reaches the value now.
    pub(super) fn signal(&self, value: u64) -> Result<(), Error> {
        let mut state = self.lock()?;
        self.check_forward(&state, value)?;
        let woken = state.reach(value);
        self.ahead.store(state.submitted, Ordering::Relaxed);
        drop(state);
        woken.wake();
        Ok(())
    }

    /// A stream will reach the value. Where many points have gathered it gives the middle one, to [`thin`](Self::thin) them.
    pub(super) fn submit(&self, value: u64, point: P) -> Result<Option<(u64, P)>, Error> {
        let mut state = self.lock()?;
        self.check_forward(&state, value)?;
        state.submitted = value;
        self.ahead.store(value, Ordering::Relaxed);
        state.points.push_back((value, point));
        let is_many = state.points.len() >= state.thin_at;
        let middle = if is_many { state.points.get(state.points.len() / 2).cloned() } else { None };
        let woken = up_to(&mut state.until_submitted, value);
        drop(state);
        woken.wake();
        Ok(middle)
    }

    /// The value has been reached, says whoever knows.
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

    /// Ends the semaphore. The first failure stays; says whether this was it.
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

    /// Where a value stands.
    pub(super) fn see(&self, value: u64) -> Result<Seen<P>, Error> {
        let state = self.lock()?;
        self.check(&state)?;
        if value <= state.reached {
            return Ok(Seen::Reached);
        }
        // Points are few while somebody waits for each, and the one that is waited for is often the last.
        let at = match state.points.back() {
            Some((last, _)) if *last < value => None,
            _ => state.points.get(state.points.partition_point(|(of, _)| *of < value)),
        };
        Ok(at.map_or(Seen::Waiting, |(_, point)| Seen::Submitted(point.clone())))
    }

    /// Puts a waiter into the list, to be woken once; none if there is nothing to wait for any more.
    pub(super) fn enlist(&self, value: u64, stage: Stage, waiter: &Waiter) -> Option<WaiterKey> {
        // Before the lock is taken, and dropped after it where nobody waits: an executor's code runs then.
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

    /// Takes a waiter out of the list, whether or not it was woken.
    pub(super) fn delist(&self, place: WaiterKey) {
        let waiter = self.lock().ok().and_then(|mut state| state.waiters(place.stage).remove(&(place.value, place.id)));
        drop(waiter);
    }

    /// Asks the devices how far they are.
    pub(super) fn look(&self) {
        let to_ask = |state: MutexGuard<'_, State<P>>| -> Vec<_> {
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

    /// Lets go of the older half of the points if the device is through with it, which takes one question.
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

    /// From now on somebody looks from time to time, if there is a need for it; true for the first to say so.
    #[cfg(feature = "cuda")]
    pub(super) fn watch(&self) -> bool {
        let Ok(mut state) = self.lock() else { return false };
        state.has_to_be_watched() && !std::mem::replace(&mut state.watched, true)
    }

    /// Whether somebody still has to look. If not, nobody does from now on.
    #[cfg(feature = "cuda")]
    pub(super) fn keep_watching(&self) -> bool {
        let Ok(mut state) = self.lock() else { return false };
        state.watched = state.has_to_be_watched();
        state.watched
    }
}

impl<P> Drop for Core<P> {
    /// In a process that was forked from the one that made it, points are not this process's to drop, and another thread may have
    /// been about to change them.
    fn drop(&mut self) {
        if !self.home.is_here() {
            std::mem::forget(std::mem::replace(&mut self.state, Mutex::new(State::new(0))));
        }
    }
}

/// What has to be done when the lock is free.
struct Woken<P> {
    wakers: [Wakers; 2],
    /// A point may give back what it holds, under a lock of its own.
    _points: VecDeque<(u64, P)>,
}

impl<P> Woken<P> {
    fn wake(self) {
        self.wakers.into_iter().for_each(Wakers::wake);
    }
}

#[cfg(feature = "cuda")]
impl<P: Point> State<P> {
    /// Somebody waits, and there are points that tell nothing by themselves.
    fn has_to_be_watched(&self) -> bool {
        !self.until_reached.is_empty() && self.points.iter().any(|(_, point)| point.has_to_be_asked())
    }
}

impl<P> State<P> {
    fn new(initial: u64) -> State<P> {
        State {
            reached: initial,
            submitted: initial,
            failure: None,
            points: VecDeque::new(),
            until_submitted: BTreeMap::new(),
            until_reached: BTreeMap::new(),
            next_id: 0,
            thin_at: THIN_AT,
            #[cfg(feature = "cuda")]
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

/// Threads and tasks to wake, and what else waited.
struct Wakers(Vec<Waiter>);

impl Wakers {
    /// Tells a queue, under the lock; the others are told when it is free, and all are dropped then.
    fn notify(&mut self, waiter: Waiter) {
        if let Waiter::Nudge(queue) = &waiter {
            queue.nudge();
        }
        self.0.push(waiter);
    }

    fn wake(self) {
        for waiter in self.0 {
            if let Waiter::Waker(waker) = waiter {
                // An executor that panics is no fault of who signals, and the others have to be woken as well.
                let _ = caught(|| waker.wake());
            }
        }
    }
}

/// Takes out the waiters for this value and all below it.
fn up_to(waiters: &mut Waiters, value: u64) -> Wakers {
    let mut out = Wakers(Vec::new());
    while let Some(first) = waiters.first_entry().filter(|first| first.key().0 <= value) {
        out.notify(first.remove());
    }
    out
}
