//! The declared work of ranges: rates, and shares of the device's peak where that is known.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::super::RangeStats;
use super::super::table::{NONE, Row, percent, rate, table};
use crate::work::{Peak, PeakMeasurement, WorkStats};
use warpline_core::text::printable;

/// The name of the device of in-process streams, which has no peak.
const HOST: &str = "host";

pub(super) fn work(f: &mut fmt::Formatter<'_>, ranges: &[RangeStats]) -> fmt::Result {
    let none = || NONE.to_owned();
    let declared = || ranges.iter().filter_map(|range| Some((range, range.work.as_ref()?)));
    let row = |(range, work): (&RangeStats, &WorkStats)| {
        let shown = |per_s: Option<f64>, unit| per_s.map_or_else(none, |per_s| rate(per_s, unit));
        let share = |share: Option<f64>| share.map_or_else(none, percent);
        let name = if range.in_replays { format!("{} (replays)", range.name) } else { range.name.to_string() };
        let cells = [
            shown(work.rates.bytes_per_s, "B"),
            share(work.bytes_share()),
            shown(work.rates.flops_per_s, "FLOP"),
            share(work.flops_share()),
        ];
        Row::new(name, cells)
    };
    let head = Row::new("declared work", ["bytes", "of peak", "operations", "of peak"].map(str::to_owned));
    table(f, head, &declared().map(row).collect::<Vec<_>>())?;
    let mut known: BTreeMap<&str, &Peak> = BTreeMap::new();
    known.extend(declared().filter_map(|(_, work)| Some((work.device.as_str(), work.peak.as_ref()?))));
    for (device, peak) in known {
        let device = printable(device);
        match &peak.measured {
            None => writeln!(f, "the peak of {device}: its memory, and its tensor cores with 16-bit numbers")?,
            Some(PeakMeasurement { date, driver, .. }) => {
                writeln!(f, "the peak of {device}, measured on {}:", printable(date))?;
                let flops = peak.f32_flops_per_s.map(|per_s| format!(", {} of FP32 FMAs", rate(per_s, "FLOP")));
                let (driver, bytes) = (printable(driver), rate(peak.bytes_per_s, "B"));
                writeln!(f, "  with {driver}: {bytes} copied{}", flops.unwrap_or_default())?;
            }
        }
    }
    let unknown: BTreeSet<&str> = declared()
        .filter(|(range, work)| range.on_stream && work.peak.is_none() && !work.device.is_empty())
        .map(|(_, work)| work.device.as_str())
        .collect();
    for device in unknown {
        writeln!(f, "the peak of {} is not known{}", printable(device), remedy(device))?;
    }
    Ok(())
}

/// Says how a peak becomes known; in-process streams have none.
fn remedy(device: &str) -> &'static str {
    if device == HOST { "" } else { ":\n  `warpline doctor --measure-peak` measures NVIDIA GPUs" }
}
