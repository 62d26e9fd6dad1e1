//! Random graphs of work in a session: the arrows in its records and in both kinds of trace are the edges of the graph, no more,
//! no fewer, no others.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::Value;
use warpline::Session;
use warpline::record::{WaitOutcome, WaitRecord};
use warpline::sink::MemorySink;

use super::device::*;
use super::graph::{Arrow, Graph, each_random_graph};
use crate::trace::{Slice, THREAD, slices};

/// Runs random graphs of up to so many nodes, with failures in them, and one of which thousands of edges are waited for.
pub fn random_graphs<D: Device>(device: &D, cases: u32, nodes: usize) {
    each_random_graph(cases, nodes, |graph| check(device, graph));
}

fn check<D: Device>(device: &D, graph: &Graph) {
    let file = |kind| std::env::temp_dir().join(format!("warpline-arrows-{}.{kind}", std::process::id()));
    let (chrome, perfetto) = (file("json"), file("pftrace"));
    let waits = MemorySink::new(1 << 20);
    let session = Session::builder().ring(1 << 15).event_budget(1 << 18).sink(waits.clone());
    let session = session.chrome(&chrome).perfetto(&perfetto).finish_timeout(LONG).start().expect("no other session");
    graph.run(device);
    let report = session.finish();
    let expected = graph.arrows();

    let waits = waits.take_waits();
    let recorded = waits.iter().filter(|wait| wait.outcome == WaitOutcome::Reached).map(arrow).collect();
    assert_same("the records", recorded, &expected);
    assert_eq!(report.waits.recorded + report.waits.dropped.total(), report.waits.begun);
    assert_eq!(report.waits.dropped.total(), 0, "{report}");

    assert_same("the Chrome trace", in_chrome(&chrome), &expected);
    assert_same("the Perfetto trace", in_perfetto(&perfetto), &expected);
    for file in [chrome, perfetto] {
        std::fs::remove_file(&file).expect("it was written");
    }
}

/// `expected` is in order.
fn assert_same(place: &str, mut are: Vec<Arrow>, expected: &[Arrow]) {
    are.sort_unstable();
    if are == expected {
        return;
    }
    let mut more: BTreeMap<&Arrow, i64> = BTreeMap::new();
    are.iter().for_each(|arrow| *more.entry(arrow).or_default() += 1);
    expected.iter().for_each(|arrow| *more.entry(arrow).or_default() -= 1);
    more.retain(|_, more| *more != 0);
    panic!("arrows that are in {place} more often than there are edges, or less often: {more:#?}");
}

fn arrow(wait: &WaitRecord) -> Arrow {
    let signal = wait.signal.as_ref().unwrap_or_else(|| panic!("nobody signalled: {wait:?}"));
    let (span, value) = (wait.span(), wait.value.expect("a semaphore has one"));
    assert!(signal.at_ns <= span.end_ns, "it ended before its signal: {wait:?}");
    assert!(signal.value.is_some_and(|signalled| signalled >= value), "{wait:?}");
    assert_eq!(
        wait.stream.is_some(),
        wait.queue.is_some(),
        "streams wait for queues, threads for themselves: {wait:?}"
    );
    Arrow {
        semaphore: wait.semaphore.to_string(),
        value,
        from: signal.queue.as_deref().map(str::to_owned),
        from_stream: signal.stream.is_some(),
        to: wait.queue.as_deref().map(str::to_owned),
    }
}

/// The arrows that are drawn: from an event with `flow_out` to the one with `flow_in` and the same id.
fn in_chrome(file: &Path) -> Vec<Arrow> {
    let trace: Value = serde_json::from_slice(&std::fs::read(file).expect("it is there")).expect("it is JSON");
    let events: Vec<&Value> = trace["traceEvents"].as_array().expect("events").iter().collect();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let threads: Vec<_> = events
        .iter()
        .filter(|event| event["name"] == "process_name")
        .filter(|event| event["pid"] == u64::from(std::process::id()))
        .collect();
    assert_eq!(threads.len(), 1);
    let mut signals: HashMap<String, &Value> = HashMap::new();
    let mut arrows = Vec::new();
    for event in events.iter().filter(|event| event["cat"] == "wait") {
        if event["flow_out"] == true {
            assert!(signals.insert(text(&event["bind_id"]).expect("an id"), event).is_none(), "one arrow each");
        }
    }
    // The event that an arrow leads to stands right behind the wait that it ends.
    for pair in events.windows(2) {
        let [wait, end] = pair else { continue };
        if end["flow_in"] != true || end["cat"] != "wait" {
            continue;
        }
        let signal = signals.remove(&text(&end["bind_id"]).expect("an id")).expect("each arrow has two ends");
        assert!(signal["ts"].as_f64() <= end["ts"].as_f64(), "it leads back in time");
        let wait = &wait["args"];
        arrows.push(Arrow {
            semaphore: text(&wait["semaphore"]).expect("a name"),
            value: wait["value"].as_u64().expect("a value"),
            from: text(&signal["args"]["queue"]),
            from_stream: signal["pid"] != u64::from(std::process::id()),
            to: text(&wait["queue"]),
        });
    }
    assert!(signals.is_empty(), "each arrow has two ends");
    arrows
}

/// The arrows that are drawn: from an event that a flow begins in to the one that it ends in.
fn in_perfetto(file: &Path) -> Vec<Arrow> {
    let events = slices(&std::fs::read(file).expect("it is there"));
    let text = |slice: &Slice, name| slice.argument(name).map(str::to_owned);
    let mut signals: HashMap<u64, &Slice> = HashMap::new();
    for (id, signal) in events.iter().flat_map(|event| event.flows.iter().map(move |id| (*id, event))) {
        assert!(signals.insert(id, signal).is_none(), "one arrow each");
    }
    let mut arrows = Vec::new();
    // The event that an arrow leads to stands right behind the wait that it ends.
    for pair in events.windows(2) {
        let [wait, end] = pair else { continue };
        let [flow] = end.ended_flows[..] else { continue };
        let signal = signals.remove(&flow).expect("each arrow has two ends");
        assert!(signal.ns <= end.ns, "it leads back in time: {signal:?} {end:?}");
        assert_eq!(wait.track, end.track, "{wait:?} {end:?}");
        arrows.push(Arrow {
            semaphore: text(wait, "semaphore").expect("a name"),
            value: wait.argument("value").and_then(|value| value.parse().ok()).expect("a value"),
            from: text(signal, "queue"),
            from_stream: signal.track != THREAD,
            to: text(wait, "queue"),
        });
    }
    assert!(signals.is_empty(), "each arrow has two ends");
    arrows
}
