//! The processor's time stamp counter as the host's clock: a reading takes half the time of one of `CLOCK_BOOTTIME`.
//!
//! It is used while a collector compares it with `CLOCK_BOOTTIME` ([`Ticks::compare`]), and only on machines where the kernel itself takes
//! the counter for its clock, so that it counts at one rate and is the same on all cores. [`now_ns`] has no answer where the last comparison is
//! older than [`VALID`], such as after a suspend or while the collector is held up; the caller then asks the kernel. A counter that is
//! ever further from `CLOCK_BOOTTIME` than [`MOST_OFF_NS`] is not used again in the process. One that stands still during a suspend seems valid
//! until the first comparison after it, [`EVERY`] at most: readings of that time are too early.
//!
//! The position on the counter is converted by a line, which a comparison replaces without a step.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use super::system;
use super::{Comparison, Correlation};

/// The time between two comparisons.
const EVERY: Duration = Duration::from_millis(100);
/// The time between the first comparison and the second, from which the counter's rate is computed.
const FIRST: Duration = Duration::from_millis(20);
/// The time for which a comparison holds.
const VALID: Duration = Duration::from_secs(1);
/// The most by which the line may miss the clock.
const MOST_OFF_NS: i64 = 1_000;
/// A reading of both clocks that took longer was interrupted.
const INTERRUPTED_NS: i64 = 500;
/// The number of readings of which the fastest counts.
const LOOKS: usize = 8;

/// The line that readers use. A reader that meets a change asks the kernel.
#[repr(align(64))]
struct Published {
    /// Odd while the rest is being changed.
    sequence: AtomicU32,
    ticks: AtomicU64,
    ns: AtomicI64,
    /// The ns of a tick, in parts of 2³².
    rate: AtomicU64,
    /// The number of ticks for which the line holds; zero while there is none.
    valid: AtomicU64,
}

static PUBLISHED: Published = Published {
    sequence: AtomicU32::new(0),
    ticks: AtomicU64::new(0),
    ns: AtomicI64::new(0),
    rate: AtomicU64::new(0),
    valid: AtomicU64::new(0),
};

/// The comparisons, and the number of collectors that make them.
static COMPARED: Mutex<Compared> = Mutex::new(Compared { users: 0, state: TickFit::New });

/// The counter missed the clock.
static IS_UNSTEADY: AtomicBool = AtomicBool::new(false);

struct Compared {
    users: u32,
    state: TickFit,
}

enum TickFit {
    New,
    /// Compared once: the rate is unknown.
    Once(Reading),
    Line(Box<Line>),
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    ticks: u64,
    ns: i64,
    uncertainty_ns: i64,
}

/// The relation of the counter to the clock.
struct Line {
    first: Reading,
    /// The ns of a tick, as the first two comparisons gave it.
    tick_ns: f64,
    correlation: Correlation,
    last_ns: i64,
    /// The time of the last comparison by the counter.
    last_counted_ns: i64,
}

/// Now in ns of `CLOCK_BOOTTIME`, by the counter; none where it cannot be used.
#[inline]
pub(super) fn now_ns() -> Option<i64> {
    PUBLISHED.now_ns()
}

#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

impl Published {
    #[inline]
    fn now_ns(&self) -> Option<i64> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let ticks = self.ticks.load(Ordering::Relaxed);
        let ns = self.ns.load(Ordering::Relaxed);
        let rate = self.rate.load(Ordering::Relaxed);
        let valid = self.valid.load(Ordering::Relaxed);
        // Before the begin of the line, this is a large number.
        let since = counter().wrapping_sub(ticks);
        fence(Ordering::Acquire);
        let is_whole = sequence & 1 == 0 && self.sequence.load(Ordering::Relaxed) == sequence;
        (is_whole && since < valid).then(|| ns + ((u128::from(since) * u128::from(rate)) >> 32) as i64)
    }

    /// Only one thread at a time may call this.
    fn publish(&self, ticks: u64, ns: i64, rate: u64, valid: u64) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.ticks.store(ticks, Ordering::Relaxed);
        self.ns.store(ns, Ordering::Relaxed);
        self.rate.store(rate, Ordering::Relaxed);
        self.valid.store(valid, Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    fn withdraw(&self) {
        self.publish(0, 0, 0, 0);
    }
}

