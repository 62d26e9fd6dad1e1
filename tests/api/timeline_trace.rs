//! Timelines in a session: every wait with who waited, for whom and for how long; arrows; what queues hold; what each stream
//! did with its time; and the critical path.

use std::sync::mpsc;
use std::time::Duration;

use warpline::record::{Span, WaitOutcome, WaitRecord};
use warpline::report::{Report, critical_path};
use warpline::sink::MemorySink;
use warpline::timeline::{Queue, Semaphore, declare_wait, wait_all, wait_any};
use warpline::{HostStream, Session, SessionBuilder, gpu_zone, host_zone};
use warpline_tests::alone;

use crate::timelines::arrows;
use crate::timelines::device::{Host, LONG, block_on};

/// Work for the tests.
#[gpu_zone("api.order.work", label = name)]
fn work(stream: &HostStream, name: &str, takes: Duration) {
    stream.launch(move || std::thread::sleep(takes));
}

/// Work after a wait.
#[gpu_zone("api.order.rest")]
fn rest(stream: &HostStream, takes: Duration) {
    stream.launch(move || std::thread::sleep(takes));
}

/// Work of a thread.
#[host_zone("api.order.load")]
fn load(takes: Duration) {
    std::thread::sleep(takes);
}

const MS: Duration = Duration::from_millis(1);

/// Runs `body` in a session, and gives what it left.
fn session(body: impl FnOnce()) -> (Vec<WaitRecord>, MemorySink, Report) {
    session_of(|builder| builder, body)
}

fn session_of(
    change: impl FnOnce(SessionBuilder) -> SessionBuilder,
    body: impl FnOnce(),
) -> (Vec<WaitRecord>, MemorySink, Report) {
    let memory = MemorySink::new(1 << 20);
    let session = change(Session::builder().sink(memory.clone())).start().expect("no other session");
    body();
    let report = session.finish();
    let counts = report.waits;
    assert_eq!(counts.recorded + counts.dropped.total(), counts.begun, "{report}");
    assert_eq!(report.recorded + report.dropped.total(), report.begun, "{report}");
    let waits = memory.take_waits();
    assert_eq!(waits.len() as u64, counts.recorded);
    (waits, memory, report)
}

/// Holds a stream until it is told to go on.
fn hold(stream: &HostStream) -> mpsc::Sender<()> {
    let (go, wait) = mpsc::channel();
    stream.launch(move || wait.recv().unwrap_or_default());
    go
}

/// Waits until the stream is there.
fn arrive(stream: &HostStream) {
    let (here, is_here) = mpsc::channel();
    stream.launch(move || here.send(()).unwrap_or_default());
    is_here.recv().expect("the stream lives");
}

fn one(waits: &[WaitRecord]) -> &WaitRecord {
    let [wait] = waits else { panic!("one wait: {waits:#?}") };
    wait
}

