//! Records timelines in a session: signals, waits, the memory of buffers, and the depths of queues.
//!
//! Semaphores, host waits and queues call this when they signal and wait. Waits take slots in the rings of zones, and signals are stored in
//! the history of their semaphore. Without a session, a call is one load of the switch; without the feature `enable`, it compiles to
//! nothing.
//!
//! A stream's wait has a point before and a point after it, like a zone, and is read in the same way. Its end is lazy if the ends of zones
//! are lazy, so it costs the application no more overlap than a zone does. A signal adds nothing to its stream: the collector derives its
//! time from existing points.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::point::Timepoint;
use crate::state::Core;
use warpline_core::backend::{AsStream, Source, StreamRef, key_of, source_of};
use warpline_core::catalog::RangeSpec;
use warpline_core::clock::now_ns;
use warpline_core::memory::MemoryTiming;
use warpline_core::observer::{ObservedSync, SyncCall, SyncKind};
use warpline_core::record::StreamInfo;
use warpline_core::reentrancy::Inside;
use warpline_core::stream::context::{NoSlot, SlotGuard, StreamContext};
use warpline_core::stream::memory::{Allocation, RefusedAllocation};
use warpline_core::stream::recorder::{self, Recorder};
use warpline_core::stream::slot::Lost;
use warpline_core::stream::thread;
use warpline_core::stream::waits::{GivenSignal, Waited};
use warpline_core::switch;
use warpline_core::wait::{QueueDepth, WaitOutcome};

/// A value of a semaphore for which a thread or a stream waits.
#[derive(Clone, Copy)]
pub(super) struct Edge<'a> {
    pub(super) core: &'a Core<Timepoint>,
    pub(super) value: u64,
    /// The waiting queue; none if no queue waits.
    pub(super) queue: Option<&'a Arc<str>>,
}

/// The time at which a call began, in ns; none if no session records.
pub(crate) type Called = Option<i64>;

#[inline]
pub(crate) fn called() -> Called {
    switch::epoch().map(|_| now_ns())
}

