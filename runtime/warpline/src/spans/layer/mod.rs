//! The layer that the subscriber calls, which also begins and ends the zones of spans with a stream. `open` tracks the spans that each thread is in, `values` converts fields to values, and `log` emits
//! zones as events of `tracing`.
//!
//! It must never hold a lock or a span of the subscriber while user code runs, because the `Debug` of a field may create spans.

pub(crate) mod log;
mod open;
mod values;

use std::num::NonZeroU32;
use std::sync::Arc;

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::TracingLayer;
use super::stream::SharedStream;
pub(crate) use open::mute;
pub(super) use open::observe;

use open::OpenSpan;
use values::{GPU, Recorded, Values, merge, of_event, of_span};
use warpline_core::backend::AsStream;
use warpline_core::clock::now_ns;
use warpline_core::dynamic;
use warpline_core::fields::Value;
use warpline_core::panics::caught;
use warpline_core::record::{Span, SpanRef};
use warpline_core::stream::spans::{Ended, SpanPermit};
use warpline_core::stream::thread;
use warpline_core::switch;
use warpline_core::zone::{Zone, begin};

/// What is known of a span, in its extensions.
#[derive(Default)]
struct KnownSpan {
    values: Values,
    /// The stream of its zones.
    stream: Option<SharedStream>,
}

impl<S> Layer<S> for TracingLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, subscriber: Context<'_, S>) {
        if recording().is_none() || attributes.is_empty() {
            return;
        }
        let Recorded { values, stream, .. } = of_span(|visitor| attributes.record(visitor));
        let Some(span) = subscriber.span(id) else { return };
        unpoisoned(|| span.extensions_mut().replace(KnownSpan { values: values.into(), stream }));
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, subscriber: Context<'_, S>) {
        if recording().is_none() {
            return;
        }
        let later = of_span(|visitor| record.record(visitor));
        let Some(span) = subscriber.span(id) else { return };
        let before = unpoisoned(|| {
            let mut extensions = span.extensions_mut();
            let known = extensions.remove::<KnownSpan>().unwrap_or_default();
            let values = merge(&known.values, &later.values);
            let stream = later.stream.or_else(|| known.stream.clone());
            extensions.insert(KnownSpan { values, stream });
            Some(known)
        });
        drop(span);
        // This may drop a stream, which is code of the program.
        drop(before);
    }

    fn on_event(&self, event: &Event<'_>, subscriber: Context<'_, S>) {
        let Some(epoch) = recording() else { return };
        let begin_ns = now_ns();
        let fields = of_event(|visitor| event.record(visitor));
        let parent = subscriber.event_span(event).map(|span| SpanRef { name: span.name(), id: span.id().into_u64() });
        let (thread, Some(place)) = place(epoch) else { return };
        let (metadata, sequence) = (event.metadata(), place.sequence);
        let host = Span { begin_ns, end_ns: begin_ns };
        place.publish(Ended { metadata, id: None, parent, thread, sequence, host, fields: fields.into() });
    }

    fn on_enter(&self, id: &Id, subscriber: Context<'_, S>) {
        let Some(epoch) = recording() else { return };
        let Some(metadata) = subscriber.metadata(id) else { return };
        let (thread, place) = place(epoch);
        let id_of = id.into_u64();
        let is_kept = open::enter(OpenSpan { metadata, id: id_of, thread, place, begin_ns: now_ns(), zone: None });
        // The zone begins in the span, which is its parent.
        if is_kept && metadata.fields().field(GPU).is_some() {
            let known = || {
                let span = subscriber.span(id)?;
                let extensions = span.extensions();
                let known = extensions.get::<KnownSpan>()?;
                Some((Arc::clone(&known.values), known.stream.clone()?))
            };
            if let Some((values, stream)) = unpoisoned(known) {
                // To ask the program's stream for its handle may panic, and without this layer nothing would ask.
                if let Some(zone) = caught(|| zone(metadata, &values, stream.as_ref())) {
                    open::hold(id_of, zone);
                }
            }
        }
    }

    /// Runs also after the session's end, so that no span that was entered before stays open.
    fn on_exit(&self, id: &Id, subscriber: Context<'_, S>) {
        if open::is_empty() {
            return;
        }
        // It ends before the span does.
        let Some(metadata) = subscriber.metadata(id) else { return };
        drop(open::release(id.into_u64(), metadata));
        let end_ns = now_ns();
        let Some(span) = subscriber.span(id) else { return };
        let Some(open) = open::exit(id.into_u64(), span.metadata()) else { return };
        let Some(place) = open.place else { return };
        let parent = span.parent().map(|parent| SpanRef { name: parent.name(), id: parent.id().into_u64() });
        let fields = unpoisoned(|| span.extensions().get::<KnownSpan>().map(|known| Arc::clone(&known.values)));
        let (host, sequence) = (Span { begin_ns: open.begin_ns, end_ns }, place.sequence);
        let OpenSpan { metadata, id, thread, .. } = open;
        place.publish(Ended {
            metadata,
            id: Some(id),
            parent,
            thread,
            sequence,
            host,
            fields: fields.unwrap_or_default(),
        });
    }
}

/// Begins the zone of a span that this thread has entered.
fn zone(span: &'static Metadata<'static>, values: &[(&'static str, Value)], stream: &dyn AsStream) -> Zone {
    let (file, line) = (span.file().unwrap_or_default(), span.line().unwrap_or_default());
    let range = dynamic::range(span.name(), file, line, span.module_path().unwrap_or(span.target()));
    let Some(builder) = begin(range).and_then(|request| request.on(stream)) else { return Zone::none() };
    values.iter().fold(builder, |builder, (name, value)| builder.field(name, value.clone())).start()
}

/// Returns the result of `access` to the extensions of a span; none if another layer has panicked in them. They panic from then on, and
/// would abort a program that is unwinding.
#[inline]
fn unpoisoned<T>(access: impl FnOnce() -> Option<T>) -> Option<T> {
    caught(access).flatten()
}

/// Returns the session that records this thread now. Without a session, this costs one relaxed load.
#[inline]
fn recording() -> Option<NonZeroU32> {
    let epoch = switch::epoch()?;
    (!open::is_muted()).then_some(epoch)
}

/// Returns this thread's id, and a slot in the session's buffer, if there is one.
#[inline]
fn place(epoch: NonZeroU32) -> (u64, Option<SpanPermit>) {
    let (thread, queue) = thread::with(|thread| (thread.id(), thread.span_queue(epoch)));
    (thread, queue.and_then(|queue| queue.place()))
}