#[test]
fn a_stream_that_waited_says_for_what_for_how_long_and_for_whom() {
    let _turn = alone();
    let (copy, compute) = (HostStream::new("copy"), HostStream::new("compute"));
    let (waits, memory, report) = session(|| {
        let loaded = Semaphore::named("weights loaded", 0);
        let go = hold(&copy);
        work(&copy, "copies", 20 * MS);
        loaded.signal_on(&copy, 3).unwrap();
        arrive(&compute);
        // This thread goes on while both are held.
        loaded.wait_on(&compute, 2).unwrap();
        rest(&compute, MS);
        drop(go);
        loaded.wait(3, LONG).unwrap();
        compute.synchronize().unwrap();
    });
    let wait = waits.iter().find(|wait| wait.stream.is_some()).expect("a stream waited");
    let signal = wait.signal.as_ref().expect("somebody signalled");
    assert_eq!((&*wait.semaphore, wait.value, wait.outcome), ("weights loaded", Some(2), WaitOutcome::Reached));
    assert_eq!((signal.value, signal.by().as_str(), &signal.queue), (Some(3), "copy", &None));
    assert_eq!(wait.stream.as_ref().map(|stream| stream.name.as_str()), Some("compute"));
    let zones = memory.take();
    let gpu = |name| zones.iter().find(|zone| zone.range.name() == name).and_then(|zone| zone.gpu).expect("a zone");
    let (before, after) = (gpu("api.order.work"), gpu("api.order.rest"));
    let waited = wait.gpu.expect("the stream waited");
    assert!(waited.duration_ns() > 0 && waited.end_ns <= after.begin_ns, "{waited:?}");
    assert!((before.end_ns..=waited.end_ns).contains(&signal.at_ns), "{signal:?} {before:?} {waited:?}");
    // And the thread.
    let wait = waits.iter().find(|wait| wait.stream.is_none()).expect("a thread waited");
    assert_eq!((wait.value, wait.signal.as_ref().map(|signal| signal.by())), (Some(3), Some("copy".to_owned())));
    assert_eq!(wait.thread.id, zones[0].thread.id);

    let name = |name: &str| report.streams.iter().find(|stream| stream.name == name).expect("a stream");
    let (copy, compute) = (name("copy"), name("compute"));
    assert_eq!((copy.waiting_ns, copy.busy_ns), (0, before.duration_ns()));
    assert_eq!((compute.waiting_ns, compute.busy_ns), (waited.duration_ns(), after.duration_ns()));
    let [copy_idle_ns, compute_idle_ns] = [copy, compute].map(|stream| stream.idle_ns.expect("all was recorded"));
    assert_eq!(copy.busy_ns + copy_idle_ns, compute.busy_ns + compute.waiting_ns + compute_idle_ns);
    assert_eq!((compute.waited_for[0].by.as_str(), compute.waited_for[0].count), ("copy", 1));
    assert_eq!((report.semaphores[0].name.as_str(), report.semaphores[0].waits), ("weights loaded", 2));
    let text = report.to_string();
    for part in
        ["waited for", "copy 100 %", "on the critical path", "api.order.work", "2 waits begun, 2 recorded, 0 dropped"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn what_was_reached_before_is_an_arrow_without_a_wait() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let (waits, _, _) = session(|| {
        let ready = Semaphore::named("ready", 0);
        ready.signal(4).unwrap();
        ready.wait_on(&stream, 4).unwrap();
        stream.synchronize().unwrap();
    });
    let wait = one(&waits);
    let signal = wait.signal.as_ref().expect("this thread");
    assert!(signal.stream.is_none() && signal.at_ns <= wait.span().begin_ns && signal.early_by_ns == 0, "{wait:?}");
}

#[test]
fn waits_of_threads_and_tasks_say_what_came_of_them() {
    let _turn = alone();
    let (waits, _, report) = session(|| {
        let (a, b) = (Semaphore::named("a", 0), Semaphore::named("b", 0));
        b.signal(1).unwrap();
        wait_any(&[(&a, 1), (&b, 1)], LONG).unwrap();
        a.wait(1, MS).expect_err("nobody signals");
        // It only asks.
        a.wait(1, Duration::ZERO).expect_err("nobody signals");
        b.wait(1, Duration::ZERO).unwrap();
        // Given up.
        drop(a.wait_async(1));
        let mut given_up = Box::pin(a.wait_async(1));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(std::future::Future::poll(given_up.as_mut(), &mut context).is_pending());
        drop(given_up);
        a.signal(1).unwrap();
        block_on(a.wait_async(1)).unwrap();
        a.fail("broken");
        wait_all(&[(&b, 1), (&a, 2)], LONG).expect_err("it failed");
    });
    let mut told: Vec<_> = waits.iter().map(|wait| (&*wait.semaphore, wait.value, wait.outcome.as_str())).collect();
    told.sort_unstable();
    assert_eq!(
        told,
        [
            ("a", Some(1), "reached"),
            ("a", Some(1), "timed out"),
            ("a", Some(2), "failed"),
            ("b", Some(1), "failed"),
            ("b", Some(1), "reached"),
            ("b", Some(1), "reached"),
        ]
    );
    assert!(waits.iter().all(|wait| wait.stream.is_none() && wait.gpu.is_none()));
    assert_eq!(report.waits.begun, 6);
}

#[test]
fn a_thread_that_waits_for_several_waits_for_one_after_another() {
    let _turn = alone();
    let streams = [HostStream::new("slow"), HostStream::new("fast")];
    let (waits, ..) = session(|| {
        let (slow, fast) = (Semaphore::named("slow", 0), Semaphore::named("fast", 0));
        // Long enough that the thread sees the fast signal first, even on a busy host.
        work(&streams[0], "slow", 300 * MS);
        slow.signal_on(&streams[0], 1).unwrap();
        work(&streams[1], "fast", 5 * MS);
        fast.signal_on(&streams[1], 1).unwrap();
        wait_all(&[(&slow, 1), (&fast, 1)], LONG).unwrap();
    });
    let of = |name: &str| waits.iter().find(|wait| *wait.semaphore == *name).expect("it was waited for").span();
    let (fast, slow) = (of("fast"), of("slow"));
    assert!(fast.begin_ns <= fast.end_ns && fast.end_ns == slow.begin_ns && slow.begin_ns <= slow.end_ns, "{waits:#?}");
}

#[test]
fn a_queue_says_whose_waits_and_signals_they_are_and_how_much_it_holds() {
    let _turn = alone();
    let (waits, memory, report) = session(|| {
        let queue = Queue::new("decode", HostStream::new("decoder")).unwrap();
        let (arrived, decoded, told) =
            (Semaphore::named("arrived", 0), Semaphore::named("decoded", 0), Semaphore::new(0));
        for step in 1..=3 {
            queue.submit(&[(&arrived, step)], &[(&decoded, step)], |_| Ok(())).unwrap();
        }
        queue.submit_host(&[(&decoded, 3)], &[(&told, 1)], |_| Ok(())).unwrap();
        assert_eq!(queue.flush(), 4);
        for step in 1..=3 {
            arrived.signal(step).unwrap();
        }
        told.wait(1, LONG).unwrap();
        drop(queue);
    });
    let of = |name: &str| waits.iter().filter(|wait| *wait.semaphore == *name).collect::<Vec<_>>();
    assert_eq!(of("arrived").len(), 3);
    for wait in of("arrived") {
        assert_eq!(
            (wait.queue.as_deref(), wait.stream.as_ref().map(|s| s.name.as_str())),
            (Some("decode"), Some("decoder"))
        );
    }
    let [wait] = of("decoded")[..] else { panic!("one host call: {waits:#?}") };
    assert_eq!(wait.stream.as_ref().map(|s| s.name.as_str()), Some("decode host calls"));
    let signal = wait.signal.as_ref().expect("the queue signalled");
    assert_eq!((signal.queue.as_deref(), signal.by().as_str()), (Some("decode"), "decoder"));
    let depths: Vec<_> = memory.take_depths().iter().map(|depth| (depth.queue.to_string(), depth.depth)).collect();
    assert_eq!(depths.len(), 8, "four come and go");
    assert_eq!(depths.iter().map(|(_, depth)| *depth).max(), Some(4));
    assert_eq!((depths[3].1, depths[7].1), (4, 0));
    assert_eq!((report.waits.depths, report.waits.depths_dropped), (8, 0));
}

#[test]
fn a_wait_of_another_way_is_declared_with_one_call() {
    let _turn = alone();
    let (copy, compute) = (HostStream::new("copy"), HostStream::new("compute"));
    let plain = || {
        let (reached, is_reached) = mpsc::channel();
        work(&copy, "copies", 5 * MS);
        copy.launch(move || reached.send(()).unwrap_or_default());
        let returned = declare_wait("weights", &compute, &copy, || {
            compute.launch(move || is_reached.recv().unwrap_or_default());
            7
        });
        assert_eq!(returned, 7);
        compute.synchronize().unwrap();
    };
    let (waits, ..) = session(plain);
    let wait = one(&waits);
    let signal = wait.signal.as_ref().expect("it was said");
    assert_eq!((&*wait.semaphore, wait.value, signal.value, signal.by().as_str()), ("weights", None, None, "copy"));
    assert!(signal.at_ns <= wait.span().end_ns, "{wait:?}");
    // Without a session it only calls.
    plain();
}

#[test]
fn a_declared_wait_that_panics_is_counted_and_takes_no_room() {
    let _turn = alone();
    let (compute, copy) = (HostStream::new("compute"), HostStream::new("copy"));
    let (waits, _, report) = session_of(
        |builder| builder.ring(4),
        || {
            for _ in 0..16 {
                let wait = || declare_wait("weights", &compute, &copy, || panic!("it is gone"));
                assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait)).is_err());
            }
            rest(&compute, Duration::ZERO);
            compute.synchronize().unwrap();
        },
    );
    assert_eq!((waits.len(), report.waits.begun, report.waits.dropped.unfinished), (0, 16, 16), "{report}");
    assert_eq!((report.begun, report.recorded), (1, 1), "{report}");
}

