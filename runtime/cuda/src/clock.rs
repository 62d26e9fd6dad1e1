//! The clock of one CUDA context: the events of the context, for the clock that is common to devices with events.
//!
//! It has a stream of its own, which waits for nothing.

use std::sync::Arc;

use super::calibrate;
use super::context::Context;
use super::driver::{CudaError, EventPtr, StreamPtr};
use super::pool::PairId;
use warpline_core::backend::event_clock::{EventClock, EventDevice};
use warpline_core::backend::{BackendError, Clock};
use warpline_core::clock::{Correlation, EventOverhead};

/// The approximate cost of a zone on its thread in ns, without the recording of its points.
const OWN_NS: i64 = 300;

pub(super) struct CudaClock(EventClock<CudaEvents>);

/// The events of a context, and the clock's stream.
struct CudaEvents {
    context: Arc<Context>,
    stream: StreamPtr,
}

// SAFETY: the driver takes streams and events from any thread; everything else is `Send`.
#[allow(unsafe_code)]
unsafe impl Send for CudaClock {}

impl EventDevice for CudaEvents {
    type Event = EventPtr;
    type Error = CudaError;
    type Held = PairId;

    fn create_events(&self, count: usize) -> Result<Vec<EventPtr>, CudaError> {
        self.context.pool.in_context(|| self.context.driver.create_events(count))
    }

    fn destroy_event(&self, event: EventPtr) {
        self.context.driver.destroy_event(event);
    }

    fn record(&self, event: EventPtr) -> Result<(), CudaError> {
        self.context.driver.record(event, self.stream)
    }

    fn has_passed(&self, event: EventPtr) -> Result<bool, CudaError> {
        self.context.driver.has_passed(event)
    }

    fn elapsed_ns(&self, since: EventPtr, event: EventPtr) -> Result<Option<i64>, CudaError> {
        self.context.driver.elapsed_ns(since, event)
    }

    fn give_back(&self, pair: PairId) {
        self.context.pool.give(pair);
    }

    fn is_gone(&self) -> bool {
        self.context.pool.is_gone()
    }

    fn is_there(&self) -> bool {
        self.context.pool.look()
    }

    fn calibrated_ns(&self) -> Option<i64> {
        calibrate::overhead_ns(&self.context)
    }
}

impl Drop for CudaEvents {
    fn drop(&mut self) {
        if self.context.pool.look() {
            self.context.driver.destroy_stream(self.stream);
        }
    }
}

impl CudaClock {
    pub(super) fn new(context: Arc<Context>) -> Result<CudaClock, BackendError> {
        let driver = context.driver;
        driver.relax_capture_mode();
        let failed = |error| context.failed(error);
        let stream = context.pool.in_context(|| driver.create_stream()).map_err(failed)?;
        let events = CudaEvents { context: Arc::clone(&context), stream };
        EventClock::new(events).map(CudaClock).map_err(failed)
    }

    /// Returns the device's time at the begin of a pair of the context's pool; none while the begin is incomplete or the device's time is
    /// unknown.
    pub(super) fn device_ns(&mut self, context: &Context, id: PairId) -> Result<Option<i64>, CudaError> {
        let Some(pair) = context.pool.get(id) else { return Ok(None) };
        self.0.device_ns(pair.begin(), || {
            context.pool.hold(id);
            Some(id)
        })
    }

    pub(super) fn correlation(&self) -> &Correlation {
        self.0.correlation()
    }

    /// Converts a position in the device's time to the host's clock, for a record.
    pub(super) fn place(&mut self, device_ns: i64) -> i64 {
        self.0.place(device_ns)
    }

    /// Returns the maximum time between the end of queued work and the begin of the zone after it.
    pub(super) fn point_cost_ns(&self) -> i64 {
        self.0.point_cost_ns()
    }

    fn context(&self) -> &Arc<Context> {
        &self.0.device().context
    }
}

impl Clock for CudaClock {
    fn renew(&mut self) -> Result<(), BackendError> {
        self.0.renew().map_err(|error| self.context().failed(error))
    }

    fn uncertainty_ns(&self) -> i64 {
        self.correlation().uncertainty_ns()
    }

    fn worst_uncertainty_ns(&self) -> i64 {
        self.0.worst_uncertainty_ns()
    }

    fn bracket(&self) -> EventOverhead {
        self.0.bracket()
    }

    fn bracket_bound(&self) -> Option<EventOverhead> {
        self.0.bracket_bound()
    }

    fn note(&self) -> Option<String> {
        (!self.context().driver.reads_beside_launches()).then(|| {
            "the CUDA driver has no `cuEventElapsedTime_v2`: reading a zone's events makes threads that launch at the same time wait \
             for some µs; a driver for CUDA 12.8 or newer has it"
                .to_owned()
        })
    }

    fn zone_ns(&self) -> i64 {
        // A marker costs a fifth of an event with a time.
        let record_ns = self.0.record_ns();
        let points = if self.context().is_lazy() { record_ns * 6 / 5 } else { record_ns * 2 };
        points + OWN_NS
    }
}
