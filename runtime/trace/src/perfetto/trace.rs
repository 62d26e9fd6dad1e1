//! A trace while it is written: the tables that all kinds of records share, its begin, its pieces and its end.
//!
//! The sinks call it with each batch; what a record of each kind becomes stands in a file of its own.

use std::collections::HashMap;

use super::annotations::Words;
use super::facts::Facts;
use super::intern::{Numbers, Sites};
use super::kernels::Kernels;
use super::proto::Buffer;
use super::replays::Replays;
use super::rows::{Device, Table};
use super::track::{Ids, Session, Track};
use super::waits::Queues;
use warpline_core::record::DeviceKind;
use warpline_core::report::Report;
use crate::lanes::{Order, OwnLane, Spanned};
use crate::written::Marks;
use warpline_core::sink::{Batch, SessionChange, SessionInfo};

/// Everything that is known of a trace while it is written.
pub(super) struct Trace {
    pub(super) session: Session,
    pub(super) facts: Facts,
    pub(super) ranges: Numbers,
    pub(super) sites: Sites,
    pub(super) texts: Numbers,
    pub(super) words: Words,
    /// Kept, so that its memory is.
    pub(super) names: Vec<Option<u32>>,
    pub(super) kernels: Kernels,
    pub(super) replays: Replays,
    pub(super) queues: Queues,
    pub(super) devices: HashMap<(DeviceKind, u32), Device>,
    pub(super) tracks: Vec<Track>,
    pub(super) streams: Table<u32, usize>,
    pub(super) threads: Table<u64, usize>,
    pub(super) own_lanes: HashMap<(usize, OwnLane), usize>,
    /// Goes up with each track that is looked up.
    pub(super) lookups: u64,
    pub(super) order: Order,
    /// The latest end in the trace.
    pub(super) end_ns: i64,
}

impl Trace {
    /// Begins a trace.
    pub(super) fn begin(info: &SessionInfo, buffer: &mut Buffer) -> Trace {
        let mut ids = Ids::new(info.process_id, info.begin_unix_ns);
        let facts = Facts::begin(info, &mut ids, buffer);
        let mut texts = Numbers::default();
        let words = Words::new(&mut texts);
        Trace {
            session: Session { ids, begin_ns: info.begin_ns, piece: 0, forgotten_until_ns: None },
            facts,
            ranges: Numbers::default(),
            sites: Sites::default(),
            texts,
            words,
            names: Vec::new(),
            kernels: Kernels::default(),
            replays: Replays::default(),
            queues: Queues::default(),
            devices: HashMap::new(),
            tracks: Vec::new(),
            streams: Table::default(),
            threads: Table::default(),
            own_lanes: HashMap::new(),
            lookups: 0,
            order: Order::default(),
            end_ns: info.begin_ns,
        }
    }

    /// Ends it with the report.
    pub(super) fn end(&mut self, report: &Report, buffer: &mut Buffer) {
        self.facts.end(report, self.end_ns, &mut self.session.ids, buffer);
    }

    /// Begins another piece, which can be read without those before it: all that packets refer to is said again in it.
    pub(super) fn next_piece(&mut self, buffer: &mut Buffer) {
        self.session.piece += 1;
        self.facts.again(&mut self.session.ids, buffer);
        for device in self.devices.values() {
            self.facts.group(device.uuid, &device.name, device.rank, buffer);
        }
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

    pub(super) fn change(&mut self, change: &SessionChange, buffer: &mut Buffer) {
        self.facts.change(change, buffer);
    }
}
