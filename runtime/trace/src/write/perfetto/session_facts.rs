//! The facts about the session in a trace: clocks, process, catalog, and the account at the end.
//!
//! The account is one instant that holds every figure by name. Dropped zones are also a counter on the timeline, which is absent if
//! none was dropped.

use super::absolute::AbsoluteSequence;
use super::annotations::{int, text, uint};
use super::proto::{Buffer, attribute, event, packet, track};
use super::track::{Ids, process_track};
use crate::names::{accounts, change_args, change_name};
use warpline_core::clock::now_ns;
use warpline_report::Report;
use warpline_report::sink::{Progress, SessionChange, SessionInfo};

/// Writes the facts about the session and the account.
pub(super) struct SessionFacts {
    pub(super) process_id: u32,
    begin_ns: i64,
    info: SessionInfo,
    /// Whether the current piece of the trace is not the first.
    is_later: bool,
    pub(super) sequence: AbsoluteSequence,
    process: u64,
    /// The group `warpline`, the last of the process's rows.
    pub(super) group: u64,
    /// The row `session` in the group.
    row: u64,
    /// The row `catalog` in the group.
    pub(super) catalog: u64,
}

impl SessionFacts {
    /// Returns the session.
    pub(super) fn info(&self) -> &SessionInfo {
        &self.info
    }

    /// Returns the catalog's hash in the form in which tools print it.
    pub(super) fn catalog_hash(&self) -> String {
        format!("{:#018x}", self.info.catalog_hash())
    }

    /// Returns the time at which this piece of the trace may say something about the whole session.
    pub(super) fn piece_begin_ns(&self) -> i64 {
        if self.is_later { now_ns().max(self.begin_ns) } else { self.begin_ns }
    }

    /// Writes the facts that are known when the session begins.
    pub(super) fn begin(info: &SessionInfo, ids: &mut Ids, buffer: &mut Buffer) -> SessionFacts {
        let facts = SessionFacts {
            process_id: info.process_id,
            begin_ns: info.begin_ns,
            info: info.clone(),
            is_later: false,
            sequence: AbsoluteSequence::new(ids),
            process: process_track(info.process_id),
            group: ids.next(),
            row: ids.next(),
            catalog: ids.next(),
        };
        facts.rows(buffer);
        facts.instant("session begins", info.begin_ns, buffer, |event| {
            text(event, "catalog_hash", &facts.catalog_hash());
            text(event, "warpline_version", env!("CARGO_PKG_VERSION"));
            text(event, "host", &info.host);
            if let Some(boot_id) = &info.boot_id {
                text(event, "boot_id", boot_id);
            }
            if let Some(rank) = info.rank {
                uint(event, "rank", u64::from(rank));
            }
        });
        facts
    }

    /// Writes clocks, process and rows.
    fn rows(&self, buffer: &mut Buffer) {
        self.sequence.begin(&self.info, buffer);
        self.attributes(&self.info, buffer);
        self.sequence.process(&self.info, buffer);
        self.group(self.group, "warpline", i32::MAX as u32, buffer);
        let description = "when the session began and ended, and its account";
        self.sequence.row(self.row, self.group, "session", description, buffer);
    }

    /// Repeats clocks, process and rows in another piece of the trace.
    pub(super) fn again(&mut self, ids: &mut Ids, buffer: &mut Buffer) {
        self.is_later = true;
        self.sequence = AbsoluteSequence::new(ids);
        self.rows(buffer);
    }

    /// Writes that a piece begins or ends: its number, the zones written in earlier pieces and in this one, and the most recent
    /// progress of the session.
    pub(super) fn piece(&self, what: &str, ns: i64, piece: &Piece, buffer: &mut Buffer) {
        self.instant(&format!("piece {} {what}", piece.number), ns.max(self.begin_ns), buffer, |event| {
            text(event, "catalog_hash", &self.catalog_hash());
            int(event, "session_began_ns", self.begin_ns);
            uint(event, "zones.before", piece.before);
            if let Some(zones) = piece.zones {
                uint(event, "zones.in_it", zones);
            }
            let Progress { begun, recorded, captured, dropped, .. } = piece.standing;
            for (name, count) in
                [("begun", begun), ("recorded", recorded), ("captured", captured), ("dropped", dropped)]
            {
                uint(event, &format!("until_then.{name}"), count);
            }
        });
    }

    /// Writes a change of what is recorded.
    pub(super) fn change(&self, change: &SessionChange, buffer: &mut Buffer) {
        self.instant(change_name(&change.what), change.ns, buffer, |event| {
            for (name, value) in change_args(change) {
                text(event, name, &value);
            }
        });
    }

