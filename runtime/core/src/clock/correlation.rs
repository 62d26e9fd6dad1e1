//! The line between a device's clock and the host's, made of pieces that begin at comparisons of the two.
//!
//! `Comparisons` adds the comparisons; readers convert times with it. Nothing here asks a clock.

use std::collections::VecDeque;

use super::comparison::{COMPARE_EVERY, Comparison};

/// Converts a device's time to the host's.
///
/// Each comparison corrects an estimate, weighted by the uncertainties of both. The line follows the estimate slowly: it has no
/// steps, time on it never runs backwards, and lengths on it stay right although single comparisons are off. Where a new piece
/// begins, earlier times stay on the old one: a zone that ends after a comparison is positioned like the zones inside it.
///
/// After a rest, the line between the last comparison before it and the first one after it is straight. What runs at the end of a
/// rest is therefore placed by the comparison that follows, not by the one before the rest.
#[derive(Clone, Debug)]
pub struct Correlation {
    /// The line from the last comparison on.
    line: Piece,
    /// The line before it, oldest piece first.
    earlier: VecDeque<Piece>,
    /// The last comparisons, oldest first.
    compared: VecDeque<Comparison>,
    /// The estimate of the host's time at the last comparison, from all comparisons up to it.
    estimate: Comparison,
    /// Host ns per device ns, minus one, as far as it is known, and the standard error of that.
    drift: f64,
    drift_error: f64,
}

/// A piece of the line, up to the begin of the next piece.
#[derive(Clone, Copy, Debug)]
struct Piece {
    device_ns: i64,
    host_ns: i64,
    /// Host ns per device ns, minus one.
    slope: f64,
    /// What is added to the slope until the next comparison is due: the line follows the estimate within that time.
    catch_up: f64,
    /// The uncertainty at the begin, without what is caught up, and how fast it grows.
    uncertainty_ns: i64,
    growth: f64,
    /// The comparison at which the piece ends; none if none was known when it began.
    end: Option<Comparison>,
}

impl Piece {
    /// Returns a piece through a point, whose uncertainty grows at this rate.
    fn through(point: Comparison, slope: f64, growth: f64) -> Piece {
        let Comparison { device_ns, host_ns, uncertainty_ns } = point;
        Piece { device_ns, host_ns, slope, catch_up: 0.0, uncertainty_ns, growth, end: None }
    }

    fn host_ns(&self, device_ns: i64) -> i64 {
        let since = device_ns - self.device_ns;
        let caught_up = since.clamp(0, CATCH_UP_NS) as f64 * self.catch_up;
        self.host_ns + since + (since as f64 * self.slope + caught_up).round() as i64
    }

    fn device_ns(&self, host_ns: i64) -> i64 {
        let since = (host_ns - self.host_ns) as f64;
        let fast = 1.0 + self.slope + self.catch_up;
        let at_most = CATCH_UP_NS as f64;
        let device = match since / fast {
            early if early < 0.0 => since / (1.0 + self.slope),
            late if late > at_most => at_most + (since - at_most * fast) / (1.0 + self.slope),
            within => within,
        };
        self.device_ns + device.round() as i64
    }

    fn uncertainty_ns(&self, device_ns: i64) -> i64 {
        let since = device_ns - self.device_ns;
        let behind = (CATCH_UP_NS - since.clamp(0, CATCH_UP_NS)) as f64 * self.catch_up.abs();
        let grown = |from: i64, since: i64| from + (since.abs() as f64 * self.growth) as i64;
        let since_begin = grown(self.uncertainty_ns, since) + behind.round() as i64;
        let until_end = self.end.map(|end| grown(end.uncertainty_ns, end.device_ns - device_ns));
        until_end.map_or(since_begin, |ns| ns.min(since_begin))
    }
}

