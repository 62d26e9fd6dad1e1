//! Converts spans and events of `tracing` to slices and instants, on the tracks of their threads.
//!
//! The sink calls this module for each record. Once the tables know all names and rows, it must not allocate.

use super::annotations::{Parent, annotate, uint, write_value};
use super::intern::Word;
use super::proto::{Buffer, event};
use super::tables::Tables;
use super::track::site_iid;
use crate::names::plain_arg_name;
use warpline_core::fields::Value;
use warpline_core::record::SpanRecord;

impl Tables {
    pub(super) fn span(&mut self, record: &SpanRecord, buffer: &mut Buffer) {
        self.end_ns = self.end_ns.max(record.host.end_ns);
        let thread = self.thread(&record.thread, buffer);
        let site = self.sites.site(&record.site);
        let Tables { tracks, session, texts, names, .. } = self;
        let lane = match record.id {
            Some(_) => tracks[thread].lane(record.host, session, buffer),
            // An instant occupies no time on a lane, so it is written to the lane that has most of its thread's slices.
            None => tracks[thread].first_lane(),
        };
        names.clear();
        names.extend(record.args().map(|(name, _)| lane.word(plain_arg_name(name), texts, buffer)));
        let id = record.id.map(|id| (lane.defined(Word::SPAN_ID, buffer), id));
        let parent = record.parent.map(|parent| Parent::define(parent, lane, texts, buffer));
        if let Some(site) = site {
            lane.define_site(site, &record.site, record.id.is_some(), buffer);
        }
        let write = |event: &mut Buffer| {
            write_place(record, site, event);
            for ((_, value), word) in record.args().zip(&*names) {
                annotate(event, *word, |annotation| write_value(annotation, value, None));
            }
            if let Some((word, id)) = id {
                uint(event, word, id);
            }
            if let Some(parent) = &parent {
                parent.write(event);
            }
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
