//! In-process streams: a dedicated thread executes work in order, and events read the host's clock on that thread.
//!
//! They time queued CPU work, run warpline's own tests, and replace a GPU on machines without one. Nothing is simulated: the
//! worker runs the closures, and an event's time is the time at which the worker reached it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::fault::Faults;
use crate::backend::{AsStream, Source, Space, StreamKey, StreamRef};
use crate::fork::Home;
use crate::lock::lock;
use crate::panics::caught_or_text;
use crate::threads;

/// A stream whose device is a thread of this process.
///
/// [`launch`](Self::launch) queues a closure and returns; closures run one after another in the order in which they were queued.
/// `Send` and `Sync`; any thread may launch. A clone is another handle of the same stream. Dropping the last handle waits until everything
/// queued has run.
///
/// A forked child has no worker thread; work that was queued before the fork runs only in the parent. In the child,
/// [`launch`](Self::launch) runs the closure before it returns, and neither [`synchronize`](Self::synchronize) nor dropping the
/// stream waits.
#[derive(Clone)]
pub struct HostStream {
    queue: Arc<Queue>,
    /// Ends the worker with the last handle.
    _worker: Arc<Worker>,
}

/// The worker, which ends when this is dropped.
struct Worker {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

/// The state that the worker and the launching threads share.
pub struct Queue {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) faults: Faults,
    /// The process that the worker runs in.
    home: Home,
    /// Like `panic` in the state, but for a forked child, where the state may stay locked forever.
    panic_in_child: Mutex<Option<String>>,
    state: Mutex<QueueState>,
    /// The worker waits here for work.
    work: Condvar,
    /// `synchronize` waits here for the worker.
    idle: Condvar,
}

#[derive(Default)]
struct QueueState {
    ops: VecDeque<Op>,
    /// Whether the worker is executing work.
    busy: bool,
    /// Whether the worker waits: a thread that queues work must wake it.
    asleep: bool,
    closed: bool,
    /// The first panic of a closure since the last `synchronize`.
    panic: Option<String>,
}

pub(super) enum Op {
    Run(Box<dyn FnOnce() + Send>),
    Stamp(Arc<stamp::Stamp>),
}

/// A closure on a [`HostStream`] panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchPanicked(String);

impl fmt::Display for LaunchPanicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a closure on the stream panicked: {}", self.0)
    }
}

impl std::error::Error for LaunchPanicked {}

impl HostStream {
    /// Creates a stream and a worker thread with this name. In the thread's name, `␀` replaces NUL.
    ///
    /// The worker blocks all signals but those that a fault raises, so a signal of the process goes to a thread of the program. Threads
    /// and processes that a closure starts inherit that mask; unblock there what they should receive.
    ///
    /// If the operating system refuses to create a thread, closures run on the launching thread.
    pub fn new(name: &str) -> HostStream {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let queue = Arc::new(Queue {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            name: name.to_owned(),
            faults: Faults::default(),
            home: Home::here(),
            panic_in_child: Mutex::default(),
            state: Mutex::default(),
            work: Condvar::new(),
            idle: Condvar::new(),
        });
        let for_worker = Arc::clone(&queue);
        let thread = threads::spawn(name, move || for_worker.run()).ok();
        if thread.is_none() {
            queue.lock().closed = true;
        }
        HostStream { _worker: Arc::new(Worker { queue: Arc::clone(&queue), thread }), queue }
    }

    /// Returns the stream's name.
    pub fn name(&self) -> &str {
        &self.queue.name
    }

    /// Queues a closure after everything that is queued now. A panic in it is caught and returned by
    /// [`synchronize`](Self::synchronize); the closures after it still run.
    pub fn launch(&self, work: impl FnOnce() + Send + 'static) {
        self.queue.push(Op::Run(Box::new(work)));
    }

    /// Waits until everything that is queued now has run.
    ///
    /// # Errors
    /// The first panic of a closure since the last call.
    pub fn synchronize(&self) -> Result<(), LaunchPanicked> {
        if !self.queue.home.is_here() {
            let panic = lock(&self.queue.panic_in_child).take();
            return panic.map_or(Ok(()), |text| Err(LaunchPanicked(text)));
        }
        let mut state = self.queue.lock();
        while state.busy || !state.ops.is_empty() {
            state = self.queue.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.panic.take().map_or(Ok(()), |text| Err(LaunchPanicked(text)))
    }

    /// Returns the stream's fault injection, for warpline's tests.
    #[doc(hidden)]
    pub fn faults(&self) -> &Faults {
        &self.queue.faults
    }

    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Returns whether everything that was queued has run.
    pub fn is_idle(&self) -> bool {
        if !self.queue.home.is_here() {
            return true;
        }
        let state = self.queue.lock();
        !state.busy && state.ops.is_empty()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.queue.home.is_here() {
            // There is no thread to wait for or to detach: its id may belong to another thread by now.
            return std::mem::forget(self.thread.take());
        }
        self.queue.lock().closed = true;
        self.queue.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // A closure may own the last handle of its own stream; a thread cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                // The worker catches every panic, so there is none to pass on.
                let _ = thread.join();
            }
        }
        super::stream_dropped(self.queue.key());
    }
}

impl fmt::Debug for HostStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostStream").field("name", &self.queue.name).finish_non_exhaustive()
    }
}

impl AsStream for HostStream {
    #[inline]
    fn as_stream(&self) -> StreamRef<'_> {
        StreamRef { key: Ok(self.queue.key()), source: Source::Host(&self.queue) }
    }
}

