//! The declared work of ranges: rates, and shares of the device's peak where that is known.

use std::collections::BTreeSet;
use std::fmt;

use super::super::RangeStats;
use super::super::table::{NONE, Row, percent, table};
use crate::text::printable;
use crate::work::{Rate, WorkStats};

pub(super) fn work(f: &mut fmt::Formatter<'_>, ranges: &[RangeStats]) -> fmt::Result {
    let none = || NONE.to_owned();
    let declared = || ranges.iter().filter_map(|range| Some((range, range.work.as_ref()?)));
    let row = |(range, work): (&RangeStats, &WorkStats)| {
        let rate = |rate: Option<f64>, unit| rate.map_or_else(none, |rate| Rate(rate, unit).to_string());
        let share = |share: Option<f64>| share.map_or_else(none, percent);
        let name = if range.in_replays { format!("{} (replays)", range.name) } else { range.name.to_string() };
        let cells = [
            rate(work.rates.bytes_per_s, "B"),
            share(work.bytes_share()),
            rate(work.rates.flops_per_s, "FLOP"),
            share(work.flops_share()),
        ];
        Row::new(name, cells)
    };
    let head = Row::new("declared work", ["bytes", "of peak", "operations", "of peak"].map(str::to_owned));
    table(f, head, &declared().map(row).collect::<Vec<_>>())?;
    let known: BTreeSet<&str> =
        declared().filter(|(_, work)| work.peak.is_some()).map(|(_, work)| work.device.as_str()).collect();
    for device in known {
        writeln!(f, "the peak of {}: its memory, and its tensor cores with 16-bit numbers", printable(device))?;
    }
    let unknown: BTreeSet<&str> = declared()
        .filter(|(range, work)| range.on_stream && work.peak.is_none() && !work.device.is_empty())
        .map(|(_, work)| work.device.as_str())
        .collect();
    for device in unknown {
        writeln!(f, "the peak of {} is not known", printable(device))?;
    }
    Ok(())
}
