//! Queues: work that waits for semaphores on the host until it can be issued to a stream.
//!
//! [`Queue`] is the public handle. `room` limits what it holds back, `action` is one submission, and `worker` is the thread that issues
//! submissions.

mod action;
mod room;
mod worker;

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

pub use room::WhenFull;

use super::call::{HostCall, Signals};
use super::error::Error;
use super::memory::{Buffer, Memory, Origin};
use super::point::{device, register_backends};
use super::semaphore::Semaphore;
use super::trace::AskedFor;
use action::{Action, Work};
use room::{Permit, Room};
use warpline_core::backend::AsStream;
use warpline_core::backend::host::is_worker;
use warpline_core::threads;
use worker::{Shared, Worker, is_inside};

/// The result of a piece of work. An error fails its signals.
pub type WorkResult = Result<(), Box<dyn StdError + Send + Sync>>;

type WorkError = Box<dyn StdError + Send + Sync>;

/// Accepts work together with the values that it waits for and those that it signals, and issues it to streams when possible.
///
/// A submission is issued as soon as every value that it waits for has been *submitted*; the device does the rest of the waiting. Until
/// then the host holds it back. This does not hold back later submissions, so the signals may come later and from anywhere, even from a
/// later submission of the same queue. Submissions that are ready are issued in the order in which they were made. They go to the streams
/// in turn, so only semaphores order their work.
///
/// The queue calls work on its own thread, one piece at a time, with the context of its CUDA stream current. If work fails or panics, or
/// one of its semaphores has failed, everything that it was to signal fails with the same failure. Work that was not called before such a
/// failure is never called.
///
/// Dropping a queue issues what can be issued, fails what is still held back with [`Error::QueueDropped`], and waits for work and host
/// calls that are running. If buffers of the queue are not freed by then, its thread and streams stay until they are, and nothing waits for
/// that. It waits for no CUDA stream. In-process streams whose last handle the queue owns complete their work, as always.
/// If a queue is dropped in its own work or on an in-process stream, this waits for nothing.
///
/// The thread blocks all signals but those that a fault raises, so a signal of the process goes to a thread of the program. Threads and
/// processes that work starts inherit that mask.
///
/// A forked process has no thread for a queue of its parent. There, submissions fail with [`Error::Inherited`], and dropping the queue does
/// nothing. Earlier submissions remain with the parent.
///
/// ```
/// # use std::time::Duration;
/// use warpline::HostStream;
/// use warpline::timeline::{Queue, Semaphore};
///
/// # fn main() -> Result<(), warpline::timeline::Error> {
/// let queue = Queue::new("decode", HostStream::new("decode"))?;
/// let (arrived, decoded) = (Semaphore::named("arrived", 0), Semaphore::named("decoded", 0));
///
/// queue.submit(&[(&arrived, 1)], &[(&decoded, 1)], |stream| {
///     stream.launch(|| { /* decodes */ });
///     Ok(())
/// })?;
/// arrived.signal(1)?; // later, from any thread
/// decoded.wait(1, Duration::from_secs(5))?;
/// # Ok(())
/// # }
/// ```
pub struct Queue<S> {
    shared: Arc<Shared<S>>,
    when_full: WhenFull,
    worker: Option<JoinHandle<()>>,
}

/// The settings of a queue. [`Queue::builder`] creates it.
#[derive(Clone, Debug)]
pub struct QueueBuilder {
    name: Arc<str>,
    capacity: usize,
    when_full: WhenFull,
}

impl QueueBuilder {
    /// Sets how many submissions may be held back, including host calls that have not been called (default 1024, at least 1).
    pub fn capacity(mut self, submissions: usize) -> QueueBuilder {
        self.capacity = submissions.max(1);
        self
    }

    /// Sets what happens to a submission if the queue is full (default: it fails).
    pub fn when_full(mut self, when_full: WhenFull) -> QueueBuilder {
        self.when_full = when_full;
        self
    }

    /// Creates the queue over streams of one device.
    ///
    /// # Errors
    /// There is no stream, or the operating system cannot start a thread.
    pub fn build<S: AsStream + Send + 'static>(self, streams: impl Into<Vec<S>>) -> Result<Queue<S>, Error> {
        register_backends();
        let streams = streams.into();
        if streams.is_empty() {
            return Err(device(&format!("queue `{}`", self.name), "it has no stream to issue work to: give it one"));
        }
        let shared = Arc::new(Shared::new(Arc::clone(&self.name), Room::new(Arc::clone(&self.name), self.capacity)));
        let worker = Worker::new(Arc::clone(&shared), streams);
        let thread = threads::spawn(&self.name, move || worker.run());
        let worker =
            thread.map_err(|error| device(&format!("the thread of queue `{}`", self.name), &error.to_string()))?;
        Ok(Queue { shared, when_full: self.when_full, worker: Some(worker) })
    }
}

