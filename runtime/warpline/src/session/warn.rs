//! Warnings on standard error, one line each.
//!
//! A session calls it at its start and its end. It must never panic, even with standard error closed.

use crate::collector::SessionStats;
use crate::settings::{Config, Environment, unmatched};
use warpline_core::report::{Report, SinkReport};
use warpline_core::stderr;
use warpline_core::suggest;

/// Warns about valid settings that are likely to be mistakes.
pub(super) fn at_start(config: &Config, has_sinks: bool, environment: Option<&Environment>, tally: &SessionStats) {
    if let Some(environment) = environment.filter(|_| !has_sinks && !config.has_summary()) {
        environment.warn_of_no_output(config);
    }
    unmatched(&config.filters).into_iter().for_each(|text| tally.warn(text));
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
        0 => format!("{} failed", suggest::counted(*errors, "call")),
        1 if all == report.recorded => format!("1 of {} is not in it", suggest::counted(all, "zone")),
        1 => format!("1 of {} ({}) is not in it", suggest::counted(all, "record"), kinds(report)),
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
