//! Counts of everything but zones: fields, spans of `tracing`, kernels, replays of graphs, device memory, and waits of timelines.
//!
//! The collector and the queues count while the session runs; the report and the traces show the counts. Each is complete:
//! everything that began is either recorded or dropped for a reason that is listed here.

use crate::fields::Fields;
use crate::record::is_bound;

/// Returns counts for traces: all of `counts` if there is anything to say, and those of `others` that are not 0.
fn said<const N: usize, const M: usize>(
    is_said: bool,
    counts: [(&'static str, u64); N],
    others: [(&'static str, u64); M],
) -> Vec<(&'static str, u64)> {
    let others = others.into_iter().filter(|(_, count)| *count > 0);
    counts.into_iter().chain(others).filter(|_| is_said).collect()
}

/// Counts of what zones carry and is not recorded whole. Zones in replays of CUDA graphs count in each replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldCounts {
    /// Fields that were cut to their bounds: a text, a list or a map ([`Value::is_cut`](crate::fields::Value::is_cut)).
    pub cut: u64,
    /// Fields that were added to a zone with [`MAX_FIELDS`](crate::fields::MAX_FIELDS) and left out.
    pub left_out: u64,
    /// Zones on the lane `(more)`, because the process has named more than 1,024 lanes.
    pub lanes_left_out: u64,
}

impl FieldCounts {
    /// Adds what one zone carries.
    #[doc(hidden)]
    #[inline]
    pub fn add(&mut self, fields: &Fields) {
        self.cut += fields.iter().filter(|(_, value)| value.is_cut()).count() as u64;
        self.left_out += fields.left_out();
        self.lanes_left_out += u64::from(fields.is_lane_left_out());
    }

    /// Returns the counts for traces: names with values, without those that are 0.
    #[doc(hidden)]
    pub fn to_args(&self) -> Vec<(&'static str, u64)> {
        said(true, [], [("cut", self.cut), ("left_out", self.left_out), ("lanes_left_out", self.lanes_left_out)])
    }
}

/// How the ends of zones on GPU streams were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndCounts {
    /// Zones with a GPU span.
    pub on_streams: u64,
    /// Those whose end is not that of an event right after them: it was found by the next begin on the stream, or by the collector.
    pub found: u64,
    /// The most by which one of these ends may be late, in ns.
    pub latest_ns: i64,
    /// Those among `found` whose end may be late by more than 5 % of the zone's length, which is then only a bound
    /// ([`is_bound`]).
    pub bounded: u64,
}

impl EndCounts {
    /// Adds a zone with a GPU span of this length; `early_by_ns` is how much earlier its end may have been, if it was not that of an event.
    #[doc(hidden)]
    #[inline]
    pub fn add(&mut self, length_ns: i64, early_by_ns: Option<i64>) {
        self.on_streams += 1;
        if let Some(ns) = early_by_ns {
            self.found += 1;
            self.bounded += u64::from(is_bound(length_ns, ns));
            self.latest_ns = self.latest_ns.max(ns);
        }
    }
}

/// Counts of the spans and events of `tracing` in one session. `recorded + dropped() == begun`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// The number of times that a thread entered a span, plus the number of events.
    pub begun: u64,
    /// Spans and events that were delivered to the sinks.
    pub recorded: u64,
    /// Spans and events that were dropped because the buffer was full: they came faster than they were collected.
    pub buffer_full: u64,
    /// Spans that were still entered when the session or their thread ended.
    pub unfinished: u64,
}

impl SpanCounts {
    /// Returns the number of spans and events that began and were not recorded.
    pub fn dropped(&self) -> u64 {
        self.buffer_full + self.unfinished
    }

    /// Returns the counts for traces: names with values; empty if there was no span.
    #[doc(hidden)]
    pub fn to_args(&self) -> Vec<(&'static str, u64)> {
        let counts = [("begun", self.begun), ("recorded", self.recorded), ("dropped", self.dropped())];
        let others = [("dropped.buffer_full", self.buffer_full), ("dropped.unfinished", self.unfinished)];
        said(self.begun > 0, counts, others)
    }
}

/// Zones on GPU streams of a session with [`Timing::Kernels`](crate::timing::Timing::Kernels).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelTimingCounts {
    /// Zones with a GPU span.
    pub timed: u64,
    /// Zones that launched no work.
    pub without_work: u64,
    /// Zones without a GPU span because records of their work are missing.
    pub lost: u64,
}

impl KernelTimingCounts {
    /// Returns the counts for traces: names with values; empty if no zone was timed this way.
    #[doc(hidden)]
    pub fn to_args(&self) -> Vec<(&'static str, u64)> {
        said(
            *self != KernelTimingCounts::default(),
            [("timed", self.timed), ("without_work", self.without_work), ("lost", self.lost)],
            [],
        )
    }
}

