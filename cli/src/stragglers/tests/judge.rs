//! Late ranks with one clock and with several, and the cases in which no rank may be named.

use proptest::prelude::*;

use super::*;

#[test]
fn the_late_rank_is_the_one_that_began_last() {
    let [mut a, mut b] = pair(0);
    a.call("allgather", 7, 141 * MS, 2 * MS, &[early(200_000)]);
    b.call("allgather", 7, 140 * MS, 3 * MS, &[early(500_000)]);
    let expected = "\
not enough to say who is late: in 5 judged collectives, at most, rank 1 came 10.0 ms late to number 5 of tp0 [0,1] (net.sum, all_reduce)

 collective  group      seq  late rank  late by  ends differ by  range
 all_reduce  tp0 [0,1]    5          1  10.0 ms            0 ns  net.sum
 all_gather  tp0 [0,1]    7          0  1.00 ms         ≤500 µs  net.sum
 all_reduce  tp0 [0,1]    3          1  2.00 µs            0 ns  net.sum
 all_reduce  tp0 [0,1]    4          1  2.00 µs            0 ns  net.sum
 all_reduce  tp0 [0,1]    6          1  2.00 µs            0 ns  net.sum

 group      rank  times late  of  others waited
 tp0 [0,1]     1           4   5        10.0 ms
 tp0 [0,1]     0           1   5        1.00 ms
";
    let text = judge(&mut [a, b]).to_text(20, false);
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

#[test]
fn a_difference_within_what_the_clocks_are_uncertain_is_not_judged() {
    let findings = judge_within(1_500, &mut pair(0));
    let late: Vec<_> = findings.worst.iter().map(|late| (late.seq, late.late_by_ns, late.uncertain_ns)).collect();
    assert_eq!((&*late, findings.groups[0].left_out.too_close), (&[(5, 10 * MS, 3_000)][..], 3));
    let text = findings.to_text(20, false);
    assert!(text.contains("10.0 ms ± 3.00 µs"), "{text}");
    let reason = "3 in which all ranks came at the same time, as far as their clock tells";
    assert!(text.contains(reason), "{text}");
}

#[test]
fn ends_that_differ_do_not_change_who_came_last() {
    let findings = judge(&mut EIGHT.traces(|_| 0));
    for late in &findings.worst {
        assert_eq!((late.late_rank, late.late_by_ns, late.uncertain_ns), (5, 32_300_000, 0), "{late:?}");
        assert_eq!((late.ends_differ_by_ns, late.one_clock, late.as_late), (30_900_000, true, 0), "{late:?}");
    }
    assert_eq!(findings.worst.len(), 3);
    // With more ranks, and with another rank that leaves first.
    let many = EndMode {
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
    // Each rank is a little late at times; in every fourth collective, the rank that began first also leaves first, by a larger margin.
    let two = EndMode {
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
    // The bounds on the offset are about 50 µs apart, so only the collective with a lateness of 10 ms gives a result.
    let [late] = &two.worst[..] else { panic!("one is certain: {two:?}") };
    assert_eq!((late.seq, late.late_rank, late.one_clock), (5, 1, false));
    assert!((late.late_by_ns - 10 * MS).abs() <= late.uncertain_ns && late.uncertain_ns < 80_000, "{late:?}");
    assert_eq!(two.groups[0].left_out.uncertain, 3);
}

#[test]
fn where_the_spread_of_ends_explains_a_difference_nobody_is_named() {
    let traces = |collectives| EndMode { collectives, ..EIGHT }.traces(|rank| (rank + 1) * 1_000_000_000);
    let findings = judge(&mut traces(3));
    assert_eq!((&*findings.worst, findings.groups[0].left_out.uncertain), (&[][..], 3));
    let text = findings.to_text(20, false);
    let note = "3 not certain: nothing establishes the offset of the ranks' clocks, and their ends differ by up to ";
    assert!(text.contains(note), "{text}");
}

#[test]
fn one_odd_end_among_many_is_no_late_rank() {
    // Two hosts: in collective 40 of 64, rank 0 leaves 31 ms before rank 1 and arrives 60 µs after it. Nothing proves their clocks apart by
    // less than 60 µs, but the other ends tell who came last, as hosts leave within 30 µs of one another.
    let odd = EndMode {
        ranks: 2,
        begins_us: |seq, rank| if seq % 2 == rank { 60 } else { 0 },
        ends_us: |seq, rank| if (seq, rank) == (40, 1) { 31_000 } else { 120 },
        collectives: 64,
    };
    let findings = judge(&mut odd.traces(|rank| rank * 1_000_000_000));
    assert_eq!((&*findings.worst, findings.groups[0].left_out.uncertain), (&[][..], 64));
    let likely: Vec<_> = findings.ranks.iter().map(|rank| (rank.rank, rank.likely, rank.late)).collect();
    assert_eq!(likely, [(0, 32, 0), (1, 32, 0)], "{findings:?}");
    assert!(findings.ranks.iter().all(|rank| (rank.likely_ns / 32 - 60_000).abs() < 5_000), "{findings:?}");
    let text = findings.to_text(20, false);
    assert!(
        text.starts_with("no rank is certain to be late, because nothing establishes the offset of the hosts' clocks"),
        "{text}"
    );
}

#[test]
fn a_rank_that_always_leaves_later_on_another_host_gets_nobody_blamed() {
    // Rank 1 leaves 300 µs after rank 0 each time, as in a chain. Both arrive within 40 µs, each last in every second collective.
    let chain = EndMode {
        ranks: 2,
        begins_us: |seq, rank| if seq % 2 == rank { 40 } else { 0 },
        ends_us: |_, rank| if rank == 1 { 350 } else { 50 },
        collectives: 120,
    };
    let findings = judge(&mut chain.traces(|rank| rank * 1_000_000_000));
    assert_eq!(&*findings.worst, &[], "the ends do not tell the clocks apart from the chain");
    // A rank is still named if it is later than the ends can explain.
    let late = EndMode { begins_us: |seq, rank| if (seq, rank) == (50, 0) { 5_000 } else { 0 }, ..chain };
    let findings = judge(&mut late.traces(|rank| rank * 1_000_000_000));
    let [late] = &findings.worst[..] else { panic!("one is certain: {findings:?}") };
    assert_eq!((late.seq, late.late_rank), (50, 0), "{late:?}");
    assert!((late.late_by_ns - 5 * MS).abs() <= late.uncertain_ns, "{late:?}");
}

#[test]
fn clocks_that_drift_apart_make_nobody_late() {
    // Both ranks arrive together, one collective a second, while the second host's clock runs 50 ppm faster or slower.
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

    /// The ends are arbitrary: with few collectives, the only assumption is that no rank leaves before the last one has arrived.
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
}

/// The arguments of a zone in a replay.
fn replayed() -> [Annotation; 2] {
    [number("kernels", 1), number("correlation", 12)]
}

#[test]
fn each_replay_of_a_captured_collective_is_judged_by_itself() {
    let mut traces = [Trace::new(0, 0), Trace::new(1, 0)];
    for (rank, trace) in (0..).zip(&mut traces) {
        // Number 3 ran once, numbers 4 and 5 were captured and replayed four times; rank 1 is late in the third replay of number 5.
        trace.call("allreduce", 3, MS, 50_000, &[]);
        for replay in 1..5 {
            for seq in [4, 5] {
                let late = if (rank, replay, seq) == (1, 3, 5) { 3 * MS } else { 0 };
                trace.call("allreduce", seq, 20 * MS * replay + 5 * MS * seq as i64 + late, 4 * MS - late, &replayed());
            }
        }
    }
    let findings = judge(&mut traces);
    let [late] = &findings.worst[..] else { panic!("{findings:?}") };
    assert_eq!((late.seq, late.replay, late.late_rank, late.late_by_ns), (5, Some(3), 1, 3 * MS));
    let left_out = findings.groups[0].left_out;
    assert_eq!((findings.groups[0].judged, left_out.too_close, left_out.repeated), (1, 8, 0), "{findings:?}");
    assert!(findings.to_text(20, false).contains("5 (replay 3)"), "{}", findings.to_text(20, false));
}

#[test]
fn a_collective_that_ranks_replayed_differently_often_is_not_judged() {
    let mut traces = [Trace::new(0, 0), Trace::new(1, 0)];
    for (replays, trace) in [4, 3].into_iter().zip(&mut traces) {
        (0..replays).for_each(|replay| _ = trace.call("allreduce", 4, 20 * MS * replay, MS, &replayed()));
        (0..2).for_each(|replay| _ = trace.call("allreduce", 5, 20 * MS * replay, MS, &replayed()));
    }
    let findings = judge(&mut traces);
    let left_out = findings.groups[0].left_out;
    assert_eq!((left_out.incomplete, left_out.too_close, findings.worst.len()), (4, 2, 0), "{findings:?}");
}
