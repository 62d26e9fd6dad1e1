//! The clock of a device that gives times only as distances between two events, as CUDA and HIP do: it converts events to device time and
//! device time to the host's.
//!
//! The distances are 32-bit floats of milliseconds. Short ones are exact, so the device's time is a chain of distances between *anchors*,
//! about a second apart at most. About twice a second, an event on the clock's own stream, which waits for nothing, is polled until it
//! completes. It becomes the next anchor, and the moment of the observation relates the device's time to the host's.

mod overhead;
#[cfg(test)]
mod tests;
mod watch;

use std::time::{Duration, Instant};

use crate::clock::{Comparison, Comparisons, Correlation, EventOverhead, now_ns};

use overhead::EventOverheads;
pub use overhead::{Estimate, PAIRS, estimate};
use watch::{Line, NotYet, Seen, watch};

/// How long an event on the clock's stream is polled. It takes longer if the device's queues are full, and is then queried later.
const WATCH: Duration = Duration::from_micros(60);
/// The largest uncertainty of a sharp comparison, in ns. The `MOST_LATE`th other one in a row is used as it is.
const SHARP_NS: i64 = 2_250;
const MOST_LATE: u32 = 16;
/// The time without a call of [`EventClock::renew`] that is a rest. The first events after it are slow, so the best of `TRIES` is used.
const RESTED: Duration = Duration::from_secs(1);
const TRIES: usize = 8;
/// How long zones that end a rest wait for the comparison that places them.
const RESUME_LIMIT: Duration = Duration::from_millis(20);
/// The time limit of the first anchor, and of later attempts at it.
const FIRST_WATCH: Duration = Duration::from_millis(200);
const LATER_WATCH: Duration = Duration::from_millis(1);
/// How long the measurement of the bracket may take.
const BRACKET_WATCH: Duration = Duration::from_millis(20);
/// A zone's event that is this many ns after the anchor becomes the anchor.
const ANCHOR_NS: i64 = 1_000_000_000;

/// The events of a device, and a stream of the clock's own that waits for no other. Only the collector's thread calls it, and no method
/// waits for the device.
pub trait EventDevice {
    /// The handle of an event with a time.
    type Event: Copy;
    /// The error of the driver.
    type Error;
    /// What keeps a zone's event from being recorded again while it is the anchor.
    type Lease;

    /// Creates this many events, or none.
    fn create_events(&self, count: usize) -> Result<Vec<Self::Event>, Self::Error>;

    fn destroy_event(&self, event: Self::Event);

    /// Records an event on the clock's own stream.
    fn record(&self, event: Self::Event) -> Result<(), Self::Error>;

    /// Returns whether an event is complete.
    fn has_passed(&self, event: Self::Event) -> Result<bool, Self::Error>;

    /// Returns the time between two events in ns; none while either is incomplete.
    fn elapsed_ns(&self, since: Self::Event, event: Self::Event) -> Result<Option<i64>, Self::Error>;

    /// Releases the event of a zone that was the anchor.
    fn give_back(&self, lease: Self::Lease);

    /// Returns whether the handles may no longer be used, as far as that is known without a call.
    fn is_gone(&self) -> bool {
        false
    }

    /// Asks the driver whether the handles may still be used.
    fn is_there(&self) -> bool {
        true
    }

    /// Returns the earliest and the latest time at which an event can have completed, in ns of the host's clock, by another clock of the
    /// device; none if there is none, or if it does not answer at once. The event has just completed.
    ///
    /// # Errors
    /// The driver's.
    fn join(&self, _event: Self::Event) -> Result<Option<(i64, i64)>, Self::Error> {
        Ok(None)
    }

    /// Returns by how much a pair of events lengthens the work between them, if that was measured with real work.
    fn calibrated_ns(&self) -> Option<i64> {
        None
    }
}

/// The clock of one device, or of one of its contexts.
pub struct EventClock<D: EventDevice> {
    device: D,
    anchor: Anchor<D>,
    /// The clock's own event that is polled next, and its last query if it did not complete in time.
    spare: D::Event,
    pending: Option<NotYet>,
    line: Line,
    comparisons: Comparisons,
    brackets: EventOverheads,
    /// The duration of a call that records an event.
    record_ns: i64,
    /// The number of successive comparisons that were not sharp.
    late: u32,
    /// The time of the last call of [`renew`](Self::renew).
    used: Instant,
    /// Until when zones wait for the first comparison after a rest; none if it was made.
    resuming: Option<Instant>,
    /// The largest uncertainty of a position so far, in ns.
    worst_ns: i64,
}

/// An event whose device time is known.
struct Anchor<D: EventDevice> {
    event: D::Event,
    device_ns: i64,
    /// What holds the event of a zone; none if it is the clock's own event.
    lease: Option<D::Lease>,
    own: D::Event,
}

