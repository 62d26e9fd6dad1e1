//! The figures that a program sends for its ranges, and the columns and sort order of the table.

use std::cmp::Ordering;

use serde::Deserialize;
use warpline_core::record::is_bound;

use super::super::status::Zones;
use crate::output::{self, time};

/// One update from the program.
#[derive(Clone, Deserialize)]
pub(super) struct Figures {
    pub(super) seconds: f64,
    pub(super) session: String,
    pub(super) is_recording: bool,
    pub(super) zones: Zones,
    pub(super) devices: Vec<Device>,
    pub(super) ranges: Vec<Range>,
    pub(super) ranges_in_catalog: u64,
    /// Ranges and zones that the figures do not cover, since the last update.
    pub(super) ranges_left_out: u64,
    pub(super) was_stopped: bool,
    pub(super) not_sampled: u64,
    /// The share of the time that the windows of a budget record; none without a budget.
    #[serde(default)]
    pub(super) recorded_share: Option<f64>,
    /// The drops that this process has seen.
    #[serde(skip)]
    pub(super) drops: Drops,
}

/// Whether zones were dropped. Their ranges are unknown, so each figure is a lower bound.
#[derive(Clone, Copy, Default)]
pub(super) struct Drops {
    /// Since the last update.
    pub(super) latest: bool,
    /// Since this command began.
    pub(super) ever: bool,
}

impl Figures {
    /// Whether the figures cover all zones that ended.
    pub(super) fn is_complete(&self) -> bool {
        let covers_all = self.not_sampled == 0 && self.recorded_share.is_none();
        self.ranges_left_out == 0 && !self.was_stopped && covers_all && !self.drops.latest
    }
}

#[derive(Clone, Deserialize)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) ordinal: u32,
    /// Shares of the time, 0 to 1.
    pub(super) busy: f64,
    pub(super) collectives: f64,
    /// Whether they are only upper bounds, because ends are not timed. A program of an older version does not send
    /// this.
    #[serde(default)]
    pub(super) busy_is_bound: bool,
    #[serde(default)]
    pub(super) collectives_is_bound: bool,
}

#[derive(Clone, Deserialize)]
pub(super) struct Range {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) count: u64,
    /// The estimated total, computed from the recorded zones.
    pub(super) scaled_count: f64,
    pub(super) scaled_ns: f64,
    pub(super) max_ns: i64,
    pub(super) all_scaled_ns: f64,
    /// Only a sample was recorded: scaled figures are estimates.
    pub(super) is_sampled: bool,
    pub(super) failed: u64,
    /// Zones among `count` whose length is only a bound: they are in none of the times above. A program of an older
    /// version has none.
    #[serde(default)]
    pub(super) bounded: u64,
    /// Their longest possible lengths and their shortest possible ones, and those since the begin.
    #[serde(flatten)]
    pub(super) bounds: Bounds,
}

/// The lengths of zones of which only bounds are known.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Bounds {
    pub(super) scaled_bounded_ns: f64,
    pub(super) scaled_bounded_least_ns: f64,
    pub(super) bounded_max_ns: i64,
    pub(super) all_scaled_bounded_ns: f64,
    pub(super) all_scaled_bounded_least_ns: f64,
}

/// The columns, left to right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    Runs,
    Share,
    Mean,
    Max,
    Total,
}

impl Column {
    pub(super) const ALL: [Column; 6] =
        [Column::Name, Column::Runs, Column::Share, Column::Mean, Column::Max, Column::Total];

