//! What a tool is told beside the zones: the catalog with its descriptions, what collectives move, and the waits and signals of threads.
//! The tool is a stub; each test runs in a process of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::timeline::{Semaphore, wait_all};
use warpline::{HostStream, Session, catalog, collective, gpu_zone};
use warpline_tests::counting::allocations_of_thread;
use warpline_tests::this_test;

use crate::harness::nvtx::*;
use crate::harness::nvtx_zones::*;

warpline::range! {
    GRADIENTS = "stub.nvtx_tests.gradients": "Sums all gradients.", kind = collective;
    GRADIENT = "stub.nvtx_tests.gradient": "Sums one gradient.", kind = collective;
}

/// Sums over the group.
#[collective("stub.nvtx_tests.sum", kind = "all_reduce", count = count, dtype = f32, group = group, op = "sum", fields(layer = 7))]
fn sum(stream: &HostStream, group: &ProcessGroup, count: u64) {
    let _ = stream;
}

/// Has values that a payload has as text.
#[gpu_zone("stub.nvtx_tests.several", lane = format_args!("lane {n}"), fields(shape = [4, n, 64], sizes = [7; 100], tile = [("rows", n)]))]
fn several(stream: &HostStream, n: i32) {
    let _ = stream;
}

/// Says only its operation.
#[collective("stub.nvtx_tests.barrier", kind = "all_reduce")]
fn barrier(stream: &HostStream) {
    let _ = stream;
}

fn calls<'a>(log: &'a [Line], call: &str, message: &str) -> Vec<&'a [String]> {
    let is = |line: &&Line| line.call == call && line.arguments.get(2).is_some_and(|name| name.ends_with(message));
    log.iter().filter(is).map(|line| &line.arguments[..]).collect()
}

#[test]
fn a_tool_gets_every_range_with_its_description_when_it_is_attached() {
    with_tool(this_test!(), "record", &[], |tool| {
        drop(PLAIN.host());
        let log = tool.log();
        let first = log.iter().position(|line| line.call == "push").expect("a zone");
        let mut of_tool = BTreeMap::new();
        for schema in log[..first].iter().filter(|line| line.call == "schema") {
            let [domain, name, _, _, described] = &schema.arguments[..] else { panic!("{schema:?}") };
            assert_eq!(name, "warpline.catalog");
            assert!(of_tool.insert(domain.clone(), described.split(" | ").map(str::to_owned).collect()).is_none());
        }
        let mut of_catalog: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for range in catalog() {
            let described = format!("{}: {}", range.name(), range.description());
            of_catalog.entry(range.namespace().to_owned()).or_default().insert(described);
        }
        assert_eq!(of_tool, of_catalog);
        assert!(of_tool["stub"].contains("stub.nvtx_tests.gradient: Sums one gradient."));
        assert_eq!(log[..first].iter().filter(|line| line.call == "string").count(), catalog().len());
    });
}

#[test]
fn a_list_and_a_map_are_texts_that_say_how_many_items_there_were() {
    with_tool(this_test!(), "record", &[], |tool| {
        let stream = HostStream::new("work");
        several(&stream, 128);
        let log = tool.log();
        let sevens = "7, ".repeat(17);
        let expected = format!("shape=text:[4, 128, 64] sizes=text:[{sevens}… of 100] tile=text:{{rows: 128}}");
        assert_eq!(calls(&log, "push", ".several")[0][5], expected);
    });
}

#[test]
fn a_collective_says_what_it_moves() {
    with_tool(this_test!(), "record", &[], |tool| {
        let (stream, group) = (HostStream::new("comm"), ProcessGroup::new("tp0", [4, 5], 1));
        sum(&stream, &group, 1_000);
        sum(&stream, &group, 2_000);
        barrier(&stream);
        let log = tool.log();
        let known = |count: u64| {
            format!(
                "operation=text:all_reduce dtype=text:f32 count=u64:{count} count_out=u64:{count} bytes=u64:{} \
                 group=text:tp0 group_size=u64:2 rank=u64:1 reduction=text:sum layer=i64:7",
                4 * count
            )
        };
        let payloads: Vec<_> = calls(&log, "push", ".sum").iter().map(|push| push[5].clone()).collect();
        assert_eq!(payloads, [known(1_000), known(2_000)]);
        assert_eq!(calls(&log, "push", ".barrier")[0][5], "operation=text:all_reduce");
        let schemas = || log.iter().filter(|line| line.call == "schema" && line.arguments[1] == "warpline.collective");
        assert_eq!(schemas().count(), 2, "one for each set of values");
        assert!(schemas().all(|schema| schema.arguments[4].starts_with("operation: The operation of the collective")));
        // A session gives collectives numbers, the same on all ranks.
        let session = Session::builder().start().unwrap();
        sum(&stream, &group, 3_000);
        assert_eq!(session.finish().recorded, 1);
        let last = calls(&tool.log(), "push", ".sum").pop().expect("a zone")[5].clone();
        assert_eq!(last, known(3_000).replace(" layer", " seq=u64:0 layer"));
        assert_as_the_catalog_says(&tool.log());
    });
}

