//! Traces by hand, with times that no machine has by chance. `tests/stragglers.rs` reads traces of real sessions.

use proptest::prelude::*;
use prost::Message;

use super::proto::*;
use super::{Calls, Findings, MAX_PACKET, Skipped, TraceError};

/// When the sessions begin, in ns of `CLOCK_BOOTTIME`.
const BOOT_NS: u64 = 5_000_000_000_000;
/// The same instant on the wall.
const WALL_NS: u64 = 1_700_000_000_000_000_000;
const MS: i64 = 1_000_000;

/// The trace of one rank, on one sequence of packets.
struct Trace {
    bytes: Vec<u8>,
    group: (&'static str, &'static str, Option<u64>),
    rank: u64,
}

impl Trace {
    /// Of rank `rank` of tp0, on a host that was booted `skew_ns` later: 0 for the first host.
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
                attributes: vec![Attribute {
                    key: "warpline.boot_id".to_owned(),
                    string: Some(format!("booted-{skew_ns}")),
                }],
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

    /// A collective with its times after the session's begin.
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
        let event = |kind, name_iid, annotations| Some(Event { kind, name_iid, annotations });
        let begin = event(SLICE_BEGIN, 1, annotations);
        self.packet(Packet { timestamp: begin_ns as u64, event: begin, ..packet() });
        let end = event(SLICE_END, 0, vec![]);
        self.packet(Packet { timestamp: (begin_ns + length_ns) as u64, event: end, ..packet() });
        self
    }
}

impl Trace {
    /// Defines texts by their numbers.
    fn intern(&mut self, strings: &[(u64, &str)]) {
        let strings = strings.iter().map(|(iid, text)| Text { iid: *iid, text: (*text).to_owned() }).collect();
        self.packet(Packet { interned: Some(Interned { strings, ..Interned::default() }), ..packet() });
    }