#[test]
fn waits_that_find_no_room_are_counted() {
    let _turn = alone();
    let (first, second) = (HostStream::new("first"), HostStream::new("second"));
    let (waits, _, report) = session_of(
        |builder| builder.ring(4),
        || {
            let semaphore = Semaphore::new(0);
            let (go, held) = (hold(&first), hold(&second));
            for value in 1..=10 {
                semaphore.signal_on(&first, value).unwrap();
                semaphore.wait_on(&second, value).unwrap();
            }
            drop((go, held));
            second.synchronize().unwrap();
        },
    );
    assert_eq!((report.waits.begun, waits.len(), report.waits.dropped.ring_full), (10, 4, 6), "{report}");
    assert_eq!((report.begun, report.dropped.total()), (0, 0));
    assert!(report.to_string().contains("10 waits begun, 4 recorded, 6 dropped (ring_full 6)"), "{report}");
}

#[test]
fn a_wait_that_is_not_over_when_the_session_ends_is_counted() {
    let _turn = alone();
    let (first, second) = (HostStream::new("first"), HostStream::new("second"));
    let go = hold(&first);
    let (waits, _, report) = session_of(
        |builder| builder.finish_timeout(20 * MS),
        || {
            let semaphore = Semaphore::new(0);
            semaphore.signal_on(&first, 1).unwrap();
            semaphore.wait_on(&second, 1).unwrap();
        },
    );
    assert_eq!((waits.len(), report.waits.begun, report.waits.dropped.unfinished), (0, 1, 1), "{report}");
    assert_eq!(report.begun, 0, "a wait is no zone");
    go.send(()).unwrap();
    second.synchronize().unwrap();
}

