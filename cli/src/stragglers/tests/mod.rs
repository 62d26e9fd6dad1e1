//! Synthetic traces with exact times. `tests/stragglers.rs` reads traces of real sessions.

mod damage;
mod judge;
mod proto;
mod report;
mod verdict;

use prost::Message;

use self::proto::*;
use super::{Calls, Findings, Skipped, TraceError};

/// The begin of the sessions, in ns of `CLOCK_BOOTTIME`.
const BOOT_NS: u64 = 5_000_000_000_000;
/// The same instant by the wall clock.
const WALL_NS: u64 = 1_700_000_000_000_000_000;
const MS: i64 = 1_000_000;

/// The trace of one rank, on one packet sequence.
struct Trace {
    bytes: Vec<u8>,
    group: (&'static str, &'static str, Option<u64>),
    rank: u64,
}

impl Trace {
    /// Creates the trace of a rank of tp0, on a host that booted `skew_ns` later than the first host.
    fn new(rank: u64, skew_ns: u64) -> Trace {
        let mut trace = Trace { bytes: Vec::new(), group: ("tp0", "[0, 1]", Some(99)), rank };
        let clocks = |clocks: &[(u32, u64)]| {
            let clocks = clocks.iter().map(|(id, timestamp)| Clock { id: *id, timestamp: *timestamp }).collect();
            Some(ClockSnapshot { clocks })
        };
        let boot = BOOT_NS - skew_ns;
        trace.packet(Packet {
            sequence: 7,
            clocks: clocks(&[(BOOTTIME, boot), (REALTIME, WALL_NS)]),
            track: Some(Track { process: Some(Process { pid: 100 + rank as i32 }) }),
            attributes: Some(Attributes {
                attributes: [("warpline.version", "1".to_owned()), ("warpline.boot_id", format!("booted-{skew_ns}"))]
                    .map(|(key, text)| Attribute { key: key.to_owned(), string: Some(text) })
                    .into(),
            }),
            ..Packet::default()
        });
        trace.packet(Packet {
            flags: STATE_CLEARED,
            clocks: clocks(&[(SESSION, 0), (BOOTTIME, boot)]),
            defaults: Some(Defaults { clock: Some(SESSION) }),
            interned: Some(Interned {
                event_names: vec![Text { iid: 1, text: "net.sum".to_owned() }],
                annotation_names: vec![Text { iid: 5, text: "end_early_by_ns".to_owned() }],
                strings: Vec::new(),
            }),
            ..packet()
        });
        trace
    }

    fn packet(&mut self, packet: Packet) {
        self.bytes.push(0x0A);
        packet.encode_length_delimited(&mut self.bytes).unwrap();
    }

    /// Adds a collective, with times relative to the session's begin.
    fn call(&mut self, kind: &str, seq: u64, begin_ns: i64, length_ns: i64, more: &[Annotation]) -> &mut Trace {
        let (name, ranks, comm_id) = self.group;
        let mut annotations = vec![
            text("Collective name", kind),
            text("Process Group Name", name),
            text("Process Group Ranks", ranks),
            number("Rank", self.rank),
            number("Seq", seq),
        ];
        annotations.extend(comm_id.map(|id| number("Comms Id", id)));
        annotations.extend_from_slice(more);
        let event = |kind, name_iid, annotations| {
            Some(Event { kind, name_iid, annotations, category: Some("collective".to_owned()), name: None })
        };
        let begin = event(SLICE_BEGIN, 1, annotations);
        self.packet(Packet { timestamp: Some(begin_ns as u64), event: begin, ..packet() });
        let end = event(SLICE_END, 0, vec![]);
        self.packet(Packet { timestamp: Some((begin_ns + length_ns) as u64), event: end, ..packet() });
        self
    }
}

impl Trace {
    /// Interns strings by their ids.
    fn intern(&mut self, strings: &[(u64, &str)]) {
        let strings = strings.iter().map(|(iid, text)| Text { iid: *iid, text: (*text).to_owned() }).collect();
        self.packet(Packet { interned: Some(Interned { strings, ..Interned::default() }), ..packet() });
    }

    /// Adds the account that a session writes at its end, with its clock uncertainty.
    fn end(&mut self, uncertain_ns: i64) {
        self.end_with(&[], uncertain_ns);
    }