impl<S: AsStream + Send + 'static> Queue<S> {
    /// Creates a queue over one stream, with the defaults of the builder. `name` is the name of the queue's thread (with `␀` for a NUL). It
    /// is also in errors and, with a session, in the trace: in the `queue` of waits and signals, and in the counter of the queue's depth.
    ///
    /// # Errors
    /// The operating system cannot start a thread.
    pub fn new(name: &str, stream: S) -> Result<Queue<S>, Error> {
        Queue::<S>::builder(name).build(vec![stream])
    }

    /// Returns a builder. The name is used as in [`new`](Self::new).
    pub fn builder(name: &str) -> QueueBuilder {
        QueueBuilder { name: name.into(), capacity: 1024, when_full: WhenFull::default() }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.shared.name()
    }

    /// Submits work that waits for all of `waits`, and signals all of `signals` when a stream has completed what the work launched.
    ///
    /// It returns at once, unless the queue is full and is set to wait. The work is called with the stream.
    ///
    /// # Errors
    /// [`Error::QueueFull`] or [`Error::Inherited`]. Later errors fail the signals.
    pub fn submit(
        &self,
        waits: &[(&Semaphore, u64)],
        signals: &[(&Semaphore, u64)],
        work: impl FnOnce(&S) -> WorkResult + Send + 'static,
    ) -> Result<(), Error> {
        self.submit_work(waits, signals, Work::Stream(Box::new(work)))
    }

    /// Submits no work: a stream signals all of `signals` after all of `waits`.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn barrier(&self, waits: &[(&Semaphore, u64)], signals: &[(&Semaphore, u64)]) -> Result<(), Error> {
        self.submit_work(waits, signals, Work::Nothing)
    }

    /// Submits a function that the host calls when all of `waits` are *reached*. When it returns, `signals` are signalled.
    ///
    /// Host calls run on an in-process stream of the queue, so they do not delay other work. They are called one at a time, in the order in
    /// which their waits are reached. A call may run for a long time, and may signal [later](HostCall::defer).
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_host(
        &self,
        waits: &[(&Semaphore, u64)],
        signals: &[(&Semaphore, u64)],
        call: impl FnOnce(&mut HostCall) -> WorkResult + Send + 'static,
    ) -> Result<(), Error> {
        self.submit_work(waits, signals, Work::Host(Box::new(call)))
    }

    /// Allocates memory of the device, in the order of a stream, when all of `waits` are reached. Then `signals` are signalled.
    ///
    /// It returns at once, and no thread waits for the device. Work uses the memory if it waits for the signals; give it a
    /// [reference](Buffer::reference), which has the address. The memory is not initialised. On a CUDA stream it comes from the device's default
    /// memory pool (`cuMemAllocAsync`), on an in-process stream from the host's allocator.
    ///
    /// With a session, the trace shows the memory, and counts it for the innermost zone that is open on the calling thread;
    /// [`alloca_named`](Self::alloca_named) gives it a name of its own.
    ///
    /// If a wait fails, the signals fail as well, and nothing is allocated. If there is no memory, they fail with [`Error::OutOfMemory`], and the
    /// context stays usable.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use warpline::HostStream;
    /// use warpline::timeline::{Queue, Semaphore};
    ///
    /// # fn main() -> Result<(), warpline::timeline::Error> {
    /// let queue = Queue::new("steps", HostStream::new("compute"))?;
    /// let step = Semaphore::named("step", 0);
    ///
    /// let scratch = queue.alloca(&[], &[(&step, 1)], 1 << 20)?;
    /// let memory = scratch.reference();
    /// queue.submit(&[(&step, 1)], &[(&step, 2)], move |stream| {
    ///     stream.launch(move || assert!(memory.address().is_some())); // uses it
    ///     Ok(())
    /// })?;
    /// queue.dealloca(&[(&step, 2)], &[(&step, 3)], scratch)?;
    /// step.wait(3, Duration::from_secs(5))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`submit`](Self::submit), and for an allocation of 0 bytes.
    pub fn alloca(
        &self,
        waits: &[(&Semaphore, u64)],
        signals: &[(&Semaphore, u64)],
        bytes: u64,
    ) -> Result<Buffer, Error> {
        self.allocate(waits, signals, (bytes, None))
    }

    /// Works like [`alloca`](Self::alloca). In traces and in the report, the memory counts for this name, and not for a zone.
    ///
    /// # Errors
    /// As [`alloca`](Self::alloca).
    pub fn alloca_named(
        &self,
        name: &str,
        waits: &[(&Semaphore, u64)],
        signals: &[(&Semaphore, u64)],
        bytes: u64,
    ) -> Result<Buffer, Error> {
        self.allocate(waits, signals, (bytes, Some(name.into())))
    }

    /// Frees the memory of a buffer, in the order of the stream that allocated it, when all of `waits` are reached. Then `signals` are signalled.
    ///
    /// Let it wait for all work that uses the memory. It returns at once, needs no place in the queue, and takes a buffer of any queue.
    ///
    /// If a wait fails, or the stream refuses, the signals fail, and the memory is freed as if the buffer had been dropped.
    ///
    /// # Errors
    /// [`Error::Inherited`]. Later errors fail the signals.
    pub fn dealloca(
        &self,
        waits: &[(&Semaphore, u64)],
        signals: &[(&Semaphore, u64)],
        buffer: Buffer,
    ) -> Result<(), Error> {
        let memory = buffer.into_memory();
        let origin = Arc::clone(memory.origin());
        if !self.shared.is_here() || !origin.is_here() {
            return Err(Error::Inherited { name: Arc::clone(self.shared.name()) });
        }
        origin.dealloca(owned(waits), Signals::new(Arc::clone(self.shared.name()), owned(signals)), memory);
        Ok(())
    }

    fn allocate(
        &self,
        waits: &[(&Semaphore, u64)],
        signals: &[(&Semaphore, u64)],
        (bytes, name): (u64, Option<Arc<str>>),
    ) -> Result<Buffer, Error> {
        if bytes == 0 {
            let what = format!("an allocation on queue `{}`", self.name());
            return Err(device(&what, "it has 0 bytes: ask for at least 1"));
        }
        let ticket = self.enter()?;
        let origin = Arc::clone(&self.shared) as Arc<dyn Origin>;
        let memory = Arc::new(Memory::new(bytes, AskedFor::here(name), origin, Shared::live(&self.shared)));
        let buffer = Buffer::new(Arc::clone(&memory));
        self.push(waits, signals, (Work::Alloca(memory), ticket));
        Ok(buffer)
    }

    /// Waits until everything submitted so far has been issued or is held back for signals that have not been submitted. Returns how many
    /// submissions are held back. It waits for no device, and in the queue's own work it does not wait at all.
    pub fn flush(&self) -> usize {
        self.shared.flush()
    }

    fn submit_work(
        &self,
        waits: &[(&Semaphore, u64)],
        signals: &[(&Semaphore, u64)],
        work: Work<S>,
    ) -> Result<(), Error> {
        let ticket = self.enter()?;
        self.push(waits, signals, (work, ticket));
        Ok(())
    }

    /// Takes a place for a submission.
    fn enter(&self) -> Result<Permit, Error> {
        if !self.shared.is_here() {
            return Err(Error::Inherited { name: Arc::clone(self.shared.name()) });
        }
        // The queue's own work would wait for itself.
        let when_full = if is_inside(self.shared.address()) { WhenFull::Refuse } else { self.when_full };
        self.shared.room().enter(when_full)
    }

    fn push(&self, waits: &[(&Semaphore, u64)], signals: &[(&Semaphore, u64)], (work, ticket): (Work<S>, Permit)) {
        let signals = Signals::new(Arc::clone(self.shared.name()), owned(signals));
        self.shared.push(Action::new(owned(waits), signals, work, Some(ticket)));
    }
}

fn owned(list: &[(&Semaphore, u64)]) -> Vec<(Semaphore, u64)> {
    list.iter().map(|(semaphore, value)| ((*semaphore).clone(), *value)).collect()
}

impl<S> Drop for Queue<S> {
    fn drop(&mut self) {
        if !self.shared.is_here() {
            // The child has no such thread to join, and detaching it could affect another thread with the same number.
            return std::mem::forget(self.worker.take());
        }
        self.shared.close();
        if let Some(worker) = self.worker.take() {
            // The queue's own work, or work on its stream, may own the last handle, and a thread cannot join itself. The worker stays for
            // buffers that are not freed.
            if !is_inside(self.shared.address()) && !is_worker() && self.shared.ends_now() {
                // The worker catches every panic.
                let _ = worker.join();
            }
        }
    }
}

impl<S> fmt::Debug for Queue<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("name", self.shared.name()).finish_non_exhaustive()
    }
}
