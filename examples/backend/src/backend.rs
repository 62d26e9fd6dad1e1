//! warpline's traits for the pool's queues: everything that a crate for another API has to write.
//!
//! Launching threads call `PoolPoints`, and the collector's thread calls `PoolReader` and `PoolTime`. Nothing here waits for a
//! queue.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use warpline::AsStream;
use warpline::backend::{
    Backend, BackendError, BackendStream, Call, Clock, Comparison, Comparisons, EventPair, Points, Reader, Reading,
    Refused, Scope, Space, StreamKey, StreamRef, new_space, now_ns, stream_dropped,
};
use warpline::record::{DeviceInfo, DeviceKind, Span};

use crate::pool::{Operation, Pool, PoolError, Queue, Shared, Stamp};

/// A pool as a device whose streams marks take. Dropping it drops the pool.
pub struct PoolDevice {
    pool: Pool,
    device: Device,
}

/// What the streams of a pool know of it.
#[derive(Clone, Copy)]
struct Device {
    /// The space of the streams' keys, and of their clock: one pool has one clock.
    space: Space,
    /// The number of the pool in this process.
    ordinal: u32,
}

impl PoolDevice {
    /// Takes a pool.
    pub fn new(pool: Pool) -> PoolDevice {
        static POOLS: AtomicU32 = AtomicU32::new(0);
        let ordinal = POOLS.fetch_add(1, Ordering::Relaxed);
        PoolDevice { pool, device: Device { space: new_space(), ordinal } }
    }

    /// Creates a stream.
    pub fn stream(&self, name: &str) -> PoolStream {
        PoolStream { queue: self.pool.shared().queue(name), device: self.device }
    }

    /// Returns the pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

/// A stream of a pool: closures run one after another, on any of the pool's workers.
///
/// `Send` and `Sync`. Dropping it does not wait; what is queued still runs.
pub struct PoolStream {
    queue: Arc<Queue>,
    device: Device,
}

impl PoolStream {
    /// Queues a closure.
    ///
    /// # Errors
    /// The stream has failed, or its pool was dropped.
    pub fn launch(&self, work: impl FnOnce() + Send + 'static) -> Result<(), PoolError> {
        self.queue.push(Operation::Run(Box::new(work)))
    }

    /// Waits until everything that is queued has run, or the stream has failed.
    pub fn synchronize(&self) {
        self.queue.wait();
    }

    /// Makes the stream fail for ever, as a device does after an error.
    pub fn fail(&self, why: &str) {
        self.queue.fail(why);
    }

    fn key(&self) -> StreamKey {
        // The pool never uses a queue's number again, so a new stream is not mistaken for a dropped one.
        self.device.space.key(self.queue.number)
    }
}

impl fmt::Debug for PoolStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolStream").field("name", &self.queue.name).finish_non_exhaustive()
    }
}

/// Marks take the stream.
impl AsStream for PoolStream {
    fn as_stream(&self) -> StreamRef<'_> {
        StreamRef::of_backend(Ok(self.key()), self)
    }
}

impl BackendStream for PoolStream {
    fn backend(&self, _: &Scope) -> Result<Arc<dyn Backend>, BackendError> {
        Ok(Arc::new(PoolBackend { queue: Arc::clone(&self.queue), device: self.device }))
    }

    // No handle is needed to keep the stream alive: a zone's points own the queue.
}

impl Drop for PoolStream {
    /// Tells the sessions, which forget the stream when its zones are read.
    fn drop(&mut self) {
        stream_dropped(self.key());
    }
}

/// A stream in one session.
struct PoolBackend {
    queue: Arc<Queue>,
    device: Device,
}

impl Backend for PoolBackend {
    fn name(&self) -> Option<String> {
        Some(self.queue.name.clone())
    }

    fn device(&self) -> DeviceInfo {
        DeviceInfo { ordinal: self.device.ordinal, name: "thread pool".to_owned(), kind: DeviceKind::Other("pool") }
    }

    fn clock_space(&self) -> u64 {
        self.device.space.id()
    }

    fn points(&self) -> Result<EventPair, BackendError> {
        Ok(EventPair::new(PoolPoints { queue: Arc::clone(&self.queue), begin: Stamp::new(), end: Stamp::new() }))
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(PoolReader(Arc::clone(&self.queue)))
    }

