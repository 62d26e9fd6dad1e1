//! The semaphore: one number that only grows, which hosts and streams signal and wait for.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use super::error::{Error, Failure};
use super::point::{Timepoint, register_backends};
use super::state::{Core, Point, Seen, Stage, Waiter, WaiterKey};
use super::trace::{self, Edge};
use warpline_core::backend::{AsStream, StreamRef};
use warpline_core::stream::waits;

/// A timeline semaphore: a 64-bit value that only grows, and that host threads and streams signal and wait for.
///
/// A value is *submitted* when a signal for it was given: on the host, or on a stream that may not have reached the signal yet.
/// A value is *reached* when its signal has happened. A signal must be greater than every value that was submitted before.
///
/// Clones refer to the same semaphore. Only [`wait`](Self::wait) blocks the calling thread until a value is reached. A semaphore keeps no
/// stream alive: events that were recorded stay valid when their stream is destroyed. When the last clone is dropped, the signals that
/// streams still have to give are discarded.
///
/// In a process that was forked from the one that created it, every call but [`fail`](Self::fail) returns
/// [`Error::Inherited`], and `fail` does nothing.
///
/// A failed semaphore stays failed: every call but [`fail`](Self::fail) returns [`Error::Failed`] with the first failure.
#[derive(Clone)]
pub struct Semaphore {
    pub(super) core: Arc<Core<Timepoint>>,
}

impl Semaphore {
    /// Creates a semaphore that has reached `initial`, with a number as its name.
    pub fn new(initial: u64) -> Semaphore {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Semaphore::named(&format!("semaphore {}", NEXT.fetch_add(1, Ordering::Relaxed)), initial)
    }

    /// Creates a semaphore that has reached `initial`. Its name is in errors and, with a session, in the trace (`wait <name>`,
    /// `signal <name>`) and in `Report::semaphores`.
    pub fn named(name: &str, initial: u64) -> Semaphore {
        register_backends();
        waits::semaphore_is_made();
        Semaphore { core: Arc::new(Core::new(name.into(), initial)) }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.core.name()
    }

    /// Returns the greatest value that was reached. It queries the devices and waits for none.
    ///
    /// # Errors
    /// The semaphore has failed, or a device that was to signal it has.
    pub fn value(&self) -> Result<u64, Error> {
        self.core.poll_devices();
        self.core.values().map(|(reached, _)| reached)
    }

    /// Returns the greatest value for which a signal was given, by the host or on a stream.
    ///
    /// # Errors
    /// The semaphore has failed.
    pub fn submitted(&self) -> Result<u64, Error> {
        self.core.values().map(|(_, submitted)| submitted)
    }

    /// Reaches `value` now, and wakes everything that waits for it or for less. Smaller values that streams still have to signal count as
    /// reached as well.
    ///
    /// # Errors
    /// `value` is not greater than what was submitted before, or the semaphore has failed.
    pub fn signal(&self, value: u64) -> Result<(), Error> {
        self.signal_as(value, None)
    }

    /// Reaches `value` now. `queue` is the queue that signals, if there is one.
    pub(super) fn signal_as(&self, value: u64, queue: Option<&Arc<str>>) -> Result<(), Error> {
        trace::signalling(&self.core, value, None, queue, || self.core.signal(value))
    }

    /// Reaches `value` when the stream has completed all work that is on it now.
    ///
    /// On a CUDA stream this records an event without a time. It does not wait.
    ///
    /// # Errors
    /// `value` is not greater than what was submitted before, the semaphore has failed, the stream is being captured, or the
    /// device refuses. Then nothing was submitted.
    pub fn signal_on<S: AsStream + ?Sized>(&self, stream: &S, value: u64) -> Result<(), Error> {
        self.core.may_submit(value)?;
        let called = trace::called();
        let stream = stream.as_stream();
        let point = Timepoint::put(&stream, self.core.name())?;
        self.submit_on(value, point, (&stream, called), None)
    }

    /// Makes work that is put on the stream from now on wait until `value` is reached. The stream waits on the device; the calling
    /// thread does not wait.
    ///
    /// The signal must have been *submitted* before. To queue work whose signal is not submitted yet, use a [`Queue`](super::Queue): no
    /// operation on a stream can hold back the program's later launches on that stream and still be cancelled.
    ///
    /// # Errors
    /// [`Error::NotSubmitted`] if `value` has not been submitted; the semaphore has failed; the stream is being captured; the device
    /// refuses; or the signal comes from a device that this one cannot wait for. Then the stream does not wait.
    pub fn wait_on<S: AsStream + ?Sized>(&self, stream: &S, value: u64) -> Result<(), Error> {
        self.wait_on_as(stream, value, None)
    }

