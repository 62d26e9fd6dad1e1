//! Spans of `tracing` that are zones, because a field has their stream.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tracing::dispatcher::{Dispatch, with_default};
use tracing::{Instrument, info_span, instrument};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry;
use warpline::record::{SpanRecord, ZoneRecord};
use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline::tracing::on_stream;
use warpline::{AsStream, HostStream, Session, Value};
use warpline_tests::alone;

warpline::range! {
    INNER = "api.span_zones.inner": "A zone in a span that is one too.";
}

fn subscriber() -> Dispatch {
    Dispatch::new(registry().with(warpline::tracing::layer()))
}

fn stream() -> Arc<HostStream> {
    Arc::new(HostStream::new("compute"))
}

/// Runs `program` under the layer while a session records it.
fn recorded(program: impl FnOnce(&Dispatch)) -> (Report, Vec<SpanRecord>, Vec<ZoneRecord>) {
    let (dispatch, sink) = (subscriber(), MemorySink::new(10_000));
    let session = Session::builder().sink(sink.clone()).start().expect("no other session");
    with_default(&dispatch, || program(&dispatch));
    let report = session.finish();
    assert_eq!(report.recorded + report.captured + report.dropped.total(), report.begun, "{report}");
    assert_eq!(report.spans.recorded + report.spans.dropped(), report.spans.begun, "{report}");
    (report, sink.take_spans(), sink.take())
}

fn fields(zone: &ZoneRecord) -> Vec<(&str, String)> {
    zone.fields.iter().map(|(name, value)| (name, value.to_string())).collect()
}

#[instrument(skip(stream), fields(gpu = ?on_stream(stream)))]
fn forward(stream: &Arc<HostStream>, tokens: u64) {
    stream.launch(|| thread::sleep(Duration::from_millis(2)));
}

#[test]
fn a_span_with_a_stream_is_a_zone_on_it() {
    let _turn = alone();
    let (report, spans, zones) = recorded(|_| {
        let stream = stream();
        forward(&stream, 7);
        let _outer = info_span!("outer", gpu = ?on_stream(&stream), later = tracing::field::Empty).entered();
        tracing::Span::current().record("later", 5);
        drop(INNER.zone(&stream));
        drop(info_span!("no stream", n = 1).entered());
    });
    assert_eq!((report.recorded, report.spans.recorded), (3, 3), "a span stays a span: {report}");
    let [first, inner, outer] = &zones[..] else { panic!("{zones:?}") };
    assert_eq!((first.range.name(), first.range.module()), ("forward", module_path!()));
    assert!(first.range.file().ends_with("tracing_zones.rs") && first.range.line() > 0);
    assert_eq!((fields(first), first.fields.get("tokens")), (vec![("tokens", "7".into())], Some(&Value::U64(7))));
    assert!(first.gpu_ns().is_some_and(|ns| ns >= 2_000_000), "the time of its work, on its stream: {first:?}");
    assert_eq!(first.stream.as_ref().map(|stream| stream.name.as_str()), Some("compute"));
    let forward = spans.iter().find(|span| span.site.name == "forward").expect("the span");
    assert_eq!(first.parent.map(|parent| Some(parent.id)), Some(forward.id));
    assert!(forward.host.begin_ns <= first.host.begin_ns && first.host.end_ns <= forward.host.end_ns);
    let names: Vec<_> = forward.fields.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["tokens"], "the stream is no text of the span");
    assert_eq!((outer.range.name(), outer.depth, inner.depth), ("outer", 0, 1));
    assert_eq!(inner.parent.map(|parent| parent.name), Some("outer"));
    assert!(fields(outer).is_empty(), "recorded after the zone had begun: {outer:?}");
}

#[test]
fn a_stream_that_is_recorded_later_counts_from_the_next_entry() {
    let _turn = alone();
    let (_, spans, zones) = recorded(|dispatch| {
        let (first, second) = (stream(), stream());
        let task = info_span!("task", n = 3, gpu = tracing::field::Empty);
        task.in_scope(|| ());
        task.record("gpu", tracing::field::debug(on_stream(&first)));
        task.in_scope(|| ());
        thread::scope(|scope| {
            scope.spawn(|| with_default(dispatch, || task.in_scope(|| ()))).join().expect("no panic");
        });
        task.record("gpu", tracing::field::debug(on_stream(&second)));
        // Nothing else holds it.
        drop(first);
        task.in_scope(|| task.in_scope(|| ()));
    });
    assert_eq!((spans.len(), zones.len()), (5, 4));
    assert!(zones.iter().all(|zone| zone.range.name() == "task" && fields(zone) == [("n", "3".to_owned())]));
    let ids: std::collections::BTreeSet<_> = zones.iter().map(|zone| zone.stream.as_ref().map(|of| of.id)).collect();
    let threads: std::collections::BTreeSet<_> = zones.iter().map(|zone| zone.thread.id).collect();
    assert_eq!((ids.len(), threads.len()), (2, 2));
}

