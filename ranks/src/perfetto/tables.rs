//! A trace of a rank that has written none, from its tables: steps, stages and the kept collectives. The trace says
//! that it comes from the tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use warpline_trace::write::perfetto::proto::clock::{BOOTTIME, REALTIME};
use warpline_trace::write::perfetto::proto::{annotation, clock, event, packet, track};

use super::Window;
use super::cut::{Cut, Rank, attributes};
use crate::engine::{Engine, Rows};
use crate::error::Error;

/// The process's name ends with it.
pub const FROM_TABLES: &str = "from the tables";

const SEQUENCE: u64 = 1;
const PROCESS: u64 = 1;
const GROUP: u64 = 2;

/// A slice, on the rank's own clock.
#[derive(Debug, Clone)]
struct Slice {
    begin_ns: i64,
    dur_ns: i64,
    name: String,
    facts: Vec<(&'static str, Fact)>,
}

#[derive(Debug, Clone)]
enum Fact {
    Number(i64),
    Text(Arc<str>),
}

/// The rows of a rank.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    steps: Vec<Slice>,
    stages: Vec<Slice>,
    /// By communicator.
    collectives: BTreeMap<Arc<str>, Vec<Slice>>,
}

/// Reads the rows of these ranks in the window. `spans` are the windows of time of the ranks, on their own clocks.
pub fn read(
    engine: &Engine,
    window: Window,
    spans: &BTreeMap<i64, (i64, i64)>,
) -> Result<BTreeMap<i64, Tables>, Error> {
    let mut all: BTreeMap<i64, Tables> = BTreeMap::new();
    if spans.is_empty() {
        return Ok(all);
    }
    let ranks = spans.keys().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let (from, to) = (window.from, window.to);
    let sql =
        format!("SELECT * FROM steps WHERE step BETWEEN {from} AND {to} AND rank IN ({ranks}) ORDER BY rank, step");
    let rows = engine.query("steps", &sql)?;
    const COLUMNS: [&str; 8] =
        ["compute_ns", "comm_ns", "comm_hidden_ns", "wait_ns", "idle_ns", "launch_ns", "zones", "dropped"];
    let facts = numbers(&rows, COLUMNS)?;
    let (rank, step, begin, wall) =
        (rows.ints("rank")?, rows.ints("step")?, rows.ints("begin_ns")?, rows.ints("wall_ns")?);
    let mut at: BTreeMap<(i64, i64), i64> = BTreeMap::new();
    for row in 0..rows.len() {
        at.insert((rank[row], step[row]), begin[row]);
        all.entry(rank[row]).or_default().steps.push(Slice {
            begin_ns: begin[row],
            dur_ns: wall[row],
            name: format!("step {}", step[row]),
            facts: facts.iter().map(|(name, values)| (*name, Fact::Number(values[row]))).collect(),
        });
    }
    let sql = format!(
        "SELECT rank, step, idx, name, dur_ns FROM stages WHERE step BETWEEN {from} AND {to} AND rank IN ({ranks}) ORDER BY rank, step, idx"
    );
    let rows = engine.query("stages", &sql)?;
    let (rank, step, idx) = (rows.ints("rank")?, rows.ints("step")?, rows.ints("idx")?);
    let (name, dur) = (rows.texts("name")?, rows.ints("dur_ns")?);
    for row in 0..rows.len() {
        let Some(begin) = at.get_mut(&(rank[row], step[row])) else { continue };
        let facts = vec![
            ("idx", Fact::Number(idx[row])),
            ("begin", Fact::Text("not in the tables: the stages are placed one after the other".into())),
        ];
        let stage = Slice { begin_ns: *begin, dur_ns: dur[row], name: name[row].to_string(), facts };
        all.entry(rank[row]).or_default().stages.push(stage);
        *begin += dur[row];
    }
    let (first, last) = (spans.values().map(|span| span.0).min(), spans.values().map(|span| span.1).max());
    let sql = format!(
        "SELECT rank, comm, seq, kind, bytes, begin_ns, dur_ns, wait_ns, err_ns, range, why FROM collectives \
         WHERE rank IN ({ranks}) AND begin_ns <= {} AND begin_ns + dur_ns >= {} ORDER BY rank, comm, begin_ns",
        last.unwrap_or(i64::MAX),
        first.unwrap_or(i64::MIN)
    );
    let rows = engine.query("collectives", &sql)?;
    let facts = numbers(&rows, ["seq", "bytes", "wait_ns", "err_ns"])?;
    let (rank, begin, dur) = (rows.ints("rank")?, rows.ints("begin_ns")?, rows.ints("dur_ns")?);
    let (comm, kind, range, why) = (rows.texts("comm")?, rows.texts("kind")?, rows.texts("range")?, rows.texts("why")?);
    for row in 0..rows.len() {
        let is_inside =
            spans.get(&rank[row]).is_some_and(|(from, to)| begin[row] <= *to && begin[row] + dur[row] >= *from);
        if !is_inside {
            continue;
        }
        let mut facts: Vec<_> = facts.iter().map(|(name, values)| (*name, Fact::Number(values[row]))).collect();
        facts.extend([("comm", Fact::Text(comm[row].clone())), ("kind", Fact::Text(kind[row].clone()))]);
        facts.push(("why", Fact::Text(why[row].clone())));
        let name = if range[row].is_empty() { kind[row].to_string() } else { range[row].to_string() };
        let slice = Slice { begin_ns: begin[row], dur_ns: dur[row], name, facts };
        all.entry(rank[row]).or_default().collectives.entry(comm[row].clone()).or_default().push(slice);
    }
    Ok(all)
}

