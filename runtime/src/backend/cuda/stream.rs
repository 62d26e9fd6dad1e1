//! Zones on one CUDA stream: where their points are put, and how they are read.
//!
//! A begin is always an event with a time. An end is one too (*eager*), or a *marker* without a time (*lazy*): then the next
//! begin on the stream is where the zone ended, and the collector's look at the marker says how late that can be.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::clock::CudaClock;
use super::context::Context;
use super::driver::{ContextPtr, CudaError, EventPtr, StreamPtr};
use super::pool::{Event, EventId, Stock};
use crate::backend::{Backend, BackendError, Call, Clock, Points, Reader, Reading, Refused};
use crate::clock::now_ns;
use crate::record::{DeviceInfo, EndFound, Span};
use crate::session::Ends;
use crate::stream::ring::List;

/// Handles that stand for a stream of whatever context is current, the last one also of whatever thread calls.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

/// A host thread launches nothing in less time than this: between two points closer than that there is no work.
const SHORTEST_LAUNCH_NS: i64 = 1_000;

/// A begin that waited longer than this between the host's call and the device's time was queued behind other work.
const QUEUED_NS: i64 = 20_000;

/// Whether the handle means another stream where another context is current.
pub(super) fn is_default(stream: StreamPtr) -> bool {
    stream as usize <= PER_THREAD
}

/// One stream in one session.
pub(super) struct CudaStream {
    context: Arc<Context>,
    ptr: StreamPtr,
    name: Option<String>,
    /// Counts points, to know their order.
    order: AtomicU64,
    /// Begins that the collector has not seen yet.
    begins: List,
}

// SAFETY: the driver takes a stream from any thread; everything else is `Send` and `Sync`.
#[allow(unsafe_code)]
unsafe impl Send for CudaStream {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for CudaStream {}

impl CudaStream {
    pub(super) fn new(context: Arc<Context>, ptr: StreamPtr) -> CudaStream {
        let name = match ptr as usize {
            0 | LEGACY => Some("default stream".to_owned()),
            PER_THREAD => Some("per-thread default stream".to_owned()),
            _ => None,
        };
        CudaStream { context, ptr, name, order: AtomicU64::new(0), begins: List::new() }
    }

    /// Calls `work` where the stream's handle means this stream.
    #[inline]
    fn where_known<T>(&self, work: impl FnOnce() -> Result<T, CudaError>) -> Result<T, CudaError> {
        if !is_default(self.ptr) {
            return work();
        }
        in_context(&self.context, self.context.ptr, work)
    }

