//! Spans and events of `tracing` beside zones: where they land, whose parents they are, and what hostile programs do.

mod fields;

use std::cell::RefCell;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tracing::dispatcher::{Dispatch, with_default};
use tracing::{Instrument, Level, debug_span, info, info_span, instrument, trace_span, warn};
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry;
use warpline::record::{SpanRecord, SpanRef, ZoneRecord};
use warpline::report::Report;
use warpline::sink::{Batch, MemorySink, Sink};
use warpline::{HostStream, Session, Value, gpu_zone};
use warpline_tests::alone;

warpline::range! {
    LAUNCH = "api.spans.launch": "A zone on a stream.";
    HOST = "api.spans.host": "Work with no stream.", kind = host;
}

/// A subscriber with the layer and nothing else.
fn subscriber() -> Dispatch {
    Dispatch::new(registry().with(warpline::tracing::layer()))
}

fn memory() -> (Session, MemorySink) {
    let sink = MemorySink::new(1_000_000);
    let session = Session::builder().sink(sink.clone()).start().expect("no other session");
    (session, sink)
}

/// Runs `program` under the layer while a session records it.
fn recorded(program: impl FnOnce(&Dispatch)) -> (Report, Vec<SpanRecord>, Vec<ZoneRecord>) {
    let dispatch = subscriber();
    let (session, sink) = memory();
    with_default(&dispatch, || program(&dispatch));
    let report = session.finish();
    assert_exact(&report);
    (report, sink.take_spans(), sink.take())
}

fn assert_exact(report: &Report) {
    assert_eq!(report.recorded + report.captured + report.dropped.total(), report.begun, "{report}");
    assert_eq!(report.spans.recorded + report.spans.dropped(), report.spans.begun, "{report}");
}

fn named<'a>(spans: &'a [SpanRecord], name: &str) -> &'a SpanRecord {
    let mut of_name = spans.iter().filter(|span| span.site.name == name);
    match (of_name.next(), of_name.next()) {
        (Some(span), None) => span,
        _ => panic!("one span `{name}`: {spans:?}"),
    }
}

fn names(spans: &[SpanRecord]) -> Vec<&str> {
    spans.iter().map(|span| span.site.name).collect()
}

fn field<'a>(span: &'a SpanRecord, name: &str) -> Option<&'a Value> {
    span.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
}

fn text(span: &SpanRecord, name: &str) -> String {
    field(span, name).map_or_else(|| panic!("no field `{name}`: {span:?}"), Value::to_string)
}

/// As the parent of something.
fn reference(span: &SpanRecord) -> Option<(&'static str, u64)> {
    Some((span.site.name, span.id?))
}

fn parent(parent: Option<SpanRef>) -> Option<(&'static str, u64)> {
    parent.map(|parent| (parent.name, parent.id))
}

