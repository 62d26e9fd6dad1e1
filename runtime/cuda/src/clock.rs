//! The clock of one CUDA context, which converts events to device time and device time to the host's.
//!
//! The driver gives times only as distances between two events, in 32-bit floats of milliseconds. Short distances are exact, so the
//! device's time is a chain of distances between *anchors*, about a second apart at most. About twice a second, an event on the clock's own
//! stream, which waits for nothing, is polled until it completes. It becomes the next anchor, and the moment of the observation relates the
//! device's time to the host's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::calibrate;
use super::context::Context;
use super::driver::{CudaError, Driver, EventPtr, StreamPtr};
use super::event_overhead::{Estimate, EventOverheads, PAIRS, estimate, lengths, record_pair};
use super::pool::PairId;
use warpline_core::backend::{BackendError, Clock};
use warpline_core::clock::{Comparison, Comparisons, Correlation, EventOverhead, now_ns};

/// How long an event on the clock's stream is polled. It takes longer if the device's queues are full, and is then queried later.
const WATCH: Duration = Duration::from_micros(60);
/// The largest interval of observation of a sharp comparison, in ns. The `MOST_LATE`th other one in a row is used as it is.
const SHARP_NS: i64 = 2_500;
const MOST_LATE: u32 = 16;
/// The time limit of the first anchor, and of later attempts at it.
const FIRST_WATCH: Duration = Duration::from_millis(200);
const LATER_WATCH: Duration = Duration::from_millis(1);
/// The interval of observation of its first event, in ns, above which a line is rough.
const ROUGH_NS: i64 = 100_000;
/// How long the measurement of the bracket may take.
const BRACKET_WATCH: Duration = Duration::from_millis(20);
/// The maximum time from the completion of an event until the host can see it, in ns.
const VISIBLE_NS: i64 = 1_000;
/// A zone's event that is this many ns after the anchor becomes the anchor.
const ANCHOR_NS: i64 = 1_000_000_000;
/// The approximate cost of a zone on its thread in ns, without the recording of its points.
const OWN_NS: i64 = 300;

pub(super) struct CudaClock {
    context: Arc<Context>,
    stream: StreamPtr,
    anchor: Anchor,
    /// The clock's own event that is polled next, and its last query if it did not complete in time.
    spare: EventPtr,
    pending: Option<NotYet>,
    line: Line,
    comparisons: Comparisons,
    brackets: EventOverheads,
    /// The duration of a call that records an event.
    record_ns: i64,
    /// The number of successive comparisons that were not sharp.
    late: u32,
}

// SAFETY: the driver takes streams and events from any thread; everything else is `Send`.
#[allow(unsafe_code)]
unsafe impl Send for CudaClock {}

/// An event whose device time is known.
struct Anchor {
    event: EventPtr,
    device_ns: i64,
    /// The pair of the pool to which the event belongs; none if it is the clock's own event.
    pooled: Option<PairId>,
    own: EventPtr,
}

/// The quality of the line between the clocks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// None of the clock's events has completed, so the device's time is unknown and zones wait.
    None,
    /// The first event of the line was observed late. The next comparison that is used starts a new line.
    Rough,
    Sound,
}

/// The interval in which the host saw an event complete, in ns of its own clock.
pub(super) struct Seen {
    from_ns: i64,
    to_ns: i64,
}

/// The host's last observation of an event that was incomplete.
pub(super) struct NotYet {
    asked_ns: i64,
}

impl CudaClock {
    pub(super) fn new(context: Arc<Context>) -> Result<CudaClock, BackendError> {
        let driver = context.driver;
        driver.relax_capture_mode();
        let failed = |error| context.failed(error);
        let (stream, first, spare) = context
            .pool
            .in_context(|| {
                let stream = driver.create_stream()?;
                match driver.create_events(2) {
                    Ok(events) => Ok((stream, events[0], events[1])),
                    Err(error) => {
                        driver.destroy_stream(stream);
                        Err(error)
                    }
                }
            })
            .map_err(failed)?;
        let mut clock = CudaClock {
            anchor: Anchor { event: first, device_ns: 0, pooled: None, own: first },
            spare,
            pending: None,
            line: Line::None,
            comparisons: Comparisons::new(Comparison { device_ns: 0, host_ns: now_ns(), uncertainty_ns: 0 }),
            brackets: EventOverheads::default(),
            record_ns: 1_500,
            late: 0,
            stream,
            context: Arc::clone(&context),
        };
        clock.begin(None, FIRST_WATCH).map_err(failed)?;
        Ok(clock)
    }

