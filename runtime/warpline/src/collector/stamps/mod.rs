//! Reads the stamps of replayed graphs, and hands the replays to the sinks. `assembly` assembles the stamps of one graph.

mod assembly;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::context::Context;
use super::stage::Stage;
use super::{BATCH, SessionStats};
use warpline_core::counts::GraphTimingCounts;
use warpline_core::lock::lock;
use warpline_core::record::{Span, StreamInfo, ThreadInfo};
use warpline_core::replay::{ReplayRecord, ReplayTiming};
use warpline_core::stream::pauses::Pauses;
use warpline_core::stream::recorder::Recorder;
use warpline_cuda::graph::plan::Plan;
use warpline_cuda::graph::plan_of_stamp;
use warpline_cuda::graph::replayed::{Ran, replayed};
use warpline_cuda::stamps;
use warpline_cuda::stamps::{Source, Stamped};
use warpline_report::sink::Batch;

use assembly::Assembly;
use warpline_core::sorting;

/// The time without a replay after which a graph is forgotten until its next replay: programs may capture a new graph in each step.
const IDLE: Duration = Duration::from_secs(5);

pub(super) struct ReplayStage {
    sources: Vec<(Source, Arc<StreamInfo>)>,
    replays: Replays,
    /// The completion time of the oldest replay that waits for its kernels.
    held_since: Option<Instant>,
}

/// The replays that are under way.
#[derive(Default)]
struct Replays {
    graphs: HashMap<u32, Assembly>,
    /// The graph of each stamp that has come.
    graph_of: HashMap<u32, u32>,
    counts: GraphTimingCounts,
    complete: Vec<ReplayRecord>,
}

impl ReplayStage {
    /// Times captured zones in each replay from now on. `in_order`: the stamps are in the order of the launches.
    pub(super) fn start(in_order: bool, recorder: &Recorder, stats: &SessionStats) -> Box<dyn Stage> {
        recorder.windows().take_captures();
        stamps::turn_on(in_order);
        stamps::want_current();
        let mut stage = ReplayStage { sources: Vec::new(), replays: Replays::default(), held_since: None };
        stage.discover_contexts(recorder, stats, false);
        Box::new(stage)
    }

    /// Reads the stamps that have arrived. Returns their number.
    fn read(&mut self, cx: &mut Context, last: bool) -> usize {
        let is_stopped = cx.recorder.is_stopped.load(Ordering::Acquire);
        // Also at the end: a short program captures and replays between two looks.
        if !is_stopped || last {
            self.discover_contexts(&cx.recorder, &cx.stats, last);
        }
        // The reasons why captured zones are not timed are reported at once, while the program runs.
        stamps::problems().into_iter().for_each(|problem| cx.stats.warn(problem));
        let ReplayStage { sources, replays, .. } = self;
        let mut taken = 0;
        for (source, stream) in sources {
            let bracket_ns = source.bracket_ns().unwrap_or(0);
            let about = About { stream, bracket_ns, pauses: &cx.recorder.pauses };
            loop {
                let found = source.read(!is_stopped, |stamped| replays.add(stamped, &about));
                taken += found.taken;
                if found.taken > 0 {
                    let uncertainty_ns = &mut replays.counts.uncertainty_ns;
                    *uncertainty_ns = (*uncertainty_ns).max(source.uncertainty_ns());
                }
                if found.lost == 0 {
                    break;
                }
                replays.counts.lost += found.lost;
                replays.graphs.values_mut().for_each(Assembly::forget);
            }
        }
        replays.account(last);
        replays.counts.stamps += taken;
        cx.replays.add_by_stamps(std::mem::take(&mut replays.complete));
        for batch in cx.replays.take(last).chunks(BATCH) {
            cx.hand_out(Batch::Replays(batch));
        }
        self.held_since = cx.replays.held_since;
        replays.counts.by_kernels = cx.replays.merged;
        *lock(&cx.stats.graph_timing) = replays.counts;
        taken as usize
    }

    fn discover_contexts(&mut self, recorder: &Recorder, stats: &SessionStats, last: bool) {
        if !last && stamps::is_wanted() {
            // This may wait for the device, so no lock is held.
            stamps::prepare();
        }
        for stamper in stamps::ready() {
            if self.sources.iter().any(|(source, _)| source.context_id() == stamper.id) {
                continue;
            }
            let Some(source) = Source::new(stamper) else { continue };
            let stream = recorder.stream_of_graphs(source.context_id(), source.device());
            let counts = &mut self.replays.counts;
            match source.bracket_ns() {
                Some(ns) => counts.bracket_ns = counts.bracket_ns.max(ns),
                None => lock(&stats.notes).push(
                    "what stamps add to a zone could not be measured because the device was too busy: times of captured zones are not corrected"
                        .to_owned(),
                ),
            }
            self.sources.push((source, stream));
        }
    }
}

impl Stage for ReplayStage {
    fn polls(&self, _cx: &Context) -> bool {
        true
    }