#[test]
fn the_span_of_a_future_is_a_zone_for_each_poll() {
    let _turn = alone();
    let (_, _, zones) = recorded(|_| {
        let stream = stream();
        let mut polls = 0;
        let work = std::future::poll_fn(|_| {
            polls += 1;
            if polls < 3 { Poll::Pending } else { Poll::Ready(()) }
        });
        let mut task = pin!(work.instrument(info_span!("decode", gpu = ?on_stream(&stream))));
        while task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
    });
    // One more for the drop of the future, which `Instrumented` does within the span.
    assert_eq!(zones.iter().filter(|zone| zone.range.name() == "decode").count(), 4, "{zones:?}");
}

#[test]
fn spans_that_end_in_any_way_end_their_zones() {
    let _turn = alone();
    let (report, _, zones) = recorded(|dispatch| {
        let stream = stream();
        let span = |name| info_span!("any", gpu = ?on_stream(&stream), name);
        let (first, second) = (span("first").entered(), span("second").entered());
        drop(first);
        drop(second);
        let (dispatch, forgotten) = (dispatch.clone(), span("forgotten"));
        let ended = thread::spawn(move || with_default(&dispatch, || std::mem::forget(forgotten.entered()))).join();
        ended.expect("no panic");
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _span = span("panics").entered();
            std::panic::panic_any(());
        }));
        assert!(unwound.is_err());
    });
    assert_eq!((report.recorded, zones.len()), (4, 4), "{report}");
    let panicked: Vec<_> = zones.iter().filter(|zone| zone.status.as_str() == "panicked").map(fields).collect();
    assert_eq!(panicked, [[("name", "panics".to_owned())]]);
}

#[test]
fn without_a_session_or_behind_a_filter_nothing_holds_the_stream() {
    let _turn = alone();
    let stream = stream();
    let holders = |dispatch: &Dispatch| {
        with_default(dispatch, || {
            let _span = info_span!("idle", gpu = ?on_stream(&stream)).entered();
            Arc::strong_count(&stream)
        })
    };
    assert_eq!(holders(&subscriber()), 1, "no session");
    let sink = MemorySink::new(10);
    let session = Session::builder().sink(sink.clone()).start().expect("no other session");
    let filtered = registry().with(warpline::tracing::layer().with_filter(LevelFilter::WARN));
    assert_eq!(holders(&Dispatch::new(filtered)), 1, "behind a filter");
    assert!(holders(&subscriber()) > 1);
    assert_eq!(Arc::strong_count(&stream), 1, "closed with its span");
    session.finish();
    assert_eq!(sink.take().len(), 1);
}

/// What looks like a stream, or misbehaves as one.
#[derive(Clone)]
struct Odd(Arc<HostStream>);

impl AsStream for Odd {
    fn as_stream(&self) -> warpline::stream::StreamRef<'_> {
        // A stream whose code uses spans itself.
        let _span = info_span!("in the stream", gpu = ?on_stream(&self.0)).entered();
        self.0.as_stream()
    }
}

impl fmt::Debug for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _span = info_span!("in its Debug", gpu = ?on_stream(&self.0)).entered();
        f.write_str("odd")
    }
}

#[test]
fn a_field_of_that_name_with_anything_else_is_a_field() {
    let _turn = alone();
    let (_, spans, zones) = recorded(|_| {
        let odd = Odd(stream());
        info_span!("number", gpu = 3).in_scope(|| ());
        info_span!("text", gpu = ?odd).in_scope(|| ());
        info_span!("other", stream = ?on_stream(&odd.0)).in_scope(|| ());
        info_span!("zone", gpu = ?on_stream(&odd)).in_scope(|| ());
    });
    let said = |name: &str| {
        let span = spans.iter().find(|span| span.site.name == name).expect("a span");
        span.fields.iter().map(|(_, value)| value.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        (said("number"), said("text"), said("other"), said("zone")),
        ("3".into(), "odd".into(), "stream".into(), String::new())
    );
    let zones_of = |name: &str| zones.iter().filter(|zone| zone.range.name() == name).count();
    assert_eq!((zones_of("number"), zones_of("text"), zones_of("other"), zones_of("zone")), (0, 0, 0, 1));
    // `tracing` gives no subscriber to spans that begin while it formats another one.
    assert_eq!((zones_of("in the stream"), zones_of("in its Debug")), (1, 0), "{zones:?}");
}
