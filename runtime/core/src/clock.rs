//! Time: the host's clock, and its relation to a device's clock.
//!
//! A zone's length is the difference of its own two points. Positions come from a chain of anchors: events with a known device
//! time, each the base of the next, summed in i64 ns, so that no distance is long enough for a device's time format to lose
//! digits. [`Correlation`] converts these times to the host's clock.

mod comparison;
#[cfg_attr(not(all(target_os = "linux", feature = "runtime")), path = "clock/portable.rs")]
mod system;
#[cfg_attr(
    not(all(target_os = "linux", target_arch = "x86_64", feature = "runtime", not(miri), not(loom))),
    path = "clock/no_ticks.rs"
)]
mod ticks;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use comparison::COMPARE_EVERY;
pub use comparison::{Comparison, Comparisons};
pub(crate) use system::thread_id;
pub use ticks::Ticks;

/// Returns the current time, in ns of the clock of every record: `CLOCK_BOOTTIME` on Linux. It never runs backwards on a thread
/// by more than 1 µs.
#[inline]
pub fn now_ns() -> i64 {
    ticks::now_ns().unwrap_or_else(system::now_ns)
}

/// Whether the kernel takes the processor's time stamp counter for its clock. It does so only if the counter has one rate on all cores in
/// all states, and watches it. A session then reads the counter, too.
pub fn kernels_clock_is_counter() -> bool {
    cfg!(target_arch = "x86_64") && kernels_clock().is_some_and(|name| name == "tsc")
}

/// Returns the name of the kernel's clock source on Linux: `tsc`, `kvm-clock`, `hyperv_clocksource_tsc_page`, …
pub fn kernels_clock() -> Option<String> {
    let name = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource").ok()?;
    Some(name.trim_end().to_owned())
}

/// Returns the current time, in ns since the Unix epoch.
pub(crate) fn unix_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos() as i64
}

/// Returns the day of a time in seconds since the Unix epoch, in UTC: `2026-11-24`.
pub fn utc_date(unix_s: i64) -> String {
    // The civil calendar, in eras of 400 years that begin in March.
    let shifted = unix_s.div_euclid(86_400) + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * march + 2) / 5 + 1, if march < 10 { march + 3 } else { march - 9 });
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + i64::from(month <= 2))
}

/// The time that a pair of points adds to the work between them, in ns, measured on the device itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventOverhead {
    /// The overhead on an idle stream, with no work between the points.
    pub idle_ns: i64,
    /// The overhead on a stream with queued work.
    pub busy_ns: i64,
}

/// Converts a device's time to the host's.
///
/// Each comparison corrects an estimate, weighted by the uncertainties of both. The line follows the estimate slowly: it has no
/// steps, time on it never runs backwards, and lengths on it stay right although single comparisons are off. Where a new line
/// begins, earlier times stay on the old one: a zone that ends after a comparison is positioned like the zones inside it.
#[derive(Clone, Debug)]
pub struct Correlation {
    /// The line from the last comparison on.
    line: Straight,
    /// The line before it, oldest piece first.
    earlier: std::collections::VecDeque<Straight>,
    /// The last comparisons, oldest first.
    compared: std::collections::VecDeque<Comparison>,
    /// The estimate of the host's time at the last comparison, from all comparisons up to it.
    estimate: Comparison,
    /// Host ns per device ns, minus one, as far as it is known.
    drift: f64,
}

/// A piece of the line, up to the begin of the next piece.
#[derive(Clone, Copy, Debug)]
struct Straight {
    device_ns: i64,
    host_ns: i64,
    /// Host ns per device ns, minus one.
    slope: f64,
}

impl Straight {
    fn through(point: Comparison, slope: f64) -> Straight {
        Straight { device_ns: point.device_ns, host_ns: point.host_ns, slope }
    }

    fn host_ns(&self, device_ns: i64) -> i64 {
        let since = device_ns - self.device_ns;
        self.host_ns + since + (since as f64 * self.slope).round() as i64
    }

    fn device_ns(&self, host_ns: i64) -> i64 {
        let since = host_ns - self.host_ns;
        self.device_ns + since - (since as f64 * self.slope).round() as i64
    }
}

impl Correlation {
    /// The number of pieces that are kept in addition to the last one. It limits how late a zone may be read.
    const EARLIER: usize = 16;
    /// The number of comparisons from which the clocks' rate is computed.
    const WINDOW: usize = 16;
    /// The maximum drift between two sound clocks.
    const STEEPEST: f64 = 500e-6;
    /// The drift that is expected before it is measured: the tolerance of two quartz oscillators.
    const LIKELY: f64 = 50e-6;
    /// The rate at which the estimate may become wrong between two comparisons, because the drift changes.
    const UNSTEADY: f64 = 3e-6;
    /// A difference that drift cannot explain, such as after a suspend: a new line begins.
    const STEP_NS: i64 = 10_000_000;