    /// Creates the first anchor and measures the bracket; neither if no event of the clock completes in time. `seen` is the observation of
    /// an event that completed late.
    fn begin(&mut self, seen: Option<Seen>, limit: Duration) -> Result<(), CudaError> {
        let mut best = seen.map(|seen| self.begin_with(seen));
        let mut deadline = None;
        // The first events of a context are slow, so the best of several is used.
        for _ in 0..9 {
            let before_ns = now_ns();
            self.context.driver.record(self.spare, self.stream)?;
            // The limit begins here, because the call may have waited long for the driver.
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + limit);
            match watch(self.context.driver, self.spare, before_ns, deadline)? {
                Ok(seen) if best.as_ref().is_none_or(|best| seen.width_ns() <= best.width_ns()) => {
                    best = Some(self.begin_with(seen));
                }
                Ok(_) => {}
                Err(not_yet) => {
                    self.pending = Some(not_yet);
                    break;
                }
            }
        }
        let Some(seen) = best else { return Ok(()) };
        self.line = Line::from(&seen);
        self.comparisons = Comparisons::new(seen.at(0));
        if self.pending.is_none() { self.set_bracket() } else { Ok(()) }
    }

    /// Makes the observed event the origin of the device's time.
    fn begin_with(&mut self, seen: Seen) -> Seen {
        std::mem::swap(&mut self.spare, &mut self.anchor.event);
        self.anchor.own = self.anchor.event;
        seen
    }

    /// Measures again what pairs of events add. Other threads may use the device in the meantime.
    fn set_bracket(&mut self) -> Result<(), CudaError> {
        match self.measure_bracket()? {
            Some((idle, busy)) => self.brackets.add(idle, busy),
            None => self.brackets.fail(),
        }
        if let Some(busy_ns) = calibrate::overhead_ns(&self.context) {
            self.brackets.calibrate(busy_ns);
        }
        Ok(())
    }

    /// Measures the lengths of pairs of events with nothing between them, singly and in a row, and the duration of recording one. Returns
    /// none if the device does not reach them in time.
    fn measure_bracket(&mut self) -> Result<Option<(Estimate, Estimate)>, CudaError> {
        let driver = self.context.driver;
        let events = self.context.pool.in_context(|| driver.create_events(PAIRS + 1))?;
        let measured = self.pairs(&events);
        for event in events {
            driver.destroy_event(event);
        }
        measured
    }

    fn pairs(&mut self, events: &[EventPtr]) -> Result<Option<(Estimate, Estimate)>, CudaError> {
        let driver = self.context.driver;
        let deadline = Instant::now() + BRACKET_WATCH;
        for pair in events.chunks_exact(2) {
            record_pair(driver, pair, self.stream)?;
            if watch(driver, pair[1], now_ns(), deadline)?.is_err() {
                return Ok(None);
            }
        }
        let idle = estimate(lengths(driver, events.chunks_exact(2))?, 0);
        let begin = Instant::now();
        for &event in events {
            driver.record(event, self.stream)?;
        }
        self.record_ns = begin.elapsed().as_nanos() as i64 / events.len() as i64;
        if watch(driver, events[PAIRS], now_ns(), deadline)?.is_err() {
            return Ok(None);
        }
        let busy = estimate(lengths(driver, events.windows(2))?, 0);
        Ok(idle.zip(busy))
    }

    /// Returns the device's time at the begin of a pair of the context's pool; none while the begin is incomplete or the device's time is
    /// unknown.
    pub(super) fn device_ns(&mut self, context: &Context, id: PairId) -> Result<Option<i64>, CudaError> {
        if self.line == Line::None {
            return Ok(None);
        }
        let Some(pair) = context.pool.get(id) else { return Ok(None) };
        let Some(since_ns) = context.driver.elapsed_ns(self.anchor.event, pair.begin())? else { return Ok(None) };
        let device_ns = self.anchor.device_ns + since_ns;
        if since_ns >= ANCHOR_NS {
            context.pool.hold(id);
            self.set_anchor(pair.begin(), device_ns, Some(id));
        }
        Ok(Some(device_ns))
    }

    fn set_anchor(&mut self, event: EventPtr, device_ns: i64, pooled: Option<PairId>) {
        let pool = &self.context.pool;
        if let Some(old) = std::mem::replace(&mut self.anchor.pooled, pooled) {
            pool.give(old);
        }
        (self.anchor.event, self.anchor.device_ns) = (event, device_ns);
    }

    /// Makes the polled event the anchor. Returns its device time.
    fn anchor_spare(&mut self) -> Result<Option<i64>, CudaError> {
        let since = self.context.driver.elapsed_ns(self.anchor.event, self.spare)?;
        let Some(since_ns) = since else { return Ok(None) };
        let device_ns = self.anchor.device_ns + since_ns;
        let watched = self.spare;
        self.spare = std::mem::replace(&mut self.anchor.own, watched);
        self.set_anchor(watched, device_ns, None);
        Ok(Some(device_ns))
    }

    pub(super) fn correlation(&self) -> &Correlation {
        self.comparisons.line()
    }

    /// Returns the maximum time between the end of queued work and the begin of the zone after it.
    pub(super) fn point_cost_ns(&self) -> i64 {
        2 * self.brackets.idle_most_ns() + 2_000
    }
}

