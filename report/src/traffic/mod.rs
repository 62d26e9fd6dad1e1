//! Figures per group and kind of collective: the bytes moved, the bandwidths, and the share of the time that compute hides.
//!
//! A session's collector and the command `warpline report`, which reads traces, add collectives and compute. The collector reads one stream after
//! another, so a collective is compared with the compute of its device later, when that is known. Compute is kernels where the device's kernels are
//! recorded, and compute zones where they are not: a zone is also around time in which nothing ran. The memory is bounded.

#[cfg(all(test, feature = "fixture"))]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};

use hdrhistogram::Histogram;

use super::figures::CollectiveStats;
use warpline_core::catalog::{Kind, RangeSpec};
use warpline_core::collective::CollectiveKind;
use warpline_core::intervals::Intervals;
use warpline_core::kernel::{KernelRecord, KernelWork};
use warpline_core::record::{DeviceKind, Span, ZoneRecord, is_bound};
use warpline_core::replay::ReplayRecord;
use warpline_core::sorting;

/// The largest number of collectives of a device that wait for the comparison; beyond it, the older half is compared.
const WAITING: usize = 2048;

/// The largest number of spans of compute that are kept for the comparison.
const STRETCHES: usize = 1 << 15;

/// The largest number of spans of compute that are kept, of all streams together, before the first collective.
const BEFORE: usize = 4096;

/// The largest number of streams of a device whose compute is kept apart. Beyond it, the compute of the streams that have been idle
/// longest and have no waiting collective is merged: it hides the same time on whichever stream it ran.
const STREAMS: usize = 1024;

/// Work that runs in order: that of a stream, or of one of the streams that were captured into a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// The stream's number, or that of the stream on which the graph ran.
    stream: u32,
    /// The graph's number; 0 for a stream.
    graph: u32,
    /// [`ReplayedZone::captured_on`](warpline_core::replay::ReplayedZone::captured_on); 0 for a stream.
    captured_on: u64,
}

impl Lane {
    pub const fn from_stream(stream: u32) -> Lane {
        Lane { stream, graph: 0, captured_on: 0 }
    }

    /// One of the streams that were captured into graphs which run on `stream`.
    pub const fn from_replay(stream: u32, captured_on: u64) -> Lane {
        Lane { stream, graph: u32::MAX, captured_on }
    }

    /// Whether work of this lane does not run beside work of `other`: it is the same lane, or that of the stream on which `other`'s graph runs, whose
    /// zones are around the replay.
    fn is_in_order_with(self, other: Lane) -> bool {
        self == other || self == Lane::from_stream(other.stream)
    }
}

/// The merged streams.
const FOLDED: Lane = Lane::from_stream(u32::MAX);

/// The largest number of groups and kinds that are counted apart. Later ones are counted under the group [`MORE`] of their kind.
const GROUPS: usize = 1024;
const MORE: &str = "…";

/// Significant decimal digits of a percentile.
const DIGITS: u8 = 2;

/// The unit in which a histogram counts bandwidths, in bytes a second.
const STEP: f64 = 1e3;

#[derive(Default)]
pub struct Traffic {
    groups: Vec<Figures>,
    /// The index in `groups`, by the group's lane and the kind.
    places: HashMap<(String, CollectiveKind), usize>,
    devices: HashMap<(DeviceKind, u32), Device>,
    before: VecDeque<((DeviceKind, u32), Base, Lane, Span)>,
}

/// What the time of compute is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Zones,
    Kernels,
}

struct Figures {
    group: String,
    kind: CollectiveKind,
    count: u64,
    sized: u64,
    bytes: u64,
    /// Those whose length is only a bound, and their longest possible and shortest possible time.
    bounded: u64,
    bounded_ns: i64,
    bounded_least_ns: i64,
    /// The time of the others, and the part of it that compute hides.
    timed_ns: i64,
    hidden_ns: i64,
    /// Whether that is by kernels.
    is_by_kernels: bool,
    bus: Option<Histogram<u64>>,
}

/// What a collective moved.
#[derive(Clone, Copy, Debug)]
pub struct Moved<'a> {
    /// The group's name and ranks, as in `tp0 [0,1]`; empty if it is unknown.
    pub group: &'a str,
    pub kind: CollectiveKind,
    pub bytes: Option<u64>,
    /// The bus bandwidth in bytes per second.
    pub bus: Option<f64>,
    /// The share of the time that belongs to this collective.
    pub share: f64,
    /// The time by which its end may be earlier, in ns; 0 if it is timed.
    pub early_by_ns: i64,
}

