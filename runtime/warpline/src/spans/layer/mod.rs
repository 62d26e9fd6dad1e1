//! The layer that the subscriber calls. `open` tracks the spans that each thread is in, `values` converts fields to values, and `log` emits
//! zones as events of `tracing`.
//!
//! It must never hold a lock or a span of the subscriber while user code runs, because the `Debug` of a field may create spans.

pub(crate) mod log;
mod open;
mod values;

use std::num::NonZeroU32;
use std::sync::Arc;

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::TracingLayer;
pub(crate) use open::mute;
pub(super) use open::observe;

use open::OpenSpan;
use values::{Values, merge, values};
use warpline_core::caught::caught;
use warpline_core::clock::now_ns;
use warpline_core::record::{Span, SpanRef};
use warpline_core::stream::spans::{Ended, SpanPermit};
use warpline_core::stream::thread;
use warpline_core::switch;

/// The fields of a span, in its extensions.
struct SpanFields(Values);

impl<S> Layer<S> for TracingLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, subscriber: Context<'_, S>) {
        if recording().is_none() || attributes.is_empty() {
            return;
        }
        let fields = values(|visitor| attributes.record(visitor));
        let Some(span) = subscriber.span(id) else { return };
        unpoisoned(|| span.extensions_mut().replace(SpanFields(fields.into())));
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, subscriber: Context<'_, S>) {
        if recording().is_none() {
            return;
        }
        let later = values(|visitor| record.record(visitor));
        let Some(span) = subscriber.span(id) else { return };
        unpoisoned(|| {
            let mut extensions = span.extensions_mut();
            let known = extensions.get_mut::<SpanFields>().map(|SpanFields(known)| merge(known, &later));
            extensions.replace(SpanFields(known.unwrap_or_else(|| later.into())))
        });
    }

    fn on_event(&self, event: &Event<'_>, subscriber: Context<'_, S>) {
        let Some(epoch) = recording() else { return };
        let begin_ns = now_ns();
        let fields = values(|visitor| event.record(visitor));
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
        open::enter(OpenSpan { metadata, id: id.into_u64(), thread, place, begin_ns: now_ns() });
    }

    /// Runs also after the session's end, so that no span that was entered before stays open.
    fn on_exit(&self, id: &Id, subscriber: Context<'_, S>) {
        if open::is_empty() {
            return;
        }
        let end_ns = now_ns();
        let Some(span) = subscriber.span(id) else { return };
        let Some(open) = open::exit(id.into_u64(), span.metadata()) else { return };
        let Some(place) = open.place else { return };
        let parent = span.parent().map(|parent| SpanRef { name: parent.name(), id: parent.id().into_u64() });
        let fields = unpoisoned(|| span.extensions().get::<SpanFields>().map(|SpanFields(fields)| Arc::clone(fields)));
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
