//! The time of a context's events against the host's clock: [`Ring`] tells the times of its launches by it, and the collector
//! renews it.
//!
//! It compares the clocks by an event on a stream of its own. There is never more than one on its way: a device that hangs
//! gets no second one, so a full queue never makes the collector wait.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use super::super::clock::{Line, NotYet, Seen, watch};
use super::super::driver::{ContextPtr, CudaError, Driver, EventPtr, StreamPtr};
use super::super::owner::Hold;
use super::events::Ring;
use crate::backend::BackendError;
use crate::clock::{COMPARE_EVERY, Correlation, now_ns};
use crate::record::{DeviceInfo, DeviceKind};

/// An event of ours is watched for so long, the first one of a context for longer.
const WATCH: Duration = Duration::from_micros(100);
const FIRST_WATCH: Duration = Duration::from_millis(50);
/// The line begins with the best of so many.
const FIRST_LOOKS: usize = 5;
/// Between the first comparison of the clocks and the second; after such a pause the line between them begins anew.
const FIRST_EVERY: Duration = Duration::from_millis(5);
const RESTED: Duration = Duration::from_secs(3);

/// The time of a context's events against the host's clock, by events on a stream of our own.
pub(crate) struct EventClock {
    driver: &'static Driver,
    context: ContextPtr,
    id: u64,
    pub(crate) device: DeviceInfo,
    stream: StreamPtr,
    anchor: EventPtr,
    anchor_ns: i64,
    /// The event that is watched next, and since when it is on its stream, if it was watched for too long.
    spare: EventPtr,
    pending: Option<NotYet>,
    line: Line,
    correlation: Correlation,
    /// When the device was asked last, and when the clocks were compared last.
    asked: Instant,
    compared: Instant,
    every: Duration,
    /// Keeps the context alive.
    hold: Option<Hold>,
}

// SAFETY: the driver takes handles from any thread; everything else is `Send`.
unsafe impl Send for EventClock {}

impl EventClock {
    /// For the context of a ring. Its thread is the collector's from now on. On a device that is busy it knows no time yet.
    ///
    /// # Errors
    /// The driver refuses what it needs, the context is gone, or nobody keeps it alive.
    pub(crate) fn new(ring: &Ring) -> Result<EventClock, BackendError> {
        let (driver, context) = (ring.driver, ring.context);
        driver.relax_capture_mode();
        let Some(hold) = super::hold(driver, context, ring.context_id) else {
            return Err(BackendError(
                "the graph's context is gone, or no zone of this session was on its streams: capture or run one there"
                    .to_owned(),
            ));
        };
        let work = || {
            let ordinal = driver.device()?;
            let name = driver.device_name(ordinal)?;
            let device = DeviceInfo { ordinal: ordinal.unsigned_abs(), name, kind: DeviceKind::Cuda };
            let stream = driver.create_stream()?;
            let events = driver.create_events(2).inspect_err(|_| driver.destroy_stream(stream))?;
            Ok((device, stream, events))
        };
        let told = |error| driver.told(error);
        let made = driver.with_context(context, work).map_err(told);
        let (device, stream, events) = match made {
            Ok(made) => made,
            Err(error) => {
                hold.let_go();
                return Err(error);
            }
        };
        let mut clock = EventClock {
            driver,
            context,
            id: ring.context_id,
            hold: Some(hold),
            device,
            stream,
            anchor: events[0],
            anchor_ns: 0,
            spare: events[1],
            pending: None,
            line: Line::None,
            correlation: Correlation::new(0, now_ns(), 0),
            asked: Instant::now(),
            compared: Instant::now(),
            every: FIRST_EVERY,
        };
        clock.begin(None, FIRST_WATCH).map_err(told)?;
        Ok(clock)
    }

    /// Whether any event of ours has come.
    pub(crate) fn knows_time(&self) -> bool {
        self.line != Line::None
    }

