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
    let mut at = 0;
    for seq in 0..40_u64 {
        // Ranks arrive within some µs of one another, until rank 1 is late from number 25 on.
        let late = if seq >= 25 { 3 * MS + seq as i64 * 1_000 } else { 0 };
        let begin = move |rank: u64| at + 20 * MS + (seq * 7 + rank * 5) as i64 % 9 * 1_000 + late * rank as i64;
        let end = begin(0).max(begin(1)) + 100_000;
        at = end;
        for (rank, trace) in (0..).zip(&mut traces) {
            trace.call("allreduce", seq, begin(rank), end - begin(rank), &sized());
        }
    }
    let findings = judge(&mut traces);
    let verdict = findings.verdict.as_ref().expect("rank 1 stands out");
    assert_eq!((verdict.rank, &*verdict.host, verdict.times, verdict.since_seq, verdict.seq), (1, "node0", 15, 25, 39));
    assert_eq!((verdict.kind, &*verdict.range, verdict.bytes), ("all_reduce", "net.sum", Some(4_000)));
    assert!(
        (verdict.late_by_ns - 3_039_000).abs() < 10_000 && (verdict.since_ns - 525 * MS).abs() < 2 * MS,
        "{verdict:?}"
    );
    let text = findings.to_text(0, false);
    let begin = "rank 1 on node0 came late to 15 of 40 collectives of tp0 [0,1], since number 25 (52";
    assert!(text.starts_with(begin) && text.ends_with(" to number 39 (net.sum, all_reduce of 4.00 kB)\n"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&findings.to_json()).unwrap();
    assert_eq!((&json["verdict"]["rank"], &json["verdict"]["times"]), (&1.into(), &15.into()));
    assert_eq!(format!("{}\n", json["summary"].as_str().unwrap()), text);
}

/// Each rank's trace of one life of a job: which process, since when, and which rank is late by 10 ms.
fn life(process: i32, begin_ns: i64, late: Option<u64>) -> Vec<Trace> {
    let on_process = |rank: u64| {
        let mut trace = on_host(rank, "node0");
        let track = Some(Track { process: Some(Process { pid: process + rank as i32 }) });
        trace.packet(Packet { track, ..packet() });
        trace.group = ("world", "[0, 1, 2, 3]", None);
        trace
    };
    let mut traces: Vec<Trace> = (0..4).map(on_process).collect();
    for seq in 0..40_u64 {
        let begin = |rank: u64| {
            let jitter = (seq * 7 + rank * 5) as i64 % 9 * 1_000;
            begin_ns + (seq as i64 + 1) * 40 * MS + jitter + if Some(rank) == late { 10 * MS } else { 0 }
        };
        let end = (0..4).map(begin).max().unwrap() + 100_000;
        for (rank, trace) in (0..).zip(&mut traces) {
            trace.call("allreduce", seq, begin(rank), end - begin(rank), &sized());
        }
    }
    traces
}

