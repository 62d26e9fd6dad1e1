//! Matches the kernels of a trace with the nodes of graphs, and with replays.
//!
//! It gets every event in the first reading of the trace. By id, a kernel names its node. By order, the work of one graph launch is compared
//! with the nodes of the graph: it matches only if the number and the names are the same.

mod names;
mod order;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use warpline_trace::read::event::{Event, whole};

use super::annotations::{Annotations, Work};
use super::{AnnotateError, By};

use names::Names;

/// A kernel whose node is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    /// The number of the event in the file.
    pub(super) number: u32,
    pub(super) graph: u32,
    pub(super) node: u32,
    /// The index of its replay in the list; none if the kernel does not name its launch.
    pub(super) replay: Option<u32>,
}

/// One launch of a graph, with the kernels that are known.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) graph: u32,
    /// The id of the executable graph, if the trace has it.
    pub(super) exec_id: Option<u64>,
    /// The number of the replay of its graph, from 1.
    pub(super) count: u64,
    /// The process of its kernels, which stands for the device.
    pub(super) process: u32,
    pub(super) correlation: u64,
    pub(super) begin_ns: i64,
    pub(super) end_ns: i64,
    pub(super) kernels: u64,
    /// The number of the launch in the file, and its begin.
    pub(super) launch: Option<(u32, i64)>,
    /// The zones by number, each from the begin of its first kernel to the end of its last one.
    pub(super) zones: Vec<(u32, i64, i64)>,
}

/// The result of the join.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Sorted by the numbers of the events.
    pub(super) joined: Vec<Joined>,
    /// Sorted by begin.
    pub(super) replays: Vec<Replay>,
    /// Kernels, copies and fills of graphs.
    pub(super) of_graphs: u64,
    /// Launches whose work is not in the trace.
    pub(super) idle_launches: u64,
    /// The number of kernels, copies and fills on each row of the trace.
    pub(super) on_rows: BTreeMap<u32, u64>,
    /// Those of them that are drawn on a lane, too.
    pub(super) moved: HashMap<u32, u64>,
    /// Their number on each lane of a process; none for zones without a lane.
    pub(super) on_lanes: BTreeMap<(u32, Option<String>), u64>,
}

/// Work on a device.
#[derive(Clone, Copy, Debug)]
struct Seen {
    number: u32,
    row: u32,
    process: u32,
    begin_ns: i64,
    end_ns: i64,
    correlation: Option<u64>,
    exec_id: Option<u64>,
    node: Option<(u32, u32)>,
    work: Work,
    name: u32,
}

#[derive(Clone, Copy, Debug)]
struct Launch {
    number: u32,
    begin_ns: i64,
}

pub(super) struct Join<'a> {
    annotations: &'a Annotations,
    by: By,
    seen: Vec<Seen>,
    launches: HashMap<u64, Launch>,
    names: Names,
    of_graphs: u64,
    on_rows: BTreeMap<u32, u64>,
}

