//! Time: the host's clock, and its relation to a device's clock.
//!
//! A zone's length is the difference of its own two points. Positions come from a chain of anchors: events with a known device
//! time, each the base of the next, summed in i64 ns, so that no distance is long enough for a device's time format to lose
//! digits. [`Correlation`] converts these times to the host's clock.

mod comparison;
#[cfg_attr(not(all(target_os = "linux", feature = "runtime")), path = "clock/portable.rs")]
mod system;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use comparison::COMPARE_EVERY;
pub use comparison::{Comparison, Comparisons};
pub use system::now_ns;
pub(crate) use system::thread_id;

/// Now in ns since the Unix epoch.
pub(crate) fn unix_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos() as i64
}

/// The time that a pair of points adds to the work between them, in ns, measured on the device itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventOverhead {
    /// On an idle stream, with no work between them.
    pub idle_ns: i64,
    /// On a stream with queued work.
    pub busy_ns: i64,
}

/// Converts a device's time to the host's.
///
/// After each comparison, the slope is chosen so that the line meets the measured difference at the next comparison: it has no
/// steps, and time on it never runs backwards. Where a new line begins, earlier times stay on the old one: a zone that ends after
/// a comparison is positioned like the zones inside it.
#[derive(Clone, Debug)]
pub struct Correlation {
    /// The line from the last comparison on.
    line: Straight,
    /// The line before it, oldest piece first.
    earlier: std::collections::VecDeque<Straight>,
    /// The last comparisons, oldest first: device and host.
    compared: std::collections::VecDeque<(i64, i64)>,
    uncertainty_ns: i64,
}

/// A piece of the line, up to where the next one begins.
#[derive(Clone, Copy, Debug)]
struct Straight {
    device_ns: i64,
    host_ns: i64,
    /// Host ns per device ns, minus one.
    slope: f64,
}

impl Straight {
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
    /// The number of pieces that are kept besides the last, which bounds how late a zone may be read.
    const EARLIER: usize = 16;
    /// The number of comparisons from which the clocks' rate is computed.
    const WINDOW: usize = 16;
    /// The maximum drift between two sound clocks.
    const STEEPEST: f64 = 500e-6;
    /// A difference that drift cannot explain, such as after a suspend: a new line begins.
    const STEP_NS: i64 = 10_000_000;

    /// A line through one comparison, accurate to `uncertainty_ns`.
    pub fn new(device_ns: i64, host_ns: i64, uncertainty_ns: i64) -> Correlation {
        let line = Straight { device_ns, host_ns, slope: 0.0 };
        let compared = [(device_ns, host_ns)].into();
        Correlation { line, earlier: std::collections::VecDeque::new(), compared, uncertainty_ns }
    }

    /// The host's time at a time of the device.
    pub fn host_ns(&self, device_ns: i64) -> i64 {
        self.piece(|piece| device_ns >= piece.device_ns).host_ns(device_ns)
    }

    /// The device's time at a time of the host.
    pub fn device_ns(&self, host_ns: i64) -> i64 {
        self.piece(|piece| host_ns >= piece.host_ns).device_ns(host_ns)
    }

    /// The last piece that has begun; for a time before all pieces, the oldest.
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

    /// Continues after a pause, in which the chain of anchors may have lost its position: a new line begins with the same slope.
    pub fn resume(&mut self, device_ns: i64, host_ns: i64, uncertainty_ns: i64) {
        self.begin_anew(Straight { device_ns, host_ns, slope: self.line.slope }, uncertainty_ns);
    }

    fn begin_anew(&mut self, piece: Straight, uncertainty_ns: i64) {
        self.begin_piece(piece);
        self.compared = [(piece.device_ns, piece.host_ns)].into();
        self.uncertainty_ns = uncertainty_ns;
    }