impl Reading {
    /// The fastest of several readings; none if each was interrupted.
    fn take() -> Option<Reading> {
        let readings = (0..LOOKS).map(|_| {
            let before = counter();
            let ns = system::now_ns();
            (before, ns, counter())
        });
        let (before, ns, after) = readings.min_by_key(|(before, _, after)| after.wrapping_sub(*before))?;
        let width = after.wrapping_sub(before);
        // A counter has at least one tick a ns, so this is at least half of the width in ns.
        let uncertainty_ns = i64::try_from(width / 2).ok().filter(|ns| *ns <= INTERRUPTED_NS)?;
        Some(Reading { ticks: before.wrapping_add(width / 2), ns, uncertainty_ns })
    }

    fn at(self, counted_ns: i64) -> Comparison {
        Comparison { device_ns: counted_ns, host_ns: self.ns, uncertainty_ns: self.uncertainty_ns }
    }
}

impl Line {
    fn new(first: Reading, second: Reading) -> Line {
        let tick_ns = (second.ns - first.ns) as f64 / second.ticks.wrapping_sub(first.ticks) as f64;
        let correlation = Correlation::new(second.at(second.ns));
        Line { first, tick_ns, correlation, last_ns: second.ns, last_counted_ns: second.ns }
    }

    /// The time that the counter gives with the rate of the first two comparisons.
    fn counted_ns(&self, ticks: u64) -> i64 {
        self.first.ns + (ticks.wrapping_sub(self.first.ticks) as f64 * self.tick_ns).round() as i64
    }

    /// Adds a reading. Returns whether the line was right until now.
    fn add(&mut self, reading: Reading) -> bool {
        let comparison = reading.at(self.counted_ns(reading.ticks));
        // By the counter, as readers see it: after a suspend in which it stood still, they have used it.
        let was_valid = comparison.device_ns - self.last_counted_ns < VALID.as_nanos() as i64;
        (self.last_ns, self.last_counted_ns) = (reading.ns, comparison.device_ns);
        if !was_valid {
            // Nobody has used it meanwhile, so it may begin anew.
            self.correlation.resume(comparison);
            return true;
        }
        let off_ns = (self.correlation.host_ns(comparison.device_ns) - reading.ns).abs();
        self.correlation.compare(comparison);
        off_ns <= MOST_OFF_NS + reading.uncertainty_ns
    }

    fn publish(&self, ticks: u64) {
        let counted_ns = self.counted_ns(ticks);
        let second_ns = 1_000_000_000;
        let begin_ns = self.correlation.host_ns(counted_ns);
        let slope = (self.correlation.host_ns(counted_ns + second_ns) - begin_ns) as f64 / second_ns as f64;
        let rate = (slope * self.tick_ns * 2_f64.powi(32)).round() as u64;
        let valid = (VALID.as_nanos() as f64 / self.tick_ns) as u64;
        PUBLISHED.publish(ticks, begin_ns, rate, valid);
    }
}

/// A user of the counter, which has to compare it with the clock. The last one that is dropped ends its use.
#[derive(Debug)]
pub struct Ticks {
    is_used: bool,
}

impl Ticks {
    /// Begins the use of the counter, where the kernel takes it for its clock.
    pub fn start() -> Ticks {
        // A lock that a fork has taken along stays locked.
        let Ok(mut compared) = COMPARED.try_lock() else { return Ticks { is_used: false } };
        let is_used = !IS_UNSTEADY.load(Ordering::Relaxed) && super::kernels_clock_is_counter();
        compared.users += u32::from(is_used);
        Ticks { is_used }
    }