impl<D: EventDevice> EventClock<D> {
    /// Creates the clock's events, its first anchor and its brackets. It takes up to 200 ms on a device that is busy.
    ///
    /// # Errors
    /// The driver's. The device's stream is dropped with it.
    pub fn new(device: D) -> Result<EventClock<D>, D::Error> {
        let events = device.create_events(2)?;
        let (first, spare) = (events[0], events[1]);
        let mut clock = EventClock {
            anchor: Anchor { event: first, device_ns: 0, lease: None, own: first },
            spare,
            pending: None,
            line: Line::None,
            comparisons: Comparisons::new(Comparison { device_ns: 0, host_ns: now_ns(), uncertainty_ns: 0 }),
            brackets: EventOverheads::default(),
            record_ns: 1_500,
            late: 0,
            used: Instant::now(),
            resuming: None,
            worst_ns: 0,
            device,
        };
        clock.begin(None, FIRST_WATCH)?;
        Ok(clock)
    }

    /// Returns the device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Creates the first anchor and measures the bracket; neither if no event of the clock completes in time. `seen` is the observation of
    /// an event that completed late.
    fn begin(&mut self, seen: Option<Seen>, limit: Duration) -> Result<(), D::Error> {
        let mut best = seen.map(|seen| self.begin_with(seen));
        let mut deadline = None;
        // The first events of a context are slow, so the best of several is used.
        for _ in 0..9 {
            let before_ns = now_ns();
            self.device.record(self.spare)?;
            // The limit begins here, because the call may have waited long for the driver.
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + limit);
            match watch(&self.device, self.spare, before_ns, deadline)? {
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
    fn set_bracket(&mut self) -> Result<(), D::Error> {
        match self.measure_bracket()? {
            Some((idle, busy)) => self.brackets.add(idle, busy),
            None => self.brackets.fail(),
        }
        if let Some(busy_ns) = self.device.calibrated_ns() {
            self.brackets.calibrate(busy_ns);
        }
        Ok(())
    }

    /// Measures the lengths of pairs of events with nothing between them, singly and in a row, and the duration of recording one. Returns
    /// none if the device does not reach them in time.
    fn measure_bracket(&mut self) -> Result<Option<(Estimate, Estimate)>, D::Error> {
        let events = self.device.create_events(PAIRS + 1)?;
        let measured = self.pairs(&events);
        for event in events {
            self.device.destroy_event(event);
        }
        measured
    }

    fn pairs(&mut self, events: &[D::Event]) -> Result<Option<(Estimate, Estimate)>, D::Error> {
        let device = &self.device;
        let deadline = Instant::now() + BRACKET_WATCH;
        for pair in events.chunks_exact(2) {
            pair.iter().try_for_each(|event| device.record(*event))?;
            if watch(device, pair[1], now_ns(), deadline)?.is_err() {
                return Ok(None);
            }
        }
        let idle = estimate(lengths(device, events.chunks_exact(2))?, 0);
        let begin = Instant::now();
        for &event in events {
            device.record(event)?;
        }
        self.record_ns = begin.elapsed().as_nanos() as i64 / events.len() as i64;
        if watch(device, events[PAIRS], now_ns(), deadline)?.is_err() {
            return Ok(None);
        }
        let busy = estimate(lengths(device, events.windows(2))?, 0);
        Ok(idle.zip(busy))
    }

    /// Returns the device's time at a zone's event; none while the event is incomplete, or while the device's time is unknown: before the
    /// first comparison, and for a short time while there is none after a rest. `hold` is called
    /// if the event is to become the anchor: it keeps the event from being recorded again, or returns none if that cannot be.
    ///
    /// # Errors
    /// The driver's.
    pub fn device_ns(
        &mut self,
        event: D::Event,
        hold: impl FnOnce() -> Option<D::Lease>,
    ) -> Result<Option<i64>, D::Error> {
        if self.line == Line::None || self.resuming.is_some_and(|until| Instant::now() < until) {
            return Ok(None);
        }
        let Some(since_ns) = self.device.elapsed_ns(self.anchor.event, event)? else { return Ok(None) };
        let device_ns = self.anchor.device_ns + since_ns;
        if since_ns >= ANCHOR_NS
            && let Some(lease) = hold()
        {
            self.set_anchor(event, device_ns, Some(lease));
        }
        Ok(Some(device_ns))
    }

    fn set_anchor(&mut self, event: D::Event, device_ns: i64, lease: Option<D::Lease>) {
        if let Some(old) = std::mem::replace(&mut self.anchor.lease, lease) {
            self.device.give_back(old);
        }
        (self.anchor.event, self.anchor.device_ns) = (event, device_ns);
    }

    /// Makes the polled event the anchor. Returns its device time.
    fn anchor_spare(&mut self) -> Result<Option<i64>, D::Error> {
        let since = self.device.elapsed_ns(self.anchor.event, self.spare)?;
        let Some(since_ns) = since else { return Ok(None) };
        let device_ns = self.anchor.device_ns + since_ns;
        let watched = self.spare;
        self.spare = std::mem::replace(&mut self.anchor.own, watched);
        self.set_anchor(watched, device_ns, None);
        Ok(Some(device_ns))
    }

    /// Compares the clocks again if that is due. See [`Clock::renew`](super::Clock::renew).
    ///
    /// # Errors
    /// The driver's.
    pub fn renew(&mut self) -> Result<(), D::Error> {
        let now = Instant::now();
        if now.duration_since(std::mem::replace(&mut self.used, now)) >= RESTED && self.line != Line::None {
            self.resuming = Some(now + RESUME_LIMIT);
        }
        if self.device.is_gone() || (self.pending.is_none() && !self.comparisons.is_due()) {
            return Ok(());
        }
        if !self.device.is_there() {
            return Ok(());
        }
        let mut late = None;
        if let Some(not_yet) = &mut self.pending {
            match not_yet.look_again(&self.device, self.spare)? {
                Some(seen) => late = Some(seen),
                None => return Ok(()),
            }
            self.pending = None;
        }
        if self.line == Line::None {
            return self.begin(late, LATER_WATCH);
        }
        // The event completed too late for a good comparison, but it is still an anchor.
        let late = match late {
            Some(seen) => self.anchor_spare()?.map(|device_ns| seen.at(device_ns)),
            None => None,
        };
        let is_resuming = self.resuming.is_some();
        let sharp = self.observe(if is_resuming { TRIES } else { 1 })?;
        let is_rough = sharp.is_none();
        // An event that was pending during the whole rest shows less than the line before it.
        let is_better = |late: &Comparison| late.uncertainty_ns < self.correlation().uncertainty_at(late.device_ns);
        let Some(comparison) = sharp.or(late.filter(|late| is_resuming && is_better(late))) else { return Ok(()) };
        // An event that was observed late, because this thread or the driver was busy, is inaccurate, so another one follows soon.
        self.late = if comparison.uncertainty_ns > SHARP_NS { self.late + 1 } else { 0 };
        if (1..MOST_LATE).contains(&self.late) && !is_resuming && !self.comparisons.has_rested() {
            self.comparisons.retry_soon();
            return Ok(());
        }
        self.comparisons.add(comparison, self.line == Line::Rough);
        self.late = 0;
        self.line = if is_rough { Line::Rough } else { Line::Sound };
        self.resuming = None;
        // The device has just completed an event in time.
        if !is_rough && self.brackets.are_wanted() {
            self.set_bracket()?;
        }
        Ok(())
    }

    /// Polls up to this many events of the clock's own, until one is seen sharply, and makes each the anchor. Returns the most certain
    /// comparison; none if the first event does not complete in time.
    fn observe(&mut self, tries: usize) -> Result<Option<Comparison>, D::Error> {
        let deadline = Instant::now() + WATCH * tries as u32;
        Comparison::best_of(tries, SHARP_NS, || {
            let before_ns = now_ns();
            self.device.record(self.spare)?;
            match watch(&self.device, self.spare, before_ns, deadline)? {
                Ok(mut seen) => {
                    if let Some(interval) = self.device.join(self.spare)? {
                        seen.join(interval);
                    }
                    Ok(self.anchor_spare()?.map(|device_ns| seen.at(device_ns)))
                }
                Err(not_yet) => {
                    self.pending = Some(not_yet);
                    Ok(None)
                }
            }
        })
    }

    /// Converts a position in the device's time to the host's clock, for a record.
    pub fn place(&mut self, device_ns: i64) -> i64 {
        let (host_ns, uncertainty_ns) = self.correlation().place(device_ns);
        self.worst_ns = self.worst_ns.max(uncertainty_ns);
        host_ns
    }

    /// Returns the largest uncertainty of a position that was placed so far, in ns.
    pub fn worst_uncertainty_ns(&self) -> i64 {
        self.worst_ns
    }

    /// Returns the line between the clocks.
    pub fn correlation(&self) -> &Correlation {
        self.comparisons.line()
    }

    /// Returns the maximum time between the end of queued work and the begin of the zone after it.
    pub fn point_cost_ns(&self) -> i64 {
        2 * self.brackets.idle_most_ns() + 2_000
    }

    /// Returns the duration of a call that records an event, in ns.
    pub fn record_ns(&self) -> i64 {
        self.record_ns
    }

    /// See [`Clock::bracket`](super::Clock::bracket).
    pub fn bracket(&self) -> EventOverhead {
        self.brackets.known()
    }

    /// See [`Clock::bracket_bound`](super::Clock::bracket_bound).
    pub fn bracket_bound(&self) -> Option<EventOverhead> {
        self.brackets.bound()
    }
}

impl<D: EventDevice> Drop for EventClock<D> {
    fn drop(&mut self) {
        self.set_anchor(self.anchor.own, 0, None);
        if self.device.is_there() {
            self.device.destroy_event(self.anchor.own);
            self.device.destroy_event(self.spare);
        }
    }
}

/// Returns the lengths of those pairs of events that are complete.
fn lengths<'a, D: EventDevice>(device: &D, pairs: impl Iterator<Item = &'a [D::Event]>) -> Result<Vec<i64>, D::Error>
where
    D::Event: 'a,
{
    let mut lengths = Vec::new();
    for pair in pairs {
        lengths.extend(device.elapsed_ns(pair[0], pair[1])?);
    }
    Ok(lengths)
}