    /// Writes the session's account. `last_ns` is the latest end of a zone.
    pub(super) fn end(&self, report: &Report, last_ns: i64, ids: &mut Ids, buffer: &mut Buffer) {
        let length = i64::try_from(report.duration.as_nanos()).unwrap_or(i64::MAX);
        let end_ns = self.begin_ns.saturating_add(length).max(last_ns);
        let dropped = report.dropped.total();
        let mut counts = vec![("begun", report.begun), ("recorded", report.recorded), ("dropped", dropped)];
        counts.extend((report.captured > 0).then_some(("captured", report.captured)));
        // Only figures that a user must not overlook get a row. All figures are in the account.
        let lost = [
            ("zones dropped", dropped),
            ("spans dropped", report.spans.dropped()),
            ("kernels dropped", report.kernels.lost()),
            ("waits dropped", report.waits.dropped.total()),
        ];
        for (name, count) in lost.into_iter().filter(|(_, count)| *count > 0) {
            // The count is at most 2^63, because it was incremented one by one.
            let points = [(self.begin_ns, 0), (end_ns, count as i64)];
            self.counter(name, points, ids, buffer);
        }
        self.instant("session ends", end_ns, buffer, |event| {
            for (name, count) in counts {
                uint(event, name, count);
            }
            for (reason, count) in report.dropped.reasons() {
                uint(event, &format!("dropped.{reason}"), count);
            }
            for (name, count) in report.said_coverage() {
                uint(event, name, count);
            }
            for (range, seen) in report.said_seen() {
                uint(event, &format!("seen.{range}"), seen);
            }
            for (of, counts) in accounts(report) {
                for (name, count) in counts {
                    uint(event, &format!("{of}.{name}"), count);
                }
            }
            for semaphore in &report.semaphores {
                uint(event, &format!("semaphore {}.waits", semaphore.name), semaphore.waits);
            }
            for device in &report.clocks {
                int(event, &format!("{}.clock_uncertainty_ns", device.device), device.uncertainty_ns);
                int(event, &format!("{}.clock_worst_uncertainty_ns", device.device), device.worst_uncertainty_ns);
                int(event, &format!("{}.bracket_ns", device.device), device.bracket_ns);
                int(event, &format!("{}.busy_bracket_ns", device.device), device.busy_bracket_ns);
                if device.bracket_is_bound {
                    uint(event, &format!("{}.bracket_is_bound", device.device), 1);
                }
            }
            for sink in report.sinks.iter().filter(|sink| sink.errors > 0) {
                uint(event, &format!("{}.lost", sink.name), sink.lost);
                text(event, &format!("{}.error", sink.name), sink.first_error.as_deref().unwrap_or_default());
            }
            for (index, note) in report.notes.iter().enumerate() {
                text(event, &format!("note.{index}"), note);
            }
        });
    }

    /// Describes a group of rows under the process. Groups are necessary because a UI shows the direct children of the process
    /// separately.
    pub(super) fn group(&self, uuid: u64, name: &str, rank: u32, buffer: &mut Buffer) {
        self.sequence.describe(uuid, buffer, |descriptor| {
            descriptor.uint(track::PARENT_UUID, self.process);
            descriptor.text(track::NAME, name);
            descriptor.uint(track::SIBLING_RANK, u64::from(rank));
            descriptor.uint(track::CHILD_ORDERING, track::EXPLICIT);
            descriptor.uint(track::MERGE_BEHAVIOR, track::MERGE_NONE);
        });
    }

    /// Writes the facts about the program as metadata of the trace.
    fn attributes(&self, info: &SessionInfo, buffer: &mut Buffer) {
        self.sequence.packet(buffer, |packet| {
            packet.message(packet::TRACE_ATTRIBUTES, |attributes| {
                let facts = [
                    ("warpline.catalog_hash", Some(self.catalog_hash())),
                    ("warpline.version", Some(env!("CARGO_PKG_VERSION").to_owned())),
                    ("warpline.process_name", Some(info.process_name.clone())),
                    ("warpline.host", Some(info.host.clone())),
                    // Identifies traces that share a clock.
                    ("warpline.boot_id", info.boot_id.clone()),
                    ("warpline.rank", info.rank.map(|rank| rank.to_string())),
                ];
                for (key, value) in facts.into_iter().filter_map(|(key, value)| Some((key, value?))) {
                    attributes.message(attribute::ATTRIBUTE, |attribute| {
                        attribute.text(attribute::KEY, key);
                        attribute.text(attribute::STRING_VALUE, &value);
                    });
                }
            });
        });
    }

    fn instant(&self, name: &str, ns: i64, buffer: &mut Buffer, fill: impl FnOnce(&mut Buffer)) {
        self.sequence.event(self.row, event::INSTANT, ns, buffer, |event| {
            event.text(event::NAME, name);
            event.text(event::CATEGORIES, "session");
            fill(event);
        });
    }

    fn counter(&self, name: &str, points: [(i64, i64); 2], ids: &mut Ids, buffer: &mut Buffer) {
        let uuid = ids.next();
        self.counter_track(uuid, (self.group, name), track::UNIT_COUNT, buffer);
        // A later piece has no data from the session's begin, and this point would extend the piece back to it.
        for (ns, value) in points.into_iter().skip(usize::from(self.is_later)) {
            self.count(uuid, ns, value, buffer);
        }
    }

    /// Describes a counter in a group.
    pub(super) fn counter_track(&self, uuid: u64, (group, name): (u64, &str), unit: u64, buffer: &mut Buffer) {
        self.sequence.describe(uuid, buffer, |descriptor| {
            descriptor.uint(track::PARENT_UUID, group);
            descriptor.text(track::NAME, name);
            descriptor.message(track::COUNTER, |counter| counter.uint(track::COUNTER_UNIT, unit));
        });
    }

    /// Writes the counter's value from this time on.
    pub(super) fn count(&self, uuid: u64, ns: i64, value: i64, buffer: &mut Buffer) {
        self.sequence.event(uuid, event::COUNTER, ns, buffer, |event| event.int(event::COUNTER_VALUE, value));
    }
}

/// The facts about a piece of a trace, in the account.
pub(super) struct Piece {
    /// The number of the piece, from 1.
    pub(super) number: u64,
    /// The number of zones in the pieces before it.
    pub(super) before: u64,
    /// The number of zones in it, once known.
    pub(super) zones: Option<u64>,
    pub(super) standing: Progress,
}