    /// Takes an event and puts it on the stream, which is not being captured; `counted` where its order among the stream's
    /// points will be asked for.
    #[inline]
    fn record(&self, stock: &Stock, counted: bool) -> Result<EventId, Refused> {
        let Context { driver, pool, .. } = &*self.context;
        let failed = |error: CudaError| error.refusal(driver);
        let id = pool.take(stock).map_err(failed)?.ok_or(Refused::Full)?;
        let Some(event) = stock.get(id) else { return Err(Refused::Full) };
        if counted {
            event.before.store(self.order.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        }
        let recorded = self.where_known(|| driver.record(event.ptr(), self.ptr));
        if counted {
            event.after.store(self.order.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        }
        recorded.map(|()| id).map_err(|error| {
            pool.give(stock, id);
            failed(error)
        })
    }
}

/// Calls `work` with `context` current.
#[inline]
fn in_context<T>(
    context: &Context,
    ptr: ContextPtr,
    work: impl FnOnce() -> Result<T, CudaError>,
) -> Result<T, CudaError> {
    if context.driver.current_context()? == ptr { work() } else { context.driver.with_context(ptr, work) }
}

/// The points of one zone at a time.
struct CudaPoints {
    stream: Arc<CudaStream>,
    begin: Option<EventId>,
    end: Option<End>,
    thread: u64,
}

#[derive(Clone, Copy)]
enum End {
    Event(EventId),
    Marker(EventId),
}

impl Points for CudaPoints {
    #[inline]
    fn begin(&mut self, call: Call) -> Result<(), Refused> {
        let stream = &*self.stream;
        let stock = &stream.context.pool.timed;
        let lazy = stream.context.is_lazy();
        let id = stream.record(stock, lazy)?;
        self.begin = Some(id);
        self.thread = call.thread;
        if lazy && let Some(event) = stock.get(id) {
            event.host_ns.store(call.host_ns, Ordering::Relaxed);
            event.thread.store(call.thread, Ordering::Relaxed);
            stock.publish_to(&stream.begins, id);
        }
        Ok(())
    }

    #[inline]
    fn end(&mut self, thread: u64) -> Result<(), Refused> {
        let stream = &*self.stream;
        if stream.ptr as usize == PER_THREAD && thread != self.thread {
            return Err(Refused::Failed(BackendError("the per-thread default stream is another one here".to_owned())));
        }
        let Context { driver, pool, .. } = &*stream.context;
        // A begin needs no such question: its stream was asked when it was told from others.
        if stream.where_known(|| driver.is_capturing(stream.ptr)).map_err(|error| error.refusal(driver))? {
            return Err(Refused::Captured);
        }
        self.end = Some(if stream.context.is_lazy() {
            End::Marker(stream.record(&pool.markers, true)?)
        } else {
            End::Event(stream.record(&pool.timed, false)?)
        });
        Ok(())
    }

    fn is_complete(&self) -> Result<bool, BackendError> {
        let Context { driver, pool, .. } = &*self.stream.context;
        let event = match self.end {
            Some(End::Event(id)) => pool.timed.get(id),
            Some(End::Marker(id)) => pool.markers.get(id),
            None => None,
        };
        let Some(event) = event else { return Err(BackendError("a zone has no end on its stream".to_owned())) };
        driver.is_complete(event.ptr()).map_err(|error| self.stream.context.failed(error))
    }

    fn release(&mut self) {
        let pool = &self.stream.context.pool;
        if let Some(id) = self.begin.take() {
            pool.give(&pool.timed, id);
        }
        match self.end.take() {
            Some(End::Event(id)) => pool.give(&pool.timed, id),
            Some(End::Marker(id)) => pool.give(&pool.markers, id),
            None => {}
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl Drop for CudaPoints {
    fn drop(&mut self) {
        self.release();
    }
}

impl Context {
    /// An error of the collector's, in words; handles of a context that is gone are not touched again.
    pub(super) fn failed(&self, error: CudaError) -> BackendError {
        if error.context_is_gone() {
            self.pool.abandon();
        }
        self.driver.told(error)
    }
}

/// Reads one stream's zones.
struct CudaReader {
    stream: Arc<CudaStream>,
    /// Begins in the order in which they were recorded, from the first that can still be the end of a zone.
    begins: VecDeque<EventId>,
    /// When this look at the stream began, and the one before.
    look_ns: i64,
    last_look_ns: i64,
    /// How many of the oldest zones were looked at then too, and not complete.
    waited: usize,
    /// When this look had found out what is complete.
    seen_ns: Option<i64>,
}

impl CudaReader {
    /// The first begin that is surely behind a point.
    fn next_begin(&mut self, after: u64) -> Option<EventId> {
        let pool = &self.stream.context.pool;
        while let Some(&id) = self.begins.front() {
            if pool.timed.get(id).is_some_and(|begin| begin.before.load(Ordering::Relaxed) > after) {
                return Some(id);
            }
            self.begins.pop_front();
            pool.give(&pool.timed, id);
        }
        None
    }

    fn let_begins_go(&mut self) {
        let pool = &self.stream.context.pool;
        for id in self.begins.drain(..) {
            pool.give(&pool.timed, id);
        }
    }

    /// The end of a lazy zone, in the device's time: what it was found by, and how much earlier it can have been.
    fn lazy_end(
        &mut self,
        begin: (EventPtr, i64, u64),
        marker: &Event,
        host: Span,
        waited: bool,
        clock: &CudaClock,
    ) -> Result<(i64, EndFound, i64), CudaError> {
        let (begin_ptr, begin_ns, thread) = begin;
        let uncertainty_ns = clock.correlation().uncertainty_ns();
        let seen_ns = *self.seen_ns.get_or_insert_with(now_ns);
        let observed_ns = clock.correlation().device_ns(seen_ns) + uncertainty_ns;
        let mut earliest_ns = begin_ns;
        if waited {
            earliest_ns = earliest_ns.max(clock.correlation().device_ns(self.last_look_ns) - uncertainty_ns);
        }
        let boundary = self.next_begin(marker.after.load(Ordering::Relaxed));
        let next = boundary.and_then(|id| self.stream.context.pool.timed.get(id));
        let boundary = match next {
            Some(next) => self.stream.context.driver.elapsed_ns(begin_ptr, next.ptr())?.map(|ns| (next, begin_ns + ns)),
            None => None,
        };
        let (end_ns, found) = match boundary {
            Some((next, boundary_ns)) if boundary_ns <= observed_ns => {
                let next_host_ns = next.host_ns.load(Ordering::Relaxed);
                let follows =
                    next.thread.load(Ordering::Relaxed) == thread && next_host_ns - host.end_ns < SHORTEST_LAUNCH_NS;
                let was_queued = boundary_ns - clock.correlation().device_ns(next_host_ns) > QUEUED_NS;
                if follows && was_queued {
                    // Nothing lies between, and the stream did not wait: what is left is what points themselves cost.
                    earliest_ns = earliest_ns.max(boundary_ns - clock.point_cost_ns());
                }
                (boundary_ns, EndFound::Boundary)
            }
            _ => (observed_ns, EndFound::Observed),
        };
        let end_ns = end_ns.max(begin_ns);
        Ok((end_ns, found, end_ns - earliest_ns.min(end_ns)))
    }
}

impl Reader for CudaReader {
    fn pass(&mut self, waiting: usize) {
        (self.last_look_ns, self.look_ns) = (self.look_ns, now_ns());
        (self.waited, self.seen_ns) = (waiting, None);
        let stock = &self.stream.context.pool.timed;
        let order = |id: EventId| stock.get(id).map_or(0, |event| event.before.load(Ordering::Relaxed));
        let known = self.begins.len();
        let begins = &mut self.begins;
        stock.collect_from(&self.stream.begins, |id| begins.push_back(id));
        // Two threads on one stream can hand over in another order than they recorded.
        if !self.begins.range(known.saturating_sub(1)..).is_sorted_by_key(|&id| order(id)) {
            self.begins.make_contiguous().sort_by_key(|&id| order(id));
        }
    }

    fn read(
        &mut self,
        points: &mut dyn Points,
        host: Span,
        clock: &mut dyn Clock,
    ) -> Result<Option<Reading>, BackendError> {
        let foreign = || BackendError("points of another device".to_owned());
        let points = points.as_any().downcast_ref::<CudaPoints>().ok_or_else(foreign)?;
        let clock = clock.as_any().downcast_mut::<CudaClock>().ok_or_else(foreign)?;
        let context = Arc::clone(&self.stream.context);
        let waited = self.waited > 0;
        let (Some(begin_id), Some(end)) = (points.begin, points.end) else { return Err(foreign()) };
        let Some(begin) = context.pool.timed.get(begin_id) else { return Err(foreign()) };
        let failed = |error| context.failed(error);
        let Some(begin_ns) = clock.device_ns(&context, begin_id).map_err(failed)? else { return Ok(None) };
        let (end_ns, found, early_by_ns) = match end {
            End::Event(id) => {
                let end = context.pool.timed.get(id).ok_or_else(foreign)?;
                let length = context.driver.elapsed_ns(begin.ptr(), end.ptr()).map_err(failed)?;
                let Some(length) = length else { return Ok(None) };
                // Begins from before ends became eager: nobody asks for them any more.
                self.let_begins_go();
                (begin_ns + length.max(0), EndFound::Event, 0)
            }
            End::Marker(id) => {
                let marker = context.pool.markers.get(id).ok_or_else(foreign)?;
                let begin = (begin.ptr(), begin_ns, points.thread);
                self.lazy_end(begin, marker, host, waited, clock).map_err(failed)?
            }
        };
        self.waited = self.waited.saturating_sub(1);
        let begin_host_ns = clock.correlation().host_ns(begin_ns);
        Ok(Some(Reading {
            // The length is the device's own.
            gpu: Span { begin_ns: begin_host_ns, end_ns: begin_host_ns + (end_ns - begin_ns) },
            end: found,
            end_early_by_ns: early_by_ns,
        }))
    }
}

impl Drop for CudaReader {
    fn drop(&mut self) {
        self.pass(0);
        self.let_begins_go();
    }
}

/// The stream, as a session knows it.
pub(super) struct CudaBackend(pub(super) Arc<CudaStream>);

impl Backend for CudaBackend {
    fn name(&self) -> Option<String> {
        self.0.name.clone()
    }

    fn device(&self) -> DeviceInfo {
        self.0.context.device.clone()
    }

    fn clock_space(&self) -> u64 {
        self.0.context.id
    }

    fn points(&self) -> Result<Box<dyn Points>, BackendError> {
        Ok(Box::new(CudaPoints { stream: Arc::clone(&self.0), begin: None, end: None, thread: 0 }))
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(CudaReader {
            stream: Arc::clone(&self.0),
            begins: VecDeque::new(),
            look_ns: 0,
            last_look_ns: 0,
            waited: 0,
            seen_ns: None,
        })
    }

    fn clock(&self) -> Result<Box<dyn Clock>, BackendError> {
        Ok(Box::new(CudaClock::new(Arc::clone(&self.0.context))?))
    }

    fn provide(&self) {
        self.0.context.pool.provide();
    }

    fn choose_ends(&self, ends: Ends, streams: Option<usize>) {
        self.0.context.choose_ends(ends, streams);
    }

    fn is_short(&self) -> bool {
        self.0.context.pool.is_short()
    }

    fn close(&self) {
        self.0.context.pool.close();
    }
}
