//! What the collector reads of a slot: a zone that is complete becomes a record.

use std::sync::Arc;

use super::{Slot, Ticket};
use crate::backend::{BackendError, EventPair, Reading};
use crate::catalog::RangeSpec;
use crate::fields::Fields;
use crate::record::{EndSource, Shares, Span, StreamInfo, ThreadInfo, ZoneRecord};

/// A zone that was read.
pub struct ReadZone {
    pub record: ZoneRecord,
    /// The entries of a batch of collectives, which share its times.
    pub entries: Vec<ZoneRecord>,
    /// The ticket of the requester, if the zone was requested.
    pub ticket: Option<Ticket>,
    /// Whether it ends on the thread that began it.
    pub nests: bool,
}

impl ReadZone {
    /// Answers the request for the zone, and adds the zone and its entries to a batch of records.
    #[inline]
    pub fn deliver(self, batch: &mut Vec<ZoneRecord>) {
        if let Some(ticket) = self.ticket {
            ticket.complete(&self.record);
        }
        batch.push(self.record);
        if !self.entries.is_empty() {
            batch.extend(self.entries);
        }
    }
}

impl Slot {
    /// Returns the points on the stream; none in the ring of the host zones.
    #[inline]
    pub fn points(&self) -> Option<&EventPair> {
        self.points.as_ref()
    }

    /// Returns the same, for a reader that takes the times.
    #[inline]
    pub fn points_mut(&mut self) -> Option<&mut EventPair> {
        self.points.as_mut()
    }

    /// Returns the time of the launch.
    #[inline]
    pub fn host(&self) -> Span {
        self.host
    }

    /// Returns the thread of the begin.
    #[inline]
    pub fn thread(&self) -> u64 {
        self.thread
    }

    /// Returns the zone as plain data; what it owns moves out of the slot. `reading` is its time on the GPU, and what its events add.
    #[inline]
    pub fn read(
        &mut self,
        range: &'static RangeSpec,
        thread: Arc<ThreadInfo>,
        stream: Option<Arc<StreamInfo>>,
        reading: Option<(Reading, i64)>,
    ) -> ReadZone {
        let mut gpu = reading.map(|(reading, _)| reading.gpu);
        let begin_late_by_ns = gpu.as_mut().filter(|_| self.begin_at_launch).map_or(0, |gpu| {
            let waited_ns = gpu.overlap_ns(self.host);
            gpu.begin_ns += waited_ns;
            waited_ns
        });
        let mut record = ZoneRecord {
            range,
            stream,
            thread,
            depth: self.depth,
            parent: None,
            sequence: self.sequence,
            host: self.host,
            gpu,
            begin_late_by_ns,
            end: reading.map_or(EndSource::Event, |(reading, _)| reading.end),
            sample_share: self.sampled.share(),
            window: self.sampled.window(),
            end_early_by_ns: reading.map_or(0, |(reading, _)| reading.end_early_by_ns),
            bracket_ns: reading.map_or(0, |(_, bracket_ns)| bracket_ns),
            status: self.status,
            error: None,
            fields: Fields::default(),
            message: None,
            entry: None,
        };
        let (mut entries, mut ticket) = (Vec::new(), None);
        if let Some(extras) = self.extras_to_take() {
            record.parent = extras.parent;
            record.error = extras.error.take();
            record.fields = extras.fields.take();
            record.message = extras.message.take().map(Box::new);
            ticket = extras.ticket.take();
            if !extras.entries.is_empty() {
                let shares = Shares::new(&extras.entries);
                let of_batch = extras.entries.drain(..).enumerate();
                entries.extend(of_batch.map(|(index, (range, message))| shares.entry(index, range, message, &record)));
            }
        }
        ReadZone { record, entries, ticket, nests: self.nests }
    }

    /// Drops a zone whose stream has failed. Returns the number of zones that are lost: the zone and the entries of its batch.
    pub fn lose_to_stream(&mut self, error: &BackendError) -> u64 {
        if let Some(ticket) = self.take_ticket() {
            ticket.fail_stream(&error.to_string());
        }
        1 + self.entries() as u64
    }

    /// Gives up a zone that is still pending at the end of the session: releases its events, and drops its ticket, which notifies the
    /// requester.
    pub fn give_up(&mut self) {
        drop(self.take_ticket());
        if let Some(points) = &mut self.points {
            points.release();
        }
    }
}
