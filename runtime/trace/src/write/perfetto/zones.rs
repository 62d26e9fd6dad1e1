//! Converts zones to slices: the hot path of the sink.
//!
//! The sink calls this module for each zone. Once the tables know all names and rows, it must not allocate, except for the
//! arguments of a collective and for the length of a list or map that was cut.

use super::annotations::{Parent, annotate, annotate_len, double, int, text, uint, write_value};
use super::category::Category;
use super::intern::{Numbers, Word};
use super::proto::{Buffer, annotation, event};
use super::tables::Tables;
use super::track::{Sequence, description_iid, range_iid, text_iid, write_range};
use crate::names::{ALGBW, BUSBW, BYTES, FLOPS, GB_PER_S, TFLOP_PER_S, arg_name};
use warpline_core::collective::arguments::ArgumentValue;
use warpline_core::fields::{MAX_FIELDS, Value};
use warpline_core::record::{EndSource, SAMPLED, Span, Status, WINDOW, ZoneRecord};

impl Tables {
    pub(super) fn zone(&mut self, record: &ZoneRecord, buffer: &mut Buffer) {
        let range = self.ranges.object(record.range);
        let thread = self.thread(&record.thread, buffer);
        self.end_ns = self.end_ns.max(record.host.end_ns);
        let (Some(stream), Some(gpu)) = (&record.stream, record.gpu) else {
            let row = self.own_lane(thread, record, buffer);
            let lane = self.tracks[row].lane(record.host, &mut self.session, buffer);
            lane.define_range(range, record.range, buffer);
            return write_zone(lane, range, record, (record.host, false), &mut self.texts, buffer, |event| {
                event.uint(event::SOURCE_LOCATION_IID, range_iid(range));
            });
        };
        self.end_ns = self.end_ns.max(gpu.end_ns);
        let flow = self.session.ids.next();
        // A flow leads from the earlier event to the later one. If the clocks disagree by more than the time between the launch and
        // the zone, it leads from the zone to the launch, and the clock figures show the disagreement.
        let (of_launch, of_zone) = if record.host.begin_ns <= gpu.begin_ns {
            (event::FLOW_IDS, event::TERMINATING_FLOW_IDS)
        } else {
            (event::TERMINATING_FLOW_IDS, event::FLOW_IDS)
        };

        // The entries of a batch share its launch.
        let is_entry = record.entry.is_some();
        if !is_entry {
            let lane = self.tracks[thread].lane(record.host, &mut self.session, buffer);
            lane.define_range(range, record.range, buffer);
            lane.define_category(Category::Launch, buffer);
            lane.slice(record.host, buffer, |event| {
                write_range(range, event);
                Category::Launch.write(event);
                event.uint(event::SOURCE_LOCATION_IID, range_iid(range));
                event.fixed(of_launch, flow);
            });
        }

        let stream = self.stream(stream, buffer);
        let row = self.own_lane(stream, record, buffer);
        let lane = self.tracks[row].lane(gpu, &mut self.session, buffer);
        lane.define_range(range, record.range, buffer);
        write_zone(lane, range, record, (gpu, true), &mut self.texts, buffer, |event| {
            if !is_entry {
                event.fixed(of_zone, flow);
            }
        });
    }

    /// Writes a slice over the time in which it is not known whether a zone still ran, inside the zone's slice: a reader sees that the zone's
    /// length is only a bound. Nothing is written if another slice reaches into that time.
    pub(super) fn tail(&mut self, record: &ZoneRecord, buffer: &mut Buffer) {
        let (Some(stream), Some(gpu), Some(tail)) = (&record.stream, record.gpu, record.uncertain_tail()) else {
            return;
        };
        let stream = self.stream(stream, buffer);
        let row = self.own_lane(stream, record, buffer);
        let Some(lane) = self.tracks[row].at_end(gpu, tail, &self.session) else { return };
        let early = lane.word(END_EARLY, &mut self.texts, buffer);
        lane.define_category(Category::NotTimed, buffer);
        lane.slice(tail, buffer, |event| {
            event.text(event::NAME, NOT_TIMED);
            Category::NotTimed.write(event);
            int(event, early, record.end_early_by_ns);
        });
    }
}

/// The name of the slice over a time in which it is not known whether a zone still ran.
const NOT_TIMED: &str = "end not timed";

/// The name of the time by which an end may be earlier, as in [`ZoneRecord::quality`].
const END_EARLY: &str = "end_early_by_ns";