#[test]
fn the_critical_path_goes_over_the_arrows_and_passes_by_what_held_up_nothing() {
    let _turn = alone();
    let (a, b, c) = (HostStream::new("a"), HostStream::new("b"), HostStream::new("c"));
    let (waits, memory, report) = session(|| {
        let (first, second) = (Semaphore::named("first", 0), Semaphore::named("second", 0));
        // `a` works for long, then `b`. `c` finishes early, and nothing waits for it. `a` is launched first: on a busy machine, `c` could
        // finish before a later launch of `a`, and the path would assume that the thread had waited for `c`.
        let go = hold(&a);
        work(&a, "long", 30 * MS);
        first.signal_on(&a, 1).unwrap();
        work(&c, "short", MS);
        second.signal_on(&c, 1).unwrap();
        arrive(&b);
        first.wait_on(&b, 1).unwrap();
        second.wait_on(&b, 1).unwrap();
        rest(&b, 10 * MS);
        drop(go);
        b.synchronize().unwrap();
    });
    // a worked, b went on.
    let said = |arrows: u64| {
        let mut report = report.clone();
        report.critical_path.as_mut().expect("there are zones").arrows = arrows;
        report.to_string()
    };
    assert!(said(2).contains(", over 2 arrows\n") && said(1).contains(", over 1 arrow\n"), "{report}");
    let path = report.critical_path.expect("there are zones");
    let zones = memory.take();
    let this = zones[0].thread.name.clone().expect("a test's thread has a name");
    let stretches: Vec<_> = path.stretches.iter().map(|stretch| stretch.on.as_str()).collect();
    assert_eq!((stretches, path.arrows), (vec![this.as_str(), "a", "b"], 2), "{:#?}", path.stretches);
    let part = |name: &str, on: &str| {
        path.parts.iter().find(|part| part.name == name && part.on == on).map_or(0, |part| part.ns)
    };
    assert!(
        part("api.order.work", "a") >= 30_000_000 && part("api.order.rest", "b") >= 10_000_000,
        "{:#?}",
        path.parts
    );
    assert_eq!(part("api.order.work", "c"), 0);
    assert_eq!(path.parts.iter().map(|part| part.ns).sum::<i64>(), path.to_ns - path.from_ns);
    let shares: f64 = path.parts.iter().map(|part| part.share).sum();
    assert!((shares - 1.0).abs() < 1e-9);

    // The same of the records, and of a window of one's own.
    let again = critical_path(&zones, &waits, &[], None).expect("there are zones");
    assert_eq!((again.to_ns, again.parts), (path.to_ns, path.parts));
    let work = zones.iter().find(|zone| zone.fields.label() == Some("long")).and_then(|zone| zone.gpu).expect("a zone");
    let until = critical_path(&zones, &waits, &[], Some(Span { begin_ns: work.begin_ns, end_ns: work.end_ns }));
    let until = until.expect("it ends there");
    assert_eq!((until.arrows, until.parts.len(), until.parts[0].ns), (0, 1, work.duration_ns()), "{until:#?}");
    assert!(critical_path(&zones, &waits, &[], Some(Span { begin_ns: 0, end_ns: 1 })).is_none());
}