    /// Adds another comparison.
    pub fn compare(&mut self, device_ns: i64, host_ns: i64, uncertainty_ns: i64) {
        let line_ns = self.host_ns(device_ns);
        let error_ns = host_ns - line_ns;
        if error_ns.abs() > Self::STEP_NS {
            self.begin_anew(Straight { device_ns, host_ns, slope: 0.0 }, uncertainty_ns);
            return;
        }
        if self.compared.len() == Self::WINDOW {
            self.compared.pop_front();
        }
        self.compared.push_back((device_ns, host_ns));
        let drift =
            self.compared.front().filter(|(first, _)| *first < device_ns).map_or(0.0, |(first, host)| {
                ((host_ns - host) - (device_ns - first)) as f64 / (device_ns - first) as f64
            });
        // The next comparison comes after at most twice the time.
        let since = (device_ns - self.line.device_ns).max(1) as f64;
        let bend = error_ns as f64 / (since * 2.0).min(COMPARE_EVERY.as_nanos() as f64);
        let slope = (drift + bend).clamp(-Self::STEEPEST, Self::STEEPEST);
        self.begin_piece(Straight { device_ns, host_ns: line_ns, slope });
        self.uncertainty_ns = uncertainty_ns + error_ns.abs();
    }

    /// The uncertainty of a time near the last comparison, in ns.
    pub fn uncertainty_ns(&self) -> i64 {
        self.uncertainty_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drifting_clock_is_followed_and_never_runs_backwards() {
        // 20 ppm, compared with an error of up to a microsecond, over ten minutes.
        let host = |device: i64| device + 5_000_000_000 + (device as f64 * 20e-6) as i64;
        let mut line = Correlation::new(0, host(0), 500);
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
            line.compare(step * 500_000_000, host(step * 500_000_000) + noise, 500);
            assert!((line.host_ns(step * 500_000_000 - 3_000_000) - told).abs() <= 1, "what was told stays");
        }
        assert!(worst < 2_500, "{worst} ns off");
    }

    #[test]
    fn what_was_told_stays_over_several_comparisons_and_where_the_line_begins_anew() {
        let mut line = Correlation::new(0, 7_000_000, 500);
        let mut told = Vec::new();
        // Modelled on zones of 100 us: on a loaded machine, the clocks are compared early and inaccurately.
        for (n, error) in [40_000, -30_000, 55_000, -20_000].into_iter().enumerate() {
            let at = 5_000_000 * (n as i64 + 1);
            told.extend([at - 200_000, at - 100_000].map(|device| (device, line.host_ns(device))));
            line.compare(at, at + 7_000_000 + error, 60_000);
        }
        told.push((29_000_000, line.host_ns(29_000_000)));
        line.resume(30_000_000, 36_700_000, 500);
        told.push((39_000_000, line.host_ns(39_000_000)));
        line.compare(40_000_000, 90_000_000, 500);
        for (device, host) in told {
            assert_eq!(line.host_ns(device), host, "at {device}");
        }
        assert_eq!(line.host_ns(41_000_000), 91_000_000);
    }

    #[test]
    fn after_a_rest_the_line_goes_on_as_steep_from_where_the_clocks_are() {
        let mut line = Correlation::new(0, 0, 500);
        line.compare(1_000_000_000, 1_000_020_000, 500);
        line.compare(2_000_000_000, 2_000_040_000, 500);
        let slope = line.host_ns(12_000_000_000) - line.host_ns(11_000_000_000);
        line.resume(3_600_000_000_000, 3_600_000_900_000, 700);
        assert_eq!((line.host_ns(3_600_000_000_000), line.uncertainty_ns()), (3_600_000_900_000, 700));
        assert_eq!(line.host_ns(3_602_000_000_000) - line.host_ns(3_601_000_000_000), slope);
    }

    #[test]
    fn a_step_of_the_clock_begins_a_new_line() {
        let mut line = Correlation::new(0, 1_000, 500);
        line.compare(1_000_000, 3_600_000_000_000, 500);
        assert_eq!(line.host_ns(1_000_010), 3_600_000_000_010);
        assert_eq!(line.uncertainty_ns(), 500);
    }
}
