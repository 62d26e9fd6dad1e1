//! The lengths of one range's zones, in constant memory: the figures of [`RangeStats`].
//!
//! A session's summary and the command `warpline report`, which reads traces, add zones here, so that both print the same figures.
//! Counts, sums, minima and maxima are exact, and percentiles come from a histogram with two significant digits. If only a sample of a
//! range was recorded, each record stands for several zones (`sums`). A zone whose length is only a bound ([`is_bound`]) is counted apart: it is in
//! the total, which is then an upper bound, and in no other figure.

mod clusters;
mod sums;

use std::borrow::Cow;
use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::figures::RangeStats;
use super::nesting::Inner;
use clusters::Clusters;
use sums::Sums;
use warpline_core::record::{DeviceKind, is_bound};

/// A first zone is shown separately if it took more than this many times the median of the later ones.
const FIRST_BY: i64 = 10;

/// Significant decimal digits of a percentile.
const DIGITS: u8 = 2;

/// The count of a record of one zone in a histogram, so that a record that stands for 1.3 zones does not count as one.
const PARTS: f64 = 8.0;

/// One zone.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// The length, in ns; if the end is not timed, the longest possible one.
    pub ns: i64,
    /// The time by which the end may be earlier, in ns; 0 if it is timed.
    pub early_by_ns: i64,
    /// The time that the launching thread spent between begin and end, in ns. None for a zone without a launch of its own, such as an entry of a batch.
    pub launch_ns: Option<i64>,
    /// The begin of the launch, in ns, which decides which zone was the first.
    pub begin_ns: i64,
    /// The number of zones that the record stands for.
    pub weight: f64,
    /// The window of a session with a budget; 0 without one.
    pub window: u32,
    /// The device; none on the host.
    pub device: Option<(DeviceKind, u32)>,
    pub has_failed: bool,
}

/// How many zones ran, and in which time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coverage {
    /// The number of zones that ran, where the source of the records counted them.
    pub seen: Option<u64>,
    /// Whether that number scales the total: each of these zones has a time of its own.
    pub scales: bool,
    /// The time from the begin of the first zone of any range to the end of the last, in ns.
    pub window_ns: i64,
    /// The number of windows of a session with a budget.
    pub windows: u32,
}

pub struct Lengths {
    count: u64,
    failed: u64,
    /// The sums of timed zones.
    recorded_ns: i64,
    self_ns: i64,
    /// The time by which `self_ns` may be shorter, because the ends of zones within others are not timed.
    self_early_ns: i64,
    min_ns: i64,
    max_ns: i64,
    bounded: Bounded,
    /// The sums of all zones, also of those whose length is only a bound.
    all: Sums,
    /// The sums of zones that were recorded in windows.
    clusters: Clusters,
    /// The sums of zones that were not the first on their device.
    later: Sums,
    /// The weighted time of launches, and the weights of the zones that have one.
    launch_ns: f64,
    launched: f64,
    /// The first zone on each device and, without one, on the host.
    firsts: BTreeMap<Option<(DeviceKind, u32)>, First>,
    /// None if the histogram could not be created; then there are no percentiles.
    lengths: Option<Histogram<u64>>,
}

/// The zones whose length is only a bound.
#[derive(Clone, Copy, Debug, Default)]
struct Bounded {
    count: u64,
    /// The sum of the longest possible lengths, and of the shortest.
    most_ns: i64,
    least_ns: i64,
    max_ns: i64,
}

/// A bar of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// The lengths of its zones, in ns: from this one, and below the other one.
    pub from_ns: u64,
    pub to_ns: u64,
    pub count: u64,
}

/// The first zone of a range on a device or, without one, on the host.
struct First {
    begin_ns: i64,
    /// None if the length is only a bound.
    ns: Option<i64>,
}

impl Default for Lengths {
    fn default() -> Lengths {
        Lengths {
            count: 0,
            failed: 0,
            recorded_ns: 0,
            self_ns: 0,
            self_early_ns: 0,
            min_ns: i64::MAX,
            max_ns: 0,
            bounded: Bounded::default(),
            all: Sums::default(),
            clusters: Clusters::default(),
            later: Sums::default(),
            launch_ns: 0.0,
            launched: 0.0,
            firsts: BTreeMap::new(),
            lengths: Histogram::new(DIGITS).ok(),
        }
    }
}

