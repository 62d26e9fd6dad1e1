//! Random graphs of work in a session: the arrows in the trace are the edges of the graph, no more, no fewer, no others.

use std::collections::HashMap;

use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;
use warpline::{MemorySink, Session, WaitOutcome, WaitRecord};

use super::device::*;
use super::graph::{Arrow, Graph, graphs};

/// Runs random graphs of up to so many nodes, and one with thousands of edges.
pub fn random_graphs<D: Device>(device: &D, cases: u32, nodes: usize) {
    let run = |cases, nodes, least| {
        let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&graphs(nodes, 8), |graph| {
            assert!(graph.edges() >= least, "it has {} edges", graph.edges());
            check(device, &graph);
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    };
    run(cases, 1..=nodes, 0);
    run(1, 1500..=1500, 3000);
}

fn check<D: Device>(device: &D, graph: &Graph) {
    let file = std::env::temp_dir().join(format!("warpline-arrows-{}.json", std::process::id()));
    let waits = MemorySink::new(1 << 20);
    let session = Session::builder().ring(1 << 15).event_budget(1 << 18).chrome(&file).sink(waits.clone());
    let session = session.finish_timeout(LONG).start().expect("no other session");
    graph.run(device);
    let report = session.finish();
    let expected = graph.arrows();

    let mut recorded: Vec<Arrow> =
        waits.take_waits().iter().filter(|wait| wait.outcome == WaitOutcome::Reached).map(arrow).collect();
    recorded.sort_unstable();
    assert_same(&recorded, &expected);
    assert_eq!(report.waits.recorded + report.waits.dropped.total(), report.waits.begun);
    assert_eq!(report.waits.dropped.total(), 0, "{report}");

    let mut drawn = arrows_of(&file);
    drawn.sort_unstable();
    assert_same(&drawn, &expected);
    std::fs::remove_file(&file).expect("it was written");
}

fn assert_same(are: &[Arrow], expected: &[Arrow]) {
    let lacks =
        |all: &[Arrow], of: &[Arrow]| of.iter().filter(|arrow| !all.contains(arrow)).cloned().collect::<Vec<_>>();
    let (missing, strange) = (lacks(are, expected), lacks(expected, are));
    assert!(missing.is_empty() && strange.is_empty(), "missing: {missing:#?}\nstrange: {strange:#?}");
    assert_eq!(are.len(), expected.len(), "some are there more or less often than there are edges");
    assert_eq!(are, expected);
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
fn arrows_of(file: &std::path::Path) -> Vec<Arrow> {
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
