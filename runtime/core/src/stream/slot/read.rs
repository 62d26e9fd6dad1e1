//! What the collector reads of a slot: a zone that is complete becomes a record.

use std::sync::Arc;

use super::{Extras, Slot, Ticket};
use crate::backend::{BackendError, EventPair, Reading};
use crate::catalog::RangeSpec;
use crate::fields::Fields;
use crate::record::{EndSource, Shares, Span, StreamInfo, ThreadInfo, ZoneRecord};

/// A zone that was read and waits for its times.
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

    /// Adds the zone and its entries to a batch of records, and answers the request for the zone. What the zone owns moves out of the slot.
    /// `reading` is its time on the GPU, and what its events add.
    #[inline]
    pub fn read_into(
        &mut self,
        batch: &mut Vec<ZoneRecord>,
        range: &'static RangeSpec,
        thread: Arc<ThreadInfo>,
        stream: Option<Arc<StreamInfo>>,
        reading: Option<(Reading, i64)>,
    ) {
        // A record is large, so it is made where it stays.
        batch.push(self.take_record(range, thread, stream, reading));
        if let (Some(extras), Some(record)) = (self.extras_to_take(), batch.last()) {
            if let Some(ticket) = extras.ticket.take() {
                ticket.complete(record);
            }
            let entries = extras.take_entries(record);
            batch.extend(entries);
        }
    }

    /// Returns the zone, its entries and the request for it. What the zone owns moves out of the slot.
    pub fn read(
        &mut self,
        range: &'static RangeSpec,
        thread: Arc<ThreadInfo>,
        stream: Option<Arc<StreamInfo>>,
        reading: Option<(Reading, i64)>,
    ) -> ReadZone {
        let record = self.take_record(range, thread, stream, reading);
        let (mut entries, mut ticket) = (Vec::new(), None);
        if let Some(extras) = self.extras_to_take() {
            (entries, ticket) = (extras.take_entries(&record), extras.ticket.take());
        }
        ReadZone { record, entries, ticket, nests: self.nests }
    }

    /// Returns the zone as plain data.
    #[inline]
    fn take_record(
        &mut self,
        range: &'static RangeSpec,
        thread: Arc<ThreadInfo>,
        stream: Option<Arc<StreamInfo>>,
        reading: Option<(Reading, i64)>,
    ) -> ZoneRecord {
        let mut gpu = reading.map(|(reading, _)| reading.gpu);
        let begin_late_by_ns = gpu.as_mut().filter(|_| self.begin_at_launch).map_or(0, |gpu| {
            let waited_ns = gpu.overlap_ns(self.host);
            gpu.begin_ns += waited_ns;
            waited_ns
        });
        let (host, sampled, status) = (self.host, self.sampled, self.status);
        let (depth, sequence) = (self.depth, self.sequence);
        let extras = self.extras_to_take();
        let parent = extras.as_ref().and_then(|extras| extras.parent);
        let (error, fields, message) = extras.map_or((None, Fields::default(), None), |extras| {
            (extras.error.take(), extras.fields.take(), extras.message.take().map(Box::new))
        });
        ZoneRecord {
            range,
            stream,
            thread,
            depth,
            parent,
            sequence,
            host,
            gpu,
            begin_late_by_ns,
            end: reading.map_or(EndSource::Event, |(reading, _)| reading.end),
            sample_share: sampled.share(),
            window: sampled.window(),
            end_early_by_ns: reading.map_or(0, |(reading, _)| reading.end_early_by_ns),
            bracket_ns: reading.map_or(0, |(_, bracket_ns)| bracket_ns),
            status,
            error,
            fields,
            message,
            entry: None,
        }
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

impl Extras {
    /// Returns the records of the entries, which share the times of the batch.
    fn take_entries(&mut self, batch: &ZoneRecord) -> Vec<ZoneRecord> {
        if self.entries.is_empty() {
            return Vec::new();
        }
        let shares = Shares::new(&self.entries);
        let entries = self.entries.drain(..).enumerate();
        entries.map(|(index, (range, message))| shares.entry(index, range, message, batch)).collect()
    }
}
