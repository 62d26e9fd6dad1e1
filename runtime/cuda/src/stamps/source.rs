//! The stamps of one context in a session, from the first use of the context to the end of the session, by the host's clock.
//!
//! Only the collector uses this. It reads memory of the process. It queries the device's time, on a stream of our own, only when there are
//! new stamps and the last comparison is old.

use std::convert::Infallible;
use std::sync::Arc;

use super::device::{FIRST_WATCH, OWN, SLOTS, Stamper, WATCH, difference};
use super::ring::{Found, Reader};
use crate::driver::Driver;
use crate::owner::Hold;
use warpline_core::clock::{Comparison, Comparisons, now_ns};
use warpline_core::record::DeviceInfo;

/// The uncertainty of positions before the device has answered in time. A resting collector checks again after 50 ms.
const UNKNOWN_NS: i64 = 60_000_000;
/// Without comparisons, two clocks drift apart by 1 ns in this many ns.
const DRIFT: i64 = 20_000;
/// An answer with at most this uncertainty is accepted at once. Otherwise the best of `TRIES` answers is used.
const SHARP_NS: i64 = 2_000;
const TRIES: usize = 5;

/// A stamp that was read.
#[derive(Clone, Copy, Debug)]
pub struct Stamped {
    pub id: u32,
    /// By the device's clock.
    pub device_ns: i64,
    /// By the host's clock.
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

/// The relation of the device's clock to the host's.
struct Line {
    /// A time of the device, complete (`base_ns`) and with the low bits that stamps have (`base`).
    base_ns: i64,
    base: u64,
    comparisons: Comparisons,
}

impl Source {
    /// Creates a source of the stamps from now on; none if the context was destroyed or cannot be kept alive. It runs measurements on the
    /// device, which takes about 1 ms.
    pub fn new(stamper: Arc<Stamper>) -> Option<Source> {
        let driver = Driver::get().ok()?;
        if !stamper.is_there() {
            return None;
        }
        let hold = super::hold(driver, stamper.context(), stamper.id)?;
        // In a context that this session has prepared, replays may have begun before this call.
        let is_new = stamper.session == super::session();
        let reader = if is_new { Reader::from_start() } else { Reader::new(stamper.ring()) };
        let bracket_ns = stamper.measure_bracket().ok().flatten();
        let came = Vec::with_capacity(SLOTS / 16);
        // The first anchor only loads the kernel.
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

    /// Returns by how much two stamps lengthen the kernels between them, in ns; none if it could not be measured.
    pub fn bracket_ns(&self) -> Option<i64> {
        self.bracket_ns
    }

    /// Returns the uncertainty of a position, in ns.
    pub fn uncertainty_ns(&self) -> i64 {
        self.line.as_ref().map_or(0, |line| {
            let overdue_ns = i64::try_from(line.comparisons.overdue().as_nanos()).unwrap_or(i64::MAX);
            line.comparisons.line().uncertainty_ns() + overdue_ns / DRIFT
        })
    }

    /// Calls `each` with the new stamps, in the order in which the device executed them, up to the first lost stamps. If `may_ask` is
    /// false, the device is not queried.
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

    /// Compares the clocks, if the last comparison is old.
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
            // The newest stamp was written at the latest now.
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

/// Returns the best available reading of the device's clock. If an answer does not come in time, there are no further attempts.
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

    /// Adds a comparison whose device time has only its low bits.
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
