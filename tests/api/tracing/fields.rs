//! Fields whose texts make spans, panic or never end, and other layers that panic.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::dispatcher::{Dispatch, with_default};
use tracing::{info, info_span};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry;
use warpline_tests::{alone, in_a_process_of_its_own, this_test};

use super::{HOST, assert_exact, field, memory, named, names, text};

/// Its text makes a span, an event and a zone.
struct Nosy;

impl fmt::Debug for Nosy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _span = info_span!("within", text = ?"plain").entered();
        info!("from a field");
        let _zone = HOST.host();
        f.write_str("nosy")
    }
}

struct Panics;

impl fmt::Debug for Panics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("so far ")?;
        panic!("a Debug that panics; the test wants it so")
    }
}

/// Its text panics, and the payload of that panic panics in its `Drop`.
struct PanicsTwice;

impl fmt::Debug for PanicsTwice {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Bomb;

        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("a payload that panics; the test wants it so");
            }
        }

        std::panic::panic_any(Bomb)
    }
}

struct Endless;

impl fmt::Debug for Endless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        loop {
            f.write_str("größe ")?;
        }
    }
}

#[test]
fn fields_may_do_what_they_like() {
    if !in_a_process_of_its_own(this_test!()) {
        return;
    }
    // With the global default nothing keeps a span in a field's text from reaching the layer, so these threads use that.
    tracing::subscriber::set_global_default(registry().with(warpline::tracing::layer()))
        .expect("the only one that is global");
    let (session, sink) = memory();
    {
        let span =
            info_span!("hostile", nosy = ?Nosy, panics = ?Panics, endless = ?Endless, later = tracing::field::Empty);
        let _in = span.enter();
        span.record("later", tracing::field::debug(Nosy));
        info!(panics = ?Panics, twice = ?PanicsTwice, nosy = ?Nosy, "{:?}", Endless);
    }
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.spans.unfinished, report.recorded), (0, 3), "{report}");
    let spans = sink.take_spans();
    let hostile = named(&spans, "hostile");
    assert_eq!((text(hostile, "nosy").as_str(), text(hostile, "later").as_str()), ("nosy", "nosy"));
    assert_eq!(text(hostile, "panics"), "so far (its Debug panicked)");
    assert!(text(hostile, "endless").ends_with("…") && text(hostile, "endless").len() <= 1024);
    let event = spans.iter().find(|span| span.id.is_none() && field(span, "panics").is_some()).expect("the event");
    assert_eq!(text(event, "twice"), "(its Debug panicked)");
    assert!(text(event, "message").ends_with("…") && text(event, "nosy") == "nosy");
    assert_eq!(names(&spans).iter().filter(|name| **name == "within").count(), 3);
}

/// A layer that formats fields with the span's extensions in its hands, as `tracing_subscriber::fmt` does.
struct Formats;

impl<S> tracing_subscriber::Layer<S> for Formats
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    fn on_record(
        &self,
        id: &tracing::span::Id,
        record: &tracing::span::Record<'_>,
        subscriber: tracing_subscriber::layer::Context<'_, S>,
    ) {
        let span = subscriber.span(id).expect("it is there");
        let mut extensions = span.extensions_mut();
        extensions.replace(format!("{record:?}"));
    }
}

#[test]
fn a_panic_in_another_layer_costs_fields_and_no_more() {
    let _turn = alone();
    let dispatch = Dispatch::new(registry().with(Formats).with(warpline::tracing::layer()));
    let (session, sink) = memory();
    let panicked = with_default(&dispatch, || {
        let span = info_span!("poisoned", n = 1, later = tracing::field::Empty);
        let program = || {
            let _in = span.enter();
            span.record("later", tracing::field::debug(Panics));
        };
        // The span is left while the thread unwinds: a second panic there would abort.
        let panicked = catch_unwind(AssertUnwindSafe(program)).is_err();
        span.in_scope(|| drop(HOST.host()));
        panicked
    });
    let report = session.finish();
    assert_exact(&report);
    assert!(panicked, "whose it is, it stays");
    assert_eq!((report.spans.unfinished, names(&sink.take_spans())), (0, vec!["poisoned"; 2]), "{report}");
}