impl<'a> Join<'a> {
    pub(super) fn new(annotations: &'a Annotations, by: By) -> Join<'a> {
        Join {
            annotations,
            by,
            seen: Vec::new(),
            launches: HashMap::new(),
            names: Names::new(),
            of_graphs: 0,
            on_rows: BTreeMap::new(),
        }
    }

    /// Examines a slice.
    pub(super) fn slice(
        &mut self,
        event: &Event<'_>,
        number: u32,
        (row, process): (u32, u32),
        (begin_ns, end_ns): (i64, i64),
    ) {
        let work = Work::of(event);
        if work.is_some() {
            *self.on_rows.entry(row).or_default() += 1;
        }
        if work.is_none() && !event.is_graph_launch() {
            return;
        }
        let Some(args) = event.members_of_args() else { return };
        let correlation = args.get("correlation").and_then(whole);
        let Some(work) = work else {
            if let Some(correlation) = correlation {
                self.launches.entry(correlation).or_insert(Launch { number, begin_ns });
            }
            return;
        };
        let exec_id = args.get("graph id").and_then(whole).filter(|id| *id != 0);
        let id = args.get("graph node id").and_then(whole).filter(|id| *id != 0 || exec_id.is_some());
        self.of_graphs += u64::from(id.is_some());
        let node = match self.by {
            By::Id => {
                let node = id.and_then(|id| self.annotations.node(id, exec_id));
                if node.is_none() {
                    return;
                }
                node
            }
            By::Order => None,
        };
        let name = if self.by == By::Order { self.names.number(work, &event.name) } else { 0 };
        self.seen.push(Seen { number, row, process, begin_ns, end_ns, correlation, exec_id, node, work, name });
    }

    /// Whether a kernel, copy or fill is on the row.
    pub(super) fn has_work(&self, row: u32) -> bool {
        self.on_rows.contains_key(&row)
    }

    /// Joins.
    pub(super) fn finish(mut self, trace: &Path) -> Result<Outcome, AnnotateError> {
        let on_rows = std::mem::take(&mut self.on_rows);
        let mut outcome = Outcome { of_graphs: self.of_graphs, on_rows, ..Outcome::default() };
        let mut on_lanes: BTreeMap<(u32, Option<&str>), u64> = BTreeMap::new();
        if self.by == By::Order {
            let (seen, idle) = order::join(self.annotations, self.seen, &self.launches, &mut self.names, trace)?;
            outcome.of_graphs = seen.len() as u64;
            (self.seen, outcome.idle_launches) = (seen, idle);
        }
        let mut replays: HashMap<(u32, u64, u32), u32> = HashMap::new();
        self.seen.sort_unstable_by_key(|seen| seen.number);
        for seen in &self.seen {
            let Some((graph, node)) = seen.node else { continue };
            let replay = seen.correlation.map(|correlation| {
                *replays.entry((seen.process, correlation, graph)).or_insert_with(|| {
                    outcome.replays.push(Replay {
                        graph,
                        exec_id: seen.exec_id,
                        count: 0,
                        process: seen.process,
                        correlation,
                        begin_ns: seen.begin_ns,
                        end_ns: seen.end_ns,
                        kernels: 0,
                        launch: self.launches.get(&correlation).map(|launch| (launch.number, launch.begin_ns)),
                        zones: Vec::new(),
                    });
                    outcome.replays.len() as u32 - 1
                })
            });
            if let Some(replay) = replay {
                outcome.replays[replay as usize]
                    .add(seen, &self.annotations.graphs[graph as usize].nodes[node as usize].zones);
            }
            // A kernel without a launch is on no lane.
            let zone = self.annotations.zones_of(graph, node).next_back().filter(|_| replay.is_some());
            if let Some(zone) = zone {
                *on_lanes.entry((seen.process, zone.lane.as_deref())).or_default() += 1;
                *outcome.moved.entry(seen.row).or_default() += 1;
            }
            outcome.joined.push(Joined { number: seen.number, graph, node, replay });
        }
        let on_lanes = on_lanes.into_iter().map(|((process, lane), count)| ((process, lane.map(str::to_owned)), count));
        outcome.on_lanes = on_lanes.collect();
        outcome.number_replays(self.annotations.graphs.len());
        Ok(outcome)
    }
}

impl Replay {
    fn add(&mut self, seen: &Seen, zones: &[u32]) {
        self.begin_ns = self.begin_ns.min(seen.begin_ns);
        self.end_ns = self.end_ns.max(seen.end_ns);
        self.kernels += 1;
        for zone in zones {
            match self.zones.iter_mut().find(|known| known.0 == *zone) {
                Some((_, begin_ns, end_ns)) => {
                    *begin_ns = (*begin_ns).min(seen.begin_ns);
                    *end_ns = (*end_ns).max(seen.end_ns);
                }
                None => self.zones.push((*zone, seen.begin_ns, seen.end_ns)),
            }
        }
    }
}

impl Outcome {
    /// Sorts the replays by begin, and numbers those of each graph.
    fn number_replays(&mut self, graphs: usize) {
        let mut order: Vec<usize> = (0..self.replays.len()).collect();
        order.sort_by_key(|at| (self.replays[*at].begin_ns, *at));
        let (mut counts, mut place) = (vec![0; graphs], vec![0; order.len()]);
        for (now, before) in order.iter().enumerate() {
            place[*before] = now as u32;
            let replay = &mut self.replays[*before];
            let count: &mut u64 = &mut counts[replay.graph as usize];
            *count += 1;
            replay.count = *count;
            // Outer zones first, as they are drawn.
            replay
                .zones
                .sort_unstable_by_key(|(zone, begin_ns, end_ns)| (*begin_ns, std::cmp::Reverse(*end_ns), *zone));
        }
        self.replays.sort_by_key(|replay| replay.begin_ns);
        for joined in &mut self.joined {
            joined.replay = joined.replay.map(|replay| place[replay as usize]);
        }
    }
}
