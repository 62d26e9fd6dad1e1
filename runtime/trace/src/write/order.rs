//! The order in which the records of a batch are written to a trace. The sinks for Perfetto and Chrome use it.

use std::cmp::Reverse;
use std::io;

use warpline_core::kernel::KernelRecord;
use warpline_core::memory::MemoryRecord;
use warpline_core::record::{Span, SpanRecord, ZoneRecord};
use warpline_core::replay::ReplayRecord;
use warpline_core::step::StepRecord;
use warpline_core::synchronization::SyncRecord;
use warpline_core::wait::{QueueDepth, WaitRecord};
use warpline_report::sink::{Batch, SessionChange};

/// One entry of a batch.
#[derive(Clone, Copy)]
pub(super) enum Record<'a> {
    Zone(&'a ZoneRecord),
    /// The time at the end of a zone in which it is not known whether it still ran. It comes after all records of the batch that begin earlier
    /// than it ends.
    Tail(&'a ZoneRecord),
    Span(&'a SpanRecord),
    Kernel(&'a KernelRecord),
    Replay(&'a ReplayRecord),
    Sync(&'a SyncRecord),
    Wait(&'a WaitRecord),
    Depth(&'a QueueDepth),
    Step(&'a StepRecord),
    Memory(&'a MemoryRecord),
    Change(&'a SessionChange),
}

impl Record<'_> {
    /// Whether the record counts as a record of the session, which a sink can lose.
    pub(super) fn is_counted(self) -> bool {
        !matches!(self, Record::Change(_) | Record::Tail(_))
    }
}

/// Sorts the records of a batch. A sink keeps one and reuses its memory.
#[derive(Debug, Default)]
pub(super) struct Order {
    keys: Vec<Key>,
}

impl Order {
    /// Calls `write` with each record of the batch and stops at the first error. Outer slices come before inner ones: if two slices
    /// begin at the same time, a reader takes the first for the outer one.
    ///
    /// # Errors
    /// The error of `write`.
    pub(super) fn each(&mut self, batch: Batch<'_>, write: impl FnMut(Record<'_>) -> io::Result<()>) -> io::Result<()> {
        match batch {
            Batch::Zones(zones) => self.zones(zones).try_for_each(write),
            Batch::Spans(spans) => {
                self.outer_first(spans, |one| (one.host, one.sequence), Record::Span).try_for_each(write)
            }
            Batch::Kernels(kernels) => {
                self.outer_first(kernels, |one| (one.gpu, one.correlation.into()), Record::Kernel).try_for_each(write)
            }
            Batch::Synchronizations(calls) => {
                self.outer_first(calls, |one| (one.host, one.correlation.into()), Record::Sync).try_for_each(write)
            }
            Batch::Replays(replays) => replays.iter().map(Record::Replay).try_for_each(write),
            Batch::Waits(waits) => {
                self.outer_first(waits, |one| (one.span(), one.sequence), Record::Wait).try_for_each(write)
            }
            Batch::Depths(depths) => depths.iter().map(Record::Depth).try_for_each(write),
            Batch::Steps(steps) => steps.iter().map(Record::Step).try_for_each(write),
            Batch::Memory(memory) => memory.iter().map(Record::Memory).try_for_each(write),
            Batch::Changes(changes) => changes.iter().map(Record::Change).try_for_each(write),
            _ => Ok(()),
        }
    }

    /// Returns the zones, outer ones first, and the tails of those whose length is only a bound.
    fn zones<'a>(&mut self, batch: &'a [ZoneRecord]) -> impl Iterator<Item = Record<'a>> {
        let place = |zone: &ZoneRecord| (zone.gpu.unwrap_or(zone.host), zone.sequence);
        self.sort(batch, place, |(index, zone)| {
            // Before what begins where the tail ends.
            let tail = zone.uncertain_tail().filter(|_| zone.entry.is_none())?;
            Some((tail.end_ns, Reverse(i64::MAX), zone.sequence, batch.len() + index))
        });
        self.keys.iter().map(|&(.., index)| match index.checked_sub(batch.len()) {
            None => Record::Zone(&batch[index]),
            Some(index) => Record::Tail(&batch[index]),
        })
    }

    /// Returns the records, outer ones first. `place` returns a record's span, and a number that orders records with equal spans.
    fn outer_first<'a, T>(
        &mut self,
        batch: &'a [T],
        place: impl Fn(&T) -> (Span, u64),
        record: fn(&'a T) -> Record<'a>,
    ) -> impl Iterator<Item = Record<'a>> {
        self.sort(batch, place, |_| None);
        self.keys.iter().map(move |&(.., index)| record(&batch[index]))
    }

    /// Sorts the keys of the records, and those that `more` returns.
    fn sort<T>(&mut self, batch: &[T], place: impl Fn(&T) -> (Span, u64), more: impl Fn((usize, &T)) -> Option<Key>) {
        self.keys.clear();
        self.keys.extend(batch.iter().enumerate().map(|(index, record)| {
            let (Span { begin_ns, end_ns }, sequence) = place(record);
            (begin_ns, Reverse(end_ns), sequence, index)
        }));
        self.keys.extend(batch.iter().enumerate().filter_map(more));
        self.keys.sort_unstable();
    }
}

/// The begin of a record, its end, a number that orders records with equal spans, and its index.
type Key = (i64, Reverse<i64>, u64, usize);
