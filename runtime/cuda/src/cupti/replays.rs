//! Replays, assembled from the kernels of each launch of a graph, with the zones that were captured into it.
//!
//! A kernel in the body of a conditional node names no launch; `bodies` finds its replay.
//!
//! Only the collector uses this. A replay's kernels can come in several buffers, so a replay is complete when none has come for a while, or
//! when the session ends. A kernel that no known node executed still belongs to the replay, and is counted.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bodies::{Bodies, BodyKernel, Iterations};
use crate::graph::ZoneLabel;
use crate::graph::executed::executed;
use crate::graph::ids::NodeLabels;
use crate::graph::replayed::{Ran, replayed};
use warpline_core::fields::Value;
use warpline_core::kernel::{KernelLaunch, KernelRecord, ZoneRef};
use warpline_core::plural::counted_as;
use warpline_core::record::{Span, StreamInfo, ThreadInfo};
use warpline_core::replay::{ReplayRecord, ReplayTiming, ReplayedZone};

/// The time without a kernel after which a replay is complete.
const QUIET: Duration = Duration::from_millis(500);

/// The time between two searches for complete replays.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The maximum number of replays that wait. Beyond it, the oldest counts as complete.
const MOST: usize = 4096;

/// The maximum number of kernels that wait for another one of their launch to identify the graph.
const MOST_STRANGERS: usize = 1 << 14;

/// The maximum number of zones that one replay keeps when bodies of conditional nodes run often.
const MOST_ZONES: usize = if cfg!(test) { 64 } else { 1 << 12 };

/// The replays whose kernels are still being delivered.
#[derive(Default)]
pub struct Replays {
    open: BTreeMap<u32, OpenReplay>,
    /// Kernels of graphs that are not registered, or that another kernel of the launch will identify; oldest first.
    strangers: VecDeque<(Instant, KernelRecord)>,
    looked: Option<Instant>,
    /// The sum of [`ReplayRecord::unplaced`].
    unplaced: u64,
    /// Kernels in bodies of conditional nodes, which name no launch.
    bodies: Bodies,
    /// Zones of iterations that were left out.
    cut: u64,
}

struct OpenReplay {
    touched: Instant,
    graph: u32,
    name: Option<Arc<str>>,
    exec: u32,
    stream: Arc<StreamInfo>,
    gpu: Span,
    kernels: u32,
    unplaced: u32,
    zone: Option<ZoneRef>,
    launch: Option<KernelLaunch>,
    /// The positions of zones in `zones`.
    places: HashMap<ZoneKey, usize>,
    zones: Vec<Captured>,
    /// Kernels with the id of a node of the graph itself that may be of one inside, by that id.
    in_doubt: HashMap<u64, InDoubt>,
    /// Zones of iterations that were left out.
    cut: HashSet<ZoneKey>,
}

