//! The thread pool: workers that take operations from queues, in the order of each queue, and stamps of the pool's own clock.
//!
//! Any worker may run the next operation of a queue, but never two operations of one queue at once.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Reads a clock, in ns since a point of its own.
pub type ReadClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Returns a clock that starts at `start_ns` now, and runs `drift_ppm` millionths faster than the host's.
pub fn drifting_clock(start_ns: i64, drift_ppm: f64) -> ReadClock {
    let begin = Instant::now();
    Arc::new(move || {
        let since_ns = begin.elapsed().as_nanos() as i64;
        start_ns + since_ns + (since_ns as f64 * drift_ppm * 1e-6).round() as i64
    })
}

/// A thread pool. Dropping it runs everything that is queued, and waits for it.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// Why a queue refuses an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// The pool was dropped.
    Closed,
    /// The queue has failed, for this reason.
    Failed(String),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::Closed => f.write_str("the pool was dropped: keep it as long as its streams"),
            PoolError::Failed(why) => write!(f, "the queue has failed: {why}"),
        }
    }
}

impl std::error::Error for PoolError {}

/// What the workers and the queues share.
pub(crate) struct Shared {
    read_clock: ReadClock,
    /// The queues that have an operation which no worker has taken.
    ready: Mutex<Ready>,
    wake: Condvar,
    next_queue: AtomicU64,
    /// The queues that something still holds.
    queues: AtomicUsize,
}

#[derive(Default)]
struct Ready {
    queues: VecDeque<Arc<Queue>>,
    is_closed: bool,
}

/// A queue whose operations run one after another.
pub(crate) struct Queue {
    pub(crate) number: u64,
    pub(crate) name: String,
    shared: Arc<Shared>,
    state: Mutex<State>,
    idle: Condvar,
}

#[derive(Default)]
struct State {
    operations: VecDeque<Operation>,
    /// The queue is among the ready ones, or a worker runs one of its operations.
    is_scheduled: bool,
    error: Option<String>,
}

pub(crate) enum Operation {
    Run(Box<dyn FnOnce() + Send>),
    Stamp(Arc<Stamp>),
}

/// A time of the pool's clock, which a worker sets when it reaches it.
pub(crate) struct Stamp(AtomicI64);

/// A time that no worker has set.
const PENDING: i64 = i64::MIN;

impl Stamp {
    pub(crate) fn new() -> Arc<Stamp> {
        Arc::new(Stamp(AtomicI64::new(PENDING)))
    }

    pub(crate) fn reset(&self) {
        self.0.store(PENDING, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Acquire)).filter(|ns| *ns != PENDING)
    }
}

impl Pool {
    /// Starts this many workers, at least one, on a clock.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn new(workers: usize, read_clock: ReadClock) -> std::io::Result<Pool> {
        let shared = Arc::new(Shared {
            read_clock,
            ready: Mutex::default(),
            wake: Condvar::new(),
            next_queue: AtomicU64::new(0),
            queues: AtomicUsize::new(0),
        });
        let mut pool = Pool { shared, workers: Vec::new() };
        for number in 0..workers.max(1) {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new().name(format!("pool {number}"));
            pool.workers.push(thread.spawn(move || shared.work())?);
        }
        Ok(pool)
    }

    /// Reads the pool's clock, in ns.
    pub fn now_ns(&self) -> i64 {
        self.shared.now_ns()
    }

    /// Returns the number of queues that the application, the workers or a session still hold.
    pub fn queues(&self) -> usize {
        self.shared.queues.load(Ordering::Relaxed)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.shared.ready).is_closed = true;
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of operations, so there is none to pass on.
            let _ = worker.join();
        }
    }
}

impl Shared {
    pub(crate) fn now_ns(&self) -> i64 {
        (self.read_clock)()
    }

    pub(crate) fn queue(self: &Arc<Self>, name: &str) -> Arc<Queue> {
        self.queues.fetch_add(1, Ordering::Relaxed);
        Arc::new(Queue {
            number: self.next_queue.fetch_add(1, Ordering::Relaxed),
            name: name.to_owned(),
            shared: Arc::clone(self),
            state: Mutex::default(),
            idle: Condvar::new(),
        })
    }

    /// Runs a worker until the pool is closed and nothing is queued.
    fn work(&self) {
        loop {
            let mut ready = lock(&self.ready);
            let queue = loop {
                match ready.queues.pop_front() {
                    Some(queue) => break queue,
                    None if ready.is_closed => return,
                    None => ready = self.wake.wait(ready).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(ready);
            queue.run_one();
        }
    }

    fn schedule(&self, queue: Arc<Queue>) {
        lock(&self.ready).queues.push_back(queue);
        self.wake.notify_one();
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.queues.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Queue {
    /// Returns what the workers and the queues of its pool share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Adds an operation after everything that is queued.
    pub(crate) fn push(self: &Arc<Self>, operation: Operation) -> Result<(), PoolError> {
        let mut state = lock(&self.state);
        if let Some(error) = &state.error {
            return Err(PoolError::Failed(error.clone()));
        }
        if !state.is_scheduled && lock(&self.shared.ready).is_closed {
            return Err(PoolError::Closed);
        }
        state.operations.push_back(operation);
        let is_first = !std::mem::replace(&mut state.is_scheduled, true);
        drop(state);
        if is_first {
            self.shared.schedule(Arc::clone(self));
        }
        Ok(())
    }

    /// Makes the queue fail for ever: what is queued does not run, and nothing can be added.
    pub(crate) fn fail(&self, why: &str) {
        lock(&self.state).error = Some(why.to_owned());
    }

    pub(crate) fn error(&self) -> Option<String> {
        lock(&self.state).error.clone()
    }

    /// Waits until everything that is queued has run, or the queue has failed.
    pub(crate) fn wait(&self) {
        let mut state = lock(&self.state);
        while state.is_scheduled {
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Runs the oldest operation, and schedules the queue again if there are more.
    fn run_one(self: Arc<Self>) {
        let mut state = lock(&self.state);
        let operation = state.operations.pop_front().filter(|_| state.error.is_none());
        drop(state);
        match operation {
            Some(Operation::Stamp(stamp)) => stamp.0.store(self.shared.now_ns(), Ordering::Release),
            Some(Operation::Run(work)) => {
                // As on a device, work that fails does not stop the worker; the application has its own way to hear of it.
                let _ = catch_unwind(AssertUnwindSafe(work));
            }
            None => {}
        }
        let mut state = lock(&self.state);
        if state.error.is_some() {
            state.operations.clear();
        }
        state.is_scheduled = !state.operations.is_empty();
        if !state.is_scheduled {
            self.idle.notify_all();
            return;
        }
        drop(state);
        let shared = Arc::clone(&self.shared);
        shared.schedule(self);
    }
}

/// Locks a mutex whose holders never leave its value half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
