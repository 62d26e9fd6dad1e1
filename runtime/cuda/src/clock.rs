//! The clock of one CUDA context: the events of the context, for the clock that is common to devices with events.
//!
//! It has a stream of its own, which waits for nothing. In a session with stamps, its events also join the device's clock.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::calibrate;
use super::context::Context;
use super::driver::{CudaError, EventPtr, StreamPtr};
use super::pool::PairId;
use super::stamps::{self, Stamper};
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
    /// Where the events join the device's clock, in a session with stamps.
    joint: OnceLock<Joint>,
}

// SAFETY: the driver takes streams and events from any thread; everything else is `Send`.
#[allow(unsafe_code)]
unsafe impl Send for CudaClock {}

impl EventDevice for CudaEvents {
    type Event = EventPtr;
    type Error = CudaError;
    type Lease = PairId;

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
        self.context.pool.check_alive()
    }

    fn join(&self, event: EventPtr) -> Result<Option<(i64, i64)>, CudaError> {
        let Some(joint) = self.joint()? else { return Ok(None) };
        joint.read(&self.context, event)
    }

    fn calibrated_ns(&self) -> Option<i64> {
        calibrate::overhead_ns(&self.context)
    }
}

impl CudaEvents {
    /// Returns the joint, which is made when the context has stamps.
    fn joint(&self) -> Result<Option<&Joint>, CudaError> {
        if let Some(joint) = self.joint.get() {
            return Ok(Some(joint));
        }
        let Some(stamper) = stamps::is_on().then(|| stamps::ready_in(self.context.id)).flatten() else {
            return Ok(None);
        };
        let events = self.create_events(2)?;
        Ok(Some(self.joint.get_or_init(|| Joint { stamper, before: events[0], after: events[1] })))
    }
}

/// A read of the device's clock between two events, on the stream of the context's stamps: it relates events to `%globaltimer`.
struct Joint {
    stamper: Arc<Stamper>,
    before: EventPtr,
    after: EventPtr,
}

/// How long the answer is waited for. A device that is full of work answers later, and is asked again at the next comparison.
const ANSWER: Duration = Duration::from_micros(40);

impl Joint {
    /// Returns the earliest and the latest host time of an event that has completed.
    fn read(&self, context: &Context, event: EventPtr) -> Result<Option<(i64, i64)>, CudaError> {
        let driver = context.driver;
        let Some(read) = self.stamper.read_clock(|stream, launch| {
            driver.record(self.before, stream)?;
            launch()?;
            driver.record(self.after, stream)
        })?
        else {
            return Ok(None);
        };
        let deadline = Instant::now() + ANSWER;
        while !driver.has_passed(self.after)? {
            if Instant::now() >= deadline {
                return Ok(None);
            }
        }
        let Some((host_ns, uncertainty_ns)) = stamps::place_read(&self.stamper, &read) else { return Ok(None) };
        let (since_ns, read_ns) = (driver.elapsed_ns(event, self.after)?, driver.elapsed_ns(self.before, self.after)?);
        // The read was before the second of the two events, and behind the first.
        Ok(since_ns.zip(read_ns).map(|(since_ns, read_ns)| {
            let after_ns = host_ns - since_ns;
            (after_ns - uncertainty_ns, after_ns + uncertainty_ns + read_ns)
        }))
    }
}

impl Drop for CudaEvents {
    fn drop(&mut self) {
        if self.context.pool.check_alive() {
            if let Some(joint) = self.joint.get() {
                [joint.before, joint.after].into_iter().for_each(|event| self.destroy_event(event));
            }
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
        let events = CudaEvents { context: Arc::clone(&context), stream, joint: OnceLock::new() };
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
