//! Converts steps of the program to slices, on a track of the process.
//!
//! A process has one sequence of steps, so no two of them overlap.

use super::annotations::uint;
use super::proto::{Buffer, event};
use super::tables::Tables;
use super::track::process_track;
use warpline_core::step::StepRecord;

/// The track of the steps.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// The track, and the piece of the trace that last described it.
    track: Option<(u64, u32)>,
}

impl Steps {
    /// Writes a step.
    pub(super) fn write(&mut self, record: &StepRecord, tables: &mut Tables, buffer: &mut Buffer) {
        let Tables { session, facts, end_ns, .. } = tables;
        *end_ns = (*end_ns).max(record.host.end_ns);
        let uuid = session.ids.derive("steps");
        if self.track != Some((uuid, session.piece)) {
            self.track = Some((uuid, session.piece));
            let description = "the steps of the program, on the thread that began them";
            facts.sequence.row(uuid, process_track(facts.process_id), "steps", description, buffer);
        }
        facts.sequence.event(uuid, event::SLICE_BEGIN, record.host.begin_ns, buffer, |event| {
            event.text(event::NAME, &format!("step {}", record.number));
            event.text(event::CATEGORIES, "step");
            uint(event, "step", record.number);
        });
        facts.sequence.event(uuid, event::SLICE_END, record.host.end_ns, buffer, |_| ());
    }
}
