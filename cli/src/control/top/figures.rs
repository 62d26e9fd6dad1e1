//! What a program tells of its ranges, and the rows of the table in the order that somebody wants.

use std::cmp::Ordering;

use serde::Deserialize;

use super::super::status::Zones;
use crate::output::{self, time};

/// What came since the last look.
#[derive(Clone, Deserialize)]
pub(super) struct Figures {
    pub(super) seconds: f64,
    pub(super) session: String,
    pub(super) is_recording: bool,
    pub(super) zones: Zones,
    pub(super) devices: Vec<Device>,
    pub(super) ranges: Vec<Range>,
    pub(super) ranges_in_catalog: u64,
}

#[derive(Clone, Deserialize)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) ordinal: u32,
    /// Shares of the time, 0 to 1.
    pub(super) busy: f64,
    pub(super) collectives: f64,
}

#[derive(Clone, Deserialize)]
pub(super) struct Range {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) count: u64,
    pub(super) total_ns: i64,
    pub(super) max_ns: i64,
    pub(super) all_ns: i64,
    pub(super) failed: u64,
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

    /// The columns that a screen of this width has room for.
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

    /// In which order two ranges stand: the greater first, names from A to Z.
    pub(super) fn order(self, a: &Range, b: &Range) -> Ordering {
        let by_name = || a.name.cmp(&b.name);
        match self {
            Column::Name => by_name(),
            Column::Runs => b.count.cmp(&a.count).then_with(by_name),
            Column::Share => b.total_ns.cmp(&a.total_ns).then_with(|| b.all_ns.cmp(&a.all_ns)).then_with(by_name),
            Column::Mean => b.mean_ns().total_cmp(&a.mean_ns()).then_with(by_name),
            Column::Max => b.max_ns.cmp(&a.max_ns).then_with(by_name),
            Column::Total => b.all_ns.cmp(&a.all_ns).then_with(by_name),
        }
    }

    /// What stands in the cell of a range, for figures of so many seconds.
    pub(super) fn text(self, range: &Range, seconds: f64) -> String {
        let some = |ns: f64| if range.count > 0 { time(ns) } else { "-".to_owned() };
        match self {
            Column::Name if range.failed > 0 => format!("{} ({} failed)", output::printable(&range.name), range.failed),
            Column::Name => output::printable(&range.name),
            Column::Runs => rate(range.count as f64 / seconds),
            Column::Share => format!("{:.1} %", range.total_ns as f64 / seconds / 1e7),
            Column::Mean => some(range.mean_ns()),
            Column::Max => some(range.max_ns as f64),
            Column::Total => time(range.all_ns as f64),
        }
    }
}

impl Range {
    fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total_ns as f64 / self.count as f64 }
    }
}

/// So many in a second.
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
        let (name, kind) = (name.to_owned(), "gpu".to_owned());
        Range { name, kind, count, total_ns, max_ns, all_ns: total_ns, failed: 0 }
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
        let cells = Column::ALL.map(|column| column.text(&one, 0.5));
        assert_eq!(cells, ["demo.mlp\\u{1b}[2J", "2000", "24.7 %", "123.46 µs", "1000.00 µs", "123.46 ms"]);
        (one.count, one.total_ns) = (0, 0);
        assert_eq!(Column::Mean.text(&one, 1.0), "-");
        assert_eq!([0.0, 0.5, 99.0, 2e6].map(rate), ["0", "0.5", "99", "2000k"]);
    }

    #[test]
    fn a_narrow_screen_has_fewer_columns() {
        assert_eq!(Column::fitting(80), Column::ALL);
        assert_eq!(Column::fitting(30), [Column::Name, Column::Share]);
    }
}
