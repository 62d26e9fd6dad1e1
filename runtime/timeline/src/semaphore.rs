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
use warpline_core::stream::waited;

/// A timeline: a 64-bit value that only grows, and that host threads and streams signal and wait for.
///
/// *Submitted* is a value for which a signal was given: on the host, or on a stream that may not have got there yet.
/// *Reached* is a value whose signal has happened. A signal has to be greater than every value that was submitted before.
///
/// Clones are the same semaphore. `Send` and `Sync`; no method but [`wait`](Self::wait) waits for a device, and none waits
/// for another thread. It keeps nothing alive of the streams that it was used with: events that were recorded stay valid when
/// their stream is destroyed. When the last clone goes, what streams still have to signal is forgotten.
///
/// In a process that was forked from the one that made it, a semaphore is nobody's: every call but [`fail`](Self::fail) gives
/// [`Error::Inherited`], and `fail` does nothing.
///
/// A failed semaphore stays failed: every call but [`fail`](Self::fail) gives [`Error::Failed`] with the first failure.
#[derive(Clone)]
pub struct Semaphore {
    pub(super) core: Arc<Core<Timepoint>>,
}

impl Semaphore {
    /// A semaphore that has reached `initial`, with a number as its name.
    pub fn new(initial: u64) -> Semaphore {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Semaphore::named(&format!("semaphore {}", NEXT.fetch_add(1, Ordering::Relaxed)), initial)
    }

    /// A semaphore that has reached `initial`. Its name is in errors, and, with a session, in the trace (`wait <name>`,
    /// `signal <name>`) and in [`Report::semaphores`](warpline_core::report::Report::semaphores).
    pub fn named(name: &str, initial: u64) -> Semaphore {
        register_backends();
        waited::semaphore_is_made();
        Semaphore { core: Arc::new(Core::new(name.into(), initial)) }
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.core.name()
    }

    /// The greatest value that was reached. It asks the devices, and waits for none.
    ///
    /// # Errors
    /// The semaphore has failed, or a device that was to signal it has.
    pub fn value(&self) -> Result<u64, Error> {
        self.core.look();
        self.core.values().map(|(reached, _)| reached)
    }

    /// The greatest value for which a signal was given, by the host or on a stream.
    ///
    /// # Errors
    /// The semaphore has failed.
    pub fn submitted(&self) -> Result<u64, Error> {
        self.core.values().map(|(_, submitted)| submitted)
    }

    /// Reaches `value` now, and wakes who waits for it or for less. What streams were still to signal below it counts as
    /// reached, too.
    ///
    /// # Errors
    /// `value` is not greater than what was submitted before, or the semaphore has failed.
    pub fn signal(&self, value: u64) -> Result<(), Error> {
        self.signal_as(value, None)
    }

    /// Reaches `value` now, on behalf of a queue or of nobody else.
    pub(super) fn signal_as(&self, value: u64, queue: Option<&Arc<str>>) -> Result<(), Error> {
        trace::signalling(&self.core, value, None, queue, || self.core.signal(value))
    }

    /// Reaches `value` when the stream has done all that is on it now.
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

    /// Lets what comes on the stream from now on wait until `value` is reached. The stream waits, on the device; the calling
    /// thread does not.
    ///
    /// The signal must have been *submitted* before. To queue work whose signal is still to come use a
    /// [`Queue`](super::Queue): nothing that this call could put on a stream would hold back what the program launches on
    /// that stream afterwards, and stay safe to give up.
    ///
    /// # Errors
    /// [`Error::NotSubmitted`] if nobody has submitted `value`; the semaphore has failed; the stream is being captured; the
    /// device refuses; or the signal comes from a device that this one cannot wait for. Then the stream does not wait.
    pub fn wait_on<S: AsStream + ?Sized>(&self, stream: &S, value: u64) -> Result<(), Error> {
        self.wait_on_as(stream, value, None)
    }

    /// The same on behalf of a queue, or of nobody else.
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

    /// Fails the semaphore for good. Who waits for it is woken, queued work that waits for it is not done, and what that
    /// work was to signal fails with the same failure. The first failure stays; says whether this was it.
    ///
    /// It stops no work that is on a stream already.
    pub fn fail(&self, error: impl Into<Box<dyn StdError + Send + Sync>>) -> bool {
        self.core.fail(Failure::new(Arc::clone(self.core.name()), error))
    }

    /// The first failure, if there is one.
    pub fn failure(&self) -> Option<Failure> {
        match self.core.values() {
            Err(Error::Failed { failure, .. }) => Some(failure),
            _ => None,
        }
    }

    /// Tells the semaphore of a point that is on this stream, since this call.
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
        let middle = self.core.submit(value, point)?;
        match tells {
            Some(point) => point.notify(&self.core, value),
            // Who waits for a point that tells by itself is to hear of this one, too, should it come first.
            None => super::watcher::watch(&self.core),
        }
        if let Some(middle) = middle {
            self.core.thin(&middle);
        }
        Ok(())
    }

    /// Asks for a value on behalf of something that is woken. `place` is where it waits, until it is asked again.
    ///
    /// `suffices` says of a submitted point whether it will do; then the value need not be reached.
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

    /// Waits no more.
    pub(super) fn leave(&self, place: &mut Option<WaiterKey>) {
        if let Some(place) = place.take() {
            self.core.delist(place);
        }
    }

    /// Where a value stands, for a thread that waits for it; a device that has to be asked is, up to so many times in a row.
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
                    // It says how it failed, and first.
                    self.core.see(value).map(|_| WaitStep::AskAgain)
                }
            },
        }
    }

    /// Puts a thread into the list of who waits; none if there is nothing to wait for any more.
    pub(super) fn enlist(&self, value: u64, stage: Stage, waiter: &Waiter) -> Option<WaiterKey> {
        self.core.enlist(value, stage, waiter)
    }
}

/// What a thread that waits has to do.
pub(super) enum WaitStep {
    Reached,
    AskAgain,
    /// Somebody wakes it at this stage.
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
