//! Which rank stands out, since when, and who it waited for.

use super::*;

/// A rank's trace with `warpline.host`.
fn on_host(rank: u64, host: &str) -> Trace {
    let mut trace = Trace::new(rank, 0);
    let attribute = Attribute { key: "warpline.host".to_owned(), string: Some(host.to_owned()) };
    trace.packet(Packet { attributes: Some(Attributes { attributes: vec![attribute] }), ..packet() });
    trace
}

/// The arguments that give the size of a message of 1,000 floats.
fn sized() -> Vec<Annotation> {
    vec![text("dtype", "Float"), number("In msg nelems", 1_000), number("Out msg nelems", 1_000)]
}

#[test]
fn the_verdict_names_rank_number_range_size_and_since_when() {
    let mut traces = [on_host(0, "node0"), on_host(1, "node0")];
    for seq in 0..40_u64 {
        // Ranks arrive within some µs of one another, until rank 1 is late from number 25 on.
        let late = if seq >= 25 { 3 * MS + seq as i64 * 1_000 } else { 0 };
        let begin =
            |rank: u64| 20 * MS * (seq as i64 + 1) + (seq * 7 + rank * 5) as i64 % 9 * 1_000 + late * rank as i64;
        let end = begin(0).max(begin(1)) + 100_000;
        for (rank, trace) in (0..).zip(&mut traces) {
            trace.call("allreduce", seq, begin(rank), end - begin(rank), &sized());
        }
    }
    let findings = judge(&mut traces);
    let verdict = findings.verdict.as_ref().expect("rank 1 stands out");
    assert_eq!((verdict.rank, &*verdict.host, verdict.times, verdict.since_seq, verdict.seq), (1, "node0", 15, 25, 39));
    assert_eq!(
        (verdict.kind, &*verdict.range, verdict.bytes, &verdict.through[..]),
        ("all_reduce", "net.sum", Some(4_000), &[][..])
    );
    assert!((verdict.late_by_ns - 3_039_000).abs() < 10_000 && (verdict.since_ns - 523 * MS).abs() < MS, "{verdict:?}");
    let text = findings.to_text(0, false);
    let begin = "rank 1 on node0 came late to 15 of 40 collectives of tp0 [0,1], since number 25 (523.";
    assert!(text.starts_with(begin) && text.ends_with(" to number 39 (net.sum, all_reduce of 4.00 kB)\n"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&findings.to_json()).unwrap();
    assert_eq!((&json["verdict"]["rank"], &json["verdict"]["times"]), (&1.into(), &15.into()));
    assert_eq!(format!("{}\n", json["summary"].as_str().unwrap()), text);
}

#[test]
fn in_a_clean_run_no_rank_stands_out() {
    for seed in 0..20_u64 {
        let mut traces = [0, 1, 2, 3].map(|rank| Trace::new(rank, 0));
        traces.iter_mut().for_each(|trace| trace.group = ("world", "[0, 1, 2, 3]", None));
        let mut state = seed;
        for seq in 0..200_u64 {
            // Sums of random numbers: near to a normal distribution of 60 µs.
            let begins = [(); 4].map(|()| {
                let mut sum = 0;
                for _ in 0..12 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    sum += (state >> 33) as i64 % 60_000;
                }
                20 * MS * (seq as i64 + 1) + sum
            });
            let last = begins.into_iter().max().unwrap();
            for (begin, trace) in begins.into_iter().zip(&mut traces) {
                trace.call("allreduce", seq, begin, last + 100_000 - begin, &[]);
            }
        }
        let findings = judge(&mut traces);
        assert_eq!(findings.verdict, None, "seed {seed}: {}", findings.summary);
        assert!(findings.summary.starts_with("no rank stands out in 200 judged collectives; at most, rank "));
    }
}

#[test]
fn a_rank_that_waited_itself_is_not_to_blame() {
    // Ranks 0 and 1 share tp0, ranks 1 and 2 share dp1. Rank 0 is late to tp0, so rank 1 is late to dp1.
    let mut traces = [0, 1, 2].map(|rank| Trace::new(rank, 0));
    for step in 0..40_u64 {
        let zero = 50 * MS * (step as i64 + 1);
        let late = if step >= 20 { 8 * MS } else { (step as i64 * 5 % 7) * 1_000 };
        let (met, done) = (zero + late + 100_000, zero + 12 * MS);
        for (rank, trace) in traces.iter_mut().enumerate() {
            if rank < 2 {
                let begin = if rank == 0 { zero + late } else { zero };
                (trace.group, trace.rank) = (("tp0", "[0, 1]", None), rank as u64);
                trace.call("allreduce", step, begin, met - begin, &[]);
            }
            if rank > 0 {
                let begin = if rank == 1 { met + MS } else { zero + MS };
                (trace.group, trace.rank) = (("dp1", "[1, 2]", None), rank as u64 - 1);
                trace.call("allreduce", step, begin, done - begin, &[]);
            }
        }
    }
    let findings = judge(&mut traces);
    let verdict = findings.verdict.as_ref().expect("rank 0 stands out");
    assert_eq!((verdict.rank, &*verdict.group, verdict.since_seq), (0, "tp0 [0,1]", 20), "{findings:?}");
    assert!((verdict.late_by_ns - 8 * MS).abs() < MS / 2, "{verdict:?}");
    // Rank 1 comes last to dp1 in each step, and is named nowhere as the cause.
    assert!(findings.ranks.iter().any(|rank| (rank.rank, rank.late) == (1, 40)), "{:?}", findings.ranks);
}

