//! The figures of a running session: adds its records to the builder, batch by batch, as a sink gets them.
//!
//! A session keeps one, and each recording from outside has its own. What the records do not say comes with the report: what was dropped or left
//! out, and how many zones ran of those that a sample left out.

use std::collections::HashMap;
use std::sync::Arc;

use warpline_core::catalog::RangeSpec;
use warpline_core::kernel::KernelRecord;
use warpline_core::record::{Status, StreamInfo, ThreadInfo, ZoneRecord};
use warpline_core::replay::ReplayRecord;
use warpline_core::synchronization::SyncRecord;
use warpline_core::wait::WaitRecord;

use super::{Complete, Place, RangeId, ReportBuilder, RowId, StreamUse, Zone};
use crate::names::{Name, Names};
use crate::sink::Batch;
use crate::{FieldCounts, Report};

/// The figures of the records so far. Their size depends on the numbers of ranges, devices and streams, not of zones.
#[derive(Default)]
pub struct SessionFigures {
    pub(super) builder: ReportBuilder,
    pub(super) names: Names,
    /// By the number of a range.
    ranges: Vec<Option<Known>>,
    fields: FieldCounts,
    /// Whether they began in the middle of a session, so that the first zone that they get may not be the first.
    are_of_part: bool,
    captured_range: Option<CapturedRange>,
    is_in_steps: bool,
}

/// The most names of a session. Those of signallers, which have no table of their own, are the only ones that may reach it.
const NAMES: usize = 1 << 15;

/// Returns the range in which a kernel of a replay was captured.
pub type CapturedRange = fn(&KernelRecord) -> Option<&'static RangeSpec>;

/// A range of the program, with its name and its number in each place where it has zones.
struct Known {
    range: &'static RangeSpec,
    name: Name,
    places: [Option<RangeId>; 3],
}

/// The source of the number of a range's zones that ran, in a session that records a sample of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CameBy {
    /// The range's chance has counted them. Each of them was recorded or passed over.
    Counted,
    /// The range's chance has counted them, but some have no time of their own (captured or dropped), so the number does not scale the
    /// total.
    CountedWithOthers,
    /// The zones were not counted since these figures began, or only those in windows.
    Unknown,
}

impl SessionFigures {
    /// Returns figures without a record. `are_of_part`: they begin in the middle of a session. `captured_range` knows the kernels of replays.
    pub fn new(are_of_part: bool, captured_range: Option<CapturedRange>) -> SessionFigures {
        SessionFigures { are_of_part, captured_range, ..SessionFigures::default() }
    }

    /// Says whether a step runs whose record is still to come: the zones that come now may be in it.
    pub fn set_in_steps(&mut self, is_in_steps: bool) {
        self.is_in_steps = is_in_steps;
    }

    /// Adds a batch of records, in the order of the collector. Kinds of which a report has no figure are ignored.
    pub fn add(&mut self, batch: Batch<'_>) {
        match batch {
            Batch::Zones(zones) => self.add_zones(zones),
            Batch::Replays(replays) => replays.iter().for_each(|replay| self.add_replay(replay, |_| true)),
            Batch::Kernels(kernels) => self.add_kernels(kernels),
            Batch::Synchronizations(calls) => calls.iter().for_each(|call| self.add_sync(call)),
            Batch::Waits(waits) => waits.iter().for_each(|wait| self.add_wait(wait)),
            Batch::Steps(steps) => steps.iter().for_each(|step| self.builder.step(step.host)),
            _ => {}
        }
    }

