//! The report: the table, the JSON, the groups, and what was not judged.

use super::*;

#[test]
fn the_table_of_many_ranks_is_short() {
    let many = EndMode {
        ranks: 512,
        begins_us: |seq, rank| if rank == 17 + seq % 2 * 400 { 900 } else { rank as i64 % 7 },
        ends_us: |_, _| 50,
        collectives: 3,
    };
    let findings = judge(&mut many.traces(|_| 0));
    let text = findings.to_text(20, false);
    let table = text.split("\n\n").find(|part| part.trim_start().starts_with("group ")).expect("a table of ranks");
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words.len(), 10, "a head, two late ranks, six others and how many more: {table}");
    assert_eq!((&words[1][4..7], &words[2][4..7]), (&["17", "2", "3"][..], &["417", "1", "3"][..]), "{table}");
    assert_eq!(table.lines().last(), Some(" … and 504 ranks that were never the last"), "{table}");
    assert_eq!(findings.ranks.len(), 512, "the JSON has all");
}

#[test]
fn top_bounds_all_that_is_printed() {
    let many = EndMode {
        ranks: 64,
        begins_us: |seq, rank| if rank == seq % 64 { 900 } else { rank as i64 % 7 },
        ends_us: |_, _| 50,
        collectives: 64,
    };
    let mut traces = many.traces(|_| 0);
    for trace in &mut traces {
        // Each has a group of its own, of which another rank has no trace.
        trace.group = ("own", format!("[{}, 900]", trace.rank).leak(), None);
        trace.rank = 0;
        trace.call("allreduce", 0, 0, MS, &[]);
    }
    let findings = judge(&mut traces);
    for (top, lines) in [(0, 1), (1, 11), (3, 17), (10, 38)] {
        let text = findings.to_text(top, false);
        assert!(text.lines().count() <= lines, "{} lines for {top}: {text}", text.lines().count());
        assert!(text.starts_with("no rank stands out in 64 judged collectives; at most, rank "), "{text}");
    }
    let text = findings.to_text(3, false);
    assert!(text.contains("… and 61 ranks for which the others waited less"), "{text}");
    assert!(text.contains("… and 61 more notes; `--format json` has all"), "{text}");
}

#[test]
fn ranks_that_came_as_late_are_counted() {
    let three =
        EndMode { ranks: 3, begins_us: |_, rank| [0, 5_000, 5_001][rank as usize], ends_us: |_, _| 50, collectives: 1 };
    let findings = judge_within(1_000, &mut three.traces(|_| 0));
    let late = &findings.worst[0];
    assert_eq!((late.late_rank, late.as_late, late.late_by_ns, late.uncertain_ns), (2, 1, 5_001_000, 2_000));
    let text = findings.to_text(20, false);
    assert!(text.contains(" 2 (or 1 more) "), "{text}");
}

#[test]
fn a_session_that_was_killed_shares_no_clock() {
    // The uncertainty of its times is unknown.
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
not enough to say who is late: in 1 judged collective, at most, rank 4 came 1.00 ms late to number 4 of world [0,4,8] (net.sum, all_reduce)
MISMATCH: number 7 of world [0,4,8]: all_reduce on rank 0; all_gather on rank 4
MISMATCH: 1 in all. The ranks' programs differ there, or began to count at different collectives: then give `seq` in the marks

 collective  group          seq  late rank  late by  ends differ by  range
 all_reduce  world [0,4,8]    4          4  1.00 ms          500 µs  net.sum

 group          rank  times late  of  others waited
 world [0,4,8]     4           1   1        1.00 ms
 world [0,4,8]     0           0   1           0 ns

world [0,4,8]: no trace of rank 8
world [0,4,8]: not judged: 1 that not every rank has; 1 that one rank has twice (is a trace given twice, or does a group count twice?); \
1 that failed; 1 in which all ranks came at the same time, as far as their clock tells; 1 with a root, in which not every \
rank waits; 1 to or from one peer; 1 in a batch with the one before
";
    let text = judge(&mut [a, b]).to_text(20, false);
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
    let text = judge(&mut traces.collect::<Vec<_>>()).to_text(20, false);
    let expected = "\
no rank kept the others waiting in a collective that could be judged
MISMATCH: number 0 of world [0,…,999: 1000 ranks]: all_reduce on ranks 0, 1, 2, 3, 4, 5, 6, 8 and 491 more; all_gather on rank 7
MISMATCH: 1 in all. The ranks' programs differ there, or began to count at different collectives: then give `seq` in the marks

world [0,…,999: 1000 ranks]: no trace of ranks 500, 501, 502, 503, 504, 505, 506, 507 and 492 more
";
    assert_eq!(text, expected, "{text}");
}

#[test]
fn groups_are_told_apart_by_communicator_or_else_by_name_and_ranks() {
    let mut traces = pair(0);
    // Another name of the same communicator; the report shows the first name.
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
    let text = judge(&mut pair(0)[..1]).to_text(20, false);
    let expected =
        "no group has traces of two ranks; give those of the other ranks too\n\ntp0 [0,1]: no trace of rank 1\n";
    assert_eq!(text, expected);
}

#[test]
fn the_json_is_as_documented() {
    let json: serde_json::Value = serde_json::from_str(&judge(&mut pair(0)).to_json()).unwrap();
    let worst = serde_json::json!({
        "group": "tp0 [0,1]", "kind": "all_reduce", "seq": 5, "late_rank": 1, "as_late": 0, "late_by_ns": 10_000_000,
        "uncertain_ns": 0, "ends_differ_by_ns": 0, "one_clock": true, "range": "net.sum", "bytes": null,
    });
    assert_eq!((&json["version"], &json["worst"][0]), (&3.into(), &worst));
    assert_eq!((&json["verdict"], json["summary"].is_string()), (&serde_json::Value::Null, true), "{json}");
    let rank = serde_json::json!({"group": "tp0 [0,1]", "rank": 1, "late": 4, "judged": 4, "waited_ns": 10_006_000,
        "likely": 0, "likely_ns": 0});
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
    let text = judge(&mut traces).to_text(20, false);
    assert!(!text.contains('\u{1b}') && text.contains("\\u{1b}[2J [0,1]"), "{text}");
}