/// A collective that has not been compared with compute yet.
#[derive(Clone, Copy)]
struct Waiting {
    span: Span,
    lane: Lane,
    /// The share of the time that belongs to this collective.
    share: f64,
    /// Its index in `groups`.
    place: usize,
}

/// The compute of a device, and the collectives that have not been compared with it yet.
#[derive(Default)]
struct Device {
    zones: Compute,
    kernels: Compute,
    /// Kernels of the device are recorded.
    has_kernels: bool,
    waiting: VecDeque<Waiting>,
}

/// Compute by stream, because compute on the collective's own stream cannot hide it.
#[derive(Default)]
struct Compute(HashMap<Lane, Intervals>);

impl Traffic {
    pub fn add(&mut self, batch: &[ZoneRecord]) {
        for record in batch {
            if let Some(stream) = &record.stream {
                self.add_one(record, Lane::from_stream(stream.id));
            }
        }
    }

    /// Adds the zones of a replay of a CUDA graph, of the ranges for which `is_wanted` returns `true`. Each stream that was captured counts as a
    /// stream.
    pub fn add_replay(&mut self, replay: &ReplayRecord, mut is_wanted: impl FnMut(&'static RangeSpec) -> bool) {
        for replayed in replay.zones.iter().filter(|replayed| is_wanted(replayed.zone.range)) {
            let lane = Lane { stream: replay.stream.id, graph: replay.graph, captured_on: replayed.captured_on };
            self.add_one(&replayed.zone, lane);
        }
    }

    /// Adds a kernel that `range` launched, or in which it was captured. One of a collective is no compute.
    pub fn add_kernel(&mut self, record: &KernelRecord, range: Option<&RangeSpec>) {
        if matches!(record.work, KernelWork::Kernel { .. }) {
            let is_collective = range.is_some_and(|range| range.kind() == Kind::Collective);
            let device = (record.stream.device.kind, record.stream.device.ordinal);
            let computes = !is_collective && !is_of_collective(&record.name);
            self.kernel(device, Lane::from_stream(record.stream.id), record.gpu, computes);
        }
    }

    fn add_one(&mut self, record: &ZoneRecord, lane: Lane) {
        let (Some(stream), Some(gpu)) = (&record.stream, record.gpu) else { return };
        let device = (stream.device.kind, stream.device.ordinal);
        if let Some(message) = record.message.as_deref() {
            let group = message.group.as_ref().map_or("", |group| group.lane()).trim_start_matches("comm: ");
            let moved = Moved {
                group,
                kind: message.kind,
                bytes: message.bytes(),
                bus: record.bandwidth().and_then(|bandwidth| bandwidth.bus),
                share: record.entry.map_or(1.0, |entry| entry.share),
                early_by_ns: record.end_early_by_ns,
            };
            self.collective(device, lane, gpu, &moved);
        } else if record.range.kind() == Kind::Gpu {
            // A lazy end may lie behind a wait of the stream, such as for the collective itself.
            self.compute(device, lane, gpu.without_tail(record.end_early_by_ns));
        }
    }

    /// Adds a collective on a stream of a device.
    pub fn collective(&mut self, device: (DeviceKind, u32), lane: Lane, span: Span, moved: &Moved<'_>) {
        for (device, base, lane, span) in std::mem::take(&mut self.before) {
            self.devices.entry(device).or_default().add(base, lane, span, STRETCHES);
        }
        let place = self.count(span, moved);
        // It is not known how much of it there was to hide.
        if is_bound(span.duration_ns(), moved.early_by_ns) {
            return;
        }
        let device = self.devices.entry(device).or_default();
        device.waiting.push_back(Waiting { span, lane, share: moved.share, place });
        if device.waiting.len() > WAITING {
            device.settle(WAITING / 2, &mut self.groups);
        }
    }

    /// Adds the time in which a compute zone certainly ran.
    pub fn compute(&mut self, device: (DeviceKind, u32), lane: Lane, span: Span) {
        self.add_compute(device, Base::Zones, lane, span);
    }

    /// Adds a kernel. One of a collective does not compute.
    pub fn kernel(&mut self, device: (DeviceKind, u32), lane: Lane, span: Span, computes: bool) {
        if computes {
            self.add_compute(device, Base::Kernels, lane, span);
        } else {
            self.devices.entry(device).or_default().has_kernels = true;
        }
    }

    fn add_compute(&mut self, device: (DeviceKind, u32), base: Base, lane: Lane, span: Span) {
        if self.groups.is_empty() {
            self.keep(device, base, lane, span);
        } else {
            self.devices.entry(device).or_default().add(base, lane, span, STRETCHES);
        }
    }

    /// Keeps the last spans of compute of all streams before the first collective, which they may hide.
    fn keep(&mut self, device: (DeviceKind, u32), base: Base, lane: Lane, span: Span) {
        match self.before.back_mut() {
            // The zones nest, or follow one another without a gap.
            Some((on, by, of, known))
                if (*on, *by, *of) == (device, base, lane)
                    && known.begin_ns <= span.end_ns
                    && span.begin_ns <= known.end_ns =>
            {
                *known = known.around(span);
            }
            _ => {
                if self.before.len() == BEFORE {
                    self.before.pop_front();
                }
                self.before.push_back((device, base, lane, span));
            }
        }
    }

    /// Adds one collective to its group's figures, and returns their index.
    fn count(&mut self, span: Span, moved: &Moved<'_>) -> usize {
        let mut key = (moved.group.to_owned(), moved.kind);
        if self.groups.len() >= GROUPS && !self.places.contains_key(&key) {
            key.0 = MORE.to_owned();
        }
        let place = *self.places.entry(key).or_insert_with_key(|(group, kind)| {
            let (group, kind, bus) = (group.clone(), *kind, Histogram::new(DIGITS).ok());
            self.groups.push(Figures::new(group, kind, bus));
            self.groups.len() - 1
        });
        if let Some(figures) = self.groups.get_mut(place) {
            figures.count += 1;
            if let Some(bytes) = moved.bytes {
                figures.sized += 1;
                figures.bytes = figures.bytes.saturating_add(bytes);
            }
            let share_of = |span: Span| (span.duration_ns() as f64 * moved.share) as i64;
            if is_bound(span.duration_ns(), moved.early_by_ns) {
                figures.bounded += 1;
                figures.bounded_ns += share_of(span);
                figures.bounded_least_ns += share_of(span.without_tail(moved.early_by_ns));
                return place;
            }
            figures.timed_ns += share_of(span);
            if let (Some(bandwidth), Some(bus)) = (moved.bus, &mut figures.bus) {
                // The histogram grows with the range of the values, and the digits bound its size.
                let _ = bus.record((bandwidth / STEP) as u64);
            }
        }
        place
    }

    /// Returns the figures so far, with the longest time first.
    pub fn stats(&self) -> Vec<CollectiveStats> {
        let mut stats: Vec<_> = self.groups.iter().map(Figures::stats).collect();
        // The collectives that still wait are compared with the compute that is known now.
        for device in self.devices.values() {
            for waiting in &device.waiting {
                if let (Some(stats), Some(figures)) = (stats.get_mut(waiting.place), self.groups.get(waiting.place)) {
                    stats.hidden += device.hidden_ns(waiting) as f64 / figures.timed_ns.max(1) as f64;
                    stats.hidden_by_kernels |= device.has_kernels;
                }
            }
        }
        sorting::sort_by(&mut stats, |a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.group.cmp(&b.group)));
        stats
    }
}