    /// Creates a line through one comparison.
    pub fn new(first: Comparison) -> Correlation {
        let line = Straight::through(first, 0.0);
        let (earlier, compared) = (std::collections::VecDeque::new(), [first].into());
        Correlation { line, earlier, compared, estimate: first, drift: 0.0 }
    }

    /// Converts a time of the device to the host's clock.
    pub fn host_ns(&self, device_ns: i64) -> i64 {
        self.piece(|piece| device_ns >= piece.device_ns).host_ns(device_ns)
    }

    /// Converts a time of the host to the device's clock.
    pub fn device_ns(&self, host_ns: i64) -> i64 {
        self.piece(|piece| host_ns >= piece.host_ns).device_ns(host_ns)
    }

    /// Returns the last piece that has begun; for a time before all pieces, the oldest.
    fn piece(&self, has_begun: impl Fn(&Straight) -> bool) -> &Straight {
        let mut pieces = std::iter::once(&self.line).chain(self.earlier.iter().rev());
        pieces.find(|piece| has_begun(piece)).or(self.earlier.front()).unwrap_or(&self.line)
    }

    fn begin_piece(&mut self, piece: Straight) {
        if self.earlier.len() == Self::EARLIER {
            self.earlier.pop_front();
        }
        self.earlier.push_back(std::mem::replace(&mut self.line, piece));
    }

    /// Begins a new line with the known drift: after a pause, in which the chain of anchors may have lost its position.
    pub fn resume(&mut self, first: Comparison) {
        self.begin_piece(Straight::through(first, self.drift));
        self.compared = [first].into();
        self.estimate = first;
    }

    /// Adds another comparison.
    pub fn compare(&mut self, comparison: Comparison) {
        let line_ns = self.host_ns(comparison.device_ns);
        if (comparison.host_ns - line_ns).abs() > Self::STEP_NS {
            self.resume(comparison);
            return;
        }
        self.correct_estimate(comparison);
        self.measure_drift(comparison);
        let away_ns = (self.estimate.host_ns - line_ns) as f64;
        let slope = self.drift + away_ns / COMPARE_EVERY.as_nanos() as f64;
        let here = Comparison { host_ns: line_ns, ..comparison };
        self.begin_piece(Straight::through(here, slope.clamp(-Self::STEEPEST, Self::STEEPEST)));
    }

    /// Corrects the estimate by a comparison: the more certain the comparison is, the larger the correction. If the two contradict
    /// each other, the comparison replaces the estimate.
    fn correct_estimate(&mut self, comparison: Comparison) {
        let Comparison { device_ns, host_ns, uncertainty_ns } = comparison;
        let since_ns = device_ns - self.estimate.device_ns;
        let part_ns = |rate: f64| (since_ns as f64 * rate).round() as i64;
        let estimate_ns = self.estimate.host_ns + since_ns + part_ns(self.drift);
        let own_ns = self.estimate.uncertainty_ns + part_ns(Self::UNSTEADY).abs();
        let error_ns = host_ns - estimate_ns;
        if error_ns.abs() > own_ns + uncertainty_ns {
            self.estimate = comparison;
            return;
        }
        let [own, other] = [own_ns, uncertainty_ns].map(|ns| (ns as f64).powi(2));
        let step_ns = if own > 0.0 { (error_ns as f64 * own / (own + other)).round() as i64 } else { 0 };
        // Both bounds hold, so their minimum holds.
        let uncertainty_ns = (own_ns + step_ns.abs()).min(uncertainty_ns + (error_ns - step_ns).abs());
        self.estimate = Comparison { device_ns, host_ns: estimate_ns + step_ns, uncertainty_ns };
    }

    /// Corrects the drift, which is measured since the comparison of the window that gives the most certain result. The result counts
    /// fully where its uncertainty is far below a [`LIKELY`](Self::LIKELY) drift.
    fn measure_drift(&mut self, last: Comparison) {
        let measured = self.compared.iter().filter_map(|first| {
            let span_ns = Some((last.device_ns - first.device_ns) as f64).filter(|span_ns| *span_ns > 0.0)?;
            let error = (first.uncertainty_ns + last.uncertainty_ns) as f64 / span_ns;
            Some((error, ((last.host_ns - first.host_ns) as f64 - span_ns) / span_ns))
        });
        if let Some((error, drift)) = measured.min_by(|one, other| one.0.total_cmp(&other.0)) {
            let likely = Self::LIKELY * Self::LIKELY;
            self.drift += (drift - self.drift) * likely / (likely + error * error);
        }
        if self.compared.len() == Self::WINDOW {
            self.compared.pop_front();
        }
        self.compared.push_back(last);
    }