#[test]
fn of_a_job_that_was_started_again_the_last_life_is_judged() {
    let after = |first, second| {
        let mut traces = life(200, 0, first);
        traces.extend(life(300, 60_000 * MS, second));
        judge(&mut traces)
    };
    for (first, second) in [(Some(1), None), (None, Some(2)), (Some(1), Some(3))] {
        let findings = after(first, second);
        let named = findings.verdict.as_ref().map(|verdict| u64::from(verdict.rank));
        assert_eq!(named, second, "{}", findings.summary);
        assert_eq!((findings.earlier.processes, findings.earlier.calls), (4, 160));
        assert_eq!((findings.groups[0].judged, findings.groups[0].left_out.repeated), (40, 0));
        assert!(findings.verdict.is_none_or(|verdict| verdict.share < 1.0));
    }
    let text = after(None, None).to_text(20, false);
    let note =
        "ranks were started again: 160 calls of earlier processes left out; the last process of each rank is judged\n";
    assert!(text.contains(note), "{text}");
    // Processes at one time are no restart: their numbers are said to be repeated.
    let mut traces = life(200, 0, None);
    traces.extend(life(300, 500 * MS, None));
    let findings = judge(&mut traces);
    assert_eq!((findings.earlier.processes, findings.groups[0].left_out.repeated), (0, 40));
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

/// Ranks whose next work begins when the one before has ended.
struct Job {
    traces: Vec<Trace>,
    at: Vec<i64>,
}

impl Job {
    fn new(ranks: u64) -> Job {
        Job { traces: (0..ranks).map(|rank| on_host(rank, "node0")).collect(), at: vec![MS; ranks as usize] }
    }

    /// These ranks work so long, and a few µs that differ.
    fn work(&mut self, ranks: &[usize], ns: i64) {
        for rank in ranks {
            self.at[*rank] += ns + (self.at[*rank] / 1_000 * 7 + *rank as i64 * 3) % 9 * 1_000;
        }
    }

    /// Ranks meet, and leave 100 µs after the last one has come. `seen_late_ns` is by how much later the end of the second of them is seen.
    fn meet(&mut self, group: (&'static str, &'static str), seq: u64, ranks: &[usize], seen_late_ns: i64) {
        let left = ranks.iter().map(|rank| self.at[*rank]).max().unwrap() + 100_000;
        for (place, rank) in ranks.iter().enumerate() {
            let (trace, begin) = (&mut self.traces[*rank], std::mem::replace(&mut self.at[*rank], left));
            (trace.group, trace.rank) = ((group.0, group.1, None), place as u64);
            let seen = if place == 1 { seen_late_ns } else { 0 };
            let more = if seen > 0 { vec![early(seen)] } else { vec![] };
            trace.call("allreduce", seq, begin, left - begin + seen, &more);
        }
    }
}

/// Two groups tp of two ranks, and two groups dp across them. From step 20 on, rank 0 comes late to tp0 or rank 1 to dp1, so late. The end of
/// tp0 is seen by rank 1 when it begins dp1, if `is_seen_late`.
fn grid(late_to_tp0: i64, late_to_dp1: i64, is_seen_late: bool) -> Job {
    let mut job = Job::new(4);
    for step in 0..40 {
        let now = |ns: i64| if step >= 20 { ns } else { 0 };
        job.work(&[0, 1, 2, 3], 10 * MS);
        job.at[0] += now(late_to_tp0);
        let seen_late_ns = if is_seen_late { 9 * MS + now(late_to_dp1) } else { 0 };
        job.meet(("tp0", "[0, 1]"), step, &[0, 1], seen_late_ns);
        job.meet(("tp1", "[2, 3]"), step, &[2, 3], 0);
        job.work(&[0, 1, 2, 3], 9 * MS);
        job.at[1] += now(late_to_dp1);
        job.meet(("dp0", "[0, 2]"), step, &[0, 2], 0);
        job.meet(("dp1", "[1, 3]"), step, &[1, 3], 0);
    }
    job
}

#[test]
fn a_rank_that_waited_itself_is_not_to_blame() {
    // Rank 0 is late to tp0, so rank 1 is late to dp1.
    let findings = judge(&mut grid(8 * MS, 0, false).traces);
    let verdict = findings.verdict.as_ref().expect("rank 0 stands out");
    assert_eq!((verdict.rank, verdict.since_seq), (0, 20), "{findings:?}");
    assert!((verdict.late_by_ns - 8 * MS).abs() < MS / 2, "{verdict:?}");
    // Rank 1 comes last to dp1 in each step, and is named nowhere as the cause.
    assert!(findings.ranks.iter().any(|rank| rank.rank == 1 && rank.late >= 20), "{:?}", findings.ranks);
}

#[test]
fn many_small_delays_of_a_step_add_up() {
    // Rank 1 comes 0.6 ms late to each of eight collectives of tp0, so it is 4.8 ms late to dp1.
    let mut job = Job::new(4);
    for step in 0..40 {
        for layer in 0..8 {
            job.work(&[0, 1, 2, 3], 4 * MS);
            job.at[1] += if step >= 20 { 600_000 } else { 0 };
            job.meet(("tp0", "[0, 1]"), 8 * step + layer, &[0, 1], 0);
            job.meet(("tp1", "[2, 3]"), 8 * step + layer, &[2, 3], 0);
        }
        job.meet(("dp0", "[0, 2]"), step, &[0, 2], 0);
        job.meet(("dp1", "[1, 3]"), step, &[1, 3], 0);
    }
    let findings = judge(&mut job.traces);
    assert_eq!(findings.verdict.as_ref().map(|verdict| verdict.rank), Some(1), "{findings:?}");
}

#[test]
fn the_ranks_of_a_host_that_are_all_late_are_one_sentence() {
    let mut job = Job::new(8);
    job.traces = (0..8).map(|rank| on_host(rank, if rank < 2 { "node0" } else { "node1" })).collect();
    for step in 0..40 {
        job.work(&[0, 1, 2, 3, 4, 5, 6, 7], 20 * MS);
        job.work(&[0, 1], 2 * MS);
        job.meet(("world", "[0, 1, 2, 3, 4, 5, 6, 7]"), step, &[0, 1, 2, 3, 4, 5, 6, 7], 0);
    }
    let summary = judge(&mut job.traces).summary;
    assert!(summary.starts_with("host node0: its 2 ranks came late, most of all rank "), "{summary}");
}

#[test]
fn an_end_that_was_seen_late_does_not_show_that_a_rank_waited() {
    let findings = judge(&mut grid(0, 8 * MS, true).traces);
    let verdict = findings.verdict.as_ref().expect("rank 1 stands out");
    assert_eq!((verdict.rank, &*verdict.group), (1, "dp1 [1,3]"), "{findings:?}");
    // Where it did wait, the arrivals show it.
    let findings = judge(&mut grid(8 * MS, 0, true).traces);
    let verdict = findings.verdict.as_ref().expect("rank 0 stands out");
    assert_eq!(verdict.rank, 0, "{findings:?}");
}

#[test]
fn the_time_in_a_call_that_is_not_judged_is_none_of_the_ranks_own() {
    // Rank 1 receives for longer from step 20 on, so it is late to world.
    let of = |is_received: bool| {
        let mut job = Job::new(4);
        for step in 0..40_i64 {
            job.work(&[0, 1, 2, 3], 20 * MS);
            let longer = if step >= 20 { 8 * MS } else { 0 };
            for rank in 0..4 {
                let dur = MS + if rank == 1 { longer } else { 0 };
                let (trace, at) = (&mut job.traces[rank], &mut job.at[rank]);
                (trace.group, trace.rank) = (("pp0", "[0, 1, 2, 3, 9]", None), rank as u64);
                if is_received {
                    trace.call("recv", step as u64, *at, dur, &[]);
                }
                *at += dur;
            }
            job.meet(("world", "[0, 1, 2, 3]"), step as u64, &[0, 1, 2, 3], 0);
        }
        judge(&mut job.traces)
    };
    assert_eq!(of(true).verdict, None, "{}", of(true).summary);
    assert_eq!(of(false).verdict.map(|verdict| (verdict.rank, verdict.since_seq)), Some((1, 20)));
}

#[test]
fn an_entry_of_a_batch_is_no_period_of_its_own() {
    // All ranks gather in batches of a small and a large one, and rank 1 works longer from step 20 on.
    let mut job = Job::new(4);
    for step in 0..40 {
        job.work(&[0, 1, 2, 3], 20 * MS);
        job.at[1] += if step >= 20 { 8 * MS } else { 0 };
        let left = job.at.iter().max().unwrap() + 6 * MS;
        for (rank, trace) in job.traces.iter_mut().enumerate() {
            (trace.group, trace.rank) = (("world", "[0, 1, 2, 3]", None), rank as u64);
            for (entry, elements) in [(0, 10), (1, 1_000_000)] {
                let size = [text("dtype", "Float"), number("In msg nelems", elements)];
                trace.call("allgather", 2 * step + entry, job.at[rank], left - job.at[rank], &size);
            }
        }
        job.at = vec![left; 4];
    }
    let findings = judge(&mut job.traces);
    assert_eq!(findings.groups.iter().map(|group| group.left_out.batch_entries).sum::<u64>(), 40, "{findings:?}");
    let verdict = findings.verdict.expect("rank 1 stands out");
    assert_eq!((verdict.rank, verdict.since_seq, verdict.times), (1, 40, 20), "{verdict:?}");
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
    assert!(findings.to_text(20, false).contains(" ≤500 µs  net.sum"), "{}", findings.to_text(20, false));
}