/// Calls `signal`, which submits a signal on this stream or from the calling thread. Stores the signal if it was submitted.
#[inline]
pub(crate) fn signalling(
    core: &Core<Timepoint>,
    value: u64,
    stream: Option<(&StreamRef<'_>, Called)>,
    queue: Option<&Arc<str>>,
    signal: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    // A signal on a stream happens later, and not on this thread.
    let observed = if stream.is_none() { observed(SyncKind::Signal, core, value, 1) } else { None };
    let signalled = match switch::epoch().and_then(|epoch| note(epoch, Some(value), stream, queue)) {
        None => signal(),
        Some(note) => {
            // The signal is stored first, because it can wake a waiter that looks it up at once.
            core.history.note(Arc::clone(&note), core.values().map_or(u64::MAX, |(_, submitted)| submitted));
            signal().inspect_err(|_| core.history.forget(&note))
        }
    };
    end_observed(observed, signalled.as_ref().err());
    signalled
}

/// Shows a call of this thread to the observers, if there are any.
#[inline]
fn observed(kind: SyncKind, core: &Core<Timepoint>, value: u64, values: usize) -> Option<ObservedSync> {
    ObservedSync::begin(|| SyncCall { kind, semaphore: core.name(), value, values })
}

fn end_observed(observed: Option<ObservedSync>, failed: Option<&Error>) {
    if let Some(observed) = observed {
        observed.end(outcome(failed));
    }
}

fn outcome(failed: Option<&Error>) -> WaitOutcome {
    match failed {
        None => WaitOutcome::Reached,
        Some(Error::Timeout { .. }) => WaitOutcome::TimedOut,
        Some(_) => WaitOutcome::Failed,
    }
}

/// Describes a signal of this thread, or of a stream at its current position. Returns none if the session cannot identify the stream.
#[cold]
fn note(
    epoch: NonZeroU32,
    value: Option<u64>,
    stream: Option<(&StreamRef<'_>, Called)>,
    queue: Option<&Arc<str>>,
) -> Option<Arc<GivenSignal>> {
    let thread_id = thread_id();
    let mut host_ns = now_ns();
    let by = match stream {
        None => {
            // This adds the thread to the session.
            thread::with(|thread| thread.host_context(epoch))?;
            (None, true)
        }
        Some((stream, called)) => {
            key_of(stream).ok()?;
            let put_ns = host_ns;
            let context = thread::with(|thread| thread.context(epoch, stream))?;
            host_ns = context.waits().place_of_signal(thread_id, called.unwrap_or(put_ns), put_ns);
            (Some(context.info.clone()?), matches!(source_of(stream), Source::Host(_)))
        }
    };
    Some(Arc::new(GivenSignal::new(value, epoch, by, (thread_id, host_ns), queue)))
}

/// Calls `hold`, which makes the stream wait, and puts a point before and a point after the wait.
#[inline]
pub(crate) fn waiting(
    stream: &StreamRef<'_>,
    edge: Edge<'_>,
    hold: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    let Some(epoch) = switch::epoch() else { return hold() };
    let open = OpenWait::begin(epoch, stream, || edge.waited(epoch));
    let held = hold();
    if let Some(open) = open {
        open.end(held.is_ok());
    }
    held
}

/// Records a wait of a stream for a value that was already reached.
#[inline]
pub(crate) fn passed<'a>(stream: impl FnOnce() -> StreamRef<'a>, edge: Edge<'_>) {
    if let Some(epoch) = switch::epoch()
        && !edge.core.history.is_initial(edge.value)
        && let Some(open) = OpenWait::begin(epoch, &stream(), || edge.waited(epoch))
    {
        open.end(true);
    }
}

/// Records a wait of one stream for another that does not use a semaphore, such as cudarc's `stream.wait(&event)`. The trace then shows the
/// wait with an arrow from `signalling`, as if it were for a semaphore of this name.
///
/// Call this instead of the wait, with the wait as a closure. It returns the result of the closure. The arrow begins at the position of
/// `signalling` at the time of this call, so it is most accurate directly after the event was recorded.
///
/// ```
/// # use std::sync::mpsc::channel;
/// use warpline::HostStream;
/// use warpline::timeline::declare_wait;
///
/// let (copy, compute) = (HostStream::new("copy"), HostStream::new("compute"));
/// let (copied, is_copied) = channel();
/// copy.launch(move || copied.send(()).unwrap_or_default());
/// declare_wait("weights", &compute, &copy, || {
///     compute.launch(move || is_copied.recv().unwrap_or_default());
/// });
/// # compute.synchronize().unwrap();
/// ```
///
/// While a session records, this puts a point before the wait and a point after it, on the waiting stream only. Without a session, or if
/// one of the streams is being captured into a graph, it only calls `wait`.
#[inline]
pub fn declare_wait<T>(
    name: &str,
    waiting: &(impl AsStream + ?Sized),
    signalling: &(impl AsStream + ?Sized),
    wait: impl FnOnce() -> T,
) -> T {
    let Some(epoch) = switch::epoch() else { return wait() };
    let called = called();
    let signal = note(epoch, None, Some((&signalling.as_stream(), called)), None);
    let open = signal.and_then(|signal| {
        let waited = || Waited {
            semaphore: name.into(),
            value: None,
            queue: None,
            outcome: WaitOutcome::Reached,
            signal: Some(signal),
            of: 1,
        };
        OpenWait::begin(epoch, &waiting.as_stream(), waited)
    });
    let waited = wait();
    if let Some(open) = open {
        open.end(true);
    }
    waited
}

/// Records the number of submissions in a queue.
#[inline]
pub(crate) fn depth(queue: &Arc<str>, depth: usize) {
    if let Some(recorder) = switch::epoch().and_then(recorder::current) {
        recorder.depths().add(QueueDepth { queue: Arc::clone(queue), at_ns: now_ns(), depth: depth as u64 });
    }
}

/// Who asked for memory.
#[derive(Clone)]
pub(crate) struct AskedFor {
    thread: u64,
    range: Option<&'static RangeSpec>,
    name: Option<Arc<str>>,
}

impl AskedFor {
    /// The calling thread, in its innermost zone if a session records.
    #[inline]
    pub(crate) fn here(name: Option<Arc<str>>) -> AskedFor {
        let range = switch::epoch().and_then(|epoch| {
            // This adds the thread to the session.
            thread::with(|thread| thread.host_context(epoch).and_then(|_| thread.innermost()))
        });
        AskedFor { thread: thread_id(), range, name }
    }
}

/// The session that records an allocation, and its end.
pub(crate) struct MemoryTrace {
    recorder: Arc<Recorder>,
    stream: Arc<StreamInfo>,
    freed: Option<Allocation>,
}

impl MemoryTrace {
    /// Returns none if no session records, or if it cannot identify the stream.
    #[inline]
    pub(crate) fn on(stream: &StreamRef<'_>) -> Option<MemoryTrace> {
        MemoryTrace::begin(switch::epoch()?, stream)
    }

    #[cold]
    fn begin(epoch: NonZeroU32, stream: &StreamRef<'_>) -> Option<MemoryTrace> {
        let _inside = Inside::enter();
        key_of(stream).ok()?;
        let recorder = recorder::current(epoch)?;
        let stream = thread::with(|thread| thread.context(epoch, stream))?.info.clone()?;
        Some(MemoryTrace { recorder, stream, freed: None })
    }

    pub(crate) fn allocated(
        &self,
        queue: &Arc<str>,
        asked: &AskedFor,
        (bytes, address): (u64, u64),
        timing: MemoryTiming,
    ) {
        let AskedFor { thread, range, name } = asked.clone();
        let (stream, queue) = (Arc::clone(&self.stream), Some(Arc::clone(queue)));
        let of = Allocation { stream, thread, queue, range, name, bytes, address };
        self.recorder.memory().allocated(of, timing);
    }

    /// Notes that there was no memory for the allocation.
    pub(crate) fn refused(&self, queue: &Arc<str>, asked: &AskedFor, bytes: u64) {
        let AskedFor { thread, range, .. } = asked.clone();
        let what = format!("an allocation on queue `{queue}`");
        self.recorder.memory().refused(RefusedAllocation { what, bytes: Some(bytes), thread, range, at_ns: now_ns() });
    }

    /// Records the free of the allocation.
    pub(crate) fn freed(&mut self, address: u64, timing: MemoryTiming) {
        self.freed = self.recorder.memory().freed(address, thread_id(), timing);
    }

    /// Takes the last free back, which the device refused.
    pub(crate) fn not_freed(&mut self, timing: MemoryTiming) {
        if let Some(of) = self.freed.take() {
            self.recorder.memory().allocated(of, timing);
        }
    }
}

impl Edge<'_> {
    fn waited(self, epoch: NonZeroU32) -> Waited {
        Waited {
            semaphore: Arc::clone(self.core.name()),
            value: Some(self.value),
            queue: self.queue.cloned(),
            outcome: WaitOutcome::Reached,
            signal: self.core.history.signal_at(self.value, epoch),
            of: 1,
        }
    }
}

