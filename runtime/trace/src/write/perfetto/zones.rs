//! Converts zones to slices: the hot path of the sink.
//!
//! The sink calls this module for each zone. Once the tables know all names and rows, it must not allocate, except for the
//! arguments of a collective and for the length of a list or map that was cut.

use super::annotations::{DESCRIPTION, END, ERROR, LABEL, STATUS, Words, annotate, annotate_len, write_value};
use super::category::Category;
use super::intern::Numbers;
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
            let words = (&mut self.texts, &self.words);
            return write_zone(lane, range, record, (record.host, false), words, buffer, |event| {
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
        write_zone(lane, range, record, (gpu, true), (&mut self.texts, &self.words), buffer, |event| {
            if !is_entry {
                event.fixed(of_zone, flow);
            }
        });
    }
}

impl Tables {
    /// Writes a slice over the time in which it is not known whether a zone still ran, inside the zone's slice: a reader sees that the zone's
    /// length is only a bound. Nothing is written if another slice reaches into that time.
    pub(super) fn tail(&mut self, record: &ZoneRecord, buffer: &mut Buffer) {
        let (Some(stream), Some(gpu), Some(tail)) = (&record.stream, record.gpu, record.uncertain_tail()) else {
            return;
        };
        let stream = self.stream(stream, buffer);
        let row = self.own_lane(stream, record, buffer);
        let Some(lane) = self.tracks[row].at_end(gpu, tail, &self.session) else { return };
        let id = self.texts.text(END_EARLY);
        if let Some(id) = id {
            lane.define_name(id, END_EARLY, buffer);
        }
        lane.define_category(Category::NotTimed, buffer);
        lane.slice(tail, buffer, |event| {
            event.text(event::NAME, NOT_TIMED);
            Category::NotTimed.write(event);
            annotate(event, id, END_EARLY, |annotation| annotation.int(annotation::INT, record.end_early_by_ns));
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
    (texts, words): (&mut Numbers, &Words),
    buffer: &mut Buffer,
    fill: impl FnOnce(&mut Buffer),
) {
    let category = if on_stream { Category::of_zone(record) } else { Category::HostZone };
    lane.define_category(category, buffer);
    let (label, error) = (record.fields.label(), record.error.as_deref());
    let status = (record.status != Status::Complete).then_some(record.status);
    let mut define = |id: Option<u32>, name: &str| {
        if let Some(id) = id {
            lane.define_name(id, name, buffer);
        }
    };
    define(words.description, DESCRIPTION);
    if label.is_some() {
        define(words.label, LABEL);
    }
    if status.is_some() {
        define(words.status, STATUS);
    }
    if error.is_some() {
        define(words.error, ERROR);
    }
    let is_without_span = matches!(record.end, EndSource::NoWork | EndSource::Lost);
    let end = ((on_stream && record.end != EndSource::Event) || is_without_span).then_some(record.end);
    if end.is_some() {
        define(words.end, END);
    }
    // A zone without a time on a stream has no quality of that time, but may be one of a sample.
    let is_said = |name: &str| on_stream || name == WINDOW;
    let mut quality =
        record.quality().map(|said| said.filter(|(name, _)| is_said(name)).map(|(name, ns)| (name, ns, None)));
    for (name, _, id) in quality.iter_mut().flatten() {
        *id = texts.text(name);
        if let Some(id) = *id {
            lane.define_name(id, name, buffer);
        }
    }
    let sampled = record.sampled().map(|share| (share, texts.text(SAMPLED)));
    if let Some((_, Some(id))) = sampled {
        lane.define_name(id, SAMPLED, buffer);
    }
    let parent = record.parent.map(|parent| words.define_parent(parent, lane, texts, buffer));
    let message: Vec<_> = record
        .message
        .iter()
        .flat_map(|message| message.arguments())
        .map(|(name, said)| Argument::define(name, said, lane, texts, buffer))
        .collect();
    let mut names = [None; MAX_FIELDS];
    let mut values = [None; MAX_FIELDS];
    for ((name, value), (name_id, value_id)) in record.fields.iter().zip(names.iter_mut().zip(&mut values)) {
        let name = arg_name(record, name);
        *name_id = texts.text(name);
        if let Some(id) = *name_id {
            lane.define_name(id, name, buffer);
        }
        if let Value::Str(text) = value {
            *value_id = texts.text(text);
            if let Some(id) = *value_id {
                lane.define_text(id, text, buffer);
            }
        }
    }
    lane.slice(span, buffer, |event| {
        write_range(range, event);
        category.write(event);
        for ((name, value), (name_id, value_id)) in record.fields.iter().zip(names.iter().zip(&values)) {
            let name = arg_name(record, name);
            annotate(event, *name_id, name, |annotation| write_value(annotation, value, *value_id));
            annotate_len(event, name, value);
        }
        if let Some(label) = label {
            annotate(event, words.label, LABEL, |annotation| annotation.text(annotation::STRING, label));
        }
        if let Some(status) = status {
            annotate(event, words.status, STATUS, |annotation| annotation.text(annotation::STRING, status.as_str()));
        }
        if let Some(error) = error {
            annotate(event, words.error, ERROR, |annotation| annotation.text(annotation::STRING, error));
        }
        if let Some(end) = end {
            annotate(event, words.end, END, |annotation| annotation.text(annotation::STRING, end.as_str()));
        }
        if let Some(parent) = parent {
            words.write_parent(parent, event);
        }
        for (name, ns, id) in quality.into_iter().flatten() {
            annotate(event, id, name, |annotation| annotation.int(annotation::INT, ns));
        }
        if let Some((share, id)) = sampled {
            annotate(event, id, SAMPLED, |annotation| annotation.double(annotation::DOUBLE, share));
        }
        message.iter().for_each(|argument| argument.write(event));
        if let Some(bandwidth) = record.bandwidth() {
            let figures = [Some((ALGBW, bandwidth.algorithm)), bandwidth.bus.map(|bus| (BUSBW, bus))];
            for (name, bytes_per_s) in figures.into_iter().flatten() {
                annotate(event, None, name, |annotation| annotation.double(annotation::DOUBLE, bytes_per_s * 1e-9));
            }
        }
        let (work, rates) = (record.work(), record.work_rates());
        for (name, amount) in [(BYTES, work.bytes), (FLOPS, work.flops)] {
            if let Some(amount) = amount {
                annotate(event, None, name, |annotation| annotation.uint(annotation::UINT, amount));
            }
        }
        let rates = [(GB_PER_S, rates.bytes_per_s, 1e-9), (TFLOP_PER_S, rates.flops_per_s, 1e-12)];
        for (name, rate, unit) in rates {
            if let Some(rate) = rate {
                annotate(event, None, name, |annotation| annotation.double(annotation::DOUBLE, rate * unit));
            }
        }
        annotate(event, words.description, DESCRIPTION, |annotation| {
            annotation.uint(annotation::STRING_IID, description_iid(u64::from(range)));
        });
        fill(event);
    });
}

/// An argument of a collective, with the numbers of its name and of its text.
struct Argument {
    name: &'static str,
    name_id: Option<u32>,
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
        let name_id = texts.text(name);
        if let Some(id) = name_id {
            lane.define_name(id, name, buffer);
        }
        let shared = match &said {
            ArgumentValue::Value(Value::Str(word)) => texts.text(word).map(|id| (id, *word)),
            said => said.shared().and_then(|(text, words)| Some((texts.of_group(text)?, words))),
        };
        if let Some((id, words)) = shared {
            lane.define_text(id, words, buffer);
        }
        let text_id = shared.map(|(id, _)| id);
        Argument { name, name_id, value: text_id.is_none().then(|| said.value()), text_id }
    }

    fn write(&self, event: &mut Buffer) {
        annotate(event, self.name_id, self.name, |annotation| match (&self.value, self.text_id) {
            (Some(value), _) => write_value(annotation, value, None),
            (None, Some(id)) => annotation.uint(annotation::STRING_IID, text_iid(u64::from(id))),
            (None, None) => {}
        });
    }
}
