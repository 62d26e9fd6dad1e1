//! The clock of one HIP device: its events, for the clock that is common to devices with events.
//!
//! It has a stream of its own, which waits for nothing. The event of a zone never becomes an anchor, because another zone records it again; if
//! none of the clock's own events completes for `n` seconds, positions lose up to `n` × 60 ns.

use std::convert::Infallible;
use std::sync::Arc;

use warpline_core::backend::event_clock::{EventClock, EventDevice};
use warpline_core::backend::{BackendError, Clock};
use warpline_core::clock::EventOverhead;

use crate::device::DeviceState;
use crate::driver::{EventPtr, HipError, StreamPtr};

/// The approximate cost of a zone on its thread in ns, without the recording of its events.
const OWN_NS: i64 = 300;

pub(super) struct HipClock(EventClock<HipEvents>);

/// The events of a device, and the clock's stream.
struct HipEvents {
    device: Arc<DeviceState>,
    stream: StreamPtr,
}

// SAFETY: the runtime takes streams and events from any thread; everything else is `Send`.
#[allow(unsafe_code)]
unsafe impl Send for HipClock {}

impl EventDevice for HipEvents {
    type Event = EventPtr;
    type Error = HipError;
    type Lease = Infallible;

    fn create_events(&self, count: usize) -> Result<Vec<EventPtr>, HipError> {
        self.device.in_device(|| {
            let mut events = Vec::with_capacity(count);
            for _ in 0..count {
                let event = self.device.driver.create_event();
                let event = event.inspect_err(|_| events.iter().for_each(|event| self.destroy_event(*event)))?;
                events.push(event);
            }
            Ok(events)
        })
    }

    fn destroy_event(&self, event: EventPtr) {
        self.device.driver.destroy_event(event);
    }

    fn record(&self, event: EventPtr) -> Result<(), HipError> {
        self.device.driver.record(event, self.stream)
    }

    fn has_passed(&self, event: EventPtr) -> Result<bool, HipError> {
        self.device.driver.is_complete(event)
    }

    fn elapsed_ns(&self, since: EventPtr, event: EventPtr) -> Result<Option<i64>, HipError> {
        self.device.driver.elapsed_ns(since, event)
    }

    fn give_back(&self, held: Infallible) {
        match held {}
    }
}

impl Drop for HipEvents {
    fn drop(&mut self) {
        self.device.driver.destroy_stream(self.stream);
    }
}

impl HipClock {
    pub(super) fn new(device: Arc<DeviceState>) -> Result<HipClock, BackendError> {
        let driver = device.driver;
        // On the collector's thread, whose calls then break no capture of the application.
        driver.relax_capture_mode();
        let failed = |error| driver.describe(error);
        let stream = device.in_device(|| driver.create_stream()).map_err(failed)?;
        EventClock::new(HipEvents { device, stream }).map(HipClock).map_err(failed)
    }

    /// Returns the host's time at a zone's begin; none while the event is incomplete or the device's time is unknown.
    pub(super) fn host_ns(&mut self, begin: EventPtr) -> Result<Option<i64>, HipError> {
        let device_ns = self.0.device_ns(begin, || None)?;
        Ok(device_ns.map(|device_ns| self.0.place(device_ns)))
    }
}

impl Clock for HipClock {
    fn renew(&mut self) -> Result<(), BackendError> {
        self.0.renew().map_err(|error| self.0.device().device.failed(error))
    }

    fn uncertainty_ns(&self) -> i64 {
        self.0.correlation().uncertainty_ns()
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

    fn zone_ns(&self) -> i64 {
        2 * self.0.record_ns() + OWN_NS
    }
}