/// Counts of kernels and copies in one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounts {
    /// Kernels and copies that were delivered to the sinks.
    pub recorded: u64,
    /// Kernels and copies that CUPTI dropped because it had no room.
    pub dropped: u64,
    /// Kernels and copies without a time: CUPTI could not record it, or the device was still working when the session ended.
    pub untimed: u64,
    /// The number of times that CUPTI requested a buffer while all were in use, and therefore dropped records.
    pub buffers_refused: u64,
    /// The largest error of the position of a kernel on the host's clock, in ns: CUPTI's own, as it was measured, and that of the comparison of
    /// CUPTI's clock with the host's. 0 if it is not known.
    pub uncertainty_ns: i64,
}

impl KernelCounts {
    /// Returns the number of kernels and copies that the device executed and that were not recorded, according to CUPTI.
    pub fn lost(&self) -> u64 {
        self.dropped + self.untimed
    }

    /// Returns the counts for traces: names with values; empty if there was no kernel.
    #[doc(hidden)]
    pub fn to_args(&self) -> Vec<(&'static str, u64)> {
        let counts = [("recorded", self.recorded), ("dropped", self.lost())];
        let others = [
            ("dropped.cupti", self.dropped),
            ("dropped.untimed", self.untimed),
            ("buffers_refused", self.buffers_refused),
            ("uncertainty_ns", self.uncertainty_ns.unsigned_abs()),
        ];
        said(*self != KernelCounts::default(), counts, others)
    }
}

/// Counts of synchronisations in one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncCounts {
    /// Synchronisations that were delivered to the sinks.
    pub recorded: u64,
    /// Records that CUPTI dropped because it had no room. In a session with `kernels`, [`KernelCounts::dropped`] counts them, because CUPTI
    /// does not report their kind.
    pub dropped: u64,
    /// Synchronisations that CUPTI could not time.
    pub untimed: u64,
}

impl SyncCounts {
    /// Returns the number of synchronisations that were not recorded, according to CUPTI.
    pub fn lost(&self) -> u64 {
        self.dropped + self.untimed
    }

    /// Returns the counts for traces: names with values; empty if there was none.
    #[doc(hidden)]
    pub fn to_args(&self) -> Vec<(&'static str, u64)> {
        said(*self != SyncCounts::default(), [("recorded", self.recorded), ("dropped", self.lost())], [])
    }
}

/// Counts of replays that were timed by stamps in one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphTimingCounts {
    /// Replays that stamps have timed.
    pub replays: u64,
    /// Replays of these that the sinks get with the times of their kernels, because CUPTI recorded them as well.
    pub by_kernels: u64,
    /// Zones in these replays.
    pub zones: u64,
    /// Stamps that were read.
    pub stamps: u64,
    /// Stamps that were overwritten before they were read, or that the device never wrote.
    pub lost: u64,
    /// Replays with missing stamps: some were lost, or the device was still working when the session ended.
    pub incomplete: u64,
    /// Replays that ran at the same time as another one of the same graph, and cannot be distinguished from it.
    pub mixed: u64,
    /// Stamps of replays that began while the session was stopped.
    pub stopped: u64,
    /// Stamps of unregistered graphs.
    pub unknown: u64,
    /// Stamps that were captured.
    pub captured: u64,
    /// Begins and ends of zones that share an existing stamp.
    pub shared: u64,
    /// Zones that were captured without stamps, because the module, stream or memory for stamps did not exist yet in their
    /// context.
    pub untimed_not_ready: u64,
    /// Zones that were captured without stamps, because the driver refused one; the capture continues.
    pub untimed_refused: u64,
    /// Zones that began before their capture or ended after it, whose stamp would not be in the graph; and zones on a stream of
    /// another context than the first stamped one of their capture, because the clocks of two devices cannot be compared.
    pub untimed_spanning: u64,
    /// The time that two stamps add to the kernels between them, in ns, on the device with the largest value.
    pub bracket_ns: i64,
    /// The largest uncertainty of a replay's position against the host's clock, in ns.
    pub uncertainty_ns: i64,
}

impl GraphTimingCounts {
    /// Returns the number of zones that were captured and not timed.
    pub fn untimed(&self) -> u64 {
        self.untimed_not_ready + self.untimed_refused + self.untimed_spanning
    }

    /// Returns the counts for traces: names with values; empty if no graph was timed.
    #[doc(hidden)]
    pub fn to_args(&self) -> Vec<(&'static str, u64)> {
        let counts = [("recorded", self.replays), ("stamps", self.stamps)];
        let others = [
            ("by_kernels", self.by_kernels),
            ("stamps_lost", self.lost),
            ("incomplete", self.incomplete),
            ("mixed", self.mixed),
            ("stamps_stopped", self.stopped),
            ("stamps_unknown", self.unknown),
            ("untimed.not_ready", self.untimed_not_ready),
            ("untimed.refused", self.untimed_refused),
            ("untimed.spanning", self.untimed_spanning),
            ("bracket_ns", self.bracket_ns.unsigned_abs()),
            ("uncertainty_ns", self.uncertainty_ns.unsigned_abs()),
        ];
        said(*self != GraphTimingCounts::default(), counts, others)
    }
}

