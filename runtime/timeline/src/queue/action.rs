//! One submission: its waits, its work and its signals.

use std::sync::Arc;
use std::task::Poll;

use super::room::Permit;
use super::{WorkError, WorkResult};
use crate::call::{HostCall, Signals};
use crate::error::{Error, Failure};
use crate::memory::Memory;
use crate::point::{Timepoint, in_context};
use crate::semaphore::Semaphore;
use crate::state::{Waiter, WaiterKey};
use crate::storage::BufferAllocation;
use crate::trace;
use crate::trace::Edge;
use warpline_core::backend::AsStream;
use warpline_core::backend::host::HostStream;

pub(super) struct Action<S> {
    waits: Vec<Wait>,
    signals: Signals,
    work: Work<S>,
    /// The place that it takes in the queue. What frees memory takes none.
    ticket: Option<Permit>,
}

pub(super) enum Work<S> {
    Nothing,
    Stream(Box<StreamWork<S>>),
    Host(Box<HostWork>),
    Alloca(Arc<Memory>),
    Dealloca(Arc<Memory>),
    /// The memory of a buffer that was dropped.
    Reclaim(BufferAllocation),
}

type StreamWork<S> = dyn FnOnce(&S) -> WorkResult + Send;
type HostWork = dyn FnOnce(&mut HostCall) -> WorkResult + Send;

/// A value to wait for, with its entry in the list of waiters.
struct Wait {
    semaphore: Semaphore,
    value: u64,
    place: Option<WaiterKey>,
    is_over: bool,
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.semaphore.leave(&mut self.place);
    }
}

/// An action whose waits are over.
pub(super) enum Ready<S> {
    Stream(StreamAction<S>),
    Host(HostAction),
    Reclaim(BufferAllocation),
}

pub(super) struct StreamAction<S> {
    waits: Vec<Wait>,
    signals: Signals,
    work: ForStream<S>,
}

/// The work of a stream.
enum ForStream<S> {
    Nothing,
    Call(Box<StreamWork<S>>),
    Alloca(Arc<Memory>),
    Dealloca(Arc<Memory>),
}

pub(super) struct HostAction {
    waits: Vec<Wait>,
    signals: Signals,
    work: Box<HostWork>,
    ticket: Option<Permit>,
}

impl<S> Action<S> {
    /// Drops what no worker will take: its signals fail, and host memory is freed.
    pub(super) fn discard(self) {
        if let Work::Reclaim(allocation) = self.work {
            allocation.free_now();
        }
    }
}

impl<S: AsStream> Action<S> {
    pub(super) fn new(
        waits: Vec<(Semaphore, u64)>,
        signals: Signals,
        work: Work<S>,
        ticket: Option<Permit>,
    ) -> Action<S> {
        let wait = |(semaphore, value)| Wait { semaphore, value, place: None, is_over: false };
        Action { waits: waits.into_iter().map(wait).collect(), signals, work, ticket }
    }

