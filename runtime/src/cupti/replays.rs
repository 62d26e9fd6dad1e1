//! Kernels of one launch of a graph, put together: the replay, and the zones that were captured into it.
//!
//! Only the collector is here. A replay's kernels can come in several buffers, so a replay is complete when none has come for
//! a while, or when the session ends.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::fields::Value;
use crate::graph::ZoneLabel;
use crate::graph::ids::{NodeLabels, labels};
use crate::graph::replayed::{Ran, replayed};
use crate::kernel::{KernelLaunch, KernelRecord, ZoneRef};
use crate::record::{Span, StreamInfo, ThreadInfo};
use crate::replay::{ReplayRecord, ReplayTiming, ReplayedZone};

/// For so long no kernel of a replay may have come.
const QUIET: Duration = Duration::from_millis(500);

/// Between two looks at what is complete.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The most replays that wait; the oldest is complete then.
const MOST: usize = 4096;

/// Replays whose kernels still come.
#[derive(Default)]
pub(crate) struct Replays {
    open: BTreeMap<u32, Open>,
    looked: Option<Instant>,
}

struct Open {
    touched: Instant,
    graph: u32,
    name: Option<Arc<str>>,
    exec: u32,
    stream: Arc<StreamInfo>,
    gpu: Span,
    kernels: u32,
    zone: Option<ZoneRef>,
    launch: Option<KernelLaunch>,
    /// The zones, by what tells them apart, and their order.
    places: HashMap<*const (&'static str, Value), usize>,
    zones: Vec<Captured>,
}

struct Captured {
    label: ZoneLabel,
    depth: u32,
    lane: Option<Arc<str>>,
    gpu: Span,
    kernels: u32,
    stream: Arc<StreamInfo>,
}

// SAFETY: the addresses are compared and never looked through.
unsafe impl Send for Open {}

impl Replays {
    /// Takes the kernels of graphs whose zones are known.
    pub(crate) fn add(&mut self, kernels: &[KernelRecord]) {
        for kernel in kernels {
            let Some(node) = kernel.graph else { continue };
            let Some(labels) = labels(node.node) else { continue };
            let open = self.open.entry(kernel.correlation).or_insert_with(|| Open::new(kernel, &labels));
            open.add(kernel, &labels);
        }
    }

    /// The replays that are complete, in the order of their launches.
    pub(crate) fn take(&mut self, last: bool) -> Vec<ReplayRecord> {
        let now = Instant::now();
        if !last && self.looked.is_some_and(|looked| now.duration_since(looked) < LOOK_EVERY) {
            return Vec::new();
        }
        self.looked = Some(now);
        let mut taken = Vec::new();
        let too_many = self.open.len().saturating_sub(MOST);
        let done: Vec<u32> = (self.open.iter().enumerate())
            .filter(|(index, (_, open))| last || *index < too_many || now.duration_since(open.touched) >= QUIET)
            .map(|(_, (correlation, _))| *correlation)
            .collect();
        for correlation in done {
            taken.extend(self.open.remove(&correlation).map(|open| open.finish(correlation)));
        }
        taken
    }
}

impl Open {
    fn new(kernel: &KernelRecord, labels: &NodeLabels) -> Open {
        Open {
            touched: Instant::now(),
            graph: labels.graph,
            name: labels.name.clone(),
            exec: kernel.graph.map_or(0, |node| (node.node >> 32) as u32),
            stream: Arc::clone(&kernel.stream),
            gpu: kernel.gpu,
            kernels: 0,
            zone: kernel.zone,
            launch: kernel.launch.clone(),
            places: HashMap::new(),
            zones: Vec::new(),
        }
    }

    fn add(&mut self, kernel: &KernelRecord, labels: &NodeLabels) {
        self.touched = Instant::now();
        if kernel.gpu.begin_ns < self.gpu.begin_ns {
            self.stream = Arc::clone(&kernel.stream);
        }
        self.gpu = around(self.gpu, kernel.gpu);
        self.kernels += 1;
        let mut lane = None;
        for (depth, label) in (0..).zip(&labels.zones) {
            lane = label.lane().or(lane);
            // Clones share their fields, and two zones never do.
            let place = *self.places.entry(label.fields.as_ptr()).or_insert_with(|| {
                self.zones.push(Captured {
                    label: label.clone(),
                    depth,
                    lane: lane.clone(),
                    gpu: kernel.gpu,
                    kernels: 0,
                    stream: Arc::clone(&kernel.stream),
                });
                self.zones.len() - 1
            });
            let zone = &mut self.zones[place];
            zone.gpu = around(zone.gpu, kernel.gpu);
            zone.kernels += 1;
        }
    }

    fn finish(mut self, correlation: u32) -> ReplayRecord {
        self.zones.sort_by_key(|zone| (zone.gpu.begin_ns, zone.depth));
        let unknown = || Arc::new(ThreadInfo { id: 0, name: None });
        let (thread, host) = match &self.launch {
            Some(launch) => (Arc::clone(&launch.thread), launch.host),
            None => (unknown(), Span { begin_ns: self.gpu.begin_ns, end_ns: self.gpu.begin_ns }),
        };
        let finish = |(sequence, zone): (u64, Captured)| zone.finish(sequence, &thread, host);
        let zones = (0..).zip(self.zones).flat_map(finish).collect();
        let Open { graph, name, exec, stream, gpu, kernels, zone, launch, .. } = self;
        let timed_by = ReplayTiming::Kernels;
        ReplayRecord { graph, name, exec, correlation, stream, gpu, kernels, zone, launch, timed_by, zones }
    }
}

impl Captured {
    fn finish(self, sequence: u64, thread: &Arc<ThreadInfo>, host: Span) -> impl Iterator<Item = ReplayedZone> + use<> {
        let Captured { label, depth, lane, gpu, kernels, stream } = self;
        let thread = Arc::clone(thread);
        replayed(label, Ran { sequence, depth, lane, kernels, stream, thread, host, gpu, bracket_ns: 0 })
    }
}

fn around(one: Span, other: Span) -> Span {
    Span { begin_ns: one.begin_ns.min(other.begin_ns), end_ns: one.end_ns.max(other.end_ns) }
}