/// Returns the calling thread's id.
fn thread_id() -> u64 {
    thread::with(|thread| thread.id())
}

/// A wait whose first point is on its stream. It is dropped without a second point if `hold` or `wait` panics.
struct OpenWait(Option<SlotGuard>);

impl OpenWait {
    #[cold]
    fn begin(epoch: NonZeroU32, stream: &StreamRef<'_>, waited: impl FnOnce() -> Waited) -> Option<OpenWait> {
        let _inside = Inside::enter();
        // A stream that is being captured has no times and must not be changed.
        key_of(stream).ok()?;
        let context = || thread::with(|thread| thread.context(epoch, stream));
        let claim = match context()?.claim_wait() {
            Err(NoSlot::Retired) => context()?.claim_wait(),
            claim => claim,
        };
        let mut claim = claim.ok()?;
        let slot = claim.slot()?;
        match slot.begin_wait(thread_id(), waited()) {
            Ok(()) => Some(OpenWait(Some(claim))),
            Err(why) => {
                claim.give_up_wait(why);
                None
            }
        }
    }

    fn end(mut self, is_held: bool) {
        let Some(mut claim) = self.here() else { return };
        let _inside = Inside::enter();
        let is_closed = claim.is_closed();
        let Some(slot) = claim.slot() else { return };
        let ended = match is_held {
            _ if is_closed => Err(Lost::Abandoned),
            false => Err(Lost::EventFailed),
            true => slot.end_wait(thread_id()),
        };
        match ended {
            Ok(()) => claim.publish_wait(),
            Err(why) => claim.give_up_wait(why),
        }
    }
}

