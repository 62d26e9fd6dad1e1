//! Zones as events of `tracing`: what they say, to whom, and that none comes back as a span.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::dispatcher::{Dispatch, with_default};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, info};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Context;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Layer, registry};
use warpline::sink::{Batch, MemorySink, Sink};
use warpline::{HostStream, Session, gpu_zone, host_zone};
use warpline_tests::{alone, in_a_process_of_its_own, this_test};

warpline::range! {
    FREE = "api.logged.free": "A zone that gets fields as it goes.", level = fine;
}

/// With a field of each type, and one whose name the event has for something else.
#[gpu_zone("api.logged.add", fields(n = n, share = 0.5, ok = true, text = "a", range = "taken", shape = [4, 2], tile = [("rows", 8)]), err)]
fn add(stream: &HostStream, n: u64) -> Result<(), String> {
    stream.launch(|| ());
    if n == 0 { Err("nothing to add".to_owned()) } else { Ok(()) }
}

/// Panics.
#[host_zone("api.logged.load")]
fn load() {
    panic!("a mark that panics; the test wants it so");
}

/// An event as a subscriber got it.
#[derive(Clone, Debug)]
struct Got {
    target: &'static str,
    level: Level,
    line: Option<u32>,
    site: usize,
    fields: BTreeMap<&'static str, String>,
}

impl Got {
    fn says(&self, field: &str) -> &str {
        self.fields.get(field).map_or("", String::as_str)
    }
}

/// Keeps events; a clone shares them.
#[derive(Clone, Default)]
struct Retention(Arc<Mutex<Vec<Got>>>);

impl Retention {
    fn take(&self) -> Vec<Got> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<S: Subscriber> Layer<S> for Retention {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields(BTreeMap::new());
        event.record(&mut fields);
        let metadata = event.metadata();
        let (target, level, line) = (metadata.target(), *metadata.level(), metadata.line());
        let site = std::ptr::from_ref(metadata) as usize;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Got { target, level, line, site, fields: fields.0 });
    }
}

struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

#[test]
fn zones_are_events_of_the_subscriber_where_the_session_began() {
    let _turn = alone();
    let (kept, spans) = (Retention::default(), MemorySink::new(1_000));
    let dispatch = Dispatch::new(registry().with(kept.clone()).with(warpline::tracing::layer()));
    let start = || Session::builder().log().sink(spans.clone()).start().expect("no other session");
    let session = with_default(&dispatch, start);
    let stream = HostStream::new("compute");
    add(&stream, 7).expect("it adds");
    add(&stream, 0).expect_err("nothing to add");
    assert!(catch_unwind(AssertUnwindSafe(load)).is_err());
    drop(FREE.zone(&stream).field("rows", 3_u32).field("cols", 4_u32).label("layer 1"));
    stream.synchronize().expect("nothing panics on it");
    let report = session.finish();
    assert_eq!((report.recorded, report.spans.begun), (4, 0), "events of zones are none of the program's: {report}");
    assert!(spans.take_spans().is_empty());

    let got = kept.take();
    let zone = |range: &str, status: &str| {
        let is_it =
            |got: &&Got| got.says("range") == format!("{range:?}") && got.says("status") == format!("{status:?}");
        got.iter().find(is_it).unwrap_or_else(|| panic!("{range} that is {status} in {got:?}"))
    };
    let whole = zone("api.logged.add", "complete");
    assert_eq!((whole.target, whole.level, whole.line.is_some()), ("api", Level::INFO, true));
    let said: Vec<_> = ["message", "stream", "device", "n", "share", "ok", "text", "field.range", "shape", "tile"]
        .map(|name| whole.says(name))
        .into();
    assert_eq!(
        said,
        ["zone ended", "\"compute\"", "\"host\"", "7", "0.5", "true", "\"a\"", "\"taken\"", "[4, 2]", "{rows: 8}"]
    );
    assert!(whole.says("gpu_ns").parse::<i64>().is_ok() && whole.says("launch_ns").parse::<i64>().is_ok(), "{whole:?}");
    assert!(!whole.fields.contains_key("host_ns") && !whole.fields.contains_key("error"), "{whole:?}");
    assert_eq!(zone("api.logged.add", "error").says("error"), "\"nothing to add\"");
    let panicked = zone("api.logged.load", "panicked");
    assert!(panicked.says("host_ns").parse::<i64>().is_ok() && !panicked.fields.contains_key("gpu_ns"), "{panicked:?}");
    let free = zone("api.logged.free", "complete");
    assert_eq!(
        (free.level, free.says("fields"), free.says("label")),
        (Level::DEBUG, "\"rows=3 cols=4\"", "\"layer 1\"")
    );
    let last = got.last().expect("the account");
    assert_eq!(
        (last.target, last.says("message"), last.says("begun"), last.says("recorded")),
        ("warpline", "session ended", "4", "4")
    );

    // The next session's events come from the same sites, and a filter sees their targets.
    let filtered = Retention::default();
    let only = Targets::new().with_target("api", Level::INFO);
    let dispatch = Dispatch::new(registry().with(filtered.clone().with_filter(only)));
    let session = with_default(&dispatch, || {
        Session::builder().settings("log").expect("a setting").start().expect("no other session")
    });
    add(&stream, 1).expect("it adds");
    drop(FREE.zone(&stream));
    stream.synchronize().expect("nothing panics on it");
    session.finish();
    let again = filtered.take();
    assert_eq!((again.len(), again[0].site), (1, whole.site), "{again:?}");
}

/// Logs what it gets, as a sink of a program's own may.
struct Chatty;

impl Sink for Chatty {
    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        if batch.zones().is_empty() {
            return Ok(());
        }
        let _span = tracing::info_span!("in the sink").entered();
        info!("{} zones", batch.zones().len());
        Ok(())
    }
}

#[test]
fn with_no_subscriber_at_the_start_the_global_one_gets_them_and_nothing_feeds_itself() {
    if !in_a_process_of_its_own(this_test!()) {
        return;
    }
    let kept = Retention::default();
    let session = Session::builder().log().sink(Chatty).start().expect("no other session");
    tracing::subscriber::set_global_default(registry().with(kept.clone()).with(warpline::tracing::layer()))
        .expect("the only one that is global");
    drop(FREE.host());
    let report = session.finish();
    let got = kept.take();
    let messages: Vec<_> = got.iter().map(|got| got.says("message")).collect();
    assert!(messages.contains(&"zone ended") && messages.contains(&"1 zones"), "{messages:?}");
    assert_eq!(report.spans.begun, 0, "what sinks do is not the program's: {report}");
}

/// A subscriber that panics at each event.
struct Faulty;

impl<S: Subscriber> Layer<S> for Faulty {
    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        panic!("a subscriber that panics; the test wants it so");
    }
}

#[test]
fn a_subscriber_that_panics_costs_its_own_events_only() {
    let _turn = alone();
    let (dispatch, zones) = (Dispatch::new(registry().with(Faulty)), MemorySink::new(1_000));
    let start = || Session::builder().log().sink(zones.clone()).start().expect("no other session");
    let session = with_default(&dispatch, start);
    (0..10).for_each(|_| drop(FREE.host()));
    let report = session.finish();
    assert_eq!((report.recorded, zones.take().len()), (10, 10));
    let log = report.sinks.iter().find(|sink| sink.name == "log").expect("the sink");
    assert_eq!((log.lost, log.first_error.as_deref()), (10, Some("it panicked")), "{report}");
}
