//! The mirror to NVTX: what a tool is told of zones. The tool is a stub; each test runs in a process of its own, as a process
//! looks for a tool once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Barrier;
use std::thread;

use warpline::sink::MemorySink;
use warpline::{HostStream, Session};
use warpline_tests::counting::allocations_of_thread;
use warpline_tests::this_test;

use crate::harness::nvtx::*;
use crate::harness::nvtx_zones::*;

#[test]
fn eight_threads_tell_a_tool_what_the_catalog_says() {
    with_tool(this_test!(), "record", &[], |tool| {
        const ROUNDS: usize = 50;
        let together = Barrier::new(8);
        let threads: Vec<i32> = thread::scope(|scope| {
            let begin = |thread: usize| {
                let together = &together;
                let named = thread::Builder::new().name(format!("launcher {thread}"));
                let work = move || {
                    let stream = HostStream::new("work");
                    together.wait();
                    for n in 0..ROUNDS as u64 {
                        let _plain = PLAIN.zone(&stream);
                        nested(2);
                        typed(&stream, n);
                        assert_eq!(run(future(n)), n);
                    }
                    let zone = ASYNC.async_zone(&stream);
                    thread::spawn(move || drop(zone)).join().unwrap();
                    tid()
                };
                named.spawn_scoped(scope, work).unwrap()
            };
            let threads: Vec<_> = (0..8).map(begin).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let log = tool.log();
        assert_as_the_catalog_says(&log);

        // Once each, however many threads come by at once.
        assert_eq!(count(&log, "start"), 1);
        let arguments = |call: &str, at: usize| {
            let mut all: Vec<_> =
                log.iter().filter(|line| line.call == call).map(|line| line.arguments[at].as_str()).collect();
            all.sort_unstable();
            all
        };
        let ranges: Vec<_> = warpline::catalog().iter().collect();
        let namespaces: BTreeSet<_> = ranges.iter().map(|range| range.namespace()).collect();
        assert_eq!(arguments("domain", 0), namespaces.iter().copied().collect::<Vec<_>>());
        let mut names: Vec<_> = ranges.iter().map(|range| range.name()).collect();
        names.sort_unstable();
        assert_eq!(arguments("string", 1), names);
        let kinds: BTreeSet<_> = ranges.iter().map(|range| (range.namespace(), range.kind().as_str())).collect();
        assert_eq!(count(&log, "category"), kinds.len());
        let schemas = arguments("schema", 1);
        let of_zones: Vec<_> = schemas.iter().filter(|name| **name != "warpline.catalog").collect();
        assert_eq!(of_zones, [&"stub.nvtx_tests.future", &"stub.nvtx_tests.nested", &"stub.nvtx_tests.typed"]);
        assert_eq!(schemas.len() - of_zones.len(), namespaces.len());

        let one_round = [
            "plain",
            "plain/nested",
            "plain/nested/colored",
            "plain/nested/colored/nested",
            "plain/nested/colored/nested/colored",
            "plain/nested/colored/nested/colored/nested",
            "plain/typed",
        ];
        for (index, thread) in threads.iter().enumerate() {
            assert_eq!(nesting(&log, *thread), one_round.repeat(ROUNDS));
            let name = log.iter().find(|line| line.call == "thread" && line.thread == *thread).expect("named");
            assert_eq!(name.arguments, [thread.to_string(), format!("launcher {index}")]);
        }

        // Each future's and each handed-over zone's range ends once, by its own number.
        let starts: BTreeMap<_, _> = log
            .iter()
            .filter(|line| line.call == "start-range")
            .map(|line| (line.arguments[6].as_str(), line.arguments[2].as_str()))
            .collect();
        let ends: BTreeSet<_> =
            log.iter().filter(|line| line.call == "end-range").map(|line| line.arguments[1].as_str()).collect();
        assert_eq!((starts.len(), count(&log, "end-range")), (8 * (ROUNDS + 1), 8 * (ROUNDS + 1)));
        assert!(starts.keys().all(|id| ends.contains(id)));
        assert_eq!(starts.values().filter(|name| **name == "stub.nvtx_tests.async").count(), 8);

        let payload = |name: &str| {
            let is = |line: &&Line| line.arguments.get(2).is_some_and(|message| message == name);
            log.iter().filter(is).map(|line| line.arguments[5].as_str()).collect::<BTreeSet<_>>()
        };
        let typed: BTreeSet<_> = payload("stub.nvtx_tests.typed");
        assert_eq!(typed.len(), ROUNDS);
        assert!(
            typed.contains("n=u64:49 by=i64:-3 part=f64:0.25 full=u8:1 kind=text:plain label=text:item 49"),
            "{typed:?}"
        );
        assert_eq!(payload("stub.nvtx_tests.nested"), ["depth=u64:0", "depth=u64:1", "depth=u64:2"].into());
        assert_eq!(payload("stub.nvtx_tests.plain"), ["-"].into());
    });
}

#[test]
fn a_session_and_a_tool_see_the_same_zones() {
    with_tool(this_test!(), "record", &[], |tool| {
        let zones = MemorySink::new(1_000);
        let session = Session::builder().filter("!stub.nvtx_tests.plain").ring(1).sink(zones.clone()).start().unwrap();
        let stream = HostStream::new("work");
        let (busy, free) = std::sync::mpsc::channel::<()>();
        stream.launch(move || {
            let _ = free.recv();
        });
        for _ in 0..3 {
            // The ring has room for the first alone, and the session wants none of the others.
            let colored = COLORED.zone(&stream);
            let plain = PLAIN.zone(&stream);
            assert!(plain.is_active(), "the tool sees it");
            drop(plain);
            drop(colored);
        }
        drop(busy);
        stream.synchronize().unwrap();
        let report = session.finish();
        assert_eq!((report.begun, report.recorded, report.dropped.ring_full), (3, 1, 2), "{report}");
        assert_eq!((zones.take().len(), report.notes.len()), (1, 1), "{report}");
        assert!(report.notes[0].contains("raise `ring=1`"), "{report}");
        let plain = PLAIN.host();
        assert!(plain.is_active(), "there is no session, and a tool");
        drop(plain);
        let log = tool.log();
        let round = ["colored", "colored/plain"];
        assert_eq!(nesting(&log, tid()), [&round.repeat(3)[..], &["plain"]].concat());
        assert_as_the_catalog_says(&log);
    });
}

#[test]
fn a_panic_ends_what_is_open_in_the_tool() {
    with_tool(this_test!(), "record", &[], |tool| {
        let unwound = thread::spawn(|| {
            let _outer = PLAIN.host();
            let _inner = COLORED.host();
            panic!("as planned");
        });
        assert!(unwound.join().is_err());
        let log = tool.log();
        let threads: BTreeSet<_> = log.iter().filter(|line| line.call == "push").map(|line| line.thread).collect();
        assert_eq!(threads.len(), 1);
        assert_eq!(nesting(&log, *threads.first().unwrap()), ["plain", "plain/colored"]);
        // A field that panics begins nothing, and the block runs.
        let ran = warpline::block::host_zone!(
            "stub.nvtx_tests.bad",
            description = "A field panics.",
            fields(n = refuse()),
            { true }
        );
        assert!(ran);
        assert_eq!(count(&tool.log(), "push"), 2);
    });
}

fn refuse() -> u64 {
    panic!("as planned")
}

#[test]
fn a_mirrored_zone_allocates_nothing() {
    with_tool(this_test!(), "record", &[], |tool| {
        let stream = HostStream::new("work");
        let some = |times: u64| {
            for n in 0..times {
                let _plain = PLAIN.zone(&stream);
                nested(3);
                warpline::block::gpu_zone!(
                    "stub.nvtx_tests.numbers",
                    &stream,
                    description = "Numbers.",
                    fields(n = n, x = 0.5),
                    {}
                );
                assert_eq!(run(future(n)), n);
            }
        };
        some(1);
        let before = allocations_of_thread();
        some(1_000);
        assert_eq!(allocations_of_thread() - before, 0);
        assert_eq!((count(&tool.log(), "push"), count(&tool.log(), "pop")), (1_001 * 9, 1_001 * 9));
        assert_eq!(count(&tool.log(), "end-range"), 1_001);
    });
}

#[test]
fn more_open_zones_than_a_thread_has_room_for_are_not_told_and_the_user_is() {
    let test = this_test!();
    let said = with_tool(test, "record", &[], |tool| {
        let open: Vec<_> = (0..20_000).map(|_| ASYNC.async_host()).collect();
        assert_eq!(count(&tool.log(), "start-range"), 16_384);
        drop(open);
        drop(ASYNC.async_host());
        assert_eq!((count(&tool.log(), "start-range"), count(&tool.log(), "end-range")), (16_385, 16_385));
    });
    if let Some(said) = said {
        assert_eq!(
            said.lines().collect::<Vec<_>>(),
            [
                "warpline: more than 16384 zones of one thread are open at once; NVTX does not get further ones: end zones earlier"
            ]
        );
    }
}