/// Ranks 0 and 1 share tp0, ranks 1 and 2 share dp1, to which rank 1 comes 8 ms late from step 20 on. Rank 0 comes to tp0 so much later than
/// rank 1. The end of rank 1 there is seen when it begins dp1.
fn with_late_ends(late_to_tp0: fn(i64) -> i64) -> [Trace; 3] {
    let mut traces = [0, 1, 2].map(|rank| Trace::new(rank, 0));
    for step in 0..40_u64 {
        let zero = 50 * MS * (step as i64 + 1);
        let late = if step >= 20 { 8 * MS } else { (step as i64 * 5 % 7) * 1_000 };
        let arrived = zero + late_to_tp0(late);
        let (met, next, done) = (arrived + 100_000, zero + late + 9 * MS, zero + 20 * MS);
        for (rank, trace) in traces.iter_mut().enumerate() {
            if rank < 2 {
                let begin = if rank == 0 { arrived } else { zero };
                (trace.group, trace.rank) = (("tp0", "[0, 1]", None), rank as u64);
                let (end, more) = if rank == 0 { (met, vec![]) } else { (next, vec![early(next - met)]) };
                trace.call("allreduce", step, begin, end - begin, &more);
            }
            if rank > 0 {
                let begin = if rank == 1 { next } else { zero + 9 * MS };
                (trace.group, trace.rank) = (("dp1", "[1, 2]", None), rank as u64 - 1);
                trace.call("allreduce", step, begin, done - begin, &[]);
            }
        }
    }
    traces
}

#[test]
fn an_end_that_was_seen_late_does_not_show_that_a_rank_waited() {
    let findings = judge(&mut with_late_ends(|_| 2_000));
    let verdict = findings.verdict.as_ref().expect("rank 1 stands out");
    assert_eq!((verdict.rank, &*verdict.group, verdict.through.len()), (1, "dp1 [1,2]", 0), "{findings:?}");
    // Where it did wait, the arrivals show it.
    let findings = judge(&mut with_late_ends(|late| late));
    let verdict = findings.verdict.as_ref().expect("rank 0 stands out");
    assert_eq!((verdict.rank, &*verdict.group), (0, "tp0 [0,1]"), "{findings:?}");
}

#[test]
fn a_wait_that_neither_ends_nor_clocks_show_makes_no_verdict() {
    let mut traces = with_late_ends(|_| 2_000);
    // Rank 0 was killed before it wrote how uncertain its clock is.
    traces[1..].iter_mut().for_each(|trace| trace.end(0));
    let findings = judge_as_they_are(&traces);
    assert_eq!(findings.verdict, None, "{}", findings.summary);
    let said = "of dp1 [1,2] (net.sum, all_reduce), but may have waited for another rank itself: the ends of collectives before it were not \
                timed; record with `ends=eager`";
    assert!(
        findings.summary.starts_with("rank 1 came 8.00 ms late to number ") && findings.summary.ends_with(said),
        "{}",
        findings.summary
    );
}

/// Ranks 1 and 2 share dp1, to which rank 1 comes 8 ms late from step 20 on. Before it, rank 1 is in something else until then.
fn after(before: impl Fn(&mut Trace, i64, i64)) -> Findings {
    let mut traces = [1, 2].map(|rank| Trace::new(rank, 0));
    for step in 0..40_i64 {
        let zero = 50 * MS * (step + 1);
        let late = if step >= 20 { 8 * MS } else { (step * 5 % 7) * 1_000 };
        before(&mut traces[0], step, late);
        for (rank, trace) in traces.iter_mut().enumerate() {
            (trace.group, trace.rank) = (("dp1", "[1, 2]", None), rank as u64);
            let begin = zero + 10 * MS + if rank == 0 { late } else { 0 };
            trace.call("allreduce", step as u64, begin, zero + 20 * MS - begin, &[]);
        }
    }
    judge(&mut traces)
}