fn numbers<const N: usize>(rows: &Rows, names: [&'static str; N]) -> Result<Vec<(&'static str, Vec<i64>)>, Error> {
    names.into_iter().map(|name| Ok((name, rows.ints(name)?))).collect()
}

/// Writes the trace.
pub fn write(tables: &Tables, rank: &Rank<'_>) -> Cut {
    let mut writer = Writer { rank, next: GROUP + 1, cut: Cut::default() };
    writer.begin();
    writer.rows("steps", std::slice::from_ref(&tables.steps));
    writer.rows("stages, in order", std::slice::from_ref(&tables.stages));
    for (comm, slices) in &tables.collectives {
        writer.rows(&format!("comm: {comm}"), &lanes(slices));
    }
    writer.cut
}

/// Splits slices that overlap into lanes.
fn lanes(slices: &[Slice]) -> Vec<Vec<Slice>> {
    let mut lanes: Vec<Vec<Slice>> = Vec::new();
    for slice in slices {
        let is_free =
            |lane: &&mut Vec<Slice>| lane.last().is_none_or(|last| last.begin_ns + last.dur_ns <= slice.begin_ns);
        match lanes.iter_mut().find(is_free) {
            Some(lane) => lane.push(slice.clone()),
            None => lanes.push(vec![slice.clone()]),
        }
    }
    lanes
}

struct Writer<'a> {
    rank: &'a Rank<'a>,
    next: u64,
    cut: Cut,
}

impl Writer<'_> {
    fn begin(&mut self) {
        let (from, trace, rank) = (self.rank.window.0, &mut self.cut.trace, self.rank);
        trace.packet(|packet| {
            packet.int(packet::TIMESTAMP, from);
            packet.uint(packet::SEQUENCE_ID, SEQUENCE);
            packet.uint(packet::SEQUENCE_FLAGS, packet::STATE_CLEARED);
            packet.message(packet::CLOCK_SNAPSHOT, |snapshot| {
                for (clock, time) in [(BOOTTIME, from), (REALTIME, from.saturating_add(rank.wall_ns))] {
                    snapshot.message(clock::CLOCKS, |snapshot| {
                        snapshot.uint(clock::ID, clock);
                        snapshot.int(clock::TIMESTAMP, time);
                    });
                }
                snapshot.uint(clock::PRIMARY, BOOTTIME);
            });
        });
        attributes(rank.attributes, trace);
        trace.packet(|packet| {
            packet.uint(packet::SEQUENCE_ID, SEQUENCE);
            packet.message(packet::TRACK_DESCRIPTOR, |descriptor| {
                descriptor.uint(track::UUID, PROCESS);
                descriptor.message(track::PROCESS, |process| {
                    process.int(track::PROCESS_PID, rank.pid);
                    process.text(track::PROCESS_NAME, &format!("{} · {FROM_TABLES}", rank.name));
                    rank.labels.iter().for_each(|label| process.text(track::PROCESS_LABELS, label));
                });
            });
        });
        self.track(GROUP, PROCESS, "from the tables: no trace of this rank was found");
    }

    fn track(&mut self, uuid: u64, parent: u64, name: &str) {
        self.cut.trace.packet(|packet| {
            packet.uint(packet::SEQUENCE_ID, SEQUENCE);
            packet.message(packet::TRACK_DESCRIPTOR, |descriptor| {
                descriptor.uint(track::UUID, uuid);
                descriptor.uint(track::PARENT_UUID, parent);
                descriptor.text(track::NAME, name);
            });
        });
    }

    fn rows(&mut self, name: &str, lanes: &[Vec<Slice>]) {
        for lane in lanes.iter().filter(|lane| !lane.is_empty()) {
            let track = self.next;
            self.next += 1;
            self.track(track, GROUP, name);
            lane.iter().for_each(|slice| self.slice(track, slice));
        }
    }

    fn slice(&mut self, track: u64, slice: &Slice) {
        let end_ns = slice.begin_ns.saturating_add(slice.dur_ns);
        for (kind, at) in [(event::SLICE_BEGIN, slice.begin_ns), (event::SLICE_END, end_ns)] {
            self.cut.trace.packet(|packet| {
                packet.int(packet::TIMESTAMP, (self.rank.place)(at));
                packet.uint(packet::SEQUENCE_ID, SEQUENCE);
                packet.message(packet::TRACK_EVENT, |event| {
                    event.uint(event::TYPE, kind);
                    event.uint(event::TRACK_UUID, track);
                    if kind == event::SLICE_BEGIN {
                        event.text(event::CATEGORIES, FROM_TABLES);
                        event.text(event::NAME, &slice.name);
                        for (name, fact) in &slice.facts {
                            event.message(event::ANNOTATIONS, |annotation| {
                                annotation.text(annotation::NAME, name);
                                match fact {
                                    Fact::Number(number) => annotation.int(annotation::INT, *number),
                                    Fact::Text(text) => annotation.text(annotation::STRING, text),
                                }
                            });
                        }
                    }
                });
            });
        }
        self.cut.slices += 1;
    }
}