/// A zone of a replay: the address of its fields, and its iteration.
type ZoneKey = (*const (&'static str, Value), u64);

struct InDoubt {
    labels: Arc<NodeLabels>,
    /// The number of its zones that contain it already.
    sure: usize,
    gpu: Span,
    stream: Arc<StreamInfo>,
    kernels: u32,
}

struct Captured {
    label: ZoneLabel,
    depth: u32,
    lane: Option<Arc<str>>,
    gpu: Span,
    kernels: u32,
    stream: Arc<StreamInfo>,
}

// SAFETY: the addresses are compared and never dereferenced.
unsafe impl Send for OpenReplay {}

impl Replays {
    /// Adds the kernels of registered graphs to their replays. Others wait for a while.
    pub fn add(&mut self, kernels: &[KernelRecord]) {
        let now = Instant::now();
        let is_old = |came: &Instant| now.duration_since(*came) >= QUIET;
        if kernels.is_empty() && self.strangers.front().is_none_or(|(came, _)| !is_old(came)) {
            return;
        }
        let mut strangers = std::mem::take(&mut self.strangers);
        for kernel in kernels.iter().filter(|kernel| kernel.graph.is_some()) {
            if !self.take_in(kernel) {
                strangers.push_back((now, kernel.clone()));
            }
        }
        strangers.retain(|(came, kernel)| {
            let is_known = self.open.contains_key(&kernel.correlation) && self.take_in(kernel);
            !is_known && !is_old(came)
        });
        strangers.drain(..strangers.len().saturating_sub(MOST_STRANGERS));
        self.strangers = strangers;
    }

    /// Adds a kernel to its replay. Returns whether its graph is known.
    fn take_in(&mut self, kernel: &KernelRecord) -> bool {
        if kernel.correlation == 0 {
            return self.take_in_body(kernel);
        }
        let exec = self.open.get(&kernel.correlation).map(|open| open.exec);
        let Some((exec, labels)) = executed(kernel, exec) else { return false };
        if let Some(labels) = labels {
            let open = self.open.entry(kernel.correlation).or_insert_with(|| OpenReplay::new(kernel, exec, &labels));
            open.add(kernel, &labels);
        }
        true
    }

    /// Keeps a kernel without a launch until the replay around it is complete. Returns whether its graph is known.
    fn take_in_body(&mut self, kernel: &KernelRecord) -> bool {
        let Some((exec, labels)) = executed(kernel, None) else { return false };
        if let Some(labels) = labels {
            let now = Instant::now();
            self.open.values_mut().filter(|open| open.exec == exec).for_each(|open| open.touched = now);
            self.bodies.add(exec, BodyKernel { labels, gpu: kernel.gpu, stream: Arc::clone(&kernel.stream) }, now);
        }
        true
    }

    /// Returns the report's notes on kernels of replays that no known node executed, or that name no launch.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let (lost, cut) = (self.bodies.lost, self.cut);
        let lost = (lost > 0).then(|| {
            let kernels = counted_as(lost, "kernel in a body", "kernels in bodies");
            format!(
                "{kernels} of conditional nodes count in no replay: CUPTI reports no launch for them, and no other kernel of their graph was \
                 launched around them, or too many waited for it; a kernel in front of the conditional node shows when its replay begins"
            )
        });
        let cut = (cut > 0).then(|| {
            let zones = counted_as(cut, "zone", "zones");
            format!(
                "{zones} of later iterations are not recorded: a replay keeps at most {MOST_ZONES} zones; label fewer nodes in the body of a loop"
            )
        });
        [self.note_of_unplaced(), lost, cut].into_iter().flatten()
    }

    fn note_of_unplaced(&self) -> Option<String> {
        let unplaced = self.unplaced;
        (unplaced > 0).then(|| {
            let unplaced =
                counted_as(unplaced, "kernel or copy of a replayed graph was", "kernels and copies of replayed graphs were");
            format!(
                "{unplaced} executed by no known node, as kernels of child graphs and of bodies of conditional nodes are: their \
                 time counts for their replays, and for the zones that certainly contain them; name the graph inside a node \
                 with `GraphZones::inside` or `GraphZones::bodies`"
            )
        })
    }

    /// Returns whether kernels of some replays may still come.
    pub fn are_open(&self) -> bool {
        !self.open.is_empty() || self.bodies.are_waiting()
    }

    /// Returns the replays that are complete, in the order of their launches.
    pub fn take(&mut self, last: bool) -> Vec<ReplayRecord> {
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
            let Some(mut open) = self.open.remove(&correlation) else { continue };
            if self.bodies.has(open.exec) {
                // Replays of one executable graph follow one another in the order of their launches.
                let later = self.open.values().filter(|later| later.exec == open.exec).map(|later| later.gpu.begin_ns);
                let next = later.filter(|begin_ns| *begin_ns > open.gpu.begin_ns).min();
                open.add_bodies(self.bodies.take(open.exec, open.gpu, next));
            }
            self.cut += open.cut.len() as u64;
            taken.push(open.finish(correlation));
        }
        let open = &self.open;
        self.bodies.give_up(|exec, touched| {
            (last || now.duration_since(touched) >= QUIET) && open.values().all(|open| open.exec != exec)
        });
        self.unplaced += taken.iter().map(|replay| u64::from(replay.unplaced)).sum::<u64>();
        taken
    }
}

impl OpenReplay {
    fn new(kernel: &KernelRecord, exec: u32, labels: &NodeLabels) -> OpenReplay {
        OpenReplay {
            touched: Instant::now(),
            graph: labels.graph,
            name: labels.name.clone(),
            exec,
            stream: Arc::clone(&kernel.stream),
            gpu: kernel.gpu,
            kernels: 0,
            unplaced: 0,
            zone: kernel.zone,
            launch: kernel.launch.clone(),
            places: HashMap::new(),
            zones: Vec::new(),
            in_doubt: HashMap::new(),
            cut: HashSet::new(),
        }
    }

