//! Warnings on standard error, one line each.
//!
//! A session calls it at its start and its end. It must never panic, even with standard error closed.

use crate::collector::SessionStats;
use crate::settings::{Config, Environment, misnamed, unmatched};
use warpline_core::plural;
use warpline_core::process;
use warpline_core::stderr;
use warpline_core::text::printable;
use warpline_report::{Report, SinkReport};

/// Warns about valid settings that are likely to be mistakes.
pub(super) fn at_start(config: &Config, has_sinks: bool, environment: Option<&Environment>, stats: &SessionStats) {
    match environment {
        Some(environment) if !has_sinks && !config.has_summary() => environment.warn_of_no_output(config),
        Some(environment) => environment.warn_of_replaced(config),
        None => {}
    }
    if let Some((name, value)) = process::rejected_rank() {
        let rank = process::launched_rank().unwrap_or(0);
        stats.warn(format!(
            "`{name}={}` is not a rank, so this process counts as rank {rank}; set {name} to a whole number from 0",
            printable(&value)
        ));
    }
    misnamed(config).chain(unmatched(&config.filters)).for_each(|text| stats.warn(text));
}

/// Prints each sink that failed, and what it lost.
pub(super) fn of_failed_sinks(report: &Report) {
    for sink in &report.sinks {
        if let Some(error) = &sink.first_error {
            stderr::line(format_args!("sink {}: {error}; {}", sink.name, missing(sink, report)));
        }
    }
}

fn missing(sink: &SinkReport, report: &Report) -> String {
    let SinkReport { taken, lost, errors, .. } = sink;
    let all = taken + lost;
    match lost {
        0 => format!("{} failed", plural::counted(*errors, "call")),
        1 if all == report.recorded => format!("1 of {} is not in it", plural::counted(all, "zone")),
        1 => format!("1 of {} ({}) is not in it", plural::counted(all, "record"), kinds(report)),
        _ if all == report.recorded => format!("{lost} of {all} zones are not in it"),
        _ => format!("{lost} of {all} records ({}) are not in it", kinds(report)),
    }
}

/// Returns the kinds of records that the session has.
fn kinds(report: &Report) -> String {
    let counts = [
        ("zones", report.recorded),
        ("spans", report.spans.recorded),
        ("kernels", report.kernels.recorded),
        ("synchronizations", report.synchronizations.recorded),
        ("replays", report.graph_timing.replays),
        ("waits", report.waits.recorded),
    ];
    let kinds: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).map(|(kind, _)| kind).collect();
    kinds.join(", ")
}