thread_local! {
    static IS_WORKER: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Returns whether the calling thread is the worker of an in-process stream. A worker must not wait for anything that may wait
/// for that stream.
pub fn is_worker() -> bool {
    IS_WORKER.try_with(std::cell::Cell::get) == Ok(true)
}

impl Queue {
    pub(super) fn key(&self) -> StreamKey {
        Space::HOST.key(self.id)
    }

    /// Takes the state's lock. No user code runs under it, so a poisoned lock holds a sound state. Each zone of a host stream
    /// takes it on a thread that is already inside warpline, so it does not use `lock::lock`, which would enter again.
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an operation, or executes it if there is no worker.
    pub(super) fn push(&self, op: Op) {
        let not_queued = {
            // The queue may allocate under its lock. An operation that runs here may begin zones.
            let _inside = crate::reentrancy::Inside::enter();
            self.queue(op)
        };
        if let Some(op) = not_queued {
            self.execute_here(op);
        }
    }

    /// Like `push`, for a stamp, on a thread that is already inside warpline.
    #[inline]
    pub(super) fn push_stamp(&self, stamp: Arc<stamp::Stamp>) {
        if let Some(op) = self.queue(Op::Stamp(stamp)) {
            self.execute_here(op);
        }
    }

    /// Queues the operation, or returns it if there is no worker.
    #[inline]
    fn queue(&self, op: Op) -> Option<Op> {
        if !self.home.is_here() {
            return Some(op);
        }
        let mut state = self.lock();
        if state.closed {
            return Some(op);
        }
        state.ops.push_back(op);
        let wake = std::mem::take(&mut state.asleep);
        drop(state);
        if wake {
            self.work.notify_one();
        }
        None
    }

    #[cold]
    fn execute_here(&self, op: Op) {
        if self.home.is_here() { self.execute(op) } else { self.execute_in_child(op) }
    }

    /// Queues several operations atomically: nothing comes between them.
    pub(super) fn push_together(&self, ops: impl IntoIterator<Item = Op>) {
        let ops = ops.into_iter();
        if !self.home.is_here() {
            return ops.for_each(|op| self.execute_in_child(op));
        }
        let _inside = crate::reentrancy::Inside::enter();
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return ops.for_each(|op| self.execute(op));
        }
        state.ops.extend(ops);
        let wake = std::mem::take(&mut state.asleep);
        drop(state);
        if wake {
            self.work.notify_one();
        }
    }

    /// Runs the worker: takes everything that is queued, executes it, and repeats.
    fn run(&self) {
        IS_WORKER.set(true);
        let mut batch = VecDeque::new();
        loop {
            let mut state = self.lock();
            while state.ops.is_empty() {
                state.busy = false;
                self.idle.notify_all();
                if state.closed {
                    return;
                }
                state.asleep = true;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.asleep = false;
            state.busy = true;
            std::mem::swap(&mut batch, &mut state.ops);
            drop(state);
            for op in batch.drain(..) {
                self.execute(op);
            }
        }
    }

    fn execute(&self, op: Op) {
        self.faults.wait();
        let is_failed = self.faults.stream().is_err();
        // Dropping what a closure holds may also panic.
        if let Err(text) = caught_or_text(|| if is_failed { drop(op) } else { op.run() }) {
            let mut state = self.lock();
            if state.panic.is_none() {
                state.panic = Some(text);
            }
        }
    }

    /// Executes the operation in a forked child, which has no worker. Faults are ignored: tests inject none in a child.
    #[cold]
    fn execute_in_child(&self, op: Op) {
        if let Err(text) = caught_or_text(|| op.run()) {
            let mut panic = lock(&self.panic_in_child);
            if panic.is_none() {
                *panic = Some(text);
            }
        }
    }
}

impl Op {
    fn run(self) {
        match self {
            Op::Stamp(stamp) => stamp.set_now(),
            Op::Run(work) => work(),
        }
    }
}

pub(super) use stamp::{HostEventPair, PENDING, Stamp};

mod stamp {
    //! Events of a stream: stamps that its worker sets.

    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::Queue;
    use crate::backend::{BackendError, Refused};
    use crate::clock::now_ns;

    /// A time that is unknown until the worker sets it.
    pub(in crate::backend) struct Stamp(AtomicI64);

    /// Earlier than any time of the clock.
    pub(in crate::backend) const PENDING: i64 = i64::MIN;

    impl Stamp {
        pub(in crate::backend) fn new(ns: i64) -> Arc<Stamp> {
            Arc::new(Stamp(AtomicI64::new(ns)))
        }

        pub(in crate::backend) fn set_now(&self) {
            self.0.store(now_ns(), Ordering::Release);
        }

        pub(in crate::backend) fn get(&self) -> Option<i64> {
            Some(self.0.load(Ordering::Acquire)).filter(|ns| *ns != PENDING)
        }
    }

    pub struct HostEventPair {
        pub(in crate::backend) queue: Arc<Queue>,
        pub(in crate::backend) begin: Arc<Stamp>,
        pub(in crate::backend) end: Arc<Stamp>,
    }

    impl HostEventPair {
        fn record(&self, stamp: &Arc<Stamp>) -> Result<(), Refused> {
            self.queue.faults.before_record().map_err(BackendError)?;
            stamp.0.store(PENDING, Ordering::Relaxed);
            self.queue.push_stamp(Arc::clone(stamp));
            Ok(())
        }

        #[inline]
        pub(in crate::backend) fn begin(&mut self) -> Result<(), Refused> {
            self.record(&self.begin)
        }

        #[inline]
        pub(in crate::backend) fn end(&mut self) -> Result<(), Refused> {
            self.record(&self.end)
        }

        pub(in crate::backend) fn is_complete(&self) -> Result<bool, BackendError> {
            if self.end.get().is_some() {
                return Ok(true);
            }
            self.queue.faults.stream().map_err(BackendError)?;
            Ok(false)
        }
    }
}