#[test]
fn spans_events_and_zones_know_where_they_belong() {
    let _turn = alone();
    let (report, spans, zones) = recorded(|_| {
        let stream = HostStream::new("compute");
        let _outer = info_span!("outer", n = 3_u64, offset = -7, share = 0.5, ok = true, text = "a", r#type = ?Some(1))
            .entered();
        {
            let _inner = debug_span!(target: "elsewhere", "inner", late = tracing::field::Empty).entered();
            let _zone = LAUNCH.zone(&stream);
            let _host = HOST.host();
            warn!(ms = 12, "slow {}", "disk");
            tracing::Span::current().record("late", 9);
        }
        let _after = HOST.host();
    });
    assert_eq!((report.spans.begun, report.spans.recorded), (3, 3));
    let (outer, inner) = (named(&spans, "outer"), named(&spans, "inner"));
    let fields: Vec<_> = outer.fields.iter().map(|(name, value)| (*name, value.to_string())).collect();
    let expected = [("n", "3"), ("offset", "-7"), ("share", "0.5"), ("ok", "true"), ("text", "a"), ("type", "Some(1)")];
    assert_eq!(fields, expected.map(|(name, value)| (name, value.to_owned())));
    assert_eq!((field(outer, "n"), field(outer, "offset")), (Some(&Value::U64(3)), Some(&Value::I64(-7))));
    assert_eq!(field(inner, "late"), Some(&Value::I64(9)), "recorded while the thread was in the span");
    assert_eq!((outer.site.target, outer.site.level), (module_path!(), "INFO"));
    assert_eq!((inner.site.target, inner.site.level), ("elsewhere", "DEBUG"));
    assert!(
        outer.site.file.is_some_and(|file| file.ends_with("tracing/mod.rs")) && outer.site.line.is_some(),
        "{outer:?}"
    );
    assert!(outer.host.begin_ns <= inner.host.begin_ns && inner.host.end_ns <= outer.host.end_ns);
    assert_eq!((parent(outer.parent), parent(inner.parent)), (None, reference(outer)));

    let event = spans.iter().find(|span| span.id.is_none()).expect("the event");
    assert_eq!((text(event, "message").as_str(), text(event, "ms").as_str()), ("slow disk", "12"));
    assert_eq!((event.site.level, parent(event.parent)), ("WARN", reference(inner)));
    assert_eq!(event.host.duration_ns(), 0);

    let parents: Vec<_> = zones.iter().map(|zone| (zone.range.name(), parent(zone.parent))).collect();
    for zone in [
        ("api.spans.launch", reference(inner)),
        ("api.spans.host", reference(inner)),
        ("api.spans.host", reference(outer)),
    ] {
        assert!(parents.contains(&zone), "{zone:?} in {parents:?}");
    }
    let launch = zones.iter().find(|zone| zone.stream.is_some()).expect("the zone on the stream");
    assert!(inner.host.begin_ns <= launch.host.begin_ns && launch.host.end_ns <= inner.host.end_ns);
    assert_eq!((launch.thread.id, launch.depth), (inner.thread.id, 0), "a span is no zone");
}

/// A function that is both.
#[gpu_zone("api.spans.both", description = "Marked and instrumented.")]
#[instrument(skip(stream))]
fn both(stream: &HostStream, n: u64) {
    stream.launch(|| ());
}

#[test]
fn spans_of_a_warm_up_are_not_counted_as_recorded() {
    let _turn = alone();
    let (dispatch, sink) = (subscriber(), MemorySink::new(1_000));
    let builder = Session::builder().sink(sink.clone()).warmup(2).active(3).repeat(1);
    let session = builder.start().expect("no other session");
    with_default(&dispatch, || {
        for number in 0..5_u32 {
            warpline::step(number);
            info_span!("part").in_scope(|| ());
        }
    });
    let report = session.finish();
    assert_eq!((report.spans.recorded, sink.take_spans().len()), (3, 3), "those of the three active steps");
    assert_exact(&report);
}

#[test]
fn a_function_with_both_marks_is_one_zone_and_one_span() {
    let _turn = alone();
    let (report, spans, zones) = recorded(|_| both(&HostStream::new("compute"), 5));
    assert_eq!((report.spans.recorded, report.recorded), (1, 1));
    assert_eq!(
        (named(&spans, "both").fields.to_vec(), zones[0].range.name()),
        (vec![("n", Value::U64(5))], "api.spans.both")
    );
}

#[test]
fn an_async_span_is_a_record_for_each_poll_on_the_thread_that_polled() {
    let _turn = alone();
    let (_, spans, zones) = recorded(|dispatch| {
        let mut polls = 0;
        let work = std::future::poll_fn(move |_| {
            polls += 1;
            let _zone = HOST.host();
            if polls < 3 { Poll::Pending } else { Poll::Ready(()) }
        });
        let request = info_span!("request");
        let mut task = pin!(work.instrument(info_span!(parent: &request, "task")));
        drop(request);
        let mut poll = || task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!poll());
        assert!(thread::scope(|scope| {
            let worker = thread::Builder::new().name("worker".to_owned());
            let polled = worker.spawn_scoped(scope, || with_default(dispatch, || !poll() && poll())).expect("a thread");
            polled.join().expect("no panic")
        }));
    });
    // One more for the drop of the future, which `Instrumented` does within the span.
    let polls: Vec<_> = spans.iter().filter(|span| span.site.name == "task").collect();
    assert_eq!(polls.len(), 4, "{polls:?}");
    assert!(
        polls.iter().all(|poll| poll.id == polls[0].id && poll.parent.is_some_and(|parent| parent.name == "request"))
    );
    assert!(!names(&spans).contains(&"request"), "it was never entered");
    let on_worker = polls.iter().filter(|poll| poll.thread.name.as_deref() == Some("worker")).count();
    assert_eq!((on_worker, polls[0].thread.id), (2, zones[0].thread.id));
    assert!(zones.iter().all(|zone| parent(zone.parent) == reference(polls[0])), "{zones:?}");
}