/// Writes the slice of a zone with all the zone's data.
#[inline]
pub(super) fn write_zone(
    lane: &mut Sequence,
    range: u32,
    record: &ZoneRecord,
    (span, on_stream): (Span, bool),
    texts: &mut Numbers,
    buffer: &mut Buffer,
    fill: impl FnOnce(&mut Buffer),
) {
    let category = if on_stream { Category::of_zone(record) } else { Category::HostZone };
    lane.define_category(category, buffer);
    let mut own = |word| lane.defined(word, buffer);
    let description = own(Word::DESCRIPTION);
    let label = record.fields.label().map(|label| (own(Word::LABEL), label));
    let status = (record.status != Status::Complete).then(|| (own(Word::STATUS), record.status.as_str()));
    let error = record.error.as_deref().map(|error| (own(Word::ERROR), error));
    let is_without_span = matches!(record.end, EndSource::NoWork | EndSource::Lost);
    let is_end_said = (on_stream && record.end != EndSource::Event) || is_without_span;
    let end = is_end_said.then(|| (own(Word::END), record.end.as_str()));
    // A zone without a time on a stream has no quality of that time, but may be one of a sample.
    let is_said = |name: &str| on_stream || name == WINDOW;
    let mut word = |name| lane.word(name, texts, buffer);
    // Filled in place and read by reference: moving these pairs costs a tenth of the encoder's time.
    let mut quality = record.quality().map(|said| (said, None));
    for (said, id) in &mut quality {
        match said {
            Some((name, _)) if is_said(name) => *id = word(*name).id,
            said => *said = None,
        }
    }
    let sampled = record.sampled().map(|share| (word(SAMPLED), share));
    let parent = record.parent.map(|parent| Parent::define(parent, lane, texts, buffer));
    let message: Vec<_> = record
        .message
        .iter()
        .flat_map(|message| message.arguments())
        .map(|(name, said)| Argument::define(name, said, lane, texts, buffer))
        .collect();
    let mut fields = [(None, None); MAX_FIELDS];
    for ((name, value), field) in record.fields.iter().zip(&mut fields) {
        let word = lane.word(arg_name(record, name), texts, buffer);
        let text = if let Value::Str(text) = value { lane.text(text, texts, buffer) } else { None };
        *field = (word.id, text);
    }
    lane.slice(span, buffer, |event| {
        write_range(range, event);
        category.write(event);
        for ((name, value), &(id, text)) in record.fields.iter().zip(&fields) {
            let word = Word { id, name: arg_name(record, name) };
            annotate(event, word, |annotation| write_value(annotation, value, text));
            annotate_len(event, word.name, value);
        }
        for (word, said) in [label, status, error, end].into_iter().flatten() {
            text(event, word, said);
        }
        if let Some(parent) = &parent {
            parent.write(event);
        }
        for (said, id) in &quality {
            if let Some((name, ns)) = said {
                int(event, Word { id: *id, name }, *ns);
            }
        }
        if let Some((word, share)) = sampled {
            double(event, word, share);
        }
        message.iter().for_each(|argument| argument.write(event));
        if let Some(bandwidth) = record.bandwidth() {
            let figures = [Some((ALGBW, bandwidth.algorithm)), bandwidth.bus.map(|bus| (BUSBW, bus))];
            for (name, bytes_per_s) in figures.into_iter().flatten() {
                double(event, name, bytes_per_s * 1e-9);
            }
        }
        let (work, rates) = (record.work(), record.work_rates());
        for (name, amount) in [(BYTES, work.bytes), (FLOPS, work.flops)] {
            if let Some(amount) = amount {
                uint(event, name, amount);
            }
        }
        let rates = [(GB_PER_S, rates.bytes_per_s, 1e-9), (TFLOP_PER_S, rates.flops_per_s, 1e-12)];
        for (name, rate, unit) in rates {
            if let Some(rate) = rate {
                double(event, name, rate * unit);
            }
        }
        annotate(event, description, |annotation| {
            annotation.uint(annotation::STRING_IID, description_iid(u64::from(range)));
        });
        fill(event);
    });
}

/// An argument of a collective, with the numbers of its name and of its text.
struct Argument {
    word: Word<'static>,
    /// None if the value is a defined text.
    value: Option<Value>,
    text_id: Option<u32>,
}

impl Argument {
    fn define(
        name: &'static str,
        said: ArgumentValue<'_>,
        lane: &mut Sequence,
        texts: &mut Numbers,
        buffer: &mut Buffer,
    ) -> Argument {
        let word = lane.word(name, texts, buffer);
        let shared = match &said {
            ArgumentValue::Value(Value::Str(text)) => texts.text(text).map(|id| (id, *text)),
            said => said.shared().and_then(|(text, words)| Some((texts.of_group(text)?, words))),
        };
        if let Some((id, words)) = shared {
            lane.define_text(id, words, buffer);
        }
        let text_id = shared.map(|(id, _)| id);
        Argument { word, value: text_id.is_none().then(|| said.value()), text_id }
    }

    fn write(&self, event: &mut Buffer) {
        annotate(event, self.word, |annotation| match (&self.value, self.text_id) {
            (Some(value), _) => write_value(annotation, value, None),
            (None, Some(id)) => annotation.uint(annotation::STRING_IID, text_iid(u64::from(id))),
            (None, None) => {}
        });
    }
}
