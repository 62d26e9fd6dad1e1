//! Open zones as a piece of a trace, for the flight recorder: its file shows them even if the program is killed.
//!
//! A zone that has not ended is a slice up to the time of the snapshot, on a row for its stream or thread in the group *open
//! zones*, with `status = open`. The piece has absolute times and interns nothing. The collector writes one ten times a second, and
//! when an incident happens.

use std::collections::HashMap;

use super::absolute::AbsoluteSequence;
use super::annotations::{annotate, annotate_len, int, text, uint, write_value};
use super::proto::{Buffer, event};
use super::track::{Ids, process_track};
use crate::flight::format::{AREA_BYTES, PIECE_HEADER};
use crate::flight::open::{Incident, OpenZone};
use warpline_core::record::open::OpenState;
use warpline_report::sink::SessionInfo;

/// The maximum size of a piece, with some room for the packets at the end.
const ROOM: usize = AREA_BYTES as usize - PIECE_HEADER - 1024;

/// Writes open zones.
pub struct OpenTrace {
    info: SessionInfo,
    ids: Ids,
    /// The tracks: the process, the group of the rows below it, and the group and the row of incidents.
    process: u64,
    group: u64,
    session: [u64; 2],
    /// The name of the group.
    name: &'static str,
    rows: HashMap<String, u64>,
}

/// The maximum number of remembered rows. A program with more rows gets new tracks for them.
const ROWS: usize = 1024;

impl OpenTrace {
    /// Creates a writer that shows open zones in a group with this name. Two groups in one trace have separate rows, because their
    /// slices overlap.
    pub fn new(info: &SessionInfo, name: &'static str) -> OpenTrace {
        // The inverted time gives these ids a different seed from the sink's.
        let mut ids = Ids::new(info.process_id, !info.begin_unix_ns);
        let mut next = || ids.next();
        let (group, session) = (next(), [next(), next()]);
        let process = process_track(info.process_id);
        OpenTrace { info: info.clone(), ids, process, group, session, name, rows: HashMap::new() }
    }

    /// Returns the piece and the number of zones in it. `zones` are ordered, outer zones before inner ones.
    pub fn write(&mut self, now_ns: i64, zones: &[OpenZone], more: u64, incident: Option<&Incident>) -> (Vec<u8>, u64) {
        let mut buffer = Buffer::default();
        let sequence = AbsoluteSequence::new(&mut self.ids);
        sequence.begin(&self.info, &mut buffer);
        sequence.process(&self.info, &mut buffer);
        if let Some(incident) = incident {
            self.incident(sequence, incident, &mut buffer);
        }
        if !zones.is_empty() {
            sequence.row(self.group, self.process, self.name, "", &mut buffer);
        }
        if self.rows.len() > ROWS {
            self.rows.clear();
        }
        let mut said = HashMap::new();
        let mut written = 0;
        for zone in zones {
            let before = buffer.len();
            let uuid = *said.entry(&zone.row).or_insert_with(|| {
                let uuid = *self.rows.entry(zone.row.clone()).or_insert_with(|| self.ids.next());
                sequence.row(uuid, self.group, &zone.row, "", &mut buffer);
                uuid
            });
            write_zone(sequence, uuid, now_ns, zone, &mut buffer);
            if buffer.len() > ROOM {
                buffer.truncate(before);
                break;
            }
            written += 1;
        }
        let more = more + zones.len() as u64 - written;
        if more > 0 {
            sequence.row(self.group, self.process, self.name, "", &mut buffer);
            sequence.event(self.group, event::INSTANT, now_ns, &mut buffer, |event| {
                event.text(event::NAME, "more zones are open");
                event.text(event::CATEGORIES, CATEGORY);
                uint(event, "count", more);
            });
        }
        (buffer.as_bytes().to_vec(), written + more)
    }

    fn incident(&self, sequence: AbsoluteSequence, incident: &Incident, buffer: &mut Buffer) {
        let [group, row] = self.session;
        sequence.row(group, self.process, "warpline: what happened", "", buffer);
        sequence.row(row, group, "what happened", "", buffer);
        sequence.event(row, event::INSTANT, incident.ns, buffer, |event| {
            event.text(event::NAME, &incident.title);
            event.text(event::CATEGORIES, "incident");
            for (name, value) in &incident.args {
                text(event, name, value);
            }
        });
    }
}

fn write_zone(sequence: AbsoluteSequence, row: u64, now_ns: i64, zone: &OpenZone, buffer: &mut Buffer) {
    let open = &zone.open;
    sequence.event(row, event::SLICE_BEGIN, open.begin_ns.min(now_ns), buffer, |event| {
        event.text(event::NAME, zone.name());
        event.text(event::CATEGORIES, CATEGORY);
        for (name, value) in &open.fields {
            // Avoids the names that the sink itself uses.
            let name = if is_said(name) { format!("field.{name}") } else { name.clone() };
            annotate(event, &name, |annotation| write_value(annotation, value, None));
            annotate_len(event, &name, value);
        }
        if let Some(label) = &open.label {
            text(event, "label", label);
        }
        text(event, "status", "open");
        let place = match open.state {
            OpenState::OnThread => "the mark has not ended",
            OpenState::OnStream => "the stream has not come to its end",
        };
        text(event, "open", place);
        int(event, "open_ns", now_ns - open.begin_ns);
        if open.state == OpenState::OnStream {
            int(event, "launch_ns", open.launched_ns - open.begin_ns);
        }
        if let Some(stream) = &zone.stream {
            text(event, "stream", stream);
        }
        text(event, "thread", &zone.thread);
        uint(event, "thread_id", open.thread);
        uint(event, "sequence", open.sequence);
        if let Some(place) = open.place {
            text(event, "began_at", &format!("{}:{}", place.file(), place.line()));
        }
        if let Some(range) = open.range {
            text(event, "description", range.description());
        }
    });
    sequence.event(row, event::SLICE_END, now_ns, buffer, |_| {});
}

/// The category of zones that have not ended, which a sum over zones must not count.
pub(crate) const CATEGORY: &str = "open_zone";

/// The annotations of an open zone other than its fields.
const SAID: [&str; 11] = [
    "began_at",
    "description",
    "label",
    "launch_ns",
    "open",
    "open_ns",
    "sequence",
    "status",
    "stream",
    "thread",
    "thread_id",
];

pub(crate) fn is_said(name: &str) -> bool {
    SAID.contains(&name)
}