    pub(super) fn head(self) -> &'static str {
        match self {
            Column::Name => "range",
            Column::Runs => "runs/s",
            Column::Share => "time",
            Column::Mean => "mean",
            Column::Max => "max",
            Column::Total => "total",
        }
    }

    /// Returns the columns that fit into this width.
    pub(super) fn fitting(width: u16) -> Vec<Column> {
        let least = |column: &Column| match column {
            Column::Name | Column::Share => 0,
            Column::Mean => 38,
            Column::Runs => 48,
            Column::Max => 58,
            Column::Total => 68,
        };
        Column::ALL.into_iter().filter(|column| least(column) <= width).collect()
    }

    /// Compares two ranges for sorting: larger figures first, names from A to Z.
    pub(super) fn order(self, a: &Range, b: &Range) -> Ordering {
        let by_name = || a.name.cmp(&b.name);
        let by_total = || b.total().0.total_cmp(&a.total().0);
        match self {
            Column::Name => by_name(),
            Column::Runs => b.scaled_count.total_cmp(&a.scaled_count).then_with(by_name),
            Column::Share => b.latest().0.total_cmp(&a.latest().0).then_with(by_total).then_with(by_name),
            Column::Mean => b.mean_ns().total_cmp(&a.mean_ns()).then_with(by_name),
            Column::Max => b.longest_ns().cmp(&a.longest_ns()).then_with(by_name),
            Column::Total => by_total().then_with(by_name),
        }
    }

    /// Returns the text of a range's cell, for figures that cover this many seconds.
    pub(super) fn text(self, range: &Range, seconds: f64, drops: Drops) -> String {
        let some = |ns: f64| if range.count > 0 { time(ns) } else { "–".to_owned() };
        let is_bound = range.count > 0 && range.timed() == 0;
        let most = |text: String| if is_bound { format!("≤{text}") } else { text };
        let least = |text: String, has_drops: bool| if has_drops { format!("≥{text}") } else { text };
        // With drops, an upper bound is none.
        let scaled = |text: String, has_drops: bool, is_bound: bool| match (range.is_sampled, has_drops, is_bound) {
            (true, ..) | (_, true, true) => format!("≈{text}"),
            (_, true, false) => format!("≥{text}"),
            (_, false, true) => format!("≤{text}"),
            (_, false, false) => text,
        };
        let (latest, total) = (range.latest(), range.total());
        match self {
            Column::Name if range.failed > 0 => format!("{} ({} failed)", output::printable(&range.name), range.failed),
            Column::Name => output::printable(&range.name),
            Column::Runs => scaled(rate(range.scaled_count / seconds), drops.latest, false),
            Column::Share => scaled(format!("{:.1} %", latest.0 / seconds / 1e7), drops.latest, latest.1),
            Column::Mean => most(some(range.mean_ns())),
            Column::Max if is_bound => most(time(range.longest_ns() as f64)),
            Column::Max => least(some(range.max_ns as f64), drops.latest && range.count > 0),
            Column::Total => scaled(time(total.0), drops.ever, total.1),
        }
    }
}

impl Range {
    /// The number of zones whose length is known.
    fn timed(&self) -> u64 {
        self.count.saturating_sub(self.bounded)
    }

    /// The mean of these; if there are none, that of the longest possible lengths.
    fn mean_ns(&self) -> f64 {
        match (self.count, self.timed()) {
            (0, _) => 0.0,
            (_, 0) => self.bounds.scaled_bounded_ns / self.scaled_count,
            (count, timed) => self.scaled_ns / (self.scaled_count * timed as f64 / count as f64),
        }
    }

    /// The longest of these; if there are none, the longest possible length.
    fn longest_ns(&self) -> i64 {
        if self.timed() == 0 { self.bounds.bounded_max_ns } else { self.max_ns }
    }

    /// The time since the last update, and whether that is only an upper bound.
    fn latest(&self) -> (f64, bool) {
        sum(self.scaled_ns, self.bounds.scaled_bounded_ns, self.bounds.scaled_bounded_least_ns)
    }

    /// The same since the begin.
    fn total(&self) -> (f64, bool) {
        sum(self.all_scaled_ns, self.bounds.all_scaled_bounded_ns, self.bounds.all_scaled_bounded_least_ns)
    }
}

fn sum(timed_ns: f64, most_ns: f64, least_ns: f64) -> (f64, bool) {
    let ns = timed_ns + most_ns;
    (ns, is_bound(ns as i64, (most_ns - least_ns) as i64))
}