#[test]
fn arrows_in_the_trace_are_the_edges_of_random_graphs() {
    let _turn = alone();
    arrows::random_graphs(&Host, 24, 100);
}

#[test]
fn signals_of_an_earlier_session_are_nobodys() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let semaphore = Semaphore::new(0);
    session(|| semaphore.signal_on(&stream, 1).unwrap());
    semaphore.wait(1, LONG).unwrap();
    let (waits, _, report) = session(|| semaphore.wait(1, LONG).unwrap());
    assert!(one(&waits).signal.is_none(), "{waits:?}");
    assert_eq!(report.semaphores[0].waits, 1);
}

#[test]
fn a_stream_that_had_nothing_to_do_was_held_up_by_the_thread_that_launched() {
    let _turn = alone();
    let stream = HostStream::new("starved");
    let (.., report) = session(|| {
        rest(&stream, MS);
        stream.synchronize().unwrap();
        load(20 * MS);
        rest(&stream, MS);
        stream.synchronize().unwrap();
    });
    let path = report.critical_path.expect("there are zones");
    let loaded = path.parts.iter().find(|part| part.name == "api.order.load").expect("the stream waited for it");
    assert!(loaded.ns >= 20_000_000 && loaded.on != "starved", "{path:#?}");
}

#[test]
fn a_value_that_a_semaphore_was_made_with_is_nothing_to_wait_for() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let (waits, _, report) = session(|| {
        let semaphore = Semaphore::new(3);
        semaphore.wait_on(&stream, 2).unwrap();
        semaphore.wait(3, LONG).unwrap();
    });
    assert_eq!((waits.len(), report.waits.begun), (0, 0));
}