impl Line {
    /// Returns the quality of a line that begins with this event.
    pub(super) fn from(seen: &Seen) -> Line {
        if seen.width_ns() > ROUGH_NS { Line::Rough } else { Line::Sound }
    }
}

impl Seen {
    pub(super) fn width_ns(&self) -> i64 {
        self.to_ns - self.from_ns
    }

    /// Returns the comparison of this observation with the event's time on the device.
    fn at(&self, device_ns: i64) -> Comparison {
        let host_ns = i64::midpoint(self.from_ns, self.to_ns);
        Comparison { device_ns, host_ns, uncertainty_ns: self.width_ns() / 2 + VISIBLE_NS }
    }
}

impl NotYet {
    /// Queries the event once more.
    pub(super) fn look_again(&mut self, driver: &Driver, event: EventPtr) -> Result<Option<Seen>, CudaError> {
        match watch(driver, event, self.asked_ns, Instant::now())? {
            Ok(seen) => Ok(Some(seen)),
            Err(not_yet) => {
                *self = not_yet;
                Ok(None)
            }
        }
    }
}

/// Polls a timed event until it is complete or the deadline has passed.
pub(super) fn watch(
    driver: &Driver,
    event: EventPtr,
    recorded_ns: i64,
    deadline: Instant,
) -> Result<Result<Seen, NotYet>, CudaError> {
    let mut from_ns = recorded_ns;
    loop {
        let asked_ns = now_ns();
        if driver.has_passed(event)? {
            return Ok(Ok(Seen { from_ns, to_ns: now_ns() }));
        }
        from_ns = asked_ns;
        if Instant::now() >= deadline {
            return Ok(Err(NotYet { asked_ns }));
        }
    }
}

impl Clock for CudaClock {
    fn renew(&mut self) -> Result<(), BackendError> {
        if self.context.pool.is_gone() || (self.pending.is_none() && !self.comparisons.is_due()) {
            return Ok(());
        }
        if !self.context.pool.look() {
            return Ok(());
        }
        let context = Arc::clone(&self.context);
        let failed = |error| context.failed(error);
        let driver = self.context.driver;
        let mut late = None;
        if let Some(not_yet) = &mut self.pending {
            match not_yet.look_again(driver, self.spare).map_err(failed)? {
                Some(seen) => late = Some(seen),
                None => return Ok(()),
            }
            self.pending = None;
        }
        if self.line == Line::None {
            return self.begin(late, LATER_WATCH).map_err(failed);
        }
        if late.is_some() {
            // The event completed too late for a comparison, but it is still an anchor.
            self.anchor_spare().map_err(failed)?;
        }
        let before_ns = now_ns();
        driver.record(self.spare, self.stream).map_err(failed)?;
        let seen = match watch(driver, self.spare, before_ns, Instant::now() + WATCH).map_err(failed)? {
            Ok(seen) => seen,
            Err(not_yet) => {
                self.pending = Some(not_yet);
                return Ok(());
            }
        };
        let device_ns = self.anchor_spare().map_err(failed)?;
        // An event that was observed late, because this thread or the driver was busy, is inaccurate, so another one follows soon.
        self.late = if seen.width_ns() > SHARP_NS { self.late + 1 } else { 0 };
        let is_late = (1..MOST_LATE).contains(&self.late) && !self.comparisons.has_rested();
        let Some(device_ns) = device_ns.filter(|_| !is_late) else {
            self.comparisons.retry_soon();
            return Ok(());
        };
        self.comparisons.add(seen.at(device_ns), self.line == Line::Rough);
        self.late = 0;
        self.line = Line::Sound;
        // The device has just completed an event in time.
        if self.brackets.are_wanted() {
            self.set_bracket().map_err(failed)?;
        }
        Ok(())
    }

    fn uncertainty_ns(&self) -> i64 {
        self.comparisons.line().uncertainty_ns()
    }

    fn bracket(&self) -> EventOverhead {
        self.brackets.known()
    }

    fn bracket_bound(&self) -> Option<EventOverhead> {
        self.brackets.bound()
    }

    fn note(&self) -> Option<String> {
        (!self.context.driver.reads_beside_launches()).then(|| {
            "the CUDA driver has no `cuEventElapsedTime_v2`: reading a zone's events makes threads that launch at the same time wait \
             for some µs; a driver for CUDA 12.8 or newer has it"
                .to_owned()
        })
    }

    fn zone_ns(&self) -> i64 {
        // A marker costs a fifth of an event with a time.
        let points = if self.context.is_lazy() { self.record_ns * 6 / 5 } else { self.record_ns * 2 };
        points + OWN_NS
    }
}

impl Drop for CudaClock {
    fn drop(&mut self) {
        self.set_anchor(self.anchor.own, 0, None);
        let driver = self.context.driver;
        if self.context.pool.look() {
            driver.destroy_event(self.anchor.own);
            driver.destroy_event(self.spare);
            driver.destroy_stream(self.stream);
        }
    }
}