#[test]
fn a_rank_that_may_have_waited_in_a_call_that_is_not_judged_makes_no_verdict() {
    let recv = |group: &'static str| {
        move |trace: &mut Trace, step: i64, late: i64| {
            (trace.group, trace.rank) = (("pp0", group, None), 1);
            trace.call("recv", step as u64, 50 * MS * (step + 1), 100_000 + late, &[]);
        }
    };
    let findings = after(recv("[0, 1]"));
    assert_eq!(findings.verdict, None, "{}", findings.summary);
    let said = "but may have waited for another rank itself: a collective before it took as long, and is not judged";
    assert!(findings.summary.ends_with(said), "{}", findings.summary);
    // A group of one has nobody to wait for.
    let verdict = after(recv("[1]")).verdict.expect("rank 1 stands out");
    assert_eq!((verdict.rank, verdict.times, verdict.since_seq), (1, 20, 20), "{verdict:?}");
}

#[test]
fn an_entry_of_a_batch_is_no_wait_of_its_own() {
    // Ranks 0 and 1 gather for 6 ms in each step, in batches of a small and a large one. Rank 1 is late to dp1 by itself.
    let mut traces = [0, 1, 2].map(|rank| Trace::new(rank, 0));
    for step in 0..40_u64 {
        let zero = 50 * MS * (step as i64 + 1);
        let late = if step >= 20 { 8 * MS } else { 0 };
        for (rank, trace) in traces.iter_mut().enumerate() {
            if rank < 2 {
                (trace.group, trace.rank) = (("tp0", "[0, 1]", None), rank as u64);
                let noise = (step as i64 * 5 + rank as i64 * 3) % 7 * 1_000;
                for (entry, elements) in [(0, 10), (1, 1_000_000)] {
                    let size = [text("dtype", "Float"), number("In msg nelems", elements)];
                    trace.call("allgather", 2 * step + entry, zero + noise, 6 * MS - noise, &size);
                }
            }
            if rank > 0 {
                (trace.group, trace.rank) = (("dp1", "[1, 2]", None), rank as u64 - 1);
                let begin = zero + 10 * MS + if rank == 1 { late } else { 2_000 };
                trace.call("allreduce", step, begin, zero + 20 * MS - begin, &[]);
            }
        }
    }
    let findings = judge(&mut traces);
    assert_eq!(findings.groups.iter().map(|group| group.left_out.batch_entries).sum::<u64>(), 40, "{findings:?}");
    let verdict = findings.verdict.expect("rank 1 stands out");
    assert_eq!((verdict.rank, verdict.since_seq), (1, 20), "{verdict:?}");
}

#[test]
fn a_collective_that_a_rank_lacks_counts_if_nobody_can_have_come_later() {
    let of = |lasted: i64| {
        let mut traces = [0, 1, 2].map(|rank| Trace::new(rank, 0));
        for (rank, trace) in traces.iter_mut().enumerate() {
            trace.group = ("world", "[0, 1, 2]", None);
            for seq in 0..40_u64 {
                // Rank 2 lacks the one to which rank 1 is late.
                let (is_it, zero) = (seq == 30, 20 * MS * (seq as i64 + 1));
                let noise = (seq as i64 * 7 + rank as i64 * 5) % 9 * 1_000;
                let begin = zero + noise + if is_it && rank == 1 { 10 * MS } else { 0 };
                let end = zero + 100_000 + if is_it { 10 * MS + lasted } else { 0 };
                if !(is_it && rank == 2) {
                    trace.call("allreduce", seq, begin, end - begin, &[]);
                }
            }
        }
        let findings = judge(&mut traces);
        assert_eq!((findings.groups[0].left_out.incomplete, findings.groups[0].judged), (1, 39));
        assert!(findings.worst.iter().all(|late| late.seq != 30), "no row of the table is of it");
        findings
    };
    let verdict = of(0).verdict.expect("rank 1 stands out");
    assert_eq!((verdict.rank, verdict.seq, verdict.times), (1, 30, 1), "{verdict:?}");
    assert_eq!(of(5 * MS).verdict, None, "both may have waited for rank 2");
}

#[test]
fn ends_that_were_not_timed_differ_by_at_most_so_much() {
    let [mut a, mut b] = pair(0);
    a.call("allgather", 7, 141 * MS, 2 * MS, &[early(200_000)]);
    b.call("allgather", 7, 140 * MS, 3 * MS, &[early(500_000)]);
    let findings = judge(&mut [a, b]);
    let of_seven = findings.worst.iter().find(|late| late.seq == 7).unwrap();
    assert_eq!((of_seven.ends_differ_by_ns, of_seven.ends_differ_is_bound), (500_000, true));
    let others = findings.worst.iter().filter(|late| late.seq != 7);
    assert!(others.into_iter().all(|late| !late.ends_differ_is_bound));
    assert!(findings.to_text(20, false).contains(" ≤500.00 µs  net.sum"), "{}", findings.to_text(20, false));
}