/// The events with which timelines signal on CUDA streams. They are separate from the events of zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventPoolCounts {
    /// The events that exist at the end, in use or free.
    pub held: u64,
    /// The events that were created.
    pub created: u64,
    /// The number of times that a signal found no free event, and its thread created some.
    pub exhausted: u64,
}

impl EventPoolCounts {
    /// Creates the counts.
    #[doc(hidden)]
    pub fn new(held: u64, created: u64, exhausted: u64) -> EventPoolCounts {
        EventPoolCounts { held, created, exhausted }
    }

    /// Returns what happened since these counts.
    #[doc(hidden)]
    pub fn since(self, before: EventPoolCounts) -> EventPoolCounts {
        EventPoolCounts {
            held: self.held,
            created: self.created.saturating_sub(before.created),
            exhausted: self.exhausted.saturating_sub(before.exhausted),
        }
    }

    /// Returns the counts for traces: names with values; empty if there are no events.
    #[doc(hidden)]
    pub fn to_args(&self) -> Vec<(&'static str, u64)> {
        said(
            *self != EventPoolCounts::default(),
            [("held", self.held), ("created", self.created), ("exhausted", self.exhausted)],
            [],
        )
    }
}

/// Counts of the device memory of one session. `recorded + dropped == begun`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryCounts {
    /// Allocations and frees.
    pub begun: u64,
    /// Allocations and frees that were delivered to the sinks.
    pub recorded: u64,
    /// Allocations and frees that were not delivered, because the buffer was full. The figures contain them.
    pub dropped: u64,
    /// Allocations that are in no figure: 65,536 others were known, or the device was not.
    pub untracked: u64,
    /// Frees that are in no figure, because the session does not know the allocation: it was made before the session, or is one of those
    /// above.
    pub unknown: u64,
    /// Allocations of which the program told and that are parts of others, which CUPTI reported in a session with `kernels`. These are in the
    /// figures.
    pub within: u64,
    /// Allocations that failed for lack of memory.
    pub refused: u64,
}

impl MemoryCounts {
    /// Returns the counts for traces: names with values; empty if the session knows of no memory.
    #[doc(hidden)]
    pub fn to_args(&self) -> Vec<(&'static str, u64)> {
        let counts = [("begun", self.begun), ("recorded", self.recorded), ("dropped", self.dropped)];
        let others = [
            ("untracked", self.untracked),
            ("unknown", self.unknown),
            ("within", self.within),
            ("refused", self.refused),
        ];
        said(*self != MemoryCounts::default(), counts, others)
    }
}

/// Counts of the waits of one session. `recorded + dropped.total() == begun`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitCounts {
    /// Waits of streams and threads, for semaphores or declared. A thread that waits for several values has several waits.
    pub begun: u64,
    /// Waits that were delivered to the sinks.
    pub recorded: u64,
    /// Waits that were not delivered, by reason.
    pub dropped: Dropped,
    /// The number of times that a queue reported its length.
    pub depths: u64,
    /// The number of these reports that were dropped because the buffer was full.
    pub depths_dropped: u64,
}

impl WaitCounts {
    /// Returns the counts for traces: names with values; empty if there was no wait and no queue was used.
    #[doc(hidden)]
    pub fn to_args(&self) -> Vec<(String, u64)> {
        let mut said = Vec::new();
        if self.begun > 0 {
            let counts = [("begun", self.begun), ("recorded", self.recorded), ("dropped", self.dropped.total())];
            said.extend(counts.map(|(name, count)| (name.to_owned(), count)));
            said.extend(self.dropped.reasons().map(|(reason, count)| (format!("dropped.{reason}"), count)));
        }
        if self.depths_dropped > 0 {
            said.push(("depths_dropped".to_owned(), self.depths_dropped));
        }
        said
    }
}

/// Zones that were not recorded, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// The stream's ring was full: the newest zone is dropped, older ones stay.
    pub ring_full: u64,
    /// The stream could not record an event.
    pub event_failed: u64,
    /// The stream or its device failed before the zone was complete.
    pub stream_failed: u64,
    /// The stream was being captured into a CUDA graph, and the driver did not give the zone's position in it.
    pub capture_failed: u64,
    /// The zone was still open, or its stream still busy, when the session ended.
    pub unfinished: u64,
}

impl Dropped {
    pub(crate) fn add(&mut self, other: Dropped) {
        self.ring_full += other.ring_full;
        self.event_failed += other.event_failed;
        self.stream_failed += other.stream_failed;
        self.capture_failed += other.capture_failed;
        self.unfinished += other.unfinished;
    }

    /// Returns the sum of all reasons.
    pub fn total(&self) -> u64 {
        self.ring_full + self.event_failed + self.stream_failed + self.capture_failed + self.unfinished
    }

    /// Returns each reason that occurred, as one word, with its count.
    pub fn reasons(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("ring_full", self.ring_full),
            ("event_failed", self.event_failed),
            ("stream_failed", self.stream_failed),
            ("capture_failed", self.capture_failed),
            ("unfinished", self.unfinished),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }
}
