//! What the page says first: where the time went, in a few sentences.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::table::{bounded, percent, time};
use super::super::{RangeStats, Report, Source, StreamStats};
use warpline_core::plural::{counted, counted_as};
use warpline_core::record::is_bound;

/// A stream is named as idle if it is for more than this share of the time.
const IDLE: f64 = 0.2;

/// A slowest step is named if it took more than this many times the median.
const SLOW: f64 = 1.5;

/// Returns the sentences, the most important first. Texts and names take turns in `parts`, and a text comes first.
pub(super) fn verdict(report: &Report) -> Value {
    let says = |parts: Vec<String>| json!({"parts": parts, "is_bad": false});
    let mut all: Vec<Value> = Vec::new();
    all.extend(longest(report).map(says));
    all.extend(steps(report).map(says));
    all.extend(on_path(report).map(says));
    all.extend(idle(report).map(says));
    all.extend(waits(report).map(says));
    all.extend(first_call(report).map(says));
    all.extend(gaps(report).into_iter().map(|text| json!({"parts": [text], "is_bad": true})));
    if all.is_empty() {
        all.push(json!({"parts": ["no zone was recorded"], "is_bad": true}));
    }
    all.into()
}

/// The range with the longest own time, on streams if there are any.
fn longest(report: &Report) -> Option<Vec<String>> {
    let place = |range: &RangeStats| match (range.in_replays, range.on_stream) {
        (true, _) => "in replays of graphs",
        (false, true) => "on streams",
        (false, false) => "on threads",
    };
    let of_place = |name: &'static str| report.ranges.iter().filter(move |range| place(range) == name);
    let name =
        ["on streams", "in replays of graphs", "on threads"].into_iter().find(|name| of_place(name).any(|_| true))?;
    let all_ns: i64 = of_place(name).map(|range| range.self_ns).sum();
    let timed = of_place(name).filter(|range| range.timed() > 0);
    let Some(longest) = timed.max_by_key(|range| range.self_ns) else {
        let zones = counted(of_place(name).map(|range| range.count).sum(), "zone");
        return Some(vec![format!(
            "the time of the {zones} {name} is only known as a bound: no event times their ends"
        )]);
    };
    let (share, own) = (percent(longest.self_ns as f64 / all_ns.max(1) as f64), time(longest.self_ns));
    let zones = counted(longest.timed(), "zone");
    let most = if longest.self_is_bound() { "at most " } else { "" };
    Some(vec![
        String::new(),
        longest.name.to_string(),
        format!(" takes {most}{share} of the time in zones {name}: {most}{own} of its own in {zones}"),
    ])
}

fn steps(report: &Report) -> Option<Vec<String>> {
    let steps = &report.steps;
    if steps.count == 0 {
        return None;
    }
    let times = steps.max_ns as f64 / steps.p50_ns.max(1) as f64;
    let slowest = if steps.count > 1 && times > SLOW {
        format!("; the slowest of {} took {}, {times:.1} times that", steps.count, time(steps.max_ns))
    } else {
        format!(", of {}", counted(steps.count, "step"))
    };
    Some(vec![format!("a step takes {} in the median{slowest}", time(steps.p50_ns))])
}

fn on_path(report: &Report) -> Option<Vec<String>> {
    let path = report.critical_path.as_ref().filter(|path| path.arrows > 0 && !path.is_assumed)?;
    let part = path.range()?;
    let (share, outside) = (percent(part.share), path.parts.iter().find(|part| part.name == "(no recorded zone)"));
    let outside = outside.filter(|outside| outside.share > part.share);
    let more = outside.map_or_else(String::new, |outside| {
        format!("; {} of it passes no recorded zone: mark the functions that run then", percent(outside.share))
    });
    let length_ns = path.to_ns - path.from_ns;
    let length = bounded(is_bound(length_ns, path.early_by_ns), time(length_ns));
    let text = format!(", is {share} of the critical path of {length}{more}");
    Some(vec![String::new(), part.name.clone(), ", on ".to_owned(), part.on.clone(), text])
}

