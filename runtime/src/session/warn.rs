//! What a user must know although nobody asked: one line each on standard error.
//!
//! Called where a session starts, where its filters change and where it ends. It must never panic: with standard error
//! closed there is nobody to tell.

use std::collections::HashSet;

use super::config::Config;
use super::environment::Environment;
use super::filter::Filter;
use super::on::Session;
use super::{Report, SinkReport};
use crate::catalog::{RangeSpec, catalog};
use crate::collector::Tally;
use crate::spelling;
use crate::tell::tell;

/// Of so many filters it is said; who asks from outside may send thousands.
const MOST: usize = 16;

impl Session {
    /// Says it now, and in the report, if there will be one.
    pub(super) fn warn(&self, text: String) {
        match self.running() {
            Some(running) => running.tally.warn(text),
            None => tell(text),
        }
    }
}

/// What is likely to be a mistake in the settings, though a session can go by them.
pub(super) fn at_start(config: &Config, has_sinks: bool, environment: Option<&Environment>, tally: &Tally) {
    if let Some(environment) = environment.filter(|_| !has_sinks && !config.summary) {
        environment.warn_of_no_output(config);
    }
    unmatched(&config.filters).into_iter().for_each(|text| tally.warn(text));
}

/// Each sink of which something failed, and what it lost.
pub(super) fn of_failed_sinks(report: &Report) {
    for sink in &report.sinks {
        if let Some(error) = &sink.first_error {
            tell(format_args!("sink {}: {error}; {}", sink.name, missing(sink, report)));
        }
    }
}

fn missing(sink: &SinkReport, report: &Report) -> String {
    let SinkReport { taken, lost, errors, .. } = sink;
    let all = taken + lost;
    match lost {
        0 => format!("{} failed", spelling::counted(*errors, "call")),
        1 if all == report.recorded => format!("1 of {} is not in it", spelling::counted(all, "zone")),
        1 => format!("1 of {} ({}) is not in it", spelling::counted(all, "record"), kinds(report)),
        _ if all == report.recorded => format!("{lost} of {all} zones are not in it"),
        _ => format!("{lost} of {all} records ({}) are not in it", kinds(report)),
    }
}

/// What records the session has.
fn kinds(report: &Report) -> String {
    let counts = [
        ("zones", report.recorded),
        ("spans", report.spans.recorded),
        ("kernels", report.kernels.recorded),
        ("replays", report.graph_timing.replays),
        ("waits", report.waits.recorded),
    ];
    let kinds: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).map(|(kind, _)| kind).collect();
    kinds.join(", ")
}

/// The filters that no range of the catalog fits, with the range that may be meant. Filters choose among the ranges of the
/// catalog and nothing else, and none comes to it while the program runs.
pub(crate) fn unmatched(filters: &[Filter]) -> Vec<String> {
    let fits = |filter: &&Filter| catalog().into_iter().any(|range| filter.matches(range.name()));
    let text = |filter: &Filter| {
        let remedy = match nearest(filter.pattern()) {
            Some(near) => format!("did you mean `{}{near}`?", if filter.leaves_out() { "!" } else { "" }),
            None => "`warpline catalog PROGRAM` lists its ranges".to_owned(),
        };
        format!("no range matches `{filter}`; {remedy}")
    };
    filters.iter().filter(|filter| !fits(filter)).take(MOST).map(text).collect()
}

/// The range's name, or the beginning of some, that is nearly this.
fn nearest(pattern: &str) -> Option<String> {
    let names = catalog().into_iter().map(RangeSpec::name);
    match pattern.strip_suffix(".*") {
        Some(begin) => {
            let begins = names.flat_map(|name| name.match_indices('.').map(move |(at, _)| &name[..at]));
            let begins: HashSet<&str> = begins.collect();
            spelling::nearest(begin, sorted(begins)).map(|near| format!("{near}.*"))
        }
        None => spelling::nearest(pattern, names).map(str::to_owned),
    }
}

/// So that of two that are as near the same one is meant every time.
fn sorted(names: HashSet<&str>) -> Vec<&str> {
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_unstable();
    names
}