#[test]
fn filters_on_the_layer_leave_out_what_they_should() {
    let _turn = alone();
    let run = |dispatch: Dispatch| {
        let (session, sink) = memory();
        let zone = with_default(&dispatch, || {
            let _coarse = info_span!(target: "app", "coarse").entered();
            let _fine = trace_span!(target: "app", "fine").entered();
            let _library = info_span!(target: "library", "library").entered();
            info!(target: "library", "an event");
            HOST.host()
        });
        drop(zone);
        let report = session.finish();
        assert_exact(&report);
        let spans = sink.take_spans();
        assert_eq!(report.spans.begun, spans.len() as u64, "what is left out does not count");
        let mut seen: Vec<_> =
            names(&spans).iter().map(|name| if name.starts_with("event") { "event" } else { name }).collect();
        seen.sort_unstable();
        (seen.join(" "), sink.take()[0].parent.map(|parent| parent.name))
    };
    let layer = warpline::tracing::layer;
    // Another layer takes everything, so that each span exists.
    let with = |filtered| Dispatch::new(registry().with(Everything).with(filtered));
    assert_eq!(
        run(with(layer().with_filter(LevelFilter::TRACE).boxed())),
        ("coarse event fine library".into(), Some("library"))
    );
    assert_eq!(
        run(with(layer().with_filter(LevelFilter::INFO).boxed())),
        ("coarse event library".into(), Some("library"))
    );
    let app = Targets::new().with_target("app", Level::TRACE);
    assert_eq!(run(with(layer().with_filter(app).boxed())), ("coarse fine".into(), Some("fine")));
    let none = filter_fn(|_| false);
    assert_eq!(run(with(layer().with_filter(none).boxed())), (String::new(), None));
    // A filter for all layers, beside which no other layer sees more.
    assert_eq!(
        run(Dispatch::new(registry().with(layer()).with(LevelFilter::INFO))),
        ("coarse event library".into(), Some("library"))
    );
}

struct Everything;

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Everything {}

#[test]
fn out_of_order_exits_and_spans_in_themselves_are_told_apart() {
    let _turn = alone();
    let (report, spans, zones) = recorded(|_| {
        let first = info_span!("first").entered();
        let second = info_span!("second").entered();
        drop(first);
        drop(HOST.host());
        drop(second);
        let again = info_span!("again");
        again.in_scope(|| again.in_scope(|| drop(HOST.host())));
    });
    assert_eq!((report.spans.recorded, names(&spans)), (4, vec!["first", "second", "again", "again"]));
    let (first, second) = (named(&spans, "first").host, named(&spans, "second").host);
    assert!(first.begin_ns < second.begin_ns && second.begin_ns < first.end_ns && first.end_ns < second.end_ns);
    assert!(spans[3].host.begin_ns <= spans[2].host.begin_ns && spans[2].host.end_ns <= spans[3].host.end_ns);
    let parents: Vec<_> = zones.iter().map(|zone| zone.parent.map(|parent| parent.name)).collect();
    assert_eq!(parents, [Some("second"), Some("again")]);
}

#[test]
fn a_span_on_several_threads_and_closed_on_another_is_whole() {
    let _turn = alone();
    let (report, spans, _) = recorded(|dispatch| {
        let span = info_span!("shared", n = 1);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| with_default(dispatch, || span.in_scope(|| thread::sleep(Duration::from_millis(1)))));
            }
        });
        let dispatch = dispatch.clone();
        thread::spawn(move || with_default(&dispatch, || drop(span))).join().expect("no panic");
    });
    assert_eq!((report.spans.begun, names(&spans)), (3, vec!["shared"; 3]));
    assert!(spans.iter().all(|span| span.id == spans[0].id && text(span, "n") == "1"));
}

#[test]
fn spans_that_are_never_left_are_counted_and_cost_no_other() {
    let _turn = alone();
    let dispatch = subscriber();
    let sink = MemorySink::new(10_000);
    let session = Session::builder().ring(64).sink(sink.clone()).start().expect("no other session");
    // As many as there is room for, on threads that end: their places come back.
    for _ in 0..64 {
        let dispatch = dispatch.clone();
        thread::spawn(move || with_default(&dispatch, || std::mem::forget(info_span!("forgotten").entered())))
            .join()
            .expect("no panic");
    }
    with_default(&dispatch, || drop(info_span!("after").entered()));
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.spans.begun, report.spans.unfinished, report.spans.buffer_full), (65, 64, 0), "{report}");
    assert_eq!(names(&sink.take_spans()), ["after"]);
    assert!(
        report.to_string().contains("65 spans and events begun, 1 recorded, 64 dropped (buffer_full 0, unfinished 64)")
    );

    // On one thread they keep their places, and what finds none is counted; the thread goes on.
    let session = Session::builder().ring(64).sink(sink.clone()).start().expect("no other session");
    let dispatch = dispatch.clone();
    thread::spawn(move || {
        with_default(&dispatch, || {
            for _ in 0..10_000 {
                std::mem::forget(info_span!("forgotten").entered());
            }
            let zone = HOST.host();
            assert!(zone.is_active());
        });
    })
    .join()
    .expect("no panic");
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.spans.begun, report.spans.recorded, report.recorded), (10_000, 0, 1), "{report}");
}