impl Lengths {
    /// Adds a zone. `may_lack_first` returns whether the first zone of the range may not be among the records.
    pub fn add(&mut self, zone: &Length, may_lack_first: impl FnOnce() -> bool) {
        let Length { ns, launch_ns, weight, window, .. } = *zone;
        self.count += 1;
        self.failed += u64::from(zone.has_failed);
        if let Some(ns) = launch_ns {
            self.launch_ns += weight * ns as f64;
            self.launched += weight;
        }
        if zone.is_bounded() {
            self.bounded.add(zone);
        } else {
            self.recorded_ns += ns;
            self.self_ns += ns;
            self.min_ns = self.min_ns.min(ns);
            self.max_ns = self.max_ns.max(ns);
        }
        self.all.add(ns, weight);
        if window > 0 {
            self.clusters.add(window, weight * ns as f64);
        }
        let has_first = self.firsts.contains_key(&zone.device);
        let may_be_first = weight <= 1.0 && (has_first || !(self.all.sampled > 0 || may_lack_first()));
        let timed_ns = (!zone.is_bounded()).then_some(ns);
        let later = if may_be_first { self.keep_first(zone, timed_ns) } else { timed_ns };
        if let Some(ns) = later {
            self.later.add(ns, weight);
            add_length(self.lengths.as_mut(), ns, weight);
        }
    }

    /// Subtracts the time of zones that ran within a zone of the range from the range's own time. `is_bounded` is whether that zone's length is
    /// only a bound, so that it has no own time.
    pub fn subtract_inner(&mut self, inner: Inner, is_bounded: bool) {
        if !is_bounded {
            self.self_ns -= inner.least_ns;
            self.self_early_ns += inner.most_ns - inner.least_ns;
        }
    }

    /// Returns the number of zones that passed by, for a source whose records say of how many each was chosen.
    pub fn is_sample(&self) -> bool {
        self.all.sampled > 0
    }

    /// Returns the time of all timed records, in ns.
    pub fn recorded_ns(&self) -> i64 {
        self.recorded_ns
    }

    /// Returns the number of records.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Keeps the zone if it is the first on its device so far, and returns the one that is not. Streams are read one after another, and the
    /// first zone of a later one may have been launched before that of an earlier one.
    fn keep_first(&mut self, zone: &Length, timed_ns: Option<i64>) -> Option<i64> {
        let first = First { begin_ns: zone.begin_ns, ns: timed_ns };
        match self.firsts.get_mut(&zone.device) {
            None => {
                self.firsts.insert(zone.device, first);
                None
            }
            Some(known) if first.begin_ns < known.begin_ns => std::mem::replace(known, first).ns,
            Some(_) => timed_ns,
        }
    }

    /// Returns the longest of the first zones that took more than [`FIRST_BY`] times the median of the later zones, and all first zones
    /// that did not.
    fn firsts_apart(&self) -> (Option<i64>, Vec<i64>) {
        let later = self.lengths.as_ref().filter(|lengths| !lengths.is_empty());
        let limit_ns = later.map_or(i64::MAX, |later| FIRST_BY.saturating_mul(later.value_at_quantile(0.50) as i64));
        let (apart, usual): (Vec<i64>, Vec<i64>) =
            self.firsts.values().filter_map(|first| first.ns).partition(|&ns| ns > limit_ns);
        (apart.into_iter().max(), usual)
    }

    /// Returns the figures.
    pub fn stats(&self, name: Cow<'static, str>, coverage: Coverage) -> RangeStats {
        let Coverage { window_ns, windows, .. } = coverage;
        let seen = coverage.seen.unwrap_or_else(|| (self.all.weight.round() as u64).max(self.count));
        let known = coverage.seen.filter(|_| coverage.scales);
        let (total, error) = self.all.total(known);
        // Zones of a window are not chosen independently.
        let is_in_windows = windows > 0 && self.all.sampled > 0;
        let error = if is_in_windows { self.clusters.error(windows).unwrap_or(0.0) } else { error };
        let is_whole = self.all.sampled == 0 && known.is_none_or(|seen| seen <= self.count);
        let total_ns = if is_whole { self.recorded_ns + self.bounded.most_ns } else { total.round() as i64 };
        let (apart, typical, lengths) = self.typical();
        // Without a timed zone, there is nothing between the two ends.
        let (min_ns, max_ns) = (self.min_ns.min(self.max_ns), self.max_ns);
        let percentile = |p| lengths.as_ref().map_or(0, |lengths| lengths.value_at_quantile(p) as i64);
        RangeStats {
            name,
            on_stream: false,
            in_replays: false,
            count: self.count,
            seen,
            failed: self.failed,
            total_ns,
            total_error_ns: error.round() as i64,
            recorded_ns: self.recorded_ns,
            self_ns: self.self_ns,
            self_early_ns: self.self_early_ns,
            share: total_ns as f64 / window_ns.max(1) as f64,
            first_ns: apart,
            mean_ns: typical.mean() as i64,
            min_ns,
            p50_ns: percentile(0.50).clamp(min_ns, max_ns),
            p99_ns: percentile(0.99).clamp(min_ns, max_ns),
            max_ns,
            mean_launch_ns: (self.launch_ns / self.launched.max(1.0)) as i64,
            work: None,
            bounded: self.bounded.count,
            bounded_total_ns: self.bounded.most_ns,
            bounded_least_ns: self.bounded.least_ns,
            bounded_max_ns: self.bounded.max_ns,
        }
    }

