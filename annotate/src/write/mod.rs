//! The common part of both output formats: the arguments that are added to a kernel, and the rows of replays and zones.
//!
//! A format gets every piece of the trace in the order of the file, and is then finished.

pub(super) mod chrome;
pub(super) mod perfetto;
mod words;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

use serde_json::{Map, Value};
use warpline_trace::read::event::Event;

use super::annotations::{Annotations, Zone};
use super::index::{Disposition, Index, Link, Slice, place};
use super::join::{Joined, Outcome, Replay};

/// The name of the row for zones without a lane that are in no zone with a lane.
pub(super) const ZONES: &str = "zones";

/// The name of the row of replays.
pub(super) const REPLAYS: &str = "graph replays";

/// The maximum number of entries of a batch on one row. They are nested, and readers draw some hundred levels.
const STACKED: usize = 128;

/// What is known in the second reading of a trace.
#[derive(Clone, Copy)]
pub(super) struct FirstReading<'a> {
    pub(super) annotations: &'a Annotations,
    pub(super) index: &'a Index,
    pub(super) outcome: &'a Outcome,
    pub(super) base_ns: Option<i64>,
    /// Equal for equal traces only.
    pub(super) seed: u64,
}

/// An event, with the results of the first reading.
pub(super) struct ReadEvent<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) event: &'a Event<'a>,
    pub(super) number: u32,
    pub(super) fate: Disposition,
    pub(super) joined: Option<&'a Joined>,
    pub(super) links: &'a [Link],
}

/// An output format.
pub(super) trait Format {
    /// Writes a member other than the events. The name is JSON.
    fn member(&mut self, name: &[u8], value: &[u8]) -> io::Result<()>;
    fn event(&mut self, told: &ReadEvent<'_>) -> io::Result<()>;
    /// Finishes the output. Returns the number of counter values that could not be written.
    fn finish(&mut self) -> io::Result<u64>;
}

/// A row of replays, or of the zones of one lane.
pub(super) struct ReplayRow<'a> {
    /// The process of the kernels.
    pub(super) process: u32,
    /// The lane; none for the replays themselves.
    pub(super) lane: Option<&'a str>,
    pub(super) lanes: usize,
    /// In the order of writing.
    pub(super) bars: Vec<Bar<'a>>,
}

/// A replay or a zone in it.
pub(super) struct Bar<'a> {
    pub(super) begin_ns: i64,
    pub(super) end_ns: i64,
    pub(super) replay: u32,
    pub(super) zone: Option<&'a Zone>,
    /// The lane within the row.
    pub(super) lane: usize,
}

impl<'a> FirstReading<'a> {
    /// The rows of replays and zones. Those of one device are adjacent, the replays first.
    pub(super) fn rows(&self) -> Vec<ReplayRow<'a>> {
        // By device, lane, and part of a large batch.
        let mut rows: BTreeMap<(u32, Option<&'a str>, usize), Vec<Bar<'a>>> = BTreeMap::new();
        for (replay, number) in self.outcome.replays.iter().zip(0..) {
            let bar = Bar { begin_ns: replay.begin_ns, end_ns: replay.end_ns, replay: number, zone: None, lane: 0 };
            rows.entry((replay.process, None, 0)).or_default().push(bar);
            for (zone, begin_ns, end_ns) in &replay.zones {
                let zone = &self.annotations.graphs[replay.graph as usize].zones[*zone as usize];
                let entries = zone.entries.iter().enumerate().map(|(index, entry)| (entry, index / STACKED));
                for (zone, part) in std::iter::once((zone, 0)).chain(entries) {
                    let bar = Bar { begin_ns: *begin_ns, end_ns: *end_ns, replay: number, zone: Some(zone), lane: 0 };
                    let lane = Some(zone.lane.as_deref().unwrap_or(ZONES));
                    rows.entry((replay.process, lane, part)).or_default().push(bar);
                }
            }
        }
        rows.into_iter().map(|((process, lane, _), bars)| row(process, lane, bars)).collect()
    }