    fn pass(&mut self, cx: &mut Context) -> usize {
        self.read(cx, false)
    }

    fn has_pending(&self, since: Instant) -> bool {
        self.held_since.is_some_and(|held| held <= since)
    }

    fn finish(&mut self, cx: &mut Context) {
        cx.recorder.windows().leave_captures();
        self.read(cx, true);
    }
}

/// The values that all stamps of a look share.
struct About<'a> {
    stream: &'a Arc<StreamInfo>,
    bracket_ns: i64,
    /// The pauses of the session. No replay that begins in one is recorded.
    pauses: &'a Pauses,
}

impl Replays {
    fn add(&mut self, stamped: Stamped, about: &About<'_>) {
        let known = self.graph_of.get(&stamped.id).and_then(|graph| self.graphs.get_mut(graph));
        let assembly = match known {
            Some(assembly) if !assembly.is_between() => assembly,
            // Zones may have ended since the last replay, and the graph may be gone.
            _ => match plan_of_stamp(stamped.id) {
                None => {
                    self.counts.unknown += 1;
                    return;
                }
                Some(plan) => {
                    self.graph_of.insert(stamped.id, plan.graph);
                    let known = self.graphs.entry(plan.graph).or_insert_with(|| Assembly::new(Arc::clone(&plan)));
                    if known.is_between() && !Arc::ptr_eq(known.plan(), &plan) {
                        known.renew(plan);
                    }
                    known
                }
            },
        };
        if assembly.is_between() && about.pauses.has(stamped.host_ns) {
            assembly.forget();
            self.counts.stopped += 1;
            return;
        }
        let Some(place) = assembly.plan().place(stamped.id) else { return };
        let plan = Arc::clone(assembly.plan());
        if let Some(times) = assembly.add(place, stamped) {
            self.counts.replays += 1;
            let record = record(&plan, &times, self.counts.replays as u32, about);
            self.counts.zones += record.zones.len() as u64;
            self.complete.push(record);
        }
    }

    /// Updates the counts, with the replays that began and will not be complete.
    fn account(&mut self, last: bool) {
        for assembly in self.graphs.values_mut() {
            if last {
                assembly.forget();
            } else {
                assembly.rest();
            }
            let spoilt = std::mem::take(&mut assembly.spoilt);
            self.counts.mixed += spoilt.mixed;
            self.counts.incomplete += spoilt.incomplete;
        }
        if self.graphs.values().any(|assembly| assembly.is_idle(IDLE)) {
            self.graphs.retain(|_, assembly| !assembly.is_idle(IDLE));
            let graphs = &self.graphs;
            self.graph_of.retain(|_, graph| graphs.contains_key(graph));
        }
        let captured = stamps::counts();
        self.counts.captured = captured.captured;
        self.counts.shared = captured.shared;
        self.counts.untimed_not_ready = captured.not_ready;
        self.counts.untimed_refused = captured.refused;
        self.counts.untimed_spanning = captured.spanning;
    }
}

fn record(plan: &Plan, times: &[Stamped], number: u32, about: &About<'_>) -> ReplayRecord {
    let first = times.iter().min_by_key(|time| time.device_ns).copied();
    let (base_ns, host_ns) = first.map_or((0, 0), |first| (first.device_ns, first.host_ns));
    // Durations are in the device's own time.
    let at = |place: u32| times.get(place as usize).map_or(host_ns, |time| host_ns + (time.device_ns - base_ns));
    let last_ns = (0..times.len() as u32).map(at).max().unwrap_or(host_ns);
    let gpu = Span { begin_ns: host_ns, end_ns: last_ns };
    let launch = Span { begin_ns: host_ns, end_ns: host_ns };
    let thread = Arc::new(ThreadInfo { id: 0, name: None });
    let mut zones: Vec<_> = plan.zones.iter().map(|zone| (at(zone.begin), zone)).collect();
    sorting::sort_by_key(&mut zones, |(begin_ns, zone)| (*begin_ns, zone.depth));
    let zone = |(sequence, (begin_ns, zone)): (u64, (i64, &warpline_cuda::graph::plan::PlannedZone))| {
        let ran = Ran {
            sequence,
            depth: zone.depth,
            lane: zone.lane.clone(),
            kernels: zone.kernels,
            stream: Arc::clone(about.stream),
            thread: Arc::clone(&thread),
            host: launch,
            gpu: Span { begin_ns, end_ns: at(zone.end).max(begin_ns) },
            bracket_ns: about.bracket_ns,
        };
        replayed(zone.label.clone(), ran)
    };
    ReplayRecord {
        graph: plan.graph,
        name: plan.name.clone(),
        exec: plan.exec,
        correlation: number,
        stream: Arc::clone(about.stream),
        gpu,
        kernels: plan.kernels,
        unplaced: 0,
        zone: None,
        launch: None,
        timed_by: ReplayTiming::Stamps,
        zones: (0..).zip(zones).flat_map(zone).collect(),
    }
}