/// The busiest stream, if it has time to spare.
fn idle(report: &Report) -> Option<Vec<String>> {
    let busiest = report.streams.iter().filter(|stream| stream.streams == 1).max_by_key(|stream| stream.busy_ns)?;
    let StreamStats { name, busy_ns, waiting_ns, idle_ns: Some(idle_ns), .. } = busiest else { return None };
    let all_ns = (busy_ns + waiting_ns + idle_ns).max(1) as f64;
    if *idle_ns as f64 / all_ns < IDLE {
        return None;
    }
    let [busy, waiting, idle] = [busy_ns, waiting_ns, idle_ns].map(|ns| percent(*ns as f64 / all_ns));
    let most = if busiest.busy_is_bound() { "at most " } else { "" };
    let least = if busiest.rest_is_bound() { "at least " } else { "" };
    let most_waiting = if busiest.waiting_is_bound() { "at most " } else { "" };
    let waits = if *waiting_ns > 0 { format!(", waits for {most_waiting}{waiting}") } else { String::new() };
    Some(vec![
        "the busiest stream, ".to_owned(),
        name.clone(),
        format!(", is busy for {most}{busy} of the time{waits} and is idle for {least}{idle}"),
    ])
}

fn waits(report: &Report) -> Option<Vec<String>> {
    let all_ns: i64 = report.host_waits.iter().map(|wait| wait.total_ns).sum();
    // By call and range: a row is of one thread. The row of those that had no room has no name.
    let mut by_place: BTreeMap<(&str, Option<&str>), i64> = BTreeMap::new();
    for wait in report.host_waits.iter().filter(|wait| !wait.call.is_empty()) {
        *by_place.entry((&wait.call, wait.range.as_deref())).or_default() += wait.total_ns;
    }
    let ((call, range), ns) = by_place.into_iter().max_by_key(|(_, ns)| *ns)?;
    let share = percent(ns as f64 / all_ns.max(1) as f64);
    let mut parts = vec![format!("threads wait {} for the device, {share} of it in ", time(all_ns)), call.to_owned()];
    if let Some(range) = range {
        parts.extend([" in ".to_owned(), range.to_owned()]);
    }
    Some(parts)
}

/// The longest first call that is apart from the others.
fn first_call(report: &Report) -> Option<Vec<String>> {
    let longest = report.ranges.iter().max_by_key(|range| range.first_ns)?;
    let first_ns = longest.first_ns?;
    let times = (first_ns as f64 / longest.p50_ns.max(1) as f64).round();
    let text = format!(" takes {}, {times} times its median, and is not in its mean", time(first_ns));
    Some(vec!["the first call of ".to_owned(), longest.name.to_string(), text])
}

/// What the figures do not cover.
fn gaps(report: &Report) -> Vec<String> {
    let mut gaps = Vec::new();
    let dropped = report.dropped.total();
    if dropped > 0 {
        gaps.push(format!(
            "{} dropped: the figures are of recorded zones only",
            counted_as(dropped, "zone was", "zones were")
        ));
    }
    if report.ends.bounded > 0 {
        let zones = counted_as(report.ends.bounded, "zone has", "zones have");
        gaps.push(format!("{zones} an end that no event times: the length is a bound (≤) and in no other figure"));
    }
    if report.left_out.ranges > 0 {
        gaps.push(format!("a filter or a level left out {}", counted(report.left_out.ranges, "range")));
    }
    if report.left_out.while_stopped {
        gaps.push("the session was stopped for a part of its time".to_owned());
    }
    if report.not_sampled > 0 || report.windows.is_some() {
        gaps.push("only a sample was recorded: totals are estimates".to_owned());
    }
    match report.source {
        Source::Session | Source::Traces => {}
        Source::TracesWithoutAccount => gaps.push(
            "not every trace ends with the account of its session: zones that were dropped are not known".to_owned(),
        ),
        Source::OtherTraces => {
            gaps.push("another tool wrote the trace: whether the trace is complete is not known".to_owned())
        }
    }
    gaps
}