    /// Returns `Ready` when nothing is left to wait for on the host. `stream` is one of the queue's streams.
    pub(super) fn poll(&mut self, stream: &S, waiter: &Waiter) -> Poll<Result<(), Error>> {
        let is_host_call = matches!(self.work, Work::Host(_));
        let mut is_over = true;
        for wait in self.waits.iter_mut().filter(|wait| !wait.is_over) {
            // A host call waits until the value is reached. A stream can wait by itself for streams of its kind.
            let suffices = |point: &Timepoint| !is_host_call && point.can_hold(&stream.as_stream());
            match wait.semaphore.poll(wait.value, &mut wait.place, waiter, suffices) {
                Poll::Ready(Ok(())) => wait.is_over = true,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => is_over = false,
            }
        }
        if is_over { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    pub(super) fn into_ready(self) -> Ready<S> {
        let Action { waits, signals, work, ticket } = self;
        let work = match work {
            Work::Host(work) => return Ready::Host(HostAction { waits, signals, work, ticket }),
            Work::Reclaim(allocation) => return Ready::Reclaim(allocation),
            Work::Stream(work) => ForStream::Call(work),
            Work::Nothing => ForStream::Nothing,
            Work::Alloca(memory) => ForStream::Alloca(memory),
            Work::Dealloca(memory) => ForStream::Dealloca(memory),
        };
        Ready::Stream(StreamAction { waits, signals, work })
    }

    /// Fails the signals. The work is not called, and nothing is allocated. Memory that was to be freed is freed when it is dropped.
    pub(super) fn fail(self, error: Error) {
        if let Work::Alloca(memory) = &self.work {
            memory.abandon();
        }
        self.signals.fail(error);
    }
}

impl<S: AsStream> StreamAction<S> {
    /// Returns the place of the only stream that it can be issued to; none if any stream will do.
    pub(super) fn place(&self) -> Option<usize> {
        if let ForStream::Dealloca(memory) = &self.work { Some(memory.stream()) } else { None }
    }

    /// Puts the waits, the work and the signals on the stream, which is the queue's at this place. `call` calls the user's function.
    pub(super) fn issue(
        self,
        queue: &Arc<str>,
        (stream, at): (&S, usize),
        call: impl FnOnce(&mut dyn FnMut() -> WorkResult) -> WorkResult,
    ) {
        let StreamAction { waits, signals, work } = self;
        let issued = waits.iter().try_for_each(|wait| wait.semaphore.wait_on_as(stream, wait.value, Some(queue)));
        drop(waits);
        let done = match (issued, work) {
            (Err(error), work) => {
                if let ForStream::Alloca(memory) = work {
                    memory.abandon();
                }
                Err(error.into())
            }
            (Ok(()), ForStream::Nothing) => Ok(()),
            (Ok(()), ForStream::Alloca(memory)) => {
                memory.issue(&stream.as_stream(), at, &signals).map_err(WorkError::from)
            }
            // If that fails, dropping the memory frees it later.
            (Ok(()), ForStream::Dealloca(memory)) => memory.free(&stream.as_stream()).map_err(WorkError::from),
            (Ok(()), ForStream::Call(work)) => {
                let mut work = Some(work);
                let mut once = || work.take().map_or(Ok(()), |work| work(stream));
                in_context(&stream.as_stream(), queue, || call(&mut once)).unwrap_or_else(|error| Err(error.into()))
            }
        };
        match done {
            Err(error) => signals.fail(error),
            Ok(()) if signals.list().is_empty() => {}
            Ok(()) => {
                let called = trace::called();
                let stream = stream.as_stream();
                match Timepoint::put(&stream, queue) {
                    Err(error) => signals.fail(error),
                    Ok(point) => {
                        for (semaphore, value) in signals.list() {
                            let point = point.clone();
                            if let Err(error) = semaphore.submit_on(*value, point, (&stream, called), Some(queue)) {
                                semaphore.core.fail(Failure::new(Arc::clone(queue), error));
                            }
                        }
                        signals.forget();
                    }
                }
            }
        }
    }
}

impl HostAction {
    /// Records the waits, which are over, on the queue's stream for host calls.
    pub(super) fn passes(&mut self, queue: &Arc<str>, stream: &HostStream) {
        for wait in std::mem::take(&mut self.waits) {
            let edge = Edge { core: &wait.semaphore.core, value: wait.value, queue: Some(queue) };
            trace::passed(|| stream.as_stream(), edge);
        }
    }

    /// Runs the host call. `call` calls the user's function.
    pub(super) fn run(self, call: impl FnOnce(&mut dyn FnMut() -> WorkResult) -> WorkResult) {
        let HostAction { waits: _, signals, work, ticket } = self;
        let mut host_call = HostCall { signals: Some(signals) };
        let mut work = Some(work);
        let done = call(&mut || work.take().map_or(Ok(()), |work| work(&mut host_call)));
        if let Some(signals) = host_call.signals.take() {
            match done {
                Ok(()) => signals.signal(),
                Err(error) => signals.fail(error),
            }
        }
        drop(ticket);
    }
}
