//! The clock of a device: `%globaltimer`, which all that the device stamps counts in, related to the host's clock.
//!
//! There is one for each device in the process. While a session with stamps records, the collector compares it with the host's clock by its
//! own timer, whether or not stamps arrive. Stamps are placed by it, and the clocks of events join it where they are compared.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::device::{ClockRead, FIRST_WATCH, Stamper, WATCH, difference};
use warpline_core::clock::{Comparison, Comparisons, now_ns};
use warpline_core::fork::PerProcess;
use warpline_core::lock::lock;

/// The uncertainty of positions before the device has answered in time. A resting collector checks again after 50 ms.
const UNKNOWN_NS: i64 = 60_000_000;
/// An answer with at most this uncertainty is accepted at once. Otherwise the best of `TRIES` answers is used.
const SHARP_NS: i64 = 2_000;
const TRIES: usize = 5;
/// The time between two comparisons while no stamps arrive.
const RESTING: Duration = Duration::from_secs(2);
/// The time between two questions to a device that does not answer.
const AGAIN: Duration = Duration::from_millis(20);
/// The longest time since a comparison for which the clocks of events join this one.
const RECENT: Duration = Duration::from_secs(3);

static CLOCKS: PerProcess<Mutex<HashMap<u32, Arc<Mutex<DeviceClock>>>>> = PerProcess::new(Mutex::default);

/// The relation of a device's `%globaltimer` to the host's clock.
#[derive(Default)]
pub(crate) struct DeviceClock {
    line: Option<Line>,
    /// The time of the last comparison, and of the last question, answered or not.
    compared: Option<Instant>,
    asked: Option<Instant>,
}

struct Line {
    /// A time of the device, complete (`base_ns`) and with the low bits that stamps have (`base`).
    base_ns: i64,
    base: u64,
    comparisons: Comparisons,
}

/// Returns the clock of a device.
pub(crate) fn device_clock(device: u32) -> Arc<Mutex<DeviceClock>> {
    Arc::clone(lock(&CLOCKS).entry(device).or_default())
}

/// Returns the host's time of a read between events, and its uncertainty, in ns; none before the device has answered, and while its clock is
/// not related to the host's.
pub(crate) fn place_read(stamper: &Stamper, read: &ClockRead) -> Option<(i64, i64)> {
    let answer = stamper.answer(read)?;
    lock(&device_clock(stamper.device.ordinal)).sure_place(answer)
}

impl DeviceClock {
    /// Asks the device for the first time in a context, where the first answer is late because the driver loads the kernel.
    pub(super) fn begin(&mut self, stamper: &Stamper) {
        if matches!(stamper.anchor(FIRST_WATCH), Ok(Some(_))) {
            self.ask(stamper);
        }
    }

    /// Compares the clocks if that is due. `is_used`: stamps have arrived.
    pub(super) fn renew(&mut self, stamper: &Stamper, is_used: bool) {
        let is_due = match (&self.line, self.compared) {
            (Some(line), Some(compared)) => line.comparisons.is_due() && (is_used || compared.elapsed() >= RESTING),
            _ => is_used,
        };
        if is_due && self.asked.is_none_or(|asked| asked.elapsed() >= AGAIN) && stamper.is_there() {
            self.ask(stamper);
        }
    }

    /// Adds the best reading of the device's clock that can be had now. If an answer does not come in time, there are no further attempts.
    fn ask(&mut self, stamper: &Stamper) {
        self.asked = Some(Instant::now());
        let look = || Ok::<_, Infallible>(stamper.anchor(WATCH).ok().flatten());
        let Ok(best) = Comparison::best_of(TRIES, SHARP_NS, look);
        if let Some(answer) = best {
            self.add(answer);
        }
    }

    /// Adds a comparison whose device time has only its low bits.
    fn add(&mut self, answer: Comparison) {
        (self.compared, self.asked) = (Some(Instant::now()), None);
        match &mut self.line {
            Some(line) => line.add(answer),
            line @ None => *line = Some(Line::new(answer)),
        }
    }

    /// Makes sure that there is a line: a stamp was written now at the latest.
    pub(super) fn suppose(&mut self, stamp: u64) {
        let now = || Comparison { device_ns: stamp.cast_signed(), host_ns: now_ns(), uncertainty_ns: UNKNOWN_NS };
        self.line.get_or_insert_with(|| Line::new(now()));
    }

    /// Returns a stamp's time in full, the host's time there, and the uncertainty of that, in ns; none before the first comparison.
    pub(super) fn place(&self, stamp: u64) -> Option<(i64, i64, i64)> {
        let line = self.line.as_ref()?;
        let device_ns = line.in_full(stamp);
        let (host_ns, uncertainty_ns) = line.comparisons.line().place(device_ns);
        Some((device_ns, host_ns, uncertainty_ns))
    }

    /// Returns the host's time of a stamp and its uncertainty, in ns, if the clocks were compared lately.
    pub(super) fn sure_place(&self, stamp: u64) -> Option<(i64, i64)> {
        self.compared.filter(|compared| compared.elapsed() <= RECENT)?;
        self.place(stamp).map(|(_, host_ns, uncertainty_ns)| (host_ns, uncertainty_ns))
    }
}

impl Line {
    fn new(answer: Comparison) -> Line {
        let (base_ns, base) = (answer.device_ns, answer.device_ns.cast_unsigned());
        Line { base_ns, base, comparisons: Comparisons::new(answer) }
    }

    fn in_full(&self, stamp: u64) -> i64 {
        self.base_ns + difference(stamp, self.base)
    }

    fn add(&mut self, answer: Comparison) {
        let base = answer.device_ns.cast_unsigned();
        let device_ns = self.in_full(base);
        (self.base_ns, self.base) = (device_ns, base);
        self.comparisons.add(Comparison { device_ns, ..answer }, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: i64 = (1 << 48) - 1;

    fn at(device_ns: i64, host_ns: i64) -> Comparison {
        Comparison { device_ns: device_ns & LOW, host_ns, uncertainty_ns: 500 }
    }

    #[test]
    fn stamps_are_placed_by_the_comparisons_around_them_also_where_their_low_bits_overflow() {
        let mut clock = DeviceClock::default();
        let begin_ns = LOW - 1_000_000_000;
        assert!(clock.place(0).is_none());
        for second in 0..4 {
            let device_ns = begin_ns + second * 1_000_000_000;
            clock.add(at(device_ns, 5_000_000_000 + second * 1_000_000_000));
            let stamp = ((device_ns + 400) & LOW).cast_unsigned();
            let (_, host_ns, uncertainty_ns) = clock.place(stamp).expect("a line");
            assert!((host_ns - 5_000_000_400 - second * 1_000_000_000).abs() < 100, "second {second}: {host_ns}");
            assert!(uncertainty_ns < 2_000 && clock.sure_place(stamp).is_some());
        }
        let earlier = ((begin_ns + 100) & LOW).cast_unsigned();
        assert_eq!(clock.place(earlier).map(|(_, host_ns, _)| host_ns), Some(5_000_000_100));
    }

    #[test]
    fn a_clock_that_was_never_compared_says_so() {
        let mut clock = DeviceClock::default();
        clock.suppose(77);
        let (_, host_ns, uncertainty_ns) = clock.place(77).expect("a guess");
        assert!(now_ns() >= host_ns && uncertainty_ns >= UNKNOWN_NS);
        assert_eq!(clock.sure_place(77), None, "events do not join a guess");
    }
}
