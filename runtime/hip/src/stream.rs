//! Zones on one HIP stream: two events with times, which launching threads record and the collector reads.
//!
//! Marks call [`HipPoints`], so nothing there waits, and nothing but the two events is put on the stream. A zone has its events until it is
//! read; then the next zone of the device has them.

use std::any::Any;
use std::sync::Arc;

use warpline_core::backend::{Backend, BackendError, Call, Clock, EventPair, Points, Reader, Reading, Refused};
use warpline_core::record::{DeviceInfo, Span};
use warpline_core::stream::thread::{self, Thread};

use crate::clock::HipClock;
use crate::device::{self, DeviceState, Events};
use crate::driver::{HipError, LEGACY, PER_THREAD, StreamPtr, is_default};

/// A stream in one session.
pub(super) struct StreamHandle {
    device: Arc<DeviceState>,
    ptr: StreamPtr,
    name: Option<String>,
}

// SAFETY: the runtime takes a stream from any thread; everything else is `Send` and `Sync`.
#[allow(unsafe_code)]
unsafe impl Send for StreamHandle {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for StreamHandle {}

impl StreamHandle {
    pub(super) fn new(device: Arc<DeviceState>, ptr: StreamPtr) -> StreamHandle {
        let name = match ptr as usize {
            0 | LEGACY => Some("default stream".to_owned()),
            // The thread that first uses a per-thread default stream is the stream's own.
            PER_THREAD => Some(format!("per-thread default stream of {}", thread::with(Thread::called))),
            _ => None,
        };
        StreamHandle { device, ptr, name }
    }

    /// Calls `work` with a current device on which the stream's handle denotes this stream.
    #[inline]
    fn where_known<T>(&self, work: impl FnOnce() -> Result<T, HipError>) -> Result<T, Refused> {
        let driver = self.device.driver;
        let done = if is_default(self.ptr) { driver.with_device(self.device.ordinal, work) } else { work() };
        done.map_err(|error| error.refusal(driver))
    }
}

pub(super) struct HipBackend(pub(super) Arc<StreamHandle>);

impl Backend for HipBackend {
    fn name(&self) -> Option<String> {
        self.0.name.clone()
    }

    fn device(&self) -> DeviceInfo {
        self.0.device.info.clone()
    }

    fn clock_space(&self) -> u64 {
        device::space(self.0.device.ordinal)
    }

    fn points(&self) -> Result<EventPair, BackendError> {
        // Creates the events in advance, because mostly the collector calls this.
        self.0.device.add_slot().map_err(|error| self.0.device.failed(error))?;
        Ok(EventPair::new(HipPoints { stream: Arc::clone(&self.0), events: None, thread: 0 }))
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(HipReader(Arc::clone(&self.0.device)))
    }

    fn clock(&self) -> Result<Box<dyn Clock>, BackendError> {
        Ok(Box::new(HipClock::new(Arc::clone(&self.0.device))?))
    }
}

/// The events of a slot.
struct HipPoints {
    stream: Arc<StreamHandle>,
    /// Those of its zone; none without a zone, and if the session has none left.
    events: Option<Events>,
    /// The thread that began the zone.
    thread: u64,
}

impl Points for HipPoints {
    fn begin(&mut self, call: Call) -> Result<(), Refused> {
        let StreamHandle { device, ptr, .. } = &*self.stream;
        let taken = device.take().map_err(|error| error.refusal(device.driver))?;
        let events = self.events.insert(taken.ok_or(Refused::Full)?);
        self.thread = call.thread;
        // The stream was just queried for its key, and is not being captured.
        self.stream.where_known(|| device.driver.record(events.begin, *ptr))
    }

    fn end(&mut self, call: Call) -> Result<(), Refused> {
        let Some(events) = &self.events else { return Err(Refused::Full) };
        if self.stream.ptr as usize == PER_THREAD && call.thread != self.thread {
            let why = "the zone began on the per-thread default stream of another thread";
            return Err(Refused::Failed(BackendError::new(why)));
        }
        let driver = self.stream.device.driver;
        if self.stream.where_known(|| driver.is_capturing(self.stream.ptr))? {
            return Err(Refused::Captured);
        }
        self.stream.where_known(|| driver.record(events.end, self.stream.ptr))
    }

    fn release(&mut self) {
        if let Some(events) = self.events.take() {
            self.stream.device.give(events);
        }
    }
}

impl Drop for HipPoints {
    fn drop(&mut self) {
        self.release();
        self.stream.device.remove_slot();
    }
}

/// Reads the zones of one stream.
struct HipReader(Arc<DeviceState>);

impl Reader for HipReader {
    fn is_complete(&mut self, points: &EventPair) -> Result<bool, BackendError> {
        let events = events(points)?;
        self.0.driver.is_complete(events.end).map_err(|error| self.0.failed(error))
    }

    fn read(&mut self, points: &EventPair, _: Span, clock: &mut dyn Clock) -> Result<Option<Reading>, BackendError> {
        let events = events(points)?;
        let clock: &mut HipClock = (clock as &mut dyn Any).downcast_mut().ok_or_else(foreign)?;
        let failed = |error| self.0.failed(error);
        let Some(begin_ns) = clock.host_ns(events.begin).map_err(failed)? else { return Ok(None) };
        let length_ns = self.0.driver.elapsed_ns(events.begin, events.end).map_err(failed)?;
        // Two events with nothing between them can be read in either order.
        Ok(length_ns.map(|length_ns| Reading::exact(Span { begin_ns, end_ns: begin_ns + length_ns.max(0) })))
    }
}

fn events(points: &EventPair) -> Result<&Events, BackendError> {
    points.get::<HipPoints>().and_then(|points| points.events.as_ref()).ok_or_else(foreign)
}

fn foreign() -> BackendError {
    BackendError::new("a zone or a clock of another backend")
}