    fn add(&mut self, kernel: &KernelRecord, labels: &Arc<NodeLabels>) {
        self.touched = Instant::now();
        if kernel.gpu.begin_ns < self.gpu.begin_ns {
            self.stream = Arc::clone(&kernel.stream);
        }
        self.gpu = self.gpu.around(kernel.gpu);
        self.kernels += 1;
        self.unplaced += u32::from(!labels.is_own);
        let sure = labels.in_doubt.unwrap_or(labels.zones.len());
        self.put(labels, 0..sure, kernel.gpu, &kernel.stream, &[]);
        if let Some(node) = kernel.graph.filter(|_| labels.in_doubt.is_some()) {
            let in_doubt = self.in_doubt.entry(node.node).or_insert_with(|| InDoubt {
                labels: Arc::clone(labels),
                sure,
                gpu: kernel.gpu,
                stream: Arc::clone(&kernel.stream),
                kernels: 0,
            });
            in_doubt.kernels += 1;
        }
    }

    /// Adds the kernels in bodies of conditional nodes, in the order in which they ran: a zone in a body has a record for each iteration.
    fn add_bodies(&mut self, kernels: Vec<BodyKernel>) {
        let mut iterations = Iterations::default();
        for BodyKernel { labels, gpu, stream } in kernels {
            self.gpu = self.gpu.around(gpu);
            self.kernels += 1;
            self.unplaced += u32::from(!labels.is_own);
            let ids = iterations.next(&labels.levels);
            let sure = labels.in_doubt.unwrap_or(labels.zones.len());
            self.put(&labels, 0..sure, gpu, &stream, &ids);
        }
    }

    /// Adds a kernel to its zones of these depths. `iterations` has the bodies that contain it: the number of zones around each, and what
    /// identifies its iteration.
    fn put(
        &mut self,
        labels: &NodeLabels,
        depths: Range<usize>,
        gpu: Span,
        stream: &Arc<StreamInfo>,
        iterations: &[(usize, u64)],
    ) {
        let mut lane = None;
        for (depth, label) in labels.zones[..depths.end].iter().enumerate() {
            lane = label.lane().or(lane);
            if depth < depths.start {
                continue;
            }
            // The clones of a label share its fields, and different labels never do.
            let iteration = iterations.iter().rev().find(|(around, _)| *around <= depth).map_or(0, |(_, id)| *id);
            let key = (label.fields.as_ptr(), iteration);
            if iteration > 0 && self.zones.len() >= MOST_ZONES && !self.places.contains_key(&key) {
                self.cut.insert(key);
                continue;
            }
            let place = *self.places.entry(key).or_insert_with(|| {
                self.zones.push(Captured {
                    label: label.clone(),
                    depth: depth as u32,
                    lane: lane.clone(),
                    gpu,
                    kernels: 0,
                    stream: Arc::clone(stream),
                });
                self.zones.len() - 1
            });
            let zone = &mut self.zones[place];
            zone.gpu = zone.gpu.around(gpu);
            zone.kernels += 1;
        }
    }

    fn finish(mut self, correlation: u32) -> ReplayRecord {
        for in_doubt in std::mem::take(&mut self.in_doubt).into_values() {
            let InDoubt { labels, sure, gpu, stream, kernels } = in_doubt;
            // Each node of the graph itself runs once.
            match kernels {
                1 => self.put(&labels, sure..labels.zones.len(), gpu, &stream, &[]),
                _ => self.unplaced += kernels,
            }
        }
        self.zones.sort_by_key(|zone| (zone.gpu.begin_ns, zone.depth));
        let unknown = || Arc::new(ThreadInfo { id: 0, name: None });
        let (thread, host) = match &self.launch {
            Some(launch) => (Arc::clone(&launch.thread), launch.host),
            None => (unknown(), Span { begin_ns: self.gpu.begin_ns, end_ns: self.gpu.begin_ns }),
        };
        let finish = |(sequence, zone): (u64, Captured)| zone.finish(sequence, &thread, host);
        let zones = (0..).zip(self.zones).flat_map(finish).collect();
        let OpenReplay { graph, name, exec, stream, gpu, kernels, unplaced, zone, launch, .. } = self;
        let timed_by = ReplayTiming::Kernels;
        ReplayRecord { graph, name, exec, correlation, stream, gpu, kernels, unplaced, zone, launch, timed_by, zones }
    }
}

impl Captured {
    fn finish(self, sequence: u64, thread: &Arc<ThreadInfo>, host: Span) -> impl Iterator<Item = ReplayedZone> + use<> {
        let Captured { label, depth, lane, gpu, kernels, stream } = self;
        let thread = Arc::clone(thread);
        replayed(label, Ran { sequence, depth, lane, kernels, stream, thread, host, gpu, bracket_ns: 0 })
    }
}