    /// Compares the counter with the clock, if the last comparison is old. It takes less than a microsecond and never waits.
    pub fn compare(&self) {
        if !self.is_used || IS_UNSTEADY.load(Ordering::Relaxed) {
            return;
        }
        let mut compared = match COMPARED.try_lock() {
            Ok(compared) => compared,
            Err(TryLockError::Poisoned(compared)) => compared.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let due_ns = match &compared.state {
            TickFit::New => i64::MIN,
            TickFit::Once(first) => first.ns + FIRST.as_nanos() as i64,
            TickFit::Line(line) => line.last_ns + EVERY.as_nanos() as i64,
        };
        if system::now_ns() < due_ns {
            return;
        }
        let Some(reading) = Reading::take() else { return };
        match &mut compared.state {
            TickFit::New => compared.state = TickFit::Once(reading),
            TickFit::Once(first) => {
                let line = Box::new(Line::new(*first, reading));
                line.publish(reading.ticks);
                compared.state = TickFit::Line(line);
            }
            TickFit::Line(line) => {
                if line.add(reading) {
                    line.publish(reading.ticks);
                } else {
                    IS_UNSTEADY.store(true, Ordering::Relaxed);
                    PUBLISHED.withdraw();
                }
            }
        }
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        if !self.is_used {
            return;
        }
        let mut compared = crate::lock::lock(&COMPARED);
        compared.users -= 1;
        if compared.users == 0 {
            compared.state = TickFit::New;
            PUBLISHED.withdraw();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter of 2.45 GHz beside a clock that is `ppm` faster than that.
    fn reading(ns: i64, ppm: f64) -> Reading {
        let ticks = 7_000_000_000 + (ns as f64 * 2.45 / (1.0 + ppm * 1e-6)).round() as u64;
        Reading { ticks, ns, uncertainty_ns: 15 }
    }

    fn line() -> Line {
        Line::new(reading(1_000_000, 0.0), reading(21_000_000, 0.0))
    }

    #[test]
    fn the_line_follows_the_clock_and_has_no_steps() {
        let mut line = line();
        for step in 1..100 {
            let now = reading(21_000_000 + step * 100_000_000, 0.0);
            let told_ns = line.correlation.host_ns(line.counted_ns(now.ticks));
            assert!((told_ns - now.ns).abs() <= 3, "step {step}: {told_ns} for {}", now.ns);
            assert!(line.add(now));
            assert!((line.correlation.host_ns(line.counted_ns(now.ticks)) - told_ns).abs() <= 1, "a step at {step}");
        }
    }

    #[test]
    fn a_counter_that_misses_the_clock_is_found_out() {
        let mut line = line();
        assert!(line.add(reading(121_000_000, 0.0)));
        // 20 ppm, for 100 ms.
        let mut off = reading(221_000_000, 0.0);
        off.ns += 2_000;
        assert!(!line.add(off));
    }

    #[test]
    fn after_a_rest_the_line_begins_anew() {
        let mut line = line();
        // The machine was suspended, or the collector was held up: both clocks went on, the counter a little faster.
        let woken = Reading { ns: 3_600_000_000_000, ..reading(3_600_000_500_000, 0.0) };
        assert!(line.add(woken));
        assert_eq!(line.correlation.host_ns(line.counted_ns(woken.ticks)), woken.ns);
    }

    #[test]
    fn a_counter_that_stood_still_in_a_suspend_is_not_used_again() {
        let mut line = line();
        let woken = Reading { ns: 3_600_000_000_000, ..reading(22_000_000, 0.0) };
        assert!(!line.add(woken));
    }

    /// On a machine whose kernel does not take the counter for its clock, readings come from the kernel, and the same holds.
    #[test]
    fn readings_are_those_of_the_kernel_and_never_run_backwards() {
        let ticks = Ticks::start();
        let begin_ns = system::now_ns();
        let (mut last_ns, mut by_counter) = (0, 0_u64);
        while system::now_ns() < begin_ns + 700_000_000 {
            ticks.compare();
            for _ in 0..100 {
                let before_ns = system::now_ns();
                let counted_ns = now_ns();
                let after_ns = system::now_ns();
                let Some(now_ns) = counted_ns else { continue };
                by_counter += 1;
                assert!(
                    (before_ns - 1_000..=after_ns + 1_000).contains(&now_ns),
                    "{now_ns}, not {before_ns} to {after_ns}"
                );
                assert!(now_ns >= last_ns, "{now_ns} behind {last_ns}");
                last_ns = now_ns;
            }
        }
        assert!(by_counter > 0 || !ticks.is_used || IS_UNSTEADY.load(Ordering::Relaxed));
        drop(ticks);
        assert!(now_ns().is_none(), "nobody compares any more");
    }

    #[test]
    fn a_line_that_is_old_or_being_changed_is_not_read() {
        let line = Published {
            sequence: AtomicU32::new(0),
            ticks: AtomicU64::new(0),
            ns: AtomicI64::new(0),
            rate: AtomicU64::new(0),
            valid: AtomicU64::new(0),
        };
        line.publish(counter(), 5, 1 << 32, u64::MAX);
        assert!(line.now_ns().is_some_and(|ns| ns >= 5));
        line.sequence.fetch_add(1, Ordering::Relaxed);
        assert!(line.now_ns().is_none(), "it is being changed");
        line.sequence.fetch_add(1, Ordering::Relaxed);
        assert!(line.now_ns().is_some());
        line.publish(counter().wrapping_add(1_000_000), 5, 1 << 32, 1 << 40);
        assert!(line.now_ns().is_none(), "it begins later");
        line.publish(counter().wrapping_sub(10), 5, 1 << 32, 10);
        assert!(line.now_ns().is_none(), "it is old");
    }
}