    fn clock(&self) -> Result<Box<dyn Clock>, BackendError> {
        Ok(Box::new(PoolTime::new(Arc::clone(self.queue.shared()))))
    }
}

/// The begin and end of one zone at a time. Later zones use the two stamps again.
struct PoolPoints {
    queue: Arc<Queue>,
    begin: Arc<Stamp>,
    end: Arc<Stamp>,
}

impl PoolPoints {
    fn record(&self, stamp: &Arc<Stamp>) -> Result<(), Refused> {
        stamp.reset();
        let pushed = self.queue.push(Operation::Stamp(Arc::clone(stamp)));
        pushed.map_err(|error| Refused::Failed(BackendError::new(error.to_string())))
    }
}

impl Points for PoolPoints {
    fn begin(&mut self, _: Call) -> Result<(), Refused> {
        self.record(&self.begin)
    }

    fn end(&mut self, _: Call) -> Result<(), Refused> {
        self.record(&self.end)
    }

    fn release(&mut self) {
        // A zone that never ended may have left its begin in the queue. It must not set the stamp of a later zone.
        if self.end.get().is_none() {
            (self.begin, self.end) = (Stamp::new(), Stamp::new());
        }
    }
}

/// Reads the zones of one stream.
struct PoolReader(Arc<Queue>);

impl Reader for PoolReader {
    fn is_complete(&mut self, points: &EventPair) -> Result<bool, BackendError> {
        let points: &PoolPoints = points.get().ok_or_else(foreign)?;
        match self.0.error() {
            _ if points.end.get().is_some() => Ok(true),
            Some(why) => Err(BackendError::new(why)),
            None => Ok(false),
        }
    }

    fn read(&mut self, points: &EventPair, _: Span, clock: &mut dyn Clock) -> Result<Option<Reading>, BackendError> {
        let points: &PoolPoints = points.get().ok_or_else(foreign)?;
        let clock: &PoolTime = (clock as &dyn Any).downcast_ref().ok_or_else(foreign)?;
        let Some((begin, end)) = points.begin.get().zip(points.end.get()) else { return Ok(None) };
        // The length is the device's own; only the position is converted.
        let begin_ns = clock.comparisons.line().host_ns(begin);
        Ok(Some(Reading::exact(Span { begin_ns, end_ns: begin_ns + (end - begin) })))
    }
}

/// The error for an object of another backend.
fn foreign() -> BackendError {
    BackendError::new("a zone or a clock of another backend")
}

/// The pool's clock, related to the host's.
///
/// It outlives the stream that the session met first, so it holds the pool's state and no queue.
struct PoolTime {
    shared: Arc<Shared>,
    comparisons: Comparisons,
}

impl PoolTime {
    /// A reading of this uncertainty is good enough, in ns.
    const SHARP_NS: i64 = 200;

    fn new(shared: Arc<Shared>) -> PoolTime {
        let first = PoolTime::compare(&shared);
        PoolTime { shared, comparisons: Comparisons::new(first) }
    }

    /// Reads both clocks: the best of a few readings, because this thread may be interrupted between the two.
    fn compare(shared: &Shared) -> Comparison {
        let look = || {
            let before_ns = now_ns();
            let device_ns = shared.now_ns();
            let after_ns = now_ns();
            let host_ns = i64::midpoint(before_ns, after_ns);
            Comparison { device_ns, host_ns, uncertainty_ns: (after_ns - before_ns) / 2 + 1 }
        };
        let first = look();
        let best = Comparison::best_of::<()>(5, PoolTime::SHARP_NS, || Ok(Some(look())));
        best.ok().flatten().filter(|best| best.uncertainty_ns < first.uncertainty_ns).unwrap_or(first)
    }
}

impl Clock for PoolTime {
    fn renew(&mut self) -> Result<(), BackendError> {
        if self.comparisons.is_due() {
            self.comparisons.add(PoolTime::compare(&self.shared), false);
        }
        Ok(())
    }

    fn uncertainty_ns(&self) -> i64 {
        self.comparisons.line().uncertainty_ns()
    }

    fn zone_ns(&self) -> i64 {
        600
    }
}
