//! The layer itself: what the subscriber calls.
//!
//! It must never hold anything of the subscriber's while code of the user's runs: the `Debug` of a field may make spans.

use std::num::NonZeroU32;
use std::sync::Arc;

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::TracingLayer;
use super::open::{self, Open};
use super::queue::{Ended, Place};
use super::values::{Values, merge, values};
use crate::clock::now_ns;
use crate::record::{Span, SpanRef};
use crate::stream::thread;
use crate::switch;

/// The fields of a span, as they are kept with it.
struct Known(Values);

impl<S> Layer<S> for TracingLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, subscriber: Context<'_, S>) {
        if recording().is_none() || attributes.is_empty() {
            return;
        }
        let fields = values(|visitor| attributes.record(visitor));
        if let Some(span) = subscriber.span(id) {
            span.extensions_mut().replace(Known(fields.into()));
        }
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, subscriber: Context<'_, S>) {
        if recording().is_none() {
            return;
        }
        let later = values(|visitor| record.record(visitor));
        let Some(span) = subscriber.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let known = extensions.get_mut::<Known>().map(|Known(known)| merge(known, &later));
        extensions.replace(Known(known.unwrap_or_else(|| later.into())));
    }

    fn on_event(&self, event: &Event<'_>, subscriber: Context<'_, S>) {
        let Some(epoch) = recording() else { return };
        let begin_ns = now_ns();
        let fields = values(|visitor| event.record(visitor));
        let parent = subscriber.event_span(event).map(|span| SpanRef { name: span.name(), id: span.id().into_u64() });
        if let Some(place) = place(epoch) {
            let host = Span { begin_ns, end_ns: begin_ns };
            let (metadata, sequence) = (event.metadata(), place.sequence);
            place.publish(Ended {
                metadata,
                id: None,
                parent,
                thread: thread_id(),
                sequence,
                host,
                fields: fields.into(),
            });
        }
    }

    fn on_enter(&self, id: &Id, subscriber: Context<'_, S>) {
        let Some(epoch) = recording() else { return };
        let Some(metadata) = subscriber.metadata(id) else { return };
        let place = place(epoch);
        open::enter(Open { metadata, id: id.into_u64(), place, begin_ns: now_ns() });
    }

    /// Also after the session's end, so that no span that was entered before stays open.
    fn on_exit(&self, id: &Id, subscriber: Context<'_, S>) {
        if open::is_empty() {
            return;
        }
        let end_ns = now_ns();
        let Some(span) = subscriber.span(id) else { return };
        let Some(Open { metadata, id, begin_ns, place }) = open::exit(id.into_u64(), span.metadata()) else { return };
        let Some(place) = place else { return };
        let parent = span.parent().map(|parent| SpanRef { name: parent.name(), id: parent.id().into_u64() });
        let fields = span.extensions().get::<Known>().map(|Known(fields)| Arc::clone(fields)).unwrap_or_default();
        let (host, sequence) = (Span { begin_ns, end_ns }, place.sequence);
        place.publish(Ended { metadata, id: Some(id), parent, thread: thread_id(), sequence, host, fields });
    }
}

/// The session that records what this thread does now: one relaxed load where there is none.
#[inline]
fn recording() -> Option<NonZeroU32> {
    let epoch = switch::epoch()?;
    (!open::is_muted()).then_some(epoch)
}

#[inline]
fn place(epoch: NonZeroU32) -> Option<Place> {
    thread::with(|thread| thread.span_queue(epoch))?.place()
}

#[inline]
fn thread_id() -> u64 {
    thread::with(|thread| thread.id)
}