#[test]
fn sessions_that_begin_and_end_within_spans_lose_none_silently() {
    let _turn = alone();
    let dispatch = subscriber();
    with_default(&dispatch, || {
        let before = info_span!("before", n = 1).entered();
        let (session, sink) = memory();
        let early = before.exit();
        // Entered before, left within: not of this session. Entered again within: whole, but for fields that nobody kept.
        let within = early.entered();
        drop(within);
        let across = info_span!("across").entered();
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.spans.begun, report.spans.unfinished), (2, 1), "{report}");
        let spans = sink.take_spans();
        assert_eq!((names(&spans), spans[0].fields.len()), (vec!["before"], 0));

        // The next session does not get what belongs to the last one, but knows that the thread is in it.
        let (session, sink) = memory();
        let zone = HOST.host();
        drop(across);
        drop(zone);
        session.stop();
        let stopped = info_span!("stopped").entered();
        drop(stopped);
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.spans.begun, sink.take_spans().len()), (0, 0));
        assert_eq!(sink.take()[0].parent.map(|parent| parent.name), Some("across"));
        drop(info_span!("no session").entered());
    });
}

#[test]
fn threads_that_never_pause_lose_none_silently_while_sessions_come_and_go() {
    let _turn = alone();
    let dispatch = subscriber();
    let over = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (dispatch, over) = (dispatch.clone(), Arc::clone(&over));
            thread::spawn(move || {
                with_default(&dispatch, || {
                    while !over.load(Ordering::Relaxed) {
                        let _outer = info_span!("outer", n = 1).entered();
                        let _inner = info_span!("inner").entered();
                        info!("an event");
                        drop(HOST.host());
                    }
                });
            })
        })
        .collect();
    let mut begun = 0;
    for _ in 0..20 {
        let (session, sink) = memory();
        thread::sleep(Duration::from_millis(5));
        let report = session.finish();
        assert_exact(&report);
        begun += report.spans.begun;
        let spans = sink.take_spans();
        assert_eq!(report.spans.recorded, spans.len() as u64);
        assert!(spans.iter().all(|span| span.host.begin_ns <= span.host.end_ns));
    }
    over.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert!(begun > 0);
}

/// Enters its span once more when its thread's locals are destroyed.
struct Last(RefCell<Option<tracing::Span>>);

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(span) = self.0.take() {
            span.in_scope(|| drop(HOST.host()));
        }
    }
}

#[test]
fn spans_in_a_thread_that_is_ending_are_recorded_or_counted() {
    thread_local!(static LAST: Last = const { Last(RefCell::new(None)) });
    let _turn = alone();
    let (report, spans, zones) = recorded(|dispatch| {
        let dispatch = dispatch.clone();
        let program = move || {
            // The registry's locals come first and go last: it panics without them.
            with_default(&Dispatch::new(registry()), || drop(info_span!("other").entered()));
            with_default(&dispatch, || {
                // Before the layer's locals, so that it goes after them.
                LAST.with(|last| last.0.replace(Some(info_span!("last"))));
                drop(info_span!("first").entered());
            });
        };
        thread::spawn(program).join().expect("no panic");
    });
    assert_eq!((report.spans.begun, report.spans.unfinished, zones.len()), (2, 1, 1), "{report}");
    assert_eq!((names(&spans), zones[0].parent), (vec!["first"], None));
}

/// A sink that takes its time.
struct Slow(MemorySink);

impl Sink for Slow {
    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        if let Batch::Spans(_) = batch {
            thread::sleep(Duration::from_millis(20));
        }
        self.0.write(batch)
    }
}

#[test]
fn a_full_buffer_drops_the_newest_and_counts_them() {
    let _turn = alone();
    let dispatch = subscriber();
    let sink = MemorySink::new(1_000_000);
    let session = Session::builder().ring(16).sink(Slow(sink.clone())).start().expect("no other session");
    with_default(&dispatch, || {
        for n in 0..20_000 {
            // What encloses others has its place already; those within find the buffer full.
            let _outer = info_span!("outer", n).entered();
            let _inner = info_span!("inner", n).entered();
        }
    });
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.spans.begun, report.spans.unfinished), (40_000, 0), "{report}");
    assert!(report.spans.buffer_full > 0 && report.spans.recorded > 0, "{report}");
    assert_eq!(report.spans.recorded, sink.take_spans().len() as u64);
}
