//! How often the collector looks, reads and rests.
//!
//! Its loop asks here. Every call that reads a device makes the calls that launch on it wait, so while the program launches it is
//! read as seldom as the rings allow, and while nothing comes the collector is hardly there. Nothing here waits for a device.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Collector;
use super::stream::Stream;

/// Between two looks at the rings: short while zones complete, longer while they do not, twice as long each time while there
/// is none. Every few hundred zones wake the collector, and so does the first one after a long rest.
pub(super) const SHORTEST: Duration = Duration::from_micros(100);
const LAUNCHING: Duration = Duration::from_millis(2);
const LONG: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(50);

/// A program that launches without a pause is read so often at least, and as soon as a stream runs short.
const BUSY: Duration = Duration::from_millis(10);

/// What a zone costs its thread, while nothing is known of the device.
const UNKNOWN_ZONE_NS: i64 = 4_000;

/// How fast the collector goes by now.
pub(super) struct Pace {
    /// Between the last two looks.
    pause: Duration,
    /// When the streams were read last.
    read: Instant,
    /// What reading a zone takes while the program is launching, lately.
    read_ns: f64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { pause: SHORTEST, read: Instant::now(), read_ns: UNKNOWN_ZONE_NS as f64 }
    }
}

impl Pace {
    /// The streams are read now.
    pub(super) fn has_read(&mut self) {
        self.read = Instant::now();
    }

    /// Reading so many zones took the time since then, while the program was launching.
    fn took(&mut self, since: Instant, zones: usize) {
        if zones > 0 {
            let ns = since.elapsed().as_nanos() as f64 / zones as f64;
            self.read_ns += (ns - self.read_ns) * 0.25;
        }
    }
}

impl Collector {
    /// A look that asks no device anything: whether GPU zones have begun since the last one.
    pub(super) fn look(&mut self) -> bool {
        self.meet_streams();
        let is_launching = self.see_what_begins();
        self.adjust_budget();
        self.settle();
        is_launching
    }

    /// Reads the streams, or leaves it while the program launches and what waits has time. Says how many zones were recorded.
    pub(super) fn pass_in_time(&mut self, is_launching: bool) -> usize {
        if !is_launching {
            return self.pass();
        }
        if !self.must_read() {
            return 0;
        }
        // The program's calls wait for the collector's as long as those take, and the budget has to pay for it.
        let begin = Instant::now();
        let recorded = self.pass();
        self.pace.took(begin, recorded);
        recorded
    }

    /// Whether what waits has to be read although the program is launching.
    fn must_read(&self) -> bool {
        self.pace.read.elapsed() >= BUSY || self.streams.iter().any(Stream::is_short)
    }

    /// What the budget pays for a zone is what it costs by now.
    fn adjust_budget(&mut self) {
        let Some(budget) = &mut self.budget else { return };
        let zone_ns = self.clocks.zone_ns().unwrap_or(UNKNOWN_ZONE_NS) + self.pace.read_ns as i64;
        // What comes by while the session is stopped is nobody's rate.
        if self.recorder.is_on() { budget.adjust(zone_ns) } else { budget.rest() }
    }

    /// Pauses after a look that found so much.
    pub(super) fn rest(&mut self, is_launching: bool, collected: usize) {
        let is_waiting = self.streams.iter().any(|stream| !stream.pending.is_empty()) || self.holds_waits();
        let twice = self.pace.pause * 2;
        self.pace.pause = match () {
            () if is_launching => LAUNCHING,
            () if is_waiting && collected > 0 => SHORTEST,
            () if is_waiting => twice.clamp(SHORTEST, LAUNCHING),
            () if collected > 0 => LAUNCHING,
            () if self.is_settling() => LONG,
            () => twice.clamp(LAUNCHING, LONGEST),
        };
        self.pause(self.pace.pause);
    }

    /// Pauses, unless it would be long and zones have begun meanwhile.
    fn pause(&self, pause: Duration) {
        if pause <= LONG {
            return std::thread::park_timeout(pause);
        }
        self.recorder.waker.rest();
        let has_begun = |stream: &Stream| stream.context.ring().taken() != stream.active.1;
        let has_begun = self.streams.iter().any(has_begun) || self.has_new_spans();
        if self.recorder.generation.load(Ordering::Acquire) == self.generation && !has_begun {
            std::thread::park_timeout(pause);
        }
        self.recorder.waker.rise();
    }
}
