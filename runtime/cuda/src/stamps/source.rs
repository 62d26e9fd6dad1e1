//! The stamps of one context as a session gets them: from when it meets the context until it ends, on the host's clock.
//!
//! Only the collector is here. It looks at memory of the process; the device is asked for its time, on a stream of our own,
//! when stamps have come and the last answer is old, and at no other time.

use std::convert::Infallible;
use std::sync::Arc;

use super::device::{FIRST_WATCH, OWN, SLOTS, Stamper, WATCH, difference};
use super::ring::{Found, Reader};
use crate::driver::Driver;
use crate::owner::Hold;
use warpline_core::clock::{Comparison, Comparisons, now_ns};
use warpline_core::record::DeviceInfo;

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
    comparisons: Comparisons,
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
            let overdue_ns = i64::try_from(line.comparisons.overdue().as_nanos()).unwrap_or(i64::MAX);
            line.comparisons.line().uncertainty_ns() + overdue_ns / DRIFT
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
                each(Stamped { id, device_ns, host_ns: line.comparisons.line().host_ns(device_ns) });
            }
        }
        found
    }

    /// Compares the clocks, if that was long ago.
    fn compare(&mut self, newest: u64, may_ask: bool) {
        if self.line.as_ref().is_some_and(|line| !line.comparisons.is_due()) {
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
                *line = Some(Line::new(anchor.unwrap_or_else(|| Comparison {
                    device_ns: newest.cast_signed(),
                    host_ns: now_ns(),
                    uncertainty_ns: UNKNOWN_NS,
                })));
            }
        }
    }
}

/// The device's time now, as well as it can be had. An answer that does not come at once ends the attempts.
fn ask(stamper: &Stamper) -> Option<Comparison> {
    let look = || Ok::<_, Infallible>(stamper.anchor(WATCH).ok().flatten());
    let Ok(best) = Comparison::best_of(TRIES, SHARP_NS, look);
    best
}

impl Line {
    fn new(anchor: Comparison) -> Line {
        Line {
            base_ns: anchor.device_ns,
            base: anchor.device_ns.cast_unsigned(),
            comparisons: Comparisons::new(anchor),
        }
    }

    fn in_full(&self, time: u64) -> i64 {
        self.base_ns + difference(time, self.base)
    }

    /// Adds a comparison whose device time has its low bits alone.
    fn compare(&mut self, anchor: Comparison) {
        let base = anchor.device_ns.cast_unsigned();
        let device_ns = self.in_full(base);
        (self.base_ns, self.base) = (device_ns, base);
        self.comparisons.add(Comparison { device_ns, ..anchor }, false);
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.release_owner();
        }
    }
}