    /// The time of an event of the context, on the device and on the host; none while it is not known.
    pub(super) fn at(&self, event: EventPtr) -> Option<(i64, i64)> {
        if !self.knows_time() {
            return None;
        }
        let device_ns = self.anchor_ns + self.driver.elapsed_ns(self.anchor, event).ok().flatten()?;
        Some((device_ns, self.correlation.host_ns(device_ns)))
    }

    /// Compares the clocks, if that was long ago. What the driver refuses is asked again later.
    pub(crate) fn renew(&mut self) {
        let _ = self.try_to_renew();
    }

    fn try_to_renew(&mut self) -> Result<(), CudaError> {
        let mut late = None;
        if let Some(not_yet) = &mut self.pending {
            match not_yet.look_again(self.driver, self.spare)? {
                Some(seen) => late = Some(seen),
                None => return Ok(()),
            }
            self.pending = None;
        }
        if self.line == Line::None {
            if late.is_none() && self.asked.elapsed() < self.every {
                return Ok(());
            }
            return self.begin(late, WATCH);
        }
        if late.is_some() {
            // It took too long to be watched: it still is an anchor.
            self.anchor_spare()?;
        }
        if self.asked.elapsed() < self.every {
            return Ok(());
        }
        let Some(seen) = self.ask(WATCH)? else { return Ok(()) };
        if !self.anchor_spare()? {
            return Ok(());
        }
        let (host_ns, uncertainty_ns) = (seen.middle_ns(), seen.uncertainty_ns());
        if self.line == Line::Rough || self.compared.elapsed() > RESTED {
            self.correlation.resume(self.anchor_ns, host_ns, uncertainty_ns);
            self.line = Line::Sound;
            self.every = FIRST_EVERY;
        } else {
            self.correlation.compare(self.anchor_ns, host_ns, uncertainty_ns);
            self.every = (self.every * 2).min(COMPARE_EVERY);
        }
        self.compared = Instant::now();
        Ok(())
    }

    /// Begins the line with the best of some events, or with one that came late, if none comes in time.
    fn begin(&mut self, late: Option<Seen>, limit: Duration) -> Result<(), CudaError> {
        let mut best = late.inspect(|_| std::mem::swap(&mut self.anchor, &mut self.spare));
        // The first ones are slow.
        for _ in 0..FIRST_LOOKS {
            let Some(seen) = self.ask(limit)? else { break };
            if best.as_ref().is_none_or(|best| seen.width_ns() <= best.width_ns()) {
                best = Some(seen);
                std::mem::swap(&mut self.anchor, &mut self.spare);
            }
        }
        if let Some(seen) = best {
            self.line = Line::from(&seen);
            self.correlation = Correlation::new(0, seen.middle_ns(), seen.uncertainty_ns());
            self.compared = Instant::now();
        }
        Ok(())
    }

    /// Records the spare event, which is on no stream, and watches it come; none if that takes longer.
    fn ask(&mut self, limit: Duration) -> Result<Option<Seen>, CudaError> {
        self.asked = Instant::now();
        let before_ns = now_ns();
        self.driver.with_context(self.context, || self.driver.record(self.spare, self.stream))?;
        match watch(self.driver, self.spare, before_ns, Instant::now() + limit)? {
            Ok(seen) => Ok(Some(seen)),
            Err(not_yet) => {
                self.pending = Some(not_yet);
                Ok(None)
            }
        }
    }

    /// Makes the event that came the anchor.
    fn anchor_spare(&mut self) -> Result<bool, CudaError> {
        let Some(since_ns) = self.driver.elapsed_ns(self.anchor, self.spare)? else { return Ok(false) };
        std::mem::swap(&mut self.anchor, &mut self.spare);
        self.anchor_ns += since_ns;
        Ok(true)
    }

    pub(crate) fn uncertainty_ns(&self) -> i64 {
        self.correlation.uncertainty_ns()
    }
}

impl Drop for EventClock {
    fn drop(&mut self) {
        let driver = self.driver;
        if driver.context_id(self.context) == Ok(self.id) {
            driver.destroy_event(self.anchor);
            driver.destroy_event(self.spare);
            driver.destroy_stream(self.stream);
        }
        if let Some(hold) = self.hold.take() {
            hold.let_go();
        }
    }
}