    pub(super) fn replay(&self, number: u32) -> &'a Replay {
        &self.outcome.replays[number as usize]
    }

    pub(super) fn title(&self, replay: &Replay) -> &'a str {
        &self.annotations.graphs[replay.graph as usize].title
    }

    /// The arguments for the kernel of a node. Inner zones win over outer ones, and the kernel's own arguments over all.
    pub(super) fn kernel_args(&self, joined: &Joined, own: impl Fn(&str) -> bool) -> Map<String, Value> {
        let mut args = Map::new();
        let mut path = String::new();
        let mut innermost = None;
        for zone in self.annotations.zones_of(joined.graph, joined.node) {
            if !path.is_empty() {
                path.push_str(" > ");
            }
            path.push_str(&zone.name);
            args.extend(zone.args.iter().map(|(name, value)| (name.clone(), value.clone())));
            innermost = Some(zone);
        }
        let mut all = Map::new();
        if let Some(zone) = innermost {
            all.insert("zone".to_owned(), path.into());
            all.insert("range".to_owned(), zone.name.as_str().into());
            all.insert("lane".to_owned(), zone.lane.as_deref().unwrap_or(ZONES).into());
        }
        all.insert("graph".to_owned(), self.annotations.graphs[joined.graph as usize].title.as_str().into());
        if let Some(replay) = joined.replay {
            all.insert("replay".to_owned(), self.replay(replay).count.into());
        }
        for (name, value) in args {
            let name = if all.contains_key(&name) { format!("zone_{name}") } else { name };
            all.insert(name, value);
        }
        all.into_iter().map(|(name, value)| (if own(&name) { format!("zone_{name}") } else { name }, value)).collect()
    }

    /// The arguments of a replay, or of a zone in it.
    pub(super) fn bar_args(&self, bar: &Bar<'a>) -> Map<String, Value> {
        let replay = self.replay(bar.replay);
        let mut args = Map::new();
        args.insert("replay".to_owned(), replay.count.into());
        match bar.zone {
            Some(zone) => {
                args.insert("graph".to_owned(), self.title(replay).into());
                for (name, value) in &zone.args {
                    let name = if args.contains_key(name) { format!("zone_{name}") } else { name.clone() };
                    args.insert(name, value.clone());
                }
            }
            None => {
                args.insert("kernels".to_owned(), replay.kernels.into());
                args.insert("correlation".to_owned(), replay.correlation.into());
                if let Some(exec_id) = replay.exec_id {
                    args.insert("graph id".to_owned(), exec_id.into());
                }
                if let Some((_, launch_ns)) = replay.launch {
                    args.insert("launch_to_begin_ns".to_owned(), (replay.begin_ns - launch_ns).into());
                }
            }
        }
        args
    }

    pub(super) fn bar_name(&self, bar: &Bar<'a>) -> &'a str {
        bar.zone.map_or_else(|| self.title(self.replay(bar.replay)), |zone| &zone.name)
    }
}

fn row<'a>(process: u32, lane: Option<&'a str>, mut bars: Vec<Bar<'a>>) -> ReplayRow<'a> {
    // The sort is stable: of two equal slices, the one that comes first among the zones of a replay stays the outer one.
    bars.sort_by_key(|bar| (bar.begin_ns, Reverse(bar.end_ns)));
    let mut slices: Vec<Slice> = bars
        .iter()
        .zip(0..)
        .map(|(bar, number)| Slice { begin_ns: bar.begin_ns, end_ns: bar.end_ns, number })
        .collect();
    let mut homeless = Vec::new();
    let lanes = place(&mut slices, |slice, lane| match lane {
        Some(lane) => bars[slice.number as usize].lane = lane,
        None => homeless.push(slice.number as usize),
    });
    // A device does not run more than a thousand replays at once.
    for at in homeless.into_iter().rev() {
        bars.remove(at);
    }
    ReplayRow { process, lane, lanes, bars }
}