/// Formats a rate per second.
pub(super) fn rate(rate: f64) -> String {
    match rate {
        ..0.05 => "0".to_owned(),
        ..10.0 => format!("{rate:.1}"),
        ..1e5 => format!("{rate:.0}"),
        _ => format!("{:.0}k", rate / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(name: &str, count: u64, total_ns: i64, max_ns: i64) -> Range {
        let (name, kind, ns) = (name.to_owned(), "gpu".to_owned(), total_ns as f64);
        let (scaled_count, scaled_ns, all_scaled_ns) = (count as f64, ns, ns);
        let (is_sampled, failed, bounded, bounds) = (false, 0, 0, Bounds::default());
        Range { name, kind, count, scaled_count, scaled_ns, max_ns, all_scaled_ns, is_sampled, failed, bounded, bounds }
    }

    #[test]
    fn each_column_sorts_by_what_it_shows() {
        let ranges = [range("b", 10, 100, 50), range("a", 1, 90, 90), range("c", 20, 80, 10)];
        let sorted = |column: Column| {
            let mut ranges = ranges.clone();
            ranges.sort_by(|a, b| column.order(a, b));
            ranges.map(|range| range.name).concat()
        };
        assert_eq!(Column::ALL.map(sorted), ["abc", "cba", "bac", "abc", "abc", "bac"]);
    }

    #[test]
    fn cells_are_short() {
        let mut one = range("demo.mlp\u{1b}[2J", 1_000, 123_456_789, 999_999);
        let (none, some) = (Drops::default(), Drops { latest: true, ever: true });
        let cells = Column::ALL.map(|column| column.text(&one, 0.5, none));
        assert_eq!(cells, ["demo.mlp\\u{1b}[2J", "2000", "24.7 %", "123 µs", "1.00 ms", "123 ms"]);
        let cells = Column::ALL.map(|column| column.text(&one, 0.5, some));
        assert_eq!(cells[1..], ["≥2000", "≥24.7 %", "123 µs", "≥1.00 ms", "≥123 ms"]);
        let cells = Column::ALL.map(|column| column.text(&one, 0.5, Drops { latest: false, ever: true }));
        assert_eq!(cells[1..], ["2000", "24.7 %", "123 µs", "1.00 ms", "≥123 ms"]);
        (one.is_sampled, one.scaled_count, one.scaled_ns, one.all_scaled_ns) = (true, 10_000.0, 1.5e9, 2e9);
        let cells = Column::ALL.map(|column| column.text(&one, 2.0, none));
        assert_eq!(cells[1..], ["≈5000", "≈75.0 %", "150 µs", "1.00 ms", "≈2.00 s"]);
        (one.count, one.scaled_ns) = (0, 0.0);
        assert_eq!(Column::Mean.text(&one, 1.0, none), "–");
        assert_eq!([0.0, 0.5, 99.0, 2e6].map(rate), ["0", "0.5", "99", "2000k"]);
    }

    #[test]
    fn a_bound_is_shown_as_a_bound() {
        let mut one = range("demo.copy", 10, 8_000, 2_000);
        one.bounded = 2;
        one.bounds = Bounds {
            scaled_bounded_ns: 1e6,
            scaled_bounded_least_ns: 2_000.0,
            bounded_max_ns: 600_000,
            all_scaled_bounded_ns: 1e6,
            all_scaled_bounded_least_ns: 2_000.0,
        };
        let (none, some) = (Drops::default(), Drops { latest: true, ever: true });
        let cells = Column::ALL.map(|column| column.text(&one, 0.5, none));
        assert_eq!(cells[1..], ["20", "≤0.2 %", "1.00 µs", "2.00 µs", "≤1.01 ms"]);
        let cells = Column::ALL.map(|column| column.text(&one, 0.5, some));
        assert_eq!(cells[1..], ["≥20", "≈0.2 %", "1.00 µs", "≥2.00 µs", "≈1.01 ms"]);
        (one.bounded, one.max_ns, one.scaled_ns, one.all_scaled_ns) = (10, 0, 0.0, 0.0);
        let cells = Column::ALL.map(|column| column.text(&one, 0.5, none));
        assert_eq!(cells[1..], ["20", "≤0.2 %", "≤100 µs", "≤600 µs", "≤1.00 ms"]);
        // A program of an older version sends none of this.
        let sent = r#"{"name": "a", "kind": "gpu", "count": 1, "scaled_count": 1.0, "scaled_ns": 5.0, "max_ns": 5,
            "all_scaled_ns": 5.0, "is_sampled": false, "failed": 0}"#;
        let old: Range = serde_json::from_str(sent).unwrap();
        assert_eq!((old.bounded, old.mean_ns(), old.total()), (0, 5.0, (5.0, false)));
    }

    #[test]
    fn a_narrow_screen_has_fewer_columns() {
        assert_eq!(Column::fitting(80), Column::ALL);
        assert_eq!(Column::fitting(30), [Column::Name, Column::Share]);
    }
}
