//! Converts spans and events of `tracing` to slices and instants, on the tracks of their threads.
//!
//! The sink calls this module for each record. Once the tables know all names and rows, it must not allocate.

use super::annotations::{Parent, SPAN_ID, Words, annotate, write_value};
use super::intern::Numbers;
use super::proto::{Buffer, annotation, event};
use super::tables::Tables;
use super::track::{Sequence, site_iid};
use crate::names::plain_arg_name;
use warpline_core::fields::Value;
use warpline_core::record::SpanRecord;

impl Tables {
    pub(super) fn span(&mut self, record: &SpanRecord, buffer: &mut Buffer) {
        self.end_ns = self.end_ns.max(record.host.end_ns);
        let thread = self.thread(&record.thread, buffer);
        let site = self.sites.site(&record.site);
        let Tables { tracks, session, texts, words, names, .. } = self;
        let lane = match record.id {
            Some(_) => tracks[thread].lane(record.host, session, buffer),
            // An instant occupies no time on a lane, so it is written to the lane that has most of its thread's slices.
            None => tracks[thread].first_lane(),
        };
        let args = Args::define(record, lane, (texts, words, names), buffer);
        if let Some(site) = site {
            lane.define_site(site, &record.site, record.id.is_some(), buffer);
        }
        let write = |event: &mut Buffer| {
            write_place(record, site, event);
            args.write(words, event);
        };
        match record.id {
            Some(_) => lane.slice(record.host, buffer, write),
            None => lane.instant(record.host.begin_ns, buffer, write),
        }
    }
}

/// Writes name, category and source. An event is named after its message.
fn write_place(record: &SpanRecord, site: Option<u32>, event: &mut Buffer) {
    match (record.message(), site) {
        (Some(Value::Text(text)), _) => event.text(event::NAME, text),
        (Some(other), _) => event.text(event::NAME, &other.to_string()),
        (None, Some(site)) => event.uint(event::NAME_IID, site_iid(site)),
        (None, None) => event.text(event::NAME, record.site.name),
    }
    if let Some(site) = site {
        event.uint(event::CATEGORY_IIDS, site_iid(site));
    }
    if let Some(site) = site.filter(|_| record.site.file.is_some()) {
        event.uint(event::SOURCE_LOCATION_IID, site_iid(site));
    }
}

/// The fields of a record, with the numbers of their names.
struct Args<'a> {
    record: &'a SpanRecord,
    /// The number of each field's name.
    names: &'a [Option<u32>],
    parent: Option<Parent>,
}

impl<'a> Args<'a> {
    /// Defines on the lane what [`write`](Self::write) refers to.
    fn define(
        record: &'a SpanRecord,
        lane: &mut Sequence,
        (texts, words, names): (&mut Numbers, &Words, &'a mut Vec<Option<u32>>),
        buffer: &mut Buffer,
    ) -> Args<'a> {
        names.clear();
        for (name, _) in record.args() {
            let name = plain_arg_name(name);
            let id = texts.text(name);
            if let Some(id) = id {
                lane.define_name(id, name, buffer);
            }
            names.push(id);
        }
        if let (Some(_), Some(id)) = (record.id, words.span_id) {
            lane.define_name(id, SPAN_ID, buffer);
        }
        let parent = record.parent.map(|parent| words.define_parent(parent, lane, texts, buffer));
        Args { record, names, parent }
    }

    fn write(&self, words: &Words, event: &mut Buffer) {
        for ((name, value), id) in self.record.args().zip(self.names) {
            annotate(event, *id, plain_arg_name(name), |annotation| write_value(annotation, value, None));
        }
        if let Some(id) = self.record.id {
            annotate(event, words.span_id, SPAN_ID, |annotation| annotation.uint(annotation::UINT, id));
        }
        if let Some(parent) = self.parent {
            words.write_parent(parent, event);
        }
    }
}