/// The time in which the line follows the estimate: until the next comparison is due.
const CATCH_UP_NS: i64 = COMPARE_EVERY.as_nanos() as i64;

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
        let line = Piece::through(first, 0.0, Self::LIKELY + Self::UNSTEADY);
        let (earlier, compared) = (VecDeque::new(), [first].into());
        Correlation { line, earlier, compared, estimate: first, drift: 0.0, drift_error: Self::LIKELY }
    }

    /// Converts a time of the device to the host's clock.
    pub fn host_ns(&self, device_ns: i64) -> i64 {
        self.piece(|piece| device_ns >= piece.device_ns).host_ns(device_ns)
    }

    /// Converts a time of the host to the device's clock.
    pub fn device_ns(&self, host_ns: i64) -> i64 {
        self.piece(|piece| host_ns >= piece.host_ns).device_ns(host_ns)
    }

    /// Returns the maximum error of the host's time that belongs to this time of the device, in ns.
    pub fn uncertainty_at(&self, device_ns: i64) -> i64 {
        self.place(device_ns).1
    }

    /// Returns the host's time that belongs to this time of the device, and its maximum error, in ns.
    #[doc(hidden)]
    pub fn place(&self, device_ns: i64) -> (i64, i64) {
        let piece = self.piece(|piece| device_ns >= piece.device_ns);
        (piece.host_ns(device_ns), piece.uncertainty_ns(device_ns))
    }

    /// Returns the uncertainty of a time near the last comparison, in ns.
    pub fn uncertainty_ns(&self) -> i64 {
        self.line.uncertainty_ns(self.estimate.device_ns)
    }

    /// Returns the last piece that has begun; for a time before all pieces, the oldest.
    fn piece(&self, has_begun: impl Fn(&Piece) -> bool) -> &Piece {
        let mut pieces = std::iter::once(&self.line).chain(self.earlier.iter().rev());
        pieces.find(|piece| has_begun(piece)).or(self.earlier.front()).unwrap_or(&self.line)
    }

    fn begin_piece(&mut self, piece: Piece) {
        if self.earlier.len() == Self::EARLIER {
            self.earlier.pop_front();
        }
        self.earlier.push_back(std::mem::replace(&mut self.line, piece));
    }

    /// Begins a new line with the known drift at a comparison after a pause, in which the chain of anchors may have lost its position.
    /// Times of the pause lie between the two comparisons; if no drift can explain these, the clock was set and they are on the new line.
    pub fn resume(&mut self, first: Comparison) {
        self.measure_drift_of_rest(first);
        let rest_ns = self.line.device_ns + CATCH_UP_NS;
        if rest_ns < first.device_ns {
            let from = Comparison {
                device_ns: rest_ns,
                host_ns: self.line.host_ns(rest_ns),
                uncertainty_ns: self.line.uncertainty_ns(rest_ns),
            };
            let long_ns = (first.device_ns - rest_ns) as f64;
            let slope = ((first.host_ns - from.host_ns) as f64 - long_ns) / long_ns;
            self.begin_piece(if slope.abs() <= Self::STEEPEST {
                Piece { end: Some(first), ..Piece::through(from, slope, Self::UNSTEADY) }
            } else {
                let back = Piece::through(first, self.drift, self.growth());
                let from = Comparison { host_ns: back.host_ns(rest_ns), ..from };
                Piece {
                    uncertainty_ns: i64::MAX / 2,
                    end: Some(first),
                    ..Piece::through(from, self.drift, self.growth())
                }
            });
        }
        self.begin_piece(Piece::through(first, self.drift, self.growth()));
        self.compared = [first].into();
        self.estimate = first;
    }

    /// Takes the rate of the rest that ends with this comparison, if the present one is known less well: after a short burst of work.
    fn measure_drift_of_rest(&mut self, end: Comparison) {
        let Some(begin) = self.compared.back() else { return };
        let rest_ns = (end.device_ns - begin.device_ns) as f64;
        let drift = ((end.host_ns - begin.host_ns) as f64 - rest_ns) / rest_ns;
        let error = (begin.uncertainty_ns + end.uncertainty_ns) as f64 / rest_ns + Self::UNSTEADY;
        if rest_ns > 0.0 && error < self.drift_error && drift.abs() <= Self::STEEPEST {
            (self.drift, self.drift_error) = (drift, error);
        }
    }

    /// Goes straight from a time on the line to a point; returns false if only a clock that was set can go there.
    fn bridge(&mut self, from_ns: i64, to: Comparison) -> bool {
        let [host_ns, uncertainty_ns] = [self.line.host_ns(from_ns), self.line.uncertainty_ns(from_ns)];
        let long_ns = (to.device_ns - from_ns) as f64;
        let slope = ((to.host_ns - host_ns) as f64 - long_ns) / long_ns;
        // The line went on at the old rate for a while, so it is steeper than the rate of the rest.
        let is_drift = slope.abs() <= 2.0 * Self::STEEPEST;
        if is_drift {
            let from = Comparison { device_ns: from_ns, host_ns, uncertainty_ns };
            self.begin_piece(Piece { end: Some(to), ..Piece::through(from, slope, Self::UNSTEADY) });
        }
        is_drift
    }

    /// The rate at which the line becomes uncertain after a comparison.
    fn growth(&self) -> f64 {
        self.drift_error + Self::UNSTEADY
    }

    /// Adds another comparison. If it is late, the times since the last one was due lie between the two.
    pub fn compare(&mut self, comparison: Comparison) {
        let line_ns = self.host_ns(comparison.device_ns);
        if (comparison.host_ns - line_ns).abs() > Self::STEP_NS {
            self.resume(comparison);
            return;
        }
        self.correct_estimate(comparison);
        self.measure_drift(comparison);
        let rest_ns = self.line.device_ns + CATCH_UP_NS;
        if comparison.device_ns - rest_ns > CATCH_UP_NS && self.bridge(rest_ns, self.estimate) {
            self.begin_piece(Piece::through(self.estimate, self.drift, self.growth()));
            return;
        }
        let away_ns = self.estimate.host_ns - line_ns;
        let slope = self.drift.clamp(-Self::STEEPEST, Self::STEEPEST);
        let [least, most] = [-Self::STEEPEST - slope, Self::STEEPEST - slope];
        let catch_up = (away_ns as f64 / CATCH_UP_NS as f64).clamp(least, most);
        let left_ns = away_ns - (catch_up * CATCH_UP_NS as f64).round() as i64;
        let uncertainty_ns = self.estimate.uncertainty_ns + left_ns.abs();
        let here = Comparison { host_ns: line_ns, uncertainty_ns, ..comparison };
        self.begin_piece(Piece { catch_up, ..Piece::through(here, slope, self.growth()) });
    }

    /// Corrects the estimate by a comparison: the more certain the comparison is, the larger the correction. If the two contradict
    /// each other, the comparison replaces the estimate.
    fn correct_estimate(&mut self, comparison: Comparison) {
        let Comparison { device_ns, host_ns, uncertainty_ns } = comparison;
        let since_ns = device_ns - self.estimate.device_ns;
        let part_ns = |rate: f64| (since_ns as f64 * rate).round() as i64;
        let estimate_ns = self.estimate.host_ns + since_ns + part_ns(self.drift);
        let own_ns = self.estimate.uncertainty_ns + part_ns(self.growth()).abs();
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
            let weight = likely / (likely + error * error);
            self.drift += (drift - self.drift) * weight;
            self.drift_error = error * weight.sqrt();
        }
        if self.compared.len() == Self::WINDOW {
            self.compared.pop_front();
        }
        self.compared.push_back(last);
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

    /// Device and host, which drift by 12 ppm. The device's own time after a rest has the error of a distance in 32-bit floats.
    fn rested(rest_ns: i64, seed: i64, comparisons: i64) -> (Correlation, i64, impl Fn(i64) -> i64) {
        let host = |device: i64| device + 7_000_000_000 + (device as f64 * 12e-6) as i64;
        let noise = move |step: i64| (seed * 7_919 + step * 104_729) % 2_991 - 1_495;
        let mut line = Correlation::new(at(0, host(0) + noise(0), 1_500));
        let (mut device_ns, mut every_ns) = (0, 5_000_000);
        for step in 1..=comparisons {
            device_ns += every_ns;
            every_ns = (every_ns * 2).min(500_000_000);
            line.compare(at(device_ns, host(device_ns) + noise(step), 1_500));
        }
        let resumed_ns = device_ns + rest_ns;
        let lost_ns = (rest_ns as f64 / f64::from(1 << 24)) as i64 * if seed % 2 == 0 { 1 } else { -1 };
        line.resume(at(resumed_ns + lost_ns, host(resumed_ns) + noise(comparisons + 1), 1_500));
        (line, resumed_ns + lost_ns, move |back_ns| host(resumed_ns - back_ns))
    }

    #[test]
    fn a_zone_that_ends_a_rest_is_placed_by_the_comparison_that_follows_it() {
        for rest_ns in [5_000_000_000, 60_000_000_000, 600_000_000_000, 3_600_000_000_000] {
            for (seed, comparisons) in (0..200).map(|seed| (seed, if seed % 3 == 0 { 120 } else { 3 + seed % 7 })) {
                let (line, resumed_ns, truth) = rested(rest_ns, seed, comparisons);
                for back_ns in [0, 100_000, 1_000_000, 20_000_000] {
                    let off_ns = (line.host_ns(resumed_ns - back_ns) - truth(back_ns)).abs();
                    let stated_ns = line.uncertainty_at(resumed_ns - back_ns);
                    assert!(off_ns <= 3_000, "{off_ns} ns off after {rest_ns} ns, {back_ns} ns before the comparison");
                    assert!(off_ns <= stated_ns && stated_ns <= 4_000, "{off_ns} ns off, ±{stated_ns} ns");
                }
                let ahead_ns = line.host_ns(resumed_ns + 400_000_000) - line.host_ns(resumed_ns);
                assert!((ahead_ns - 400_004_800).abs() <= 10_000, "the drift after {rest_ns} ns: {ahead_ns}");
                let (mut last, mut at_ns) = (i64::MIN, 0);
                while at_ns < resumed_ns {
                    let now = line.host_ns(at_ns);
                    assert!(now > last && (line.device_ns(now) - at_ns).abs() <= 2, "at {at_ns}");
                    (last, at_ns) = (now, at_ns + rest_ns / 50);
                }
            }
        }
    }

    #[test]
    fn a_line_catches_up_until_the_next_comparison_is_due_and_no_longer() {
        let mut line = Correlation::new(at(0, 0, 500));
        for step in 1..20 {
            line.compare(at(step * 500_000_000, step * 500_000_000, 500));
        }
        // The host's clock is 30 µs ahead at once, which no drift explains.
        let (last_ns, ahead_ns) = (10_000_000_000, 30_000);
        line.compare(at(last_ns, last_ns + ahead_ns, 500));
        let due_ns = last_ns + 500_000_000;
        assert!((line.host_ns(due_ns) - due_ns - ahead_ns).abs() <= 3_000, "{}", line.host_ns(due_ns) - due_ns);
        for late_ns in [500_000_000, 2_500_000_000] {
            let off_ns = line.host_ns(due_ns + late_ns) - line.host_ns(due_ns) - late_ns;
            assert!(off_ns.abs() <= late_ns / 100_000, "{off_ns} ns in {late_ns} ns without a comparison");
        }
    }

    #[test]
    fn the_uncertainty_is_that_of_the_time_and_not_of_the_last_comparison() {
        let mut line = Correlation::new(at(0, 0, 1_000));
        // Drift is unknown.
        assert_eq!(line.uncertainty_at(0), 1_000);
        assert!((50_000..60_000).contains(&line.uncertainty_at(1_000_000_000)));
        for step in 1..=100 {
            line.compare(at(step * 500_000_000, step * 500_000_000, 1_000));
        }
        let last_ns = 50_000_000_000;
        assert!(line.uncertainty_at(last_ns) <= 1_100, "{}", line.uncertainty_at(last_ns));
        let minute_ns = line.uncertainty_at(last_ns + 60_000_000_000);
        assert!((100_000..400_000).contains(&minute_ns), "{minute_ns} ns a minute after the last comparison");
        let hour_ns = 3_600_000_000_000;
        line.resume(at(last_ns + hour_ns, last_ns + hour_ns, 2_000));
        assert!(line.uncertainty_at(last_ns + hour_ns - 1_000_000) <= 2_010);
        assert!(line.uncertainty_at(last_ns + hour_ns / 2) > 1_000_000);
    }

    #[test]
    fn a_suspended_host_moves_what_runs_after_it_and_nothing_before() {
        let mut line = Correlation::new(at(0, 0, 500));
        (1..20).for_each(|step| line.compare(at(step * 500_000_000, step * 500_000_000, 500)));
        let before_ns = line.host_ns(9_600_000_000);
        // The device stood still for an hour; a zone woke the collector.
        let hour_ns = 3_600_000_000_000;
        line.compare(at(11_000_000_000, 11_000_000_000 + hour_ns, 500));
        assert_eq!((line.host_ns(9_600_000_000), line.host_ns(10_999_000_000)), (before_ns, 10_999_000_000 + hour_ns));
    }

    #[test]
    fn a_step_of_the_clock_begins_a_new_line() {
        let mut line = Correlation::new(at(0, 1_000, 500));
        line.compare(at(1_000_000, 3_600_000_000_000, 500));
        assert_eq!(line.host_ns(1_000_010), 3_600_000_000_010);
        assert_eq!(line.uncertainty_ns(), 500);
    }
}