    /// The session's account, which says how good its times are.
    fn end(&mut self, uncertain_ns: i64) {
        let mut annotations = vec![number("begun", 12), number("recorded", 12), number("dropped", 0)];
        annotations.push(Annotation {
            name: "gpu0.clock_uncertainty_ns".to_owned(),
            int: Some(uncertain_ns),
            ..Annotation::default()
        });
        self.packet(Packet { event: Some(Event { kind: INSTANT, name_iid: 0, annotations }), ..packet() });
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

/// A text that is defined by its number.
fn interned(name: &str, iid: u64) -> Annotation {
    Annotation { name: name.to_owned(), string_iid: Some(iid), ..Annotation::default() }
}

/// The end is early by this.
fn early(ns: i64) -> Annotation {
    Annotation { name_iid: 5, int: Some(ns), ..Annotation::default() }
}

fn read(bytes: &[u8]) -> Result<(Calls, Skipped), TraceError> {
    let mut calls = Calls::default();
    let skipped = calls.read(bytes)?;
    Ok((calls, skipped))
}

/// Of traces that end with sound clocks.
fn judge(traces: &mut [Trace]) -> Findings {
    traces.iter_mut().for_each(|trace| trace.end(0));
    judge_as_they_are(traces)
}

fn judge_as_they_are(traces: &[Trace]) -> Findings {
    let mut calls = Calls::default();
    for trace in traces {
        assert_eq!(calls.read(&*trace.bytes).unwrap(), Skipped::default());
    }
    calls.judge(200)
}

/// Two ranks that agree, but for the times: rank 1 begins number 5 ten milliseconds late.
fn pair(skew_ns: u64) -> [Trace; 2] {
    let mut traces = [Trace::new(0, 0), Trace::new(1, skew_ns)];
    for seq in 3..7 {
        let late = if seq == 5 { 10 * MS } else { 2_000 };
        traces[0].call("allreduce", seq, seq as i64 * 20 * MS, 50_000 + late, &[]);
        traces[1].call("allreduce", seq, seq as i64 * 20 * MS + late, 50_000, &[]);
    }
    traces
}

#[test]
fn the_late_rank_is_the_one_that_began_last() {
    let [mut a, mut b] = pair(0);
    a.call("allgather", 7, 141 * MS, 2 * MS, &[early(200_000)]);
    b.call("allgather", 7, 140 * MS, 3 * MS, &[early(500_000)]);
    let expected = " collective  group      seq  late rank   late by  ends differ by  range
 all_reduce  tp0 [0,1]    5          1  10.00 ms            0 ns  net.sum
 all_gather  tp0 [0,1]    7          0   1.00 ms            0 ns  net.sum
 all_reduce  tp0 [0,1]    3          1   2.00 µs            0 ns  net.sum
 all_reduce  tp0 [0,1]    4          1   2.00 µs            0 ns  net.sum
 all_reduce  tp0 [0,1]    6          1   2.00 µs            0 ns  net.sum

 group      rank  times late  of  others waited
 tp0 [0,1]     1           4   5       10.01 ms
 tp0 [0,1]     0           1   5        1.00 ms

rank 1 was last in 4 of 5 collectives of tp0 [0,1]; the others waited 10.01 ms for it
";
    let text = judge(&mut [a, b]).to_text(false);
    assert_eq!(text, expected, "{text}");
}

#[test]
fn traces_may_come_in_any_order_and_in_one_file() {
    let expected = judge(&mut pair(0));
    let [a, b] = pair(0);
    assert_eq!(judge(&mut [b, a]), expected);
    let [mut a, mut b] = pair(0);
    a.end(0);
    b.end(0);
    a.bytes.extend(b.bytes);
    assert_eq!(judge_as_they_are(&[a]), expected);
}

/// By how much each trace's times may be off.
fn judge_within(uncertain_ns: i64, traces: &mut [Trace]) -> Findings {
    traces.iter_mut().for_each(|trace| trace.end(uncertain_ns));
    judge_as_they_are(traces)
}

#[test]
fn a_difference_within_what_the_clocks_are_uncertain_is_not_judged() {
    let findings = judge_within(1_500, &mut pair(0));
    let late: Vec<_> = findings.worst.iter().map(|late| (late.seq, late.late_by_ns, late.uncertain_ns)).collect();
    assert_eq!((&*late, findings.groups[0].left_out.too_close), (&[(5, 10 * MS, 3_000)][..], 3));
    let text = findings.to_text(false);
    assert!(text.contains("10.00 ms ± 3.00 µs"), "{text}");
    let reason = "3 in which all ranks came at the same time, as far as their clock tells";
    assert!(text.contains(reason), "{text}");
}

/// Ranks of one host whose ends differ for another reason than who was late.
struct Ends {
    ranks: u64,
    /// By rank: how late it begins and how late it ends, in µs after the first begin and the last begin.
    begins_us: fn(u64, u64) -> i64,
    ends_us: fn(u64, u64) -> i64,
    collectives: u64,
}

impl Ends {
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

/// Rank 5 comes 32.3 ms late, rank 2 comes 2.1 ms late; rank 2 leaves at once, the others after 31 ms.
const EIGHT: Ends = Ends {
    ranks: 8,
    begins_us: |_, rank| [0, 10, 2_100, 30, 20, 32_300, 5, 15][rank as usize],
    ends_us: |_, rank| if rank == 2 { 100 } else { 31_000 },
    collectives: 3,
};

#[test]
fn ends_that_differ_do_not_change_who_came_last() {
    let findings = judge(&mut EIGHT.traces(|_| 0));
    for late in &findings.worst {
        assert_eq!((late.late_rank, late.late_by_ns, late.uncertain_ns), (5, 32_300_000, 0), "{late:?}");
        assert_eq!((late.ends_differ_by_ns, late.one_clock, late.as_late), (30_900_000, true, 0), "{late:?}");
    }
    assert_eq!(findings.worst.len(), 3);
    // More ranks, and another one that leaves first.
    let many = Ends {
        ranks: 32,
        begins_us: |_, rank| if rank == 5 { 32_300 } else { rank as i64 * 60 },
        ends_us: |_, rank| if rank == 3 { 50 } else { 33_000 },
        collectives: 2,
    };
    let findings = judge(&mut many.traces(|_| 0));
    assert!(findings.worst.iter().all(|late| late.late_rank == 5) && findings.worst.len() == 2, "{findings:?}");
}

#[test]
fn a_rank_that_began_first_is_not_named() {
    // Either rank is a little late now and then; in every fourth collective the one that began first leaves first, by more.
    let two = Ends {
        ranks: 2,
        begins_us: |seq, rank| if seq % 2 == rank { 40 } else { 0 },
        ends_us: |seq, rank| if seq % 4 == 0 && seq % 2 != rank { 10 } else { 90 },
        collectives: 120,
    };
    let findings = judge(&mut two.traces(|_| 0));
    assert_eq!((findings.worst.len(), findings.groups[0].judged), (120, 120));
    let wrong = findings.worst.iter().filter(|late| u64::from(late.late_rank) != late.seq % 2);
    assert_eq!(wrong.count(), 0, "{:?}", findings.worst);
}

#[test]
fn hosts_without_a_common_clock_are_compared_by_the_collectives_themselves() {
    let (one, two) = (judge(&mut pair(0)), judge(&mut pair(1_000_000_000_000)));
    assert!(one.worst.iter().all(|late| late.one_clock && late.uncertain_ns == 0));
    // Of four collectives that took 50 µs, only the one that took longer says anything.
    let [late] = &two.worst[..] else { panic!("one is certain: {two:?}") };
    assert_eq!((late.seq, late.late_rank, late.one_clock), (5, 1, false));
    assert!((late.late_by_ns - 10 * MS).abs() <= late.uncertain_ns && late.uncertain_ns < 60_000, "{late:?}");
    assert_eq!(two.groups[0].left_out.uncertain, 3);
}

#[test]
fn where_the_spread_of_ends_explains_a_difference_nobody_is_named() {
    let traces = |collectives| Ends { collectives, ..EIGHT }.traces(|rank| (rank + 1) * 1_000_000_000);
    let findings = judge(&mut traces(3));
    assert_eq!((&*findings.worst, findings.groups[0].left_out.uncertain), (&[][..], 3));
    let text = findings.to_text(false);
    let note = "3 not certain: the ranks have no common clock, and their ends differ by up to ";
    assert!(text.contains(note), "{text}");
}

#[test]
fn one_odd_end_among_many_is_no_late_rank() {
    // Two hosts; in number 40 of 64, rank 0 leaves 31 ms before rank 1, which came 20 µs before it.
    let odd = Ends {
        ranks: 2,
        begins_us: |seq, rank| if seq % 2 == rank { 20 } else { 0 },
        ends_us: |seq, rank| if (seq, rank) == (40, 1) { 31_000 } else { 50 },
        collectives: 64,
    };
    let findings = judge(&mut odd.traces(|rank| rank * 1_000_000_000));
    let late = findings.worst.iter().find(|late| late.seq == 40).expect("it is certain");
    assert_eq!((late.late_rank, late.ends_differ_by_ns), (0, 30_950_000), "{late:?}");
    assert!((late.late_by_ns - 20_000).abs() <= late.uncertain_ns && late.uncertain_ns < 5_000, "{late:?}");
}

#[test]
fn clocks_that_drift_apart_make_nobody_late() {
    // Both come at once, one collective a second, and the second host's clock runs 50 ppm faster or slower.
    for drift_ns in [50_000, -50_000] {
        let mut traces = [Trace::new(0, 0), Trace::new(1, 1_000_000_000_000)];
        for seq in 0..128 {
            for (rank, trace) in (0..).zip(&mut traces) {
                let second = 1_000 * MS + rank * drift_ns;
                trace.call("allreduce", seq, (seq as i64 + 10) * second, 50_000, &[]);
            }
        }
        let findings = judge(&mut traces);
        assert_eq!((&*findings.worst, findings.groups[0].left_out.uncertain), (&[][..], 128), "{drift_ns}");
    }
}

#[test]
fn the_table_of_many_ranks_is_short() {
    let many = Ends {
        ranks: 512,
        begins_us: |seq, rank| if rank == 17 + seq % 2 * 400 { 900 } else { rank as i64 % 7 },
        ends_us: |_, _| 50,
        collectives: 3,
    };
    let findings = judge(&mut many.traces(|_| 0));
    let text = findings.to_text(false);
    let table = text.split("\n\n").find(|part| part.trim_start().starts_with("group ")).expect("a table of ranks");
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words.len(), 10, "a head, two late ranks, six others and how many more: {table}");
    assert_eq!((&words[1][4..7], &words[2][4..7]), (&["17", "2", "3"][..], &["417", "1", "3"][..]), "{table}");
    assert_eq!(table.lines().last(), Some(" … and 504 ranks that were never the last"), "{table}");
    assert_eq!(findings.ranks.len(), 512, "the JSON has all");
}

#[test]
fn ranks_that_came_as_late_are_counted() {
    let three =
        Ends { ranks: 3, begins_us: |_, rank| [0, 5_000, 5_001][rank as usize], ends_us: |_, _| 50, collectives: 1 };
    let findings = judge_within(1_000, &mut three.traces(|_| 0));
    let late = &findings.worst[0];
    assert_eq!((late.late_rank, late.as_late, late.late_by_ns, late.uncertain_ns), (2, 1, 5_001_000, 2_000));
    let text = findings.to_text(false);
    assert!(text.contains(" 2 (or 1 more) "), "{text}");
}

#[test]
fn a_session_that_was_killed_shares_no_clock() {
    // How good its times are is unknown.
    let mut traces = pair(0);
    traces[0].end(0);
    let findings = judge_as_they_are(&traces);
    assert!(findings.worst.iter().all(|late| !late.one_clock), "{findings:?}");
    assert_eq!(findings.groups[0].left_out.uncertain, 3);
}

#[test]
fn what_cannot_be_judged_is_counted() {
    let [mut a, mut b] = [Trace::new(0, 0), Trace::new(1, 0)];
    let failed = text("status", "error");
    for (rank, trace) in [&mut a, &mut b].into_iter().enumerate() {
        let length = (2 - rank as i64) * MS;
        trace.group = ("world", "[0, 4, 8]", None);
        trace.call("broadcast", 0, 0, length, &[]).call(["send", "recv"][rank], 1, 10 * MS, length, &[]);
        let late = rank as i64 * MS;
        trace.call("allreduce", 2, 20 * MS + late, length, &[failed.clone()][..1 - rank]);
        trace.call("allreduce", 3, 30 * MS, length, &[early(MS)]);
        let (begin, length) = (40 * MS + late, length - late / 2);
        trace.call("allreduce", 4, begin, length, &[]).call("all_to_all", 5, begin, length, &[]);
        trace.call(["allreduce", "allgather"][rank], 7, 60 * MS, length, &[]);
    }
    a.call("allreduce", 6, 50 * MS, MS, &[]).call("reduce_scatter", 8, 0, 5, &[]).call("reduce_scatter", 8, 9, 5, &[]);
    let expected = "\
MISMATCH: number 7 of world [0,4,8]: all_reduce on rank 0; all_gather on rank 4
MISMATCH: 1 in all. The ranks' programs differ there, or began to count at different collectives: then give `seq` in the marks

 collective  group          seq  late rank  late by  ends differ by  range
 all_reduce  world [0,4,8]    4          4  1.00 ms       500.00 µs  net.sum

 group          rank  times late  of  others waited
 world [0,4,8]     4           1   1        1.00 ms
 world [0,4,8]     0           0   1           0 ns

world [0,4,8]: no trace of rank 8
world [0,4,8]: not judged: 1 that not every rank has; 1 that one rank has twice (is a trace given twice, or does a group count twice?); \
1 that failed; 1 in which all ranks came at the same time, as far as their clock tells; 1 with a root, in which not every \
rank waits; 1 to or from one peer; 1 in a batch with the one before

rank 4 was last in 1 of 1 collective of world [0,4,8]; the others waited 1.00 ms for it
";
    let text = judge(&mut [a, b]).to_text(false);
    assert_eq!(text, expected, "{text}");
}

#[test]
fn of_many_ranks_the_first_few_are_told() {
    let ranks = format!("[{}]", (0..1_000).map(|rank| rank.to_string()).collect::<Vec<_>>().join(", "));
    let traces = (0..500).map(|rank| {
        let mut trace = Trace::new(rank, 0);
        trace.group = ("world", ranks.clone().leak(), None);
        trace.call(if rank == 7 { "allgather" } else { "allreduce" }, 0, 0, MS, &[]);
        trace
    });
    let text = judge(&mut traces.collect::<Vec<_>>()).to_text(false);
    let expected = "\
MISMATCH: number 0 of world [0,…,999: 1000 ranks]: all_reduce on ranks 0, 1, 2, 3, 4, 5, 6, 8 and 491 more; all_gather on rank 7
MISMATCH: 1 in all. The ranks' programs differ there, or began to count at different collectives: then give `seq` in the marks

world [0,…,999: 1000 ranks]: no trace of ranks 500, 501, 502, 503, 504, 505, 506, 507 and 492 more

no rank kept the others waiting in a collective that could be judged
";
    assert_eq!(text, expected, "{text}");
}

#[test]
fn groups_are_told_apart_by_communicator_or_else_by_name_and_ranks() {
    let mut traces = pair(0);
    // Another name of the same communicator; the first one is shown.
    traces[1].group = ("tp", "[0, 1]", Some(99));
    traces[1].call("allreduce", 20, MS, MS, &[]);
    traces[0].call("allreduce", 20, 0, 2 * MS, &[]);
    for (trace, group) in traces.iter_mut().zip([("tp0", "[0, 1]", Some(7)), ("tp0", "[0, 1]", None)]) {
        trace.group = group;
        trace.call("allreduce", 0, 0, MS, &[]);
    }
    let findings = judge(&mut traces);
    let groups: Vec<_> = findings.groups.iter().map(|group| (&*group.group, group.comm_id, group.judged)).collect();
    assert_eq!(groups, [("tp0 [0,1]", None, 0), ("tp0 [0,1] #7", Some(7), 0), ("tp0 [0,1] #99", Some(99), 5)]);
}

#[test]
fn a_group_is_what_its_numbers_stand_for_at_that_time() {
    let mut traces = [Trace::new(0, 0), Trace::new(1, 0)];
    for trace in &mut traces {
        trace.group.2 = None;
        let group = [interned("Process Group Name", 1), interned("Process Group Ranks", 2)];
        for names in [["tp0", "[0, 1]"], ["dp0", "[0, 1]"], ["dp0", "[2, 3]"]] {
            trace.intern(&[(1, names[0]), (2, names[1])]);
            for seq in 0..2 {
                trace.call("allreduce", seq, seq as i64 * MS, 50_000, &group);
            }
        }
    }
    let groups = judge(&mut traces).groups;
    let seen: Vec<_> = groups.iter().map(|group| (group.group.as_str(), group.left_out.too_close)).collect();
    assert_eq!(seen, [("dp0 [0,1]", 2), ("dp0 [2,3]", 2), ("tp0 [0,1]", 2)]);
}

#[test]
fn one_rank_alone_is_not_compared() {
    let text = judge(&mut pair(0)[..1]).to_text(false);
    let expected =
        "tp0 [0,1]: no trace of rank 1\n\nno group has traces of two ranks; give those of the other ranks too\n";
    assert_eq!(text, expected);
}

#[test]
fn the_json_is_as_documented() {
    let json: serde_json::Value = serde_json::from_str(&judge(&mut pair(0)).to_json()).unwrap();
    let worst = serde_json::json!({
        "group": "tp0 [0,1]", "kind": "all_reduce", "seq": 5, "late_rank": 1, "as_late": 0, "late_by_ns": 10_000_000,
        "uncertain_ns": 0, "ends_differ_by_ns": 0, "one_clock": true, "range": "net.sum",
    });
    assert_eq!((&json["version"], &json["worst"][0]), (&2.into(), &worst));
    let rank = serde_json::json!({"group": "tp0 [0,1]", "rank": 1, "late": 4, "judged": 4, "waited_ns": 10_006_000});
    assert_eq!(json["ranks"][0], rank);
    let none = [
        "batch_entries",
        "too_close",
        "uncertain",
        "rooted",
        "point_to_point",
        "incomplete",
        "repeated",
        "failed",
        "mismatched",
    ];
    let none: serde_json::Map<_, _> = none.map(|reason| (reason.to_owned(), 0.into())).into_iter().collect();
    let group = serde_json::json!({
        "group": "tp0 [0,1]", "comm_id": 99, "ranks": [0, 1], "missing": [], "judged": 4, "left_out": none,
        "uncertain_ends_ns": 0,
    });
    assert_eq!((&json["groups"], &json["mismatches"]), (&serde_json::json!([group]), &serde_json::json!([])));
}

#[test]
fn a_hostile_trace_cannot_steer_the_terminal() {
    let mut traces = pair(0);
    for trace in &mut traces {
        trace.group = ("\u{1b}[2J", "[0, 1]", None);
    }
    traces[0].call("allreduce", 0, 0, 99 * MS, &[]);
    traces[1].call("allreduce", 0, 0, MS, &[]).call("allgather", 1, 0, 0, &[]);
    traces[0].call("allreduce", 1, 0, 0, &[]).call("allgather", 2, 0, 0, &[]);
    let text = judge(&mut traces).to_text(false);
    assert!(!text.contains('\u{1b}') && text.contains("\\u{1b}[2J [0,1]"), "{text}");
}

#[test]
fn what_is_no_trace_is_refused() {
    for bytes in [&b""[..], b"\n", b"\n\x05hello", b"[{\"ph\":\"X\"}]", b"\x1f\x8b\x08\0", &[0; 100], &[0x0A; 100]] {
        let refusal = read(bytes).unwrap_err();
        assert!(matches!(refusal, TraceError::NotATrace), "{bytes:?}: {refusal}");
    }
    let [a, _] = pair(0);
    // Behind the first packet: the clocks are missing.
    let refusal = read(&a.bytes[usize::from(a.bytes[1]) + 2..]).unwrap_err();
    assert!(matches!(refusal, TraceError::NoClocks), "{refusal}");
}

#[test]
fn a_trace_that_is_cut_short_gives_what_is_whole() {
    let [a, _] = pair(0);
    let whole: Vec<_> = read(&a.bytes).unwrap().0.calls;
    let mut seen = 0;
    for end in 30..a.bytes.len() {
        let Ok((calls, skipped)) = read(&a.bytes[..end]) else { continue };
        assert_eq!(skipped, Skipped::default());
        assert_eq!(calls.calls, whole[..calls.len()]);
        seen = seen.max(calls.len());
    }
    assert_eq!((seen, whole.len()), (3, 4));
}

#[test]
fn what_a_session_dropped_is_said() {
    let [mut a, _] = pair(0);
    let annotations = [("begun", 12), ("recorded", 9), ("dropped", 3)].map(|(name, count)| Annotation {
        name: name.to_owned(),
        uint: Some(count),
        ..Annotation::default()
    });
    a.packet(Packet { event: Some(Event { kind: INSTANT, name_iid: 0, annotations: annotations.into() }), ..packet() });
    let (_, skipped) = read(&a.bytes).unwrap();
    assert_eq!(skipped, Skipped { dropped: 3, ..Skipped::default() });
}

#[test]
fn damage_is_skipped_and_said() {
    let [mut a, _] = pair(0);
    let sound = a.bytes.len() as u64;
    // A packet of wrong wire types, one that is too large, a collective without a group, one without its number.
    a.bytes.extend(b"\x0A\x04\x55\0\0\0");
    a.bytes.push(0x0A);
    prost::encoding::encode_varint(MAX_PACKET + 1, &mut a.bytes);
    a.bytes.resize(a.bytes.len() + MAX_PACKET as usize + 1, 0);
    let bare = vec![text("Collective name", "allreduce")];
    let grouped =
        [bare.clone(), vec![text("Process Group Name", "tp0"), text("Process Group Ranks", "[0, 1]")]].concat();
    for annotations in [bare, grouped] {
        let event = Some(Event { kind: SLICE_BEGIN, name_iid: 1, annotations });
        a.packet(Packet { event, ..packet() });
    }
    let at = a.bytes.len() as u64;
    a.call("allreduce", 9, MS, MS, &[]);
    let (calls, skipped) = read(&a.bytes).unwrap();
    assert_eq!((calls.len(), skipped), (5, Skipped { packets: 2, ungrouped: 1, calls: 1, ..Skipped::default() }));
    a.bytes[at as usize] = 0xFF;
    let (calls, skipped) = read(&a.bytes).unwrap();
    assert_eq!(
        (calls.len(), skipped),
        (4, Skipped { packets: 2, ungrouped: 1, calls: 1, damaged_at: Some(at), ..Skipped::default() })
    );
    // A length that no file has: the rest is cut short, and no memory is taken for it.
    a.bytes.truncate(sound as usize);
    a.bytes.extend(b"\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01");
    let (calls, skipped) = read(&a.bytes).unwrap();
    assert_eq!((calls.len(), skipped), (4, Skipped::default()));
}

/// All of what a user could see of it.
fn look(bytes: &[u8]) {
    if let Ok((calls, _)) = read(bytes) {
        let findings = calls.judge(3);
        assert!(findings.worst.len() <= 3);
        let _ = (findings.to_text(false), findings.to_json());
    }
}

proptest! {
    #[test]
    fn with_one_clock_the_last_to_begin_is_named(
        begins in proptest::collection::vec(0_i64..5_000_000, 2..9),
        ends in proptest::collection::vec(0_i64..50_000_000, 9),
        uncertain_ns in 0_i64..1_000_000,
    ) {
        let listed = format!("{:?}", (0..begins.len()).collect::<Vec<_>>()).leak();
        let last = *begins.iter().max().unwrap();
        let mut traces: Vec<Trace> = begins.iter().zip(&ends).enumerate().map(|(rank, (begin, end))| {
            let mut trace = Trace::new(rank as u64, 0);
            trace.group = ("world", listed, None);
            trace.call("allreduce", 0, *begin, last + end - begin, &[]);
            trace
        }).collect();
        let findings = judge_within(uncertain_ns, &mut traces);
        let lateness = last - begins.iter().min().unwrap();
        match &findings.worst[..] {
            [late] => {
                prop_assert_eq!(begins[late.late_rank as usize], last);
                prop_assert_eq!((late.late_by_ns, late.uncertain_ns), (lateness, 2 * uncertain_ns));
                prop_assert!(late.late_by_ns > late.uncertain_ns);
            }
            _ => prop_assert!(lateness <= 2 * uncertain_ns),
        }
    }

    /// Whatever the ends: no rank leaves before the last has come, and nothing else is taken for granted where there are few.
    #[test]
    fn without_a_common_clock_nobody_is_named_who_was_not_late(
        collectives in proptest::collection::vec(
            (proptest::collection::vec(0_i64..5_000_000, 3), proptest::collection::vec(0_i64..40_000_000, 3)), 1..15,
        ),
    ) {
        let mut traces = [0, 1, 2].map(|rank| Trace::new(rank, rank * 1_000_000_000));
        for (seq, (begins, ends)) in collectives.iter().enumerate() {
            let (zero, last) = (seq as i64 * 100 * MS, *begins.iter().max().unwrap());
            for (rank, trace) in traces.iter_mut().enumerate() {
                trace.group = ("world", "[0, 1, 2]", None);
                trace.call("allreduce", seq as u64, zero + begins[rank], last + ends[rank] - begins[rank], &[]);
            }
        }
        let findings = judge(&mut traces);
        for late in &findings.worst {
            prop_assert!(late.late_by_ns > late.uncertain_ns);
            let (begins, _) = &collectives[late.seq as usize];
            let lateness = begins[late.late_rank as usize] - begins.iter().min().unwrap();
            prop_assert!(lateness >= late.late_by_ns - late.uncertain_ns, "{lateness}: {late:?}");
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        look(&bytes);
    }

    #[test]
    fn no_damage_makes_it_panic(damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..9)) {
        let [mut a, b] = pair(0);
        a.bytes.extend(b.bytes);
        for (at, byte) in damage {
            let at = at.index(a.bytes.len());
            a.bytes[at] = byte;
        }
        look(&a.bytes);
    }
}