impl Figures {
    fn new(group: String, kind: CollectiveKind, bus: Option<Histogram<u64>>) -> Figures {
        let (count, sized, bytes, timed_ns, hidden_ns) = (0, 0, 0, 0, 0);
        let (bounded, bounded_ns, bounded_least_ns, is_by_kernels) = (0, 0, 0, false);
        Figures {
            group,
            kind,
            count,
            sized,
            bytes,
            bounded,
            bounded_ns,
            bounded_least_ns,
            timed_ns,
            hidden_ns,
            is_by_kernels,
            bus,
        }
    }

    fn stats(&self) -> CollectiveStats {
        let percentile =
            |p| self.bus.as_ref().filter(|bus| !bus.is_empty()).map(|bus| bus.value_at_quantile(p) as f64 * STEP);
        CollectiveStats {
            group: self.group.clone(),
            kind: self.kind,
            count: self.count,
            sized: self.sized,
            bytes: self.bytes,
            bounded: self.bounded,
            total_ns: self.timed_ns + self.bounded_ns,
            total_early_ns: self.bounded_ns - self.bounded_least_ns,
            bus_p50: percentile(0.50),
            bus_p99: percentile(0.99),
            hidden: self.hidden_ns as f64 / self.timed_ns.max(1) as f64,
            hidden_by_kernels: self.is_by_kernels,
        }
    }
}