    /// `reasons` says why zones were dropped, and how many.
    fn end_with(&mut self, reasons: &[(&str, u64)], uncertain_ns: i64) {
        let dropped = reasons.iter().map(|(_, count)| count).sum();
        let mut annotations = vec![number("begun", 12), number("recorded", 12 - dropped), number("dropped", dropped)];
        annotations.extend(reasons.iter().map(|(reason, count)| number(&format!("dropped.{reason}"), *count)));
        annotations.push(Annotation {
            name: "gpu0.clock_uncertainty_ns".to_owned(),
            int: Some(uncertain_ns),
            ..Annotation::default()
        });
        let (category, name) = (Some("session".to_owned()), Some("session ends".to_owned()));
        let event = Event { kind: INSTANT, name_iid: 0, annotations, category, name };
        self.packet(Packet { event: Some(event), ..packet() });
    }
}

fn packet() -> Packet {
    Packet { sequence: 8, ..Packet::default() }
}

fn text(name: &str, value: &str) -> Annotation {
    Annotation { name: name.to_owned(), string: Some(value.to_owned()), ..Annotation::default() }
}

fn number(name: &str, value: u64) -> Annotation {
    Annotation { name: name.to_owned(), uint: Some(value), ..Annotation::default() }
}

/// An annotation whose string is interned.
fn interned(name: &str, iid: u64) -> Annotation {
    Annotation { name: name.to_owned(), string_iid: Some(iid), ..Annotation::default() }
}

/// The true end may be this much earlier.
fn early(ns: i64) -> Annotation {
    Annotation { name_iid: 5, int: Some(ns), ..Annotation::default() }
}

fn read(bytes: &[u8]) -> Result<(Calls, Skipped), TraceError> {
    let mut calls = Calls::default();
    let skipped = calls.read(bytes)?;
    Ok((calls, skipped))
}

/// What is left out of a trace of warpline of which all is read.
fn whole() -> Skipped {
    Skipped { unread: warpline_trace::read::Skipped { is_ours: true, ..Default::default() }, ..Skipped::default() }
}

/// Judges traces that end with exact clocks.
fn judge(traces: &mut [Trace]) -> Findings {
    traces.iter_mut().for_each(|trace| trace.end(0));
    judge_as_they_are(traces)
}

fn judge_as_they_are(traces: &[Trace]) -> Findings {
    let mut calls = Calls::default();
    for trace in traces {
        assert_eq!(calls.read(&*trace.bytes).unwrap(), whole());
    }
    calls.judge(200)
}

/// Two ranks with the same collectives: rank 1 begins number 5 ten milliseconds late.
fn pair(skew_ns: u64) -> [Trace; 2] {
    let mut traces = [Trace::new(0, 0), Trace::new(1, skew_ns)];
    for seq in 3..7 {
        let late = if seq == 5 { 10 * MS } else { 2_000 };
        traces[0].call("allreduce", seq, seq as i64 * 20 * MS, 50_000 + late, &[]);
        traces[1].call("allreduce", seq, seq as i64 * 20 * MS + late, 50_000, &[]);
    }
    traces
}

/// Judges traces that end with this clock uncertainty.
fn judge_within(uncertain_ns: i64, traces: &mut [Trace]) -> Findings {
    traces.iter_mut().for_each(|trace| trace.end(uncertain_ns));
    judge_as_they_are(traces)
}

/// Ranks whose ends differ for a reason other than lateness.
struct EndMode {
    ranks: u64,
    /// By sequence number and rank: the begin in µs after the first begin, and the end in µs after the last begin.
    begins_us: fn(u64, u64) -> i64,
    ends_us: fn(u64, u64) -> i64,
    collectives: u64,
}

impl EndMode {
    fn traces(&self, skew_ns: fn(u64) -> u64) -> Vec<Trace> {
        let ranks: Vec<u64> = (0..self.ranks).collect();
        let listed = format!("{ranks:?}").leak();
        let traces = ranks.iter().map(|rank| {
            let mut trace = Trace::new(*rank, skew_ns(*rank));
            trace.group = ("world", listed, Some(7));
            for seq in 0..self.collectives {
                let zero_us = 100_000 * (seq as i64 + 1);
                let last_us = ranks.iter().map(|rank| (self.begins_us)(seq, *rank)).max().unwrap();
                let begin_us = (self.begins_us)(seq, *rank);
                let end_us = last_us + (self.ends_us)(seq, *rank);
                trace.call("allreduce", seq, (zero_us + begin_us) * 1_000, (end_us - begin_us) * 1_000, &[]);
            }
            trace
        });
        traces.collect()
    }
}

/// Rank 5 arrives 32.3 ms late and rank 2 arrives 2.1 ms late; rank 2 leaves at once, the others after 31 ms.
const EIGHT: EndMode = EndMode {
    ranks: 8,
    begins_us: |_, rank| [0, 10, 2_100, 30, 20, 32_300, 5, 15][rank as usize],
    ends_us: |_, rank| if rank == 2 { 100 } else { 31_000 },
    collectives: 3,
};
