//! A trace while it is written: its beginning, its pieces and its end, and the dispatch of each record to the module for its kind.
//!
//! The sinks call it on the collector's thread.

use super::counters::Counters;
use super::kernels::Kernels;
use super::memory::MemoryCounters;
use super::proto::{Buffer, track};
use super::replays::Replays;
use super::session_facts::Piece;
use super::steps::Steps;
use super::syncs::Syncs;
use super::tables::{MOST_TRACKS, Tables};
use crate::write::order::Record;
use warpline_core::wait::QueueDepth;
use warpline_report::Report;
use warpline_report::sink::SessionInfo;

/// The state of a trace while it is written.
pub(super) struct Trace {
    tables: Tables,
    kernels: Kernels,
    syncs: Syncs,
    replays: Replays,
    queues: Counters,
    steps: Steps,
    memory: MemoryCounters,
}

impl Trace {
    /// Begins a trace.
    pub(super) fn begin(info: &SessionInfo, buffer: &mut Buffer) -> Trace {
        Trace {
            tables: Tables::begin(info, buffer),
            kernels: Kernels::default(),
            syncs: Syncs::default(),
            replays: Replays::default(),
            queues: Counters::new("queues", "depth of ", 1, track::UNIT_COUNT),
            steps: Steps::default(),
            memory: MemoryCounters::new(),
        }
    }

    /// Writes as much of the catalog as fits into `most` bytes.
    pub(super) fn catalog(&self, most: usize, buffer: &mut Buffer) {
        let facts = &self.tables.facts;
        facts.catalog(most, facts.piece_begin_ns(), buffer);
    }

    /// Ends the trace with the report.
    pub(super) fn end(&mut self, report: &Report, buffer: &mut Buffer) {
        let Tables { facts, session, end_ns, .. } = &mut self.tables;
        facts.end(report, *end_ns, &mut session.ids, buffer);
    }

    /// Begins another piece that can be read without the earlier ones: it repeats everything that packets refer to.
    pub(super) fn next_piece(&mut self, buffer: &mut Buffer) {
        let Tables { session, facts, devices, .. } = &mut self.tables;
        session.piece += 1;
        facts.again(&mut session.ids, buffer);
        for device in devices.values() {
            facts.group(device.uuid, &device.name, device.rank, buffer);
        }
    }

    /// Writes the account of a piece.
    pub(super) fn piece(&self, what: &str, now_ns: i64, piece: &Piece, buffer: &mut Buffer) {
        self.tables.facts.piece(what, now_ns, piece, buffer);
    }

    /// Writes a record.
    #[inline]
    pub(super) fn record(&mut self, record: Record<'_>, buffer: &mut Buffer) {
        self.make_room();
        let Trace { tables, kernels, syncs, replays, queues, steps, memory } = self;
        match record {
            Record::Zone(zone) => tables.zone(zone, buffer),
            Record::Tail(zone) => tables.tail(zone, buffer),
            Record::Span(span) => tables.span(span, buffer),
            Record::Kernel(kernel) => kernels.write(kernel, tables, buffer),
            Record::Replay(replay) => replays.write(replay, tables, buffer),
            Record::Sync(sync) => syncs.write(sync, tables, buffer),
            Record::Wait(wait) => tables.wait(wait, buffer),
            Record::Depth(QueueDepth { queue, at_ns, depth }) => {
                queues.set(queue, *at_ns, *depth, tables, buffer);
            }
            Record::Step(step) => steps.write(step, tables, buffer),
            Record::Memory(record) => memory.write(record, tables, buffer),
            Record::Change(change) => tables.facts.change(change, buffer),
        }
    }

    /// Forgets tracks if there are too many. Every record begins with this call, because indexes of tracks are in use later in a
    /// record.
    #[inline]
    fn make_room(&mut self) {
        if self.tables.tracks.len() >= MOST_TRACKS {
            self.forget_tracks();
        }
    }

    #[cold]
    fn forget_tracks(&mut self) {
        let places = self.tables.forget_tracks();
        self.kernels.keep(&places);
        self.syncs.keep(&places);
        self.replays.keep(&places);
    }
}