impl OpenWait {
    /// Returns the slot, unless it belongs to a process from which this one was forked. Then the slot is not touched.
    fn here(&mut self) -> Option<SlotGuard> {
        let claim = self.0.take()?;
        if claim.is_inherited() {
            std::mem::forget(claim);
            return None;
        }
        Some(claim)
    }
}

impl Drop for OpenWait {
    fn drop(&mut self) {
        if let Some(claim) = self.here() {
            claim.give_up_wait(Lost::Abandoned);
        }
    }
}

/// A thread's wait. Dropping it means that the thread gave the wait up, and removes it from the count.
pub(crate) struct HostWait {
    open: Option<HostOpen>,
    observed: Option<ObservedSync>,
}

struct HostOpen {
    epoch: NonZeroU32,
    context: Arc<StreamContext>,
    begin_ns: i64,
    /// The number of values that are counted as begun.
    edges: u64,
}

impl HostWait {
    /// Begins a wait for this number of values, the first of which is `first`. With a timeout of zero it is a query, which counts as
    /// a wait only if the values are reached. Observers do not see queries.
    #[inline]
    pub(crate) fn begin(first: (&Core<Timepoint>, u64), edges: usize, timeout: Duration) -> HostWait {
        let (core, value) = first;
        let observed = if timeout.is_zero() { None } else { observed(SyncKind::Wait, core, value, edges) };
        let mut wait = HostWait::of_future(edges, timeout);
        wait.observed = observed;
        wait
    }

    /// Begins a wait that may move between threads. Observers follow threads and do not see it.
    #[inline]
    pub(crate) fn of_future(edges: usize, timeout: Duration) -> HostWait {
        HostWait { open: switch::epoch().and_then(|epoch| HostOpen::begin(epoch, edges, timeout)), observed: None }
    }

    /// Ends the wait for all of these values.
    #[inline]
    pub(crate) fn end<'a>(
        mut self,
        list: impl Iterator<Item = (&'a Core<Timepoint>, u64)> + Clone,
        failed: Option<&Error>,
    ) {
        end_observed(self.observed.take(), failed);
        if let Some(open) = self.open.take() {
            open.end(list, failed);
        }
    }
}

impl HostOpen {
    #[cold]
    fn begin(epoch: NonZeroU32, edges: usize, timeout: Duration) -> Option<HostOpen> {
        let context = thread::with(|thread| thread.host_context(epoch))?;
        let edges = if timeout.is_zero() { 0 } else { edges as u64 };
        context.waits().begin(edges);
        Some(HostOpen { epoch, context, begin_ns: now_ns(), edges })
    }

    #[cold]
    fn end<'a>(self, list: impl Iterator<Item = (&'a Core<Timepoint>, u64)> + Clone, failed: Option<&Error>) {
        let HostOpen { epoch, context, begin_ns, edges } = self;
        let waited_for = list.filter(|(core, value)| !core.history.is_initial(*value));
        let waits = waited_for.clone().count();
        // This was only a query.
        if failed.is_some() && edges == 0 {
            return;
        }
        let outcome = outcome(failed);
        let end_ns = now_ns();
        context.waits().begin((waits as u64).saturating_sub(edges));
        context.waits().take_back(edges.saturating_sub(waits as u64));
        for (core, value) in waited_for {
            let edge = Edge { core, value, queue: None };
            let waited = Waited { outcome, of: waits, ..edge.waited(epoch) };
            if let Ok(mut claim) = Arc::clone(&context).claim_begun_wait()
                && let Some(slot) = claim.slot()
            {
                slot.take_host_wait(thread_id(), waited, begin_ns, end_ns);
                claim.publish_wait();
            }
        }
    }
}

impl Drop for HostWait {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.context.waits().take_back(open.edges);
        }
    }
}

impl fmt::Debug for HostWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostWait").field(&self.open.is_some()).finish()
    }
}