    /// Returns the uncertainty of a time near the last comparison, in ns.
    pub fn uncertainty_ns(&self) -> i64 {
        self.estimate.uncertainty_ns + (self.estimate.host_ns - self.line.host_ns(self.estimate.device_ns)).abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(device_ns: i64, host_ns: i64, uncertainty_ns: i64) -> Comparison {
        Comparison { device_ns, host_ns, uncertainty_ns }
    }

    #[test]
    fn a_drifting_clock_is_followed_and_never_runs_backwards() {
        // 20 ppm, compared with an error of up to a microsecond, over ten minutes.
        let host = |device: i64| device + 5_000_000_000 + (device as f64 * 20e-6) as i64;
        let mut line = Correlation::new(at(0, host(0), 500));
        let mut last = i64::MIN;
        let mut worst = 0;
        for step in 1..1_200_i64 {
            let begin = (step - 1) * 500_000_000;
            for at in (0..50).map(|n| begin + n * 10_000_000) {
                assert!(line.host_ns(at) > last, "at {at}");
                last = line.host_ns(at);
                assert!((line.device_ns(last) - at).abs() <= 2);
                if step > 20 {
                    worst = worst.max((last - host(at)).abs());
                }
            }
            let noise = (step * 7_919 % 2_001) - 1_000;
            let told = line.host_ns(step * 500_000_000 - 3_000_000);
            line.compare(at(step * 500_000_000, host(step * 500_000_000) + noise, 500));
            assert!((line.host_ns(step * 500_000_000 - 3_000_000) - told).abs() <= 1, "what was told stays");
        }
        assert!(worst < 2_500, "{worst} ns off");
    }

    #[test]
    fn early_and_inaccurate_comparisons_do_not_change_lengths() {
        for (uncertainty, errors) in
            [(2_300, [2_000, -2_000, 1_500, -1_800]), (26_000, [25_000, -25_000, 20_000, -25_000])]
        {
            let mut line = Correlation::new(at(0, 0, 2_300));
            for (n, error) in errors.into_iter().enumerate() {
                let device_ns = 5_000_000 << n;
                line.compare(at(device_ns, device_ns + error, uncertainty));
                let length_ns = line.host_ns(device_ns + 900_000) - line.host_ns(device_ns + 500_000);
                assert!((length_ns - 400_000).abs() <= 40, "±{uncertainty} ns, comparison {n}: {length_ns}");
            }
        }
    }

    #[test]
    fn a_host_clock_that_is_slewed_is_followed() {
        // 80 ppm more from 60 s on, as when NTP corrects the host's clock.
        let host = |device: i64| device + ((device - 60_000_000_000).max(0) as f64 * 80e-6) as i64;
        let mut line = Correlation::new(at(0, 0, 1_500));
        for step in 1..240 {
            let device_ns = step * 500_000_000;
            line.compare(at(device_ns, host(device_ns), 1_500));
            let off_ns = (line.host_ns(device_ns + 400_000_000) - host(device_ns + 400_000_000)).abs();
            let allowed_ns = if (120..=136).contains(&step) { 70_000 } else { 2_000 };
            assert!(off_ns <= allowed_ns, "{off_ns} ns off at {device_ns}");
        }
    }

    #[test]
    fn what_was_told_stays_over_several_comparisons_and_where_the_line_begins_anew() {
        let mut line = Correlation::new(at(0, 7_000_000, 500));
        let mut told = Vec::new();
        // Modelled on zones of 100 us: on a loaded machine, the clocks are compared early and inaccurately.
        for (n, error) in [40_000, -30_000, 55_000, -20_000].into_iter().enumerate() {
            let device_ns = 5_000_000 * (n as i64 + 1);
            told.extend([200_000, 100_000].map(|before| (device_ns - before, line.host_ns(device_ns - before))));
            line.compare(at(device_ns, device_ns + 7_000_000 + error, 60_000));
        }
        told.push((29_000_000, line.host_ns(29_000_000)));
        line.resume(at(30_000_000, 36_700_000, 500));
        told.push((39_000_000, line.host_ns(39_000_000)));
        line.compare(at(40_000_000, 90_000_000, 500));
        for (device, host) in told {
            assert_eq!(line.host_ns(device), host, "at {device}");
        }
        assert_eq!(line.host_ns(41_000_000), 91_000_000);
    }

    #[test]
    fn after_a_rest_the_line_goes_on_as_steep_from_where_the_clocks_are() {
        let mut line = Correlation::new(at(0, 0, 500));
        line.compare(at(1_000_000_000, 1_000_020_000, 500));
        line.compare(at(2_000_000_000, 2_000_040_000, 500));
        line.resume(at(3_600_000_000_000, 3_600_000_900_000, 700));
        assert_eq!((line.host_ns(3_600_000_000_000), line.uncertainty_ns()), (3_600_000_900_000, 700));
        let second_ns = line.host_ns(3_602_000_000_000) - line.host_ns(3_601_000_000_000);
        assert!((second_ns - 1_000_020_000).abs() < 100, "20 ppm stay: {second_ns}");
    }

    #[test]
    fn a_step_of_the_clock_begins_a_new_line() {
        let mut line = Correlation::new(at(0, 1_000, 500));
        line.compare(at(1_000_000, 3_600_000_000_000, 500));
        assert_eq!(line.host_ns(1_000_010), 3_600_000_000_010);
        assert_eq!(line.uncertainty_ns(), 500);
    }
}
