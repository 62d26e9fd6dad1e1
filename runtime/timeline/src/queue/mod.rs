//! Queues: work that waits for semaphores on the host until a stream can take it.
//!
//! [`Queue`] is what a program holds; `room` bounds what it may hold back, `action` is one submission, `worker` the thread
//! that issues it.

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
use super::point::{device, register_backends};
use super::semaphore::Semaphore;
use action::{Action, Work};
use room::Room;
use warpline_core::backend::AsStream;
use warpline_core::backend::host::{is_worker, thread_named};
use worker::{Shared, Worker, is_inside};

/// What a piece of work says when it is done; an error fails its signals.
pub type WorkResult = Result<(), Box<dyn StdError + Send + Sync>>;

/// Takes work with the values that it waits for and those that it signals, and issues it to its streams when it can.
///
/// A submission is issued as soon as every value that it waits for has been *submitted*: the device does the rest of the
/// waiting. Until then it is held back on the host; those behind it are not, so signals may come later, from anywhere, also
/// from a later submission of the same queue. Of two submissions the one that was given first is issued first, unless it
/// still waits when the other does not; they go to one stream after the other, so only semaphores order their work.
///
/// Work is called on a thread of the queue, one at a time, with the context of its CUDA stream current. If it fails or panics,
/// or one of its semaphores has failed, all that it was to signal fails with the same failure, and if it was not called
/// yet, it never is.
///
/// Dropping a queue issues what can be issued, fails what is still held back with [`Error::QueueDropped`], and waits for work
/// and host calls that are being called; it waits for no CUDA stream. In-process streams of which the queue has the last
/// handle do their work to the end, as always. In its own work and on in-process streams, dropping a queue waits for nothing.
///
/// A process that was forked from the one that made the queue has no thread for it. There the queue refuses what it is given, with
/// [`Error::Inherited`], and dropping it does nothing; what was submitted before stays the parent's.
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

/// How a queue shall be: made by [`Queue::builder`].
#[derive(Clone, Debug)]
pub struct QueueBuilder {
    name: Arc<str>,
    capacity: usize,
    when_full: WhenFull,
}

impl QueueBuilder {
    /// How many submissions may be held back, and host calls wait to be called (default 1024, at least 1).
    pub fn capacity(mut self, submissions: usize) -> QueueBuilder {
        self.capacity = submissions.max(1);
        self
    }

    /// What a submission does that finds no room (default: it is refused).
    pub fn when_full(mut self, when_full: WhenFull) -> QueueBuilder {
        self.when_full = when_full;
        self
    }

    /// Makes the queue, over streams of one device.
    ///
    /// # Errors
    /// There is no stream, or the operating system gives no thread.
    pub fn build<S: AsStream + Send + 'static>(self, streams: impl Into<Vec<S>>) -> Result<Queue<S>, Error> {
        register_backends();
        let streams = streams.into();
        if streams.is_empty() {
            return Err(device(&format!("queue `{}`", self.name), "it has no stream to issue work to: give it one"));
        }
        let shared = Arc::new(Shared::new(Arc::clone(&self.name), Room::new(Arc::clone(&self.name), self.capacity)));
        let worker = Worker::new(Arc::clone(&shared), streams);
        let thread = thread_named(&self.name).spawn(move || worker.run());
        let worker =
            thread.map_err(|error| device(&format!("the thread of queue `{}`", self.name), &error.to_string()))?;
        Ok(Queue { shared, when_full: self.when_full, worker: Some(worker) })
    }
}

impl<S: AsStream + Send + 'static> Queue<S> {
    /// A queue over one stream, with the builder's defaults. `name` is its thread's (with `␀` for a NUL), stands in errors, and, with a session, in the
    /// trace: as the `queue` of its waits and signals, and of the counter of what it holds.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn new(name: &str, stream: S) -> Result<Queue<S>, Error> {
        Queue::<S>::builder(name).build(vec![stream])
    }

    /// Says how a queue shall be. The name is as for [`new`](Self::new).
    pub fn builder(name: &str) -> QueueBuilder {
        QueueBuilder { name: name.into(), capacity: 1024, when_full: WhenFull::default() }
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.shared.name()
    }

    /// Hands over work that waits for all of `waits`, and signals all of `signals` when a stream has done what it queued.
    ///
    /// It returns at once, unless the queue is full and was told to wait then. The work gets its stream.
    ///
    /// # Errors
    /// [`Error::QueueFull`], [`Error::Inherited`]. What goes wrong later fails the signals.
    pub fn submit(
        &self,
        waits: &[(&Semaphore, u64)],
        signals: &[(&Semaphore, u64)],
        work: impl FnOnce(&S) -> WorkResult + Send + 'static,
    ) -> Result<(), Error> {
        self.push(waits, signals, Work::Stream(Box::new(work)))
    }

    /// Hands over nothing to do: a stream signals all of `signals` after all of `waits`.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn barrier(&self, waits: &[(&Semaphore, u64)], signals: &[(&Semaphore, u64)]) -> Result<(), Error> {
        self.push(waits, signals, Work::Nothing)
    }

    /// Hands over a function of the host, which is called when all of `waits` are *reached*; when it returns, `signals` are.
    ///
    /// Host calls have an in-process stream of the queue's own, so they hold up no work: one is called after another, in the
    /// order in which their waits are reached. A call may do what it likes, take its time, and give its signals
    /// [later](HostCall::defer).
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_host(
        &self,
        waits: &[(&Semaphore, u64)],
        signals: &[(&Semaphore, u64)],
        call: impl FnOnce(&mut HostCall) -> WorkResult + Send + 'static,
    ) -> Result<(), Error> {
        self.push(waits, signals, Work::Host(Box::new(call)))
    }

    /// Waits until all that was submitted so far has been issued, or is held back for signals that have not come yet, and says
    /// how much is held back. It waits for no device; in the queue's own work it does not wait at all.
    pub fn flush(&self) -> usize {
        self.shared.flush()
    }

    fn push(&self, waits: &[(&Semaphore, u64)], signals: &[(&Semaphore, u64)], work: Work<S>) -> Result<(), Error> {
        if !self.shared.is_here() {
            return Err(Error::Inherited { name: Arc::clone(self.shared.name()) });
        }
        // Its own work would wait for itself.
        let when_full = if is_inside(self.shared.address()) { WhenFull::Refuse } else { self.when_full };
        let ticket = self.shared.room().enter(when_full)?;
        let owned =
            |list: &[(&Semaphore, u64)]| list.iter().map(|(semaphore, value)| ((*semaphore).clone(), *value)).collect();
        let signals = Signals::new(Arc::clone(self.shared.name()), owned(signals));
        self.shared.push(Action::new(owned(waits), signals, work, ticket));
        Ok(())
    }
}

impl<S> Drop for Queue<S> {
    fn drop(&mut self) {
        if !self.shared.is_here() {
            // There is no such thread to wait for, and none to detach: its number may be another's by now.
            return std::mem::forget(self.worker.take());
        }
        self.shared.close();
        if let Some(worker) = self.worker.take() {
            // Its own work, or work on its stream, may own the last handle; a thread cannot wait for itself.
            if !is_inside(self.shared.address()) && !is_worker() {
                // The worker catches every panic, so there is none to pass on.
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
