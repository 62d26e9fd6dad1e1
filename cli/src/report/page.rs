//! The histograms, calls and timelines that the page of a report shows beside the report, as JSON for its script. Each
//! is bounded, and says how much it leaves out.

use std::path::PathBuf;

use serde_json::{Value, json};
use warpline_report::Report;
use warpline_report::builder::{Call, CallsLeftOut, Place};

use super::figures::Figures;
use super::steps::Step;
use super::texts::Texts;
use super::timeline::{Timeline, Timelines, Window};
use crate::trace::{self, Names, ReadError};

/// The most histograms: of the ranges with the longest total times.
const HISTOGRAMS: usize = 200;

/// The most bars of a histogram.
const BARS: usize = 80;

/// The most calls of ranges, of those on streams, in replays and on threads together.
const CALLS: usize = 2_000;

/// The most traces that are named.
const TRACES: usize = 64;

/// Returns the page. Reads those traces again of which it shows a timeline.
///
/// # Errors
/// A trace cannot be read again.
pub(super) fn page(
    report: &Report,
    mut figures: Figures,
    files: &[PathBuf],
    names: &mut Names,
) -> Result<String, ReadError> {
    let (calls, steps) = figures.take_for_page();
    let mut texts = Texts::default();
    let name = |at: u32| files[at as usize].file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut timelines = Vec::new();
    let windows = windows(&steps.shown(report.steps.p50_ns));
    let mut traces: Vec<u32> = windows.iter().map(|(trace, _)| *trace).collect();
    traces.sort_unstable();
    traces.dedup();
    for trace in traces {
        let of_trace = |(at, (of, window)): (usize, &(u32, Window))| (*of == trace).then(|| (at, window.clone()));
        let (places, of_trace): (Vec<usize>, Vec<Window>) = windows.iter().enumerate().filter_map(of_trace).unzip();
        let mut read = Timelines(of_trace.into_iter().map(Timeline::new).collect());
        trace::read(&files[trace as usize], names, &mut read)?;
        let path = report.critical_path.as_ref().filter(|path| path.arrows > 0 && figures.builder.path_of() == trace);
        let pages = read.0.into_iter().map(|timeline| timeline.page(&name(trace), path, &mut texts, names));
        timelines.extend(places.into_iter().zip(pages));
    }
    timelines.sort_by_key(|(at, _)| *at);
    let timelines: Vec<Value> = timelines.into_iter().map(|(_, timeline)| timeline).collect();
    let (outermost, left_out) = calls.longest(CALLS);
    let calls = calls_by_place(&outermost, left_out, &figures, &mut texts, names);
    let ranges = report.ranges.len();
    Ok(report.to_page(json!({
        "traces": (0..files.len().min(TRACES)).map(|at| name(at as u32)).collect::<Vec<_>>(),
        "histograms": {"ranges": histograms(&figures, names), "left_out": ranges.saturating_sub(HISTOGRAMS)},
        "calls": calls,
        "timelines": timelines,
        "names": texts.into_texts(),
    })))
}

/// The timelines: of these steps or, without steps, of the whole first trace.
fn windows(steps: &[(&str, Step)]) -> Vec<(u32, Window)> {
    if steps.is_empty() {
        return vec![(0, Window { title: "the whole trace".to_owned(), step: None })];
    }
    let window = |(what, step): &(&str, Step)| {
        let number = step.number.map_or_else(String::new, |number| format!(", {number}"));
        (step.trace, Window { title: format!("{what}{number}"), step: Some(step.span) })
    };
    steps.iter().map(window).collect()
}

fn histograms(figures: &Figures, names: &Names) -> Vec<Value> {
    let mut all: Vec<_> = figures.lengths().collect();
    all.sort_by_key(|(_, _, lengths)| std::cmp::Reverse(lengths.recorded_ns()));
    all.truncate(HISTOGRAMS);
    let histogram = |(name, spot, lengths): &(_, Place, &warpline_report::lengths::Lengths)| {
        let bars: Vec<_> =
            lengths.histogram(BARS).iter().map(|bar| json!([bar.from_ns, bar.to_ns, bar.count])).collect();
        json!({"name": &**names.text(*name), "on": spot.name(), "bars": bars})
    };
    all.iter().map(histogram).filter(|one| one["bars"].as_array().is_some_and(|bars| !bars.is_empty())).collect()
}

/// The calls as rows of depth, name, count, total and own time, each before those within it, by the place of the
/// outermost zone.
fn calls_by_place(
    calls: &[Call],
    left_out: CallsLeftOut,
    figures: &Figures,
    texts: &mut Texts,
    names: &Names,
) -> Vec<Value> {
    let mut places = Vec::new();
    for spot in [Place::Streams, Place::Replays, Place::Threads] {
        let is_here = |call: &&Call| {
            call.range().and_then(|(number, _)| figures.builder.name_of(number)).is_some_and(|(_, of)| of == spot)
        };
        let here: Vec<&Call> = calls.iter().filter(is_here).collect();
        if here.is_empty() {
            continue;
        }
        let mut rows = Vec::new();
        add(&here, 0, &mut |depth, call| {
            let name = match call.range() {
                Some((number, is_bounded)) => {
                    let name = figures.builder.name_of(number).map_or_else(trace::Name::default, |(name, _)| name);
                    texts.of_slice(name, is_bounded, names)
                }
                None => texts.end_not_timed(),
            };
            rows.push(json!([depth, name, call.count, call.total_ns, call.self_ns]));
        });
        // The number is that of all places together: calls that are left out are not counted by place.
        let CallsLeftOut { calls, ns } = left_out;
        places.push(json!({"on": spot.name(), "nodes": rows, "left_out": calls, "left_out_ns": ns}));
    }
    places
}

fn add(calls: &[&Call], depth: usize, row: &mut impl FnMut(usize, &Call)) {
    let mut order = calls.to_vec();
    order.sort_by_key(|call| std::cmp::Reverse(call.total_ns));
    for call in order {
        row(depth, call);
        add(&call.inner.iter().collect::<Vec<_>>(), depth + 1, row);
    }
}
