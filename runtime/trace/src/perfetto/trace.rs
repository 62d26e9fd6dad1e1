//! A trace while it is written: the tables that all kinds of records share, its begin, its pieces and its end.
//!
//! The sinks call it with each batch; what a record of each kind becomes stands in a file of its own.

use super::kernels::Kernels;
use super::proto::Buffer;
use super::replays::Replays;
use super::session_facts::Piece;
use super::tables::Tables;
use super::waits::Queues;
use crate::lanes::{Order, Spanned};
use crate::written::Marks;
use warpline_core::kernel::KernelRecord;
use warpline_core::record::{SpanRecord, ZoneRecord};
use warpline_core::replay::ReplayRecord;
use warpline_core::report::Report;
use warpline_core::sink::{Batch, SessionChange, SessionInfo};
use warpline_core::wait::{QueueDepth, WaitRecord};

/// Everything that is known of a trace while it is written.
pub(super) struct Trace {
    tables: Tables,
    kernels: Kernels,
    replays: Replays,
    queues: Queues,
    pub(super) order: Order,
}

impl Trace {
    /// Begins a trace.
    pub(super) fn begin(info: &SessionInfo, buffer: &mut Buffer) -> Trace {
        Trace {
            tables: Tables::begin(info, buffer),
            kernels: Kernels::default(),
            replays: Replays::default(),
            queues: Queues::default(),
            order: Order::default(),
        }
    }

    /// Ends it with the report.
    pub(super) fn end(&mut self, report: &Report, buffer: &mut Buffer) {
        let Tables { facts, session, end_ns, .. } = &mut self.tables;
        facts.end(report, *end_ns, &mut session.ids, buffer);
    }

    /// Begins another piece, which can be read without those before it: all that packets refer to is said again in it.
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

    /// Writes a batch, and marks where each record ends.
    pub(super) fn write(&mut self, batch: Batch<'_>, buffer: &mut Buffer, marks: &mut Marks) {
        match batch {
            Batch::Zones(zones) => self.in_order(zones, buffer, marks, Trace::zone),
            Batch::Spans(spans) => self.in_order(spans, buffer, marks, Trace::span),
            Batch::Kernels(kernels) => self.in_order(kernels, buffer, marks, Trace::kernel),
            Batch::Replays(replays) => self.each(replays.iter(), buffer, marks, Trace::replay),
            Batch::Waits(waits) => self.in_order(waits, buffer, marks, Trace::wait),
            Batch::Depths(depths) => self.each(depths.iter(), buffer, marks, Trace::depth),
            Batch::Changes(changes) => changes.iter().for_each(|change| self.change(change, buffer)),
            _ => {}
        }
    }

    /// Writes the outer ones first.
    fn in_order<T: Spanned>(
        &mut self,
        batch: &[T],
        buffer: &mut Buffer,
        marks: &mut Marks,
        write: impl Fn(&mut Trace, &T, &mut Buffer),
    ) {
        let mut order = std::mem::take(&mut self.order);
        self.each(order.outer_first(batch), buffer, marks, write);
        self.order = order;
    }

    fn each<'a, T: 'a>(
        &mut self,
        batch: impl Iterator<Item = &'a T>,
        buffer: &mut Buffer,
        marks: &mut Marks,
        write: impl Fn(&mut Trace, &T, &mut Buffer),
    ) {
        for record in batch {
            write(self, record, buffer);
            marks.end_record(buffer.len());
        }
    }

    #[inline]
    pub(super) fn zone(&mut self, record: &ZoneRecord, buffer: &mut Buffer) {
        self.make_room();
        self.tables.zone(record, buffer);
    }

    #[inline]
    pub(super) fn span(&mut self, record: &SpanRecord, buffer: &mut Buffer) {
        self.make_room();
        self.tables.span(record, buffer);
    }

    pub(super) fn kernel(&mut self, record: &KernelRecord, buffer: &mut Buffer) {
        self.make_room();
        self.kernels.write(record, &mut self.tables, buffer);
    }

    pub(super) fn replay(&mut self, record: &ReplayRecord, buffer: &mut Buffer) {
        self.make_room();
        self.replays.write(record, &mut self.tables, buffer);
    }

    pub(super) fn wait(&mut self, record: &WaitRecord, buffer: &mut Buffer) {
        self.make_room();
        self.tables.wait(record, buffer);
    }

    pub(super) fn depth(&mut self, depth: &QueueDepth, buffer: &mut Buffer) {
        self.queues.write(depth, &mut self.tables, buffer);
    }

    pub(super) fn change(&mut self, change: &SessionChange, buffer: &mut Buffer) {
        self.tables.facts.change(change, buffer);
    }

    /// Forgets tracks if there are too many. Every record begins with it: in the middle of one, places of tracks are in use.
    #[inline]
    fn make_room(&mut self) {
        if self.tables.has_too_many_tracks() {
            self.forget_tracks();
        }
    }

    #[cold]
    fn forget_tracks(&mut self) {
        let places = self.tables.forget_tracks();
        self.kernels.keep(&places);
        self.replays.keep(&places);
    }
}