#[test]
fn the_entries_of_a_batch_are_marks_in_its_range() {
    with_tool(this_test!(), "record", &[], |tool| {
        let (stream, group) = (HostStream::new("comm"), ProcessGroup::new("dp", 0..8, 3));
        let run = || {
            let mut batch = GRADIENTS.batch(&stream);
            for count in [10_u64, 20] {
                let message = || Message::new(CollectiveKind::Broadcast).count(count).dtype(DataType::Bf16);
                batch.add(&GRADIENT, || message().group(&group).root(2_u64));
            }
        };
        run();
        let session = Session::builder().filter("!stub.nvtx_tests.gradients").start().unwrap();
        run();
        session.finish();
        let session = Session::builder().start().unwrap();
        run();
        session.finish();
        let log = tool.log();
        let of_batch = |line: &&Line| line.arguments.first().is_some_and(|domain| domain == "stub");
        let order: Vec<_> = log
            .iter()
            .filter(of_batch)
            .filter(|line| ["push", "mark", "pop"].contains(&line.call.as_str()))
            .map(|line| line.call.as_str())
            .collect();
        assert_eq!(order, ["push", "mark", "mark", "pop"].repeat(3));
        let marks = calls(&log, "mark", ".gradient");
        assert_eq!(
            marks[1][5],
            "operation=text:broadcast dtype=text:bf16 count=u64:20 count_out=u64:20 bytes=u64:40 group=text:dp \
             group_size=u64:8 rank=u64:3 root=u64:2"
        );
        assert_eq!((marks.len(), marks[0][3].as_str()), (6, "3"));
        // A session that records them numbers them, as ranks match them.
        let numbered: Vec<_> =
            marks.iter().map(|mark| mark[5].split_once(" seq=u64:").map(|(_, number)| number)).collect();
        assert_eq!(numbered, [None, None, None, None, Some("0"), Some("1")]);
    });
}

#[test]
fn the_waits_and_signals_of_threads_are_ranges() {
    with_tool(this_test!(), "record", &[], |tool| {
        // No zone begins in this program: the semaphore looks for the tool.
        let (weights, other) = (Semaphore::named("weights", 0), Semaphore::named("other", 3));
        assert_eq!(count(&tool.log(), "start"), 1);
        let waiter = thread::Builder::new().name("waiter".to_owned());
        let waits = weights.clone();
        let waiter = waiter.spawn(move || (tid(), waits.wait(5, Duration::MAX))).unwrap();
        while calls(&tool.log(), "push", "wait weights").is_empty() {
            thread::yield_now();
        }
        weights.signal(7).unwrap();
        let (thread, waited) = waiter.join().unwrap();
        waited.unwrap();
        assert!(other.wait(4, Duration::ZERO).is_err(), "a query, which is no wait");
        assert!(other.wait(9, Duration::from_millis(1)).is_err());
        wait_all(&[(&weights, 6), (&other, 2)], Duration::MAX).unwrap();
        assert!(weights.signal(1).is_err());
        let log = tool.log();
        let ranges: Vec<_> = log
            .iter()
            .filter(|line| line.call == "push")
            .map(|line| (line.thread == thread, line.arguments[1..].join(" ")))
            .collect();
        let expected = [
            (true, "ascii wait weights 1 - value=u64:5 values=u64:1"),
            (false, "ascii signal weights 2 - value=u64:7 values=u64:1"),
            (false, "ascii wait other 1 - value=u64:9 values=u64:1"),
            (false, "ascii wait weights 1 - value=u64:6 values=u64:2"),
            (false, "ascii signal weights 2 - value=u64:1 values=u64:1"),
        ];
        assert_eq!(ranges, expected.map(|(thread, text)| (thread, text.to_owned())));
        assert_eq!(count(&log, "pop"), expected.len());
        assert!(log.iter().filter(|line| line.call == "push").all(|line| line.arguments[0] == "warpline.timeline"));
        let categories: Vec<_> = log
            .iter()
            .filter(|line| line.call == "category" && line.arguments[0] == "warpline.timeline")
            .map(|line| line.arguments[1..].join(" "))
            .collect();
        assert_eq!(categories, ["1 wait", "2 signal"]);
        let named = log.iter().find(|line| line.call == "thread" && line.thread == thread).expect("named");
        assert_eq!(named.arguments[1], "waiter");
    });
}

#[test]
fn what_a_tool_is_told_of_a_collective_and_a_signal_allocates_nothing() {
    with_tool(this_test!(), "record", &[], |tool| {
        let (stream, group) = (HostStream::new("comm"), ProcessGroup::new("tp0", [0, 1], 0));
        let semaphore = Semaphore::named("steps", 0);
        let some = |from: u64, to: u64| {
            for n in from..to {
                sum(&stream, &group, n);
                semaphore.signal(n).unwrap();
            }
        };
        some(1, 3);
        let before = allocations_of_thread();
        some(3, 1_000);
        assert_eq!(allocations_of_thread() - before, 0);
        assert_eq!(count(&tool.log(), "pop"), 2 * 999);
    });
}

#[test]
fn a_tool_without_payloads_gets_collectives_and_waits_without_numbers() {
    for mode in ["no-payload", "mute", "poor"] {
        with_tool(this_test!(), mode, &[], |tool| {
            let (stream, group) = (HostStream::new("comm"), ProcessGroup::new("tp0", [0, 1], 0));
            sum(&stream, &group, 8);
            GRADIENTS.batch(&stream).add(&GRADIENT, || Message::new(CollectiveKind::Broadcast));
            Semaphore::named("steps", 0).signal(1).unwrap();
            let log = tool.log();
            let pushes: Vec<_> = log.iter().filter(|line| line.call == "push").collect();
            assert!(pushes.iter().all(|push| push.arguments[5] == "-" || mode == "poor"), "{pushes:?}");
            assert_eq!((pushes.len(), count(&log, "pop")), (3, 3));
            assert_eq!(count(&log, "mark"), usize::from(mode != "poor"));
        });
    }
}