impl Compute {
    /// Adds a span of compute on a stream, and merges the streams that have been idle longest if there are too many.
    fn add(&mut self, lane: Lane, span: Span, most: usize, waiting: &VecDeque<Waiting>) {
        let compute = self.0.entry(lane).or_default();
        compute.add(span);
        if compute.len() > most {
            compute.pop_first();
        }
        if self.0.len() > STREAMS + waiting.len() {
            self.fold(most, waiting);
        }
    }

    fn fold(&mut self, most: usize, waiting: &VecDeque<Waiting>) {
        let waiting: HashSet<Lane> = waiting.iter().map(|waiting| waiting.lane).collect();
        let mut idle: Vec<(i64, Lane)> = (self.0.iter())
            .filter(|(lane, _)| **lane != FOLDED && !waiting.contains(lane))
            .map(|(lane, compute)| (compute.until_ns(), *lane))
            .collect();
        sorting::sort(&mut idle);
        let mut folded = self.0.remove(&FOLDED).unwrap_or_default();
        let idle = idle.into_iter().take(STREAMS / 2).filter_map(|(_, lane)| self.0.remove(&lane));
        folded.add_all(idle.collect::<Vec<_>>().iter().flat_map(Intervals::iter));
        while folded.len() > most {
            folded.pop_first();
        }
        self.0.insert(FOLDED, folded);
    }

    /// Returns the part of a span that compute covers on lanes that run beside it, in ns.
    fn covered_ns(&self, span: Span, runs_beside: impl Fn(Lane) -> bool) -> i64 {
        let others = self.0.iter().filter(|(other, _)| runs_beside(**other));
        let mut covered = Intervals::default();
        covered.add_all(others.flat_map(|(_, compute)| compute.within(span)));
        covered.length_ns()
    }

    /// Drops what ended before this time.
    fn forget_before(&mut self, oldest: i64) {
        self.0.retain(|_, compute| {
            while compute.first().is_some_and(|first| first.end_ns < oldest) {
                compute.pop_first();
            }
            !compute.is_empty()
        });
    }
}

impl Device {
    fn add(&mut self, base: Base, lane: Lane, span: Span, most: usize) {
        match base {
            Base::Zones => self.zones.add(lane, span, most, &self.waiting),
            Base::Kernels => {
                self.has_kernels = true;
                self.kernels.add(lane, span, most, &self.waiting);
            }
        }
    }

    fn hidden_ns(&self, waiting: &Waiting) -> i64 {
        let covered_ns = if self.has_kernels {
            // Those of a replay are on the stream on which it ran, whichever stream they were captured on.
            self.kernels.covered_ns(waiting.span, |lane| lane != waiting.lane)
        } else {
            self.zones.covered_ns(waiting.span, |lane| !lane.is_in_order_with(waiting.lane))
        };
        (covered_ns as f64 * waiting.share) as i64
    }

    /// Compares the oldest collectives until `left` remain, and drops the compute that no waiting collective needs.
    fn settle(&mut self, left: usize, groups: &mut [Figures]) {
        while self.waiting.len() > left
            && let Some(waiting) = self.waiting.pop_front()
        {
            let hidden_ns = self.hidden_ns(&waiting);
            if let Some(figures) = groups.get_mut(waiting.place) {
                figures.hidden_ns += hidden_ns;
                figures.is_by_kernels |= self.has_kernels;
            }
        }
        let oldest = self.waiting.iter().map(|waiting| waiting.span.begin_ns).min().unwrap_or(i64::MAX);
        self.zones.forget_before(oldest);
        self.kernels.forget_before(oldest);
    }
}

/// Returns whether a kernel is one of NCCL or RCCL, by its name.
pub fn is_of_collective(kernel: &str) -> bool {
    ["ncclDevKernel", "ncclKernel", "rcclDevKernel", "rcclKernel"].iter().any(|begin| kernel.starts_with(begin))
}