    /// Returns the longest of the first zones that are shown apart, and the sums and lengths of all other zones.
    fn typical(&self) -> (Option<i64>, Sums, Option<Histogram<u64>>) {
        let (apart, usual) = self.firsts_apart();
        let (mut typical, mut lengths) = (self.later, self.lengths.clone());
        for ns in usual {
            typical.add(ns, 1.0);
            add_length(lengths.as_mut(), ns, 1.0);
        }
        (apart, typical, lengths)
    }

    /// Returns the histogram behind the percentiles, without the first zones that are shown apart: at most `most` bars, each a constant factor
    /// longer than the one before. In a sample, the counts are estimates. Bars between others have a count of 0.
    pub fn histogram(&self, most: usize) -> Vec<Bar> {
        let Some(lengths) = self.typical().2.filter(|lengths| !lengths.is_empty()) else { return Vec::new() };
        let (least, longest) = (lengths.min().max(1) as f64, lengths.max().max(1) as f64);
        // As many bars to a factor of two as there is room for; but a bar is not narrower than the counters behind it.
        let octaves = (longest / least).log2() + 1.0;
        let bars =
            [32.0, 16.0, 8.0, 4.0, 2.0, 1.0].into_iter().find(|bars| bars * octaves <= most as f64).unwrap_or(0.5);
        let bar_of = |ns: u64| (ns.max(1) as f64).log2().mul_add(bars, 1e-9).floor() as i64;
        let edge = |bar: i64| (bar as f64 / bars).exp2().ceil() as u64;
        let first = bar_of(lengths.min());
        let mut found: Vec<Bar> = Vec::new();
        for step in lengths.iter_recorded() {
            let at = (bar_of(step.value_iterated_to()) - first).max(0);
            while found.len() as i64 <= at {
                let bar = first + found.len() as i64;
                found.push(Bar { from_ns: edge(bar), to_ns: edge(bar + 1), count: 0 });
            }
            found[at as usize].count += step.count_at_value();
        }
        for bar in &mut found {
            bar.count = (bar.count as f64 / PARTS).round() as u64;
        }
        found
    }

    /// Returns the number of counters of the histogram, which determines the memory.
    pub fn counters(&self) -> usize {
        self.lengths.as_ref().map_or(0, Histogram::distinct_values)
    }
}

impl Length {
    fn is_bounded(&self) -> bool {
        is_bound(self.ns, self.early_by_ns)
    }
}

impl Bounded {
    fn add(&mut self, zone: &Length) {
        self.count += 1;
        self.most_ns += zone.ns;
        self.least_ns += (zone.ns - zone.early_by_ns).max(0);
        self.max_ns = self.max_ns.max(zone.ns);
    }
}