    /// Works like [`wait_on`](Self::wait_on). `queue` is the queue that waits, if there is one.
    pub(super) fn wait_on_as<S: AsStream + ?Sized>(
        &self,
        stream: &S,
        value: u64,
        queue: Option<&Arc<str>>,
    ) -> Result<(), Error> {
        let edge = Edge { core: &self.core, value, queue };
        match self.core.see(value)? {
            Seen::Reached => {
                trace::passed(|| stream.as_stream(), edge);
                Ok(())
            }
            Seen::Submitted(point) => {
                let stream = stream.as_stream();
                trace::waiting(&stream, edge, || point.hold(&stream, self.core.name()))
            }
            Seen::Waiting => {
                let submitted = self.submitted()?;
                Err(Error::NotSubmitted { semaphore: Arc::clone(self.core.name()), value, submitted })
            }
        }
    }

    /// Fails the semaphore permanently. Everything that waits for it is woken, queued work that waits for it is not executed, and the
    /// semaphores that this work would signal fail with the same failure. The first failure stays; returns whether this was the first.
    ///
    /// Work that is on a stream already is not stopped.
    pub fn fail(&self, error: impl Into<Box<dyn StdError + Send + Sync>>) -> bool {
        self.core.fail(Failure::new(Arc::clone(self.core.name()), error))
    }

    /// Returns the first failure, if there is one.
    pub fn failure(&self) -> Option<Failure> {
        match self.core.values() {
            Err(Error::Failed { failure, .. }) => Some(failure),
            _ => None,
        }
    }

    /// Submits a point that was put on this stream since this call began.
    pub(super) fn submit_on(
        &self,
        value: u64,
        point: Timepoint,
        stream: (&StreamRef<'_>, trace::Called),
        queue: Option<&Arc<str>>,
    ) -> Result<(), Error> {
        trace::signalling(&self.core, value, Some(stream), queue, || self.submit(value, point))
    }

    fn submit(&self, value: u64, point: Timepoint) -> Result<(), Error> {
        let tells = (!point.has_to_be_asked()).then(|| point.clone());
        // Waiters for a point that reports by itself also need the watcher, because a point that does not may be reached first.
        let middle = self.core.submit(value, point, || super::watcher::start(&self.core))?;
        if let Some(point) = tells {
            point.notify(&self.core, value);
        }
        if let Some(middle) = middle {
            self.core.thin(&middle);
        }
        Ok(())
    }

    /// Polls a value for a waiter that is woken later. `place` is its entry in the list of waiters until the next poll.
    ///
    /// `suffices` returns whether a submitted point is enough; then the value need not be reached.
    pub(super) fn poll(
        &self,
        value: u64,
        place: &mut Option<WaiterKey>,
        waiter: &Waiter,
        suffices: impl Fn(&Timepoint) -> bool,
    ) -> Poll<Result<(), Error>> {
        self.leave(place);
        loop {
            let stage = match self.core.see(value) {
                Err(error) => return Poll::Ready(Err(error)),
                Ok(Seen::Reached) => return Poll::Ready(Ok(())),
                Ok(Seen::Submitted(point)) if suffices(&point) => return Poll::Ready(Ok(())),
                Ok(Seen::Submitted(point)) => {
                    match point.is_reached() {
                        Ok(true) => self.core.reach(value),
                        Ok(false) => {}
                        Err(error) => drop(self.fail(error)),
                    }
                    Stage::Reached
                }
                Ok(Seen::Waiting) => Stage::Submitted,
            };
            *place = self.core.enlist(value, stage, waiter);
            if place.is_some() {
                if stage == Stage::Reached {
                    super::watcher::watch(&self.core);
                }
                return Poll::Pending;
            }
        }
    }

    /// Removes the waiter.
    pub(super) fn leave(&self, place: &mut Option<WaiterKey>) {
        if let Some(place) = place.take() {
            self.core.delist(place);
        }
    }

    /// Returns the state of a value for a thread that waits for it. A device is queried up to `in_a_row` times.
    pub(super) fn ask(&self, value: u64, in_a_row: u32) -> Result<WaitStep, Error> {
        match self.core.see(value)? {
            Seen::Reached => Ok(WaitStep::Reached),
            Seen::Waiting => Ok(WaitStep::Sleep(Stage::Submitted)),
            Seen::Submitted(point) if !point.has_to_be_asked() => Ok(WaitStep::Sleep(Stage::Reached)),
            Seen::Submitted(point) => match point.is_reached_soon(in_a_row) {
                Ok(true) => {
                    self.core.reach(value);
                    Ok(WaitStep::Reached)
                }
                Ok(false) => Ok(WaitStep::AskAgain),
                Err(error) => {
                    self.fail(error);
                    // This returns the first failure.
                    self.core.see(value).map(|_| WaitStep::AskAgain)
                }
            },
        }
    }

    /// Adds a thread to the list of waiters, or returns none if there is nothing to wait for.
    pub(super) fn enlist(&self, value: u64, stage: Stage, waiter: &Waiter) -> Option<WaiterKey> {
        self.core.enlist(value, stage, waiter)
    }
}

/// The next step of a thread that waits.
pub(super) enum WaitStep {
    Reached,
    AskAgain,
    /// The thread is woken at this stage.
    Sleep(Stage),
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Semaphore");
        shown.field("name", &self.name());
        match self.core.values() {
            Ok((reached, submitted)) => shown.field("reached", &reached).field("submitted", &submitted).finish(),
            Err(error) => shown.field("error", &error).finish(),
        }
    }
}