    /// Adds the zones of a replay of the ranges for which `is_wanted` returns `true`.
    pub fn add_replay(&mut self, replay: &ReplayRecord, mut is_wanted: impl FnMut(&'static RangeSpec) -> bool) {
        for replayed in replay.zones.iter().filter(|replayed| is_wanted(replayed.zone.range)) {
            // Zones that were captured on one stream nest, and replays of one graph follow one another.
            let lane = replayed.lane.as_deref().map_or(0, |lane| self.lane(lane));
            let id = u64::from(replay.graph) << 32 ^ replayed.captured_on;
            self.zone(&replayed.zone, Place::Replays, RowId { place: 2, id, lane }, false);
        }
        self.builder.end_batch();
        self.builder.traffic.add_replay(replay, is_wanted);
    }

    pub(super) fn add_zones(&mut self, batch: &[ZoneRecord]) {
        let has_steps = self.builder.has_steps() || self.is_in_steps;
        for zone in batch {
            let place = if zone.gpu.is_some() { Place::Streams } else { Place::Threads };
            let lane = zone.named_lane().map_or(0, |lane| self.lane(lane));
            let row = match (&zone.stream, zone.gpu) {
                (Some(stream), Some(_)) => RowId { place: 0, id: u64::from(stream.id), lane },
                _ => RowId { place: 1, id: zone.thread.id, lane },
            };
            let name = self.zone(zone, place, row, has_steps);
            self.builder.current.path.zone(zone, name);
            if let (Some(stream), Some(gpu)) = (&zone.stream, zone.gpu) {
                self.builder.streams().zone(stream.id, gpu, zone.end_early_by_ns, || stream_use(stream));
            }
        }
        self.builder.end_batch();
        self.builder.traffic.add(batch);
    }

    /// Adds a zone, and returns its name. The entries of a batch repeat the batch: they have no row, and no step counts them.
    fn zone(&mut self, zone: &ZoneRecord, place: Place, row: RowId, has_steps: bool) -> Name {
        let (range, name) = self.range(zone.range, place);
        let device = zone.stream.as_ref().filter(|_| zone.gpu.is_some()).map(|stream| &stream.device);
        let work = zone.work();
        let work_ns = if work.is_none() { None } else { zone.work_ns() };
        let is_entry = zone.entry.is_some();
        let added = Zone {
            span: zone.gpu.unwrap_or(zone.host),
            early_by_ns: zone.gpu.map_or(0, |_| zone.end_early_by_ns),
            found_early_by_ns: zone.end.is_bound().then_some(zone.end_early_by_ns),
            // A replay launches all of its zones at once.
            host: (place != Place::Replays).then_some(zone.host),
            is_entry,
            share: zone.entry.map_or(1.0, |entry| entry.share),
            sampled_share: f64::from(zone.sample_share),
            window: zone.window,
            device: device.map(|device| (device.kind, device.ordinal)),
            has_failed: zone.status != Status::Complete,
            work: work_ns.map(|ns| (work, ns, zone.stream.as_ref().map_or("", |stream| &*stream.device.name))),
            row: (!is_entry).then_some(row),
            depth: zone.depth,
            in_steps: !is_entry && has_steps,
        };
        // In a sampled session the first zone may not be recorded. Launching threads write the counts, so they are read last.
        let are_of_part = self.are_of_part;
        self.builder.zone(range, &added, || are_of_part || zone.range.chance().passed_over() > 0);
        self.fields.add(&zone.fields);
        name
    }

    /// Returns the number of a range in a place, and its name.
    fn range(&mut self, range: &'static RangeSpec, place: Place) -> (RangeId, Name) {
        let number = range.number() as usize;
        if number >= self.ranges.len() {
            self.ranges.resize_with(number + 1, || None);
        }
        let names = &mut self.names;
        let known = self.ranges[number].get_or_insert_with(|| {
            let name = names.number(range.name()).unwrap_or(Name::MORE);
            Known { range, name, places: [None; 3] }
        });
        let builder = &mut self.builder;
        let id = *known.places[place as usize].get_or_insert_with(|| builder.range(known.name, place));
        (id, known.name)
    }

    fn name_of(&mut self, range: &'static RangeSpec) -> Name {
        self.names.number(range.name()).unwrap_or(Name::MORE)
    }

    /// Returns the number of a lane among those of its row. A process has a bounded number of names of lanes.
    fn lane(&mut self, lane: &str) -> u64 {
        self.names.number(lane).unwrap_or(Name::MORE).into()
    }

    fn add_kernels(&mut self, batch: &[KernelRecord]) {
        for kernel in batch {
            let range = self.captured_range.and_then(|of| of(kernel)).or_else(|| Some(kernel.zone?.range));
            self.builder.traffic.add_kernel(kernel, range);
            let range = range.map(|range| self.name_of(range));
            let name = self.names.number_if(&kernel.name, self.builder.kernels.has_room());
            self.builder.kernels.add((name, range), kernel.gpu.duration_ns(), 0);
            let stream = &kernel.stream;
            self.builder.streams().work(stream.id, kernel.gpu, || stream_use(stream));
        }
    }

    /// Adds a call, if its thread waited.
    fn add_sync(&mut self, call: &SyncRecord) {
        if !call.kind.is_on_thread() {
            return;
        }
        self.builder.current.path.synchronization(call);
        let range = call.zone.map(|zone| self.name_of(zone.range));
        let ThreadInfo { id, name } = &*call.thread;
        let thread = name.as_deref().map_or_else(|| format!("thread {id}").into(), Arc::from);
        let kind = self.names.number(call.kind.as_str()).unwrap_or(Name::MORE);
        self.builder.host_waits.add((thread, kind, range), call.duration_ns(), 0);
    }

    fn add_wait(&mut self, wait: &WaitRecord) {
        self.builder.current.path.wait(wait);
        // Never more than the wait is long.
        let early_ns = wait.early_by_ns().clamp(0, wait.duration_ns().max(0));
        let semaphore = self.names.number_if(&wait.semaphore, self.builder.semaphores.has_room());
        self.builder.semaphores.add(semaphore, wait.duration_ns(), early_ns);
        if let (Some(stream), Some(gpu)) = (&wait.stream, wait.gpu) {
            let by = wait.signal.as_ref().map_or_else(String::new, |signal| signal.by());
            let by = self.names.number_if(&by, self.names.count() < NAMES);
            self.builder.streams().wait(stream.id, (gpu, wait.end_early_by_ns), by, || stream_use(stream));
        }
    }

    /// Adds the figures to the report of the session, which has its counts. `came_by` is where the numbers of zones that ran come from.
    pub fn add_to(&self, report: &mut Report, came_by: CameBy) {
        let mut by_name: HashMap<Name, Vec<&'static RangeSpec>> = HashMap::new();
        for known in self.ranges.iter().flatten() {
            by_name.entry(known.name).or_default().push(known.range);
        }
        let seen = |name: Name, count: u64| {
            let chances = by_name.get(&name).into_iter().flatten().map(|range| range.chance());
            // While all zones are recorded, the recorded ones are those that ran.
            let (seen, passed_over) = chances
                .fold((0, 0), |(seen, passed_over), chance| (seen + chance.seen(), passed_over + chance.passed_over()));
            match came_by {
                CameBy::Unknown => (None, false),
                CameBy::Counted => (Some(seen.max(count + passed_over)), true),
                CameBy::CountedWithOthers => (Some(seen.max(count + passed_over)), false),
            }
        };
        report.fields = self.fields;
        let complete = Complete { zones: report.is_complete(), kernels: report.kernels.lost() == 0 };
        self.builder.add_to(report, complete, &self.names, seen);
    }
}

fn stream_use(stream: &StreamInfo) -> StreamUse {
    StreamUse::new(&stream.name, &stream.device.name, (stream.device.kind, stream.device.ordinal))
}
