//! The stamps of one context as a session gets them: from when it meets the context until it ends, on the host's clock.
//!
//! Only the collector is here. It looks at memory of the process; the device is asked for its time, on a stream of our own,
//! when stamps have come and the last answer is old, and at no other time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::device::{Anchor, FIRST_WATCH, OWN, SLOTS, Stamper, WATCH, difference};
use super::ring::{Found, Reader};
use crate::driver::Driver;
use crate::owner::Hold;
use warpline_core::clock::{COMPARE_EVERY, Correlation, now_ns};
use warpline_core::record::DeviceInfo;

/// Nobody asked the device for so long: the line between the clocks begins anew.
const RESTED: Duration = Duration::from_secs(3);
/// Between the first comparison of the clocks and the second.
const FIRST_EVERY: Duration = Duration::from_millis(5);
/// What positions are good for while the device has never answered at once: a collector that rests looks again after 50 ms.
const UNKNOWN_NS: i64 = 60_000_000;
/// Two clocks that nobody compares part by a nanosecond in so many.
const DRIFT: i64 = 20_000;
/// An answer that was seen to come is as good as this. Of so many that were not, the best is taken.
const SHARP_NS: i64 = 2_000;
const TRIES: usize = 5;

/// A stamp that came.
#[derive(Clone, Copy, Debug)]
pub struct Stamped {
    pub id: u32,
    /// On the device's clock.
    pub device_ns: i64,
    /// On the host's.
    pub host_ns: i64,
}

pub struct Source {
    stamper: Arc<Stamper>,
    /// Keeps the context alive.
    hold: Option<Hold>,
    reader: Reader,
    came: Vec<(u32, u64)>,
    line: Option<Line>,
    bracket_ns: Option<i64>,
}

/// The device's clock against the host's.
struct Line {
    /// A time of the device, in full and as far as stamps tell it.
    base_ns: i64,
    base: u64,
    correlation: Correlation,
    asked: Instant,
    every: Duration,
}

impl Source {
    /// What is stamped from now on; none where the context is gone, or where nobody keeps it alive. It measures on the device, which
    /// takes about a ms.
    pub fn new(stamper: Arc<Stamper>) -> Option<Source> {
        let driver = Driver::get().ok()?;
        if !stamper.is_there() {
            return None;
        }
        let hold = super::hold(driver, stamper.context(), stamper.id)?;
        // Replays may have come before the collector did, in a context that this session has prepared.
        let is_new = stamper.session == super::session();
        let reader = if is_new { Reader::from_start() } else { Reader::new(stamper.ring()) };
        let bracket_ns = stamper.measure_bracket().ok().flatten();
        let came = Vec::with_capacity(SLOTS / 16);
        // The first one only has the kernel loaded.
        let line = match stamper.anchor(FIRST_WATCH) {
            Ok(Some(_)) => ask(&stamper).map(Line::new),
            _ => None,
        };
        Some(Source { stamper, hold: Some(hold), reader, came, line, bracket_ns })
    }

    pub fn context_id(&self) -> u64 {
        self.stamper.id
    }

    pub fn device(&self) -> &DeviceInfo {
        &self.stamper.device
    }

    /// What two stamps add to the kernels between them, in ns; none where it could not be measured.
    pub fn bracket_ns(&self) -> Option<i64> {
        self.bracket_ns
    }

    /// How far a position can be off, in ns.
    pub fn uncertainty_ns(&self) -> i64 {
        self.line.as_ref().map_or(0, |line| {
            let unasked = line.asked.elapsed().saturating_sub(2 * line.every);
            line.correlation.uncertainty_ns() + i64::try_from(unasked.as_nanos()).unwrap_or(i64::MAX) / DRIFT
        })
    }

    /// Hands on what has come, in the order in which the device came to it, up to where stamps were lost. Without `may_ask` the device is asked nothing.
    pub fn read(&mut self, may_ask: bool, mut each: impl FnMut(Stamped)) -> Found {
        let Source { came, .. } = self;
        came.clear();
        let mut found = self.reader.read(self.stamper.ring(), |id, time| {
            if id != OWN {
                came.push((id, time));
            }
        });
        found.taken = came.len() as u64;
        let Some(&(_, newest)) = came.last() else { return found };
        self.compare(newest, may_ask);
        if let Some(line) = &self.line {
            for &(id, time) in &self.came {
                let device_ns = line.in_full(time);
                each(Stamped { id, device_ns, host_ns: line.correlation.host_ns(device_ns) });
            }
        }
        found
    }

    /// Compares the clocks, if that was long ago.
    fn compare(&mut self, newest: u64, may_ask: bool) {
        let is_fresh = self.line.as_ref().is_some_and(|line| line.asked.elapsed() < line.every);
        if is_fresh && self.line.is_some() {
            return;
        }
        let anchor = match may_ask && self.stamper.is_there() {
            true => ask(&self.stamper),
            false => None,
        };
        match (&mut self.line, anchor) {
            (Some(line), Some(anchor)) => line.compare(anchor),
            (Some(_), None) => {}
            // It was seen just now, at the latest.
            (line @ None, anchor) => {
                *line = Some(Line::new(anchor.unwrap_or_else(|| Anchor {
                    device_ns: newest,
                    host_ns: now_ns(),
                    uncertainty_ns: UNKNOWN_NS,
                })));
            }
        }
    }
}

/// The device's time now, as well as it can be had.
fn ask(stamper: &Stamper) -> Option<Anchor> {
    let mut best: Option<Anchor> = None;
    for _ in 0..TRIES {
        // One that does not come at once keeps the others from being asked for.
        let Ok(Some(anchor)) = stamper.anchor(WATCH) else { break };
        if best.is_none_or(|best| anchor.uncertainty_ns < best.uncertainty_ns) {
            best = Some(anchor);
        }
        if anchor.uncertainty_ns <= SHARP_NS {
            break;
        }
    }
    best
}

impl Line {
    fn new(anchor: Anchor) -> Line {
        let base_ns = anchor.device_ns.cast_signed();
        Line {
            base_ns,
            base: anchor.device_ns,
            correlation: Correlation::new(base_ns, anchor.host_ns, anchor.uncertainty_ns),
            asked: Instant::now(),
            every: FIRST_EVERY,
        }
    }

    fn in_full(&self, time: u64) -> i64 {
        self.base_ns + difference(time, self.base)
    }

    fn compare(&mut self, anchor: Anchor) {
        let device_ns = self.in_full(anchor.device_ns);
        (self.base_ns, self.base) = (device_ns, anchor.device_ns);
        if self.asked.elapsed() > RESTED {
            self.correlation.resume(device_ns, anchor.host_ns, anchor.uncertainty_ns);
            self.every = FIRST_EVERY;
        } else {
            self.correlation.compare(device_ns, anchor.host_ns, anchor.uncertainty_ns);
            self.every = (self.every * 2).min(COMPARE_EVERY);
        }
        self.asked = Instant::now();
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.release_owner();
        }
    }
}