fn add_length(lengths: Option<&mut Histogram<u64>>, ns: i64, weight: f64) {
    if let Some(lengths) = lengths {
        // The histogram grows with the range of the values, and the digits bound its size.
        let _ = lengths.record_n(ns.max(0) as u64, (weight * PARTS).round() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_every_zone_once_in_as_many_bars_as_asked_for() {
        let mut lengths = Lengths::default();
        assert!(lengths.histogram(80).is_empty());
        let mut add = |ns: i64| {
            let zone = Length {
                ns,
                early_by_ns: 0,
                launch_ns: None,
                begin_ns: ns,
                weight: 1.0,
                window: 0,
                device: None,
                has_failed: false,
            };
            lengths.add(&zone, || true);
        };
        // From 1 ns to 1,000 s, and many of one length.
        (0..13).for_each(|power| add(10_i64.pow(power)));
        (0..1_000).for_each(|_| add(5_000));
        for most in [10, 20, 80, 400] {
            let bars = lengths.histogram(most);
            assert!(bars.len() <= most.max(21), "{} bars of {most}", bars.len());
            assert_eq!(bars.iter().map(|bar| bar.count).sum::<u64>(), 1_013);
            assert!(bars.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns), "{bars:?}");
            let of_many = bars.iter().find(|bar| bar.count >= 1_000).unwrap();
            assert!(of_many.from_ns <= 5_000 && of_many.to_ns > 4_950, "{of_many:?}");
        }
    }

    fn zone(begin_ns: i64, ns: i64, early_by_ns: i64) -> Length {
        Length {
            ns,
            early_by_ns,
            launch_ns: Some(4),
            begin_ns,
            weight: 1.0,
            window: 0,
            device: None,
            has_failed: false,
        }
    }

    fn stats(zones: &[Length]) -> RangeStats {
        let mut lengths = Lengths::default();
        zones.iter().for_each(|zone| lengths.add(zone, || false));
        lengths.stats("test".into(), Coverage { window_ns: 1_000_000, ..Coverage::default() })
    }

    #[test]
    fn a_length_that_is_only_a_bound_is_counted_and_in_no_figure_but_the_total() {
        // Known within 5 %, and not.
        let found = stats(&[zone(0, 1_000, 0), zone(1, 1_200, 60), zone(2, 90_000, 89_500), zone(3, 2, 1)]);
        assert_eq!((found.count, found.bounded, found.timed(), found.mean_launch_ns), (4, 2, 2, 4));
        assert_eq!((found.min_ns, found.mean_ns, found.max_ns, found.first_ns), (1_000, 1_100, 1_200, None));
        assert!(found.p50_ns >= 1_000 && found.p99_ns <= 1_200, "{found:?}");
        assert_eq!((found.recorded_ns, found.self_ns, found.total_ns), (2_200, 2_200, 92_202));
        assert_eq!((found.bounded_total_ns, found.bounded_least_ns, found.bounded_max_ns), (90_002, 501, 90_000));
        assert!(found.total_is_bound() && !found.self_is_bound());
        let mut lengths = Lengths::default();
        lengths.add(&zone(0, 500, 400), || false);
        assert!(lengths.histogram(80).is_empty() && lengths.recorded_ns() == 0 && lengths.count() == 1);
    }

    #[test]
    fn without_a_timed_zone_there_is_no_length() {
        let found = stats(&[zone(0, 3_720_000, 3_700_000), zone(1, 5_000, 5_000)]);
        assert_eq!((found.min_ns, found.mean_ns, found.p50_ns, found.p99_ns, found.max_ns), (0, 0, 0, 0, 0));
        assert_eq!((found.timed(), found.bounded_mean_ns(), found.total_ns), (0, 1_862_500, 3_725_000));
    }

    #[test]
    fn the_zone_after_a_first_one_that_is_only_bounded_is_not_the_first_call() {
        // The second of these is launched first, and the third takes long.
        let zones = [zone(5, 10, 0), zone(0, 900, 800), zone(1, 9_000, 0), zone(2, 10, 0), zone(3, 10, 0)];
        let found = stats(&zones);
        assert_eq!((found.first_ns, found.max_ns, found.mean_ns), (None, 9_000, 9_030 / 4));
        // The same in the other order, and with a first one that is timed.
        assert_eq!(stats(&[zones[2], zones[0], zones[1], zones[3], zones[4]]).first_ns, None);
        assert_eq!(stats(&[zones[0], zones[2], zones[3], zones[4]]).first_ns, Some(9_000));
    }

    #[test]
    fn a_total_that_is_a_bound_by_less_than_5_percent_is_a_total() {
        let mut zones = vec![zone(0, 100, 100)];
        zones.extend((1..30).map(|n| zone(n, 100, 0)));
        assert!(!stats(&zones).total_is_bound() && stats(&zones).bounded == 1);
        assert!(stats(&zones[..15]).total_is_bound());
    }

    #[test]
    fn own_time_is_an_interval_where_zones_within_are_bounded() {
        let mut lengths = Lengths::default();
        lengths.add(&zone(0, 1_000, 0), || false);
        lengths.subtract_inner(Inner { most_ns: 800, least_ns: 300 }, false);
        // A bounded zone has no own time.
        lengths.add(&zone(1, 500, 400), || false);
        lengths.subtract_inner(Inner { most_ns: 90, least_ns: 90 }, true);
        let found = lengths.stats("test".into(), Coverage::default());
        assert_eq!((found.self_ns, found.self_early_ns, found.self_is_bound()), (700, 500, true));
    }
}
