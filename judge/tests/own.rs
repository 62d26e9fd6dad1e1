//! The judge on matrices of own time whose truth is known: with few steps and with many, with small noise and with large.

use std::collections::HashMap;

use warpline_judge::own::{LEAST_STEPS, Own, Step, Verdict};

const MS: f64 = 1e6;
const NOBODY: [i64; 0] = [];

/// Another seed, another sequence.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / (1_u64 << 31) as f64
    }

    /// Near to a normal distribution of deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// Ranks whose steps of 100 ms differ by this noise, and devices by that.
#[derive(Clone, Copy)]
struct Job {
    ranks: usize,
    steps: usize,
    seed: u64,
    noise: f64,
    devices: f64,
}

const JOB: Job = Job { ranks: 8, steps: 60, seed: 1, noise: 0.005, devices: 0.0 };

impl Job {
    /// The matrix with what `more` adds, in ms, by rank and step.
    fn own(self, more: impl Fn(&mut Random, usize, usize) -> f64) -> Own {
        let mut random = Random::new(self.seed);
        let speeds: Vec<f64> = (0..self.ranks).map(|_| 1.0 + self.devices * random.normal().abs()).collect();
        let mut rows = Vec::new();
        for step in 0..self.steps {
            for (rank, speed) in speeds.iter().enumerate() {
                let own_ms = 100.0 * speed * (1.0 + self.noise * random.normal()) + more(&mut random, rank, step);
                rows.push(Step { rank: rank as i64, step: step as i64, own_ns: (own_ms * MS) as i64 });
            }
        }
        Own::new(&(0..self.ranks as i64).map(|rank| (rank, 0)).collect(), &rows)
    }

    fn judge(self, more: impl Fn(&mut Random, usize, usize) -> f64) -> Verdict {
        let run_ns = self.steps as f64 * 110.0 * MS;
        self.own(more).judge(run_ns as i64)
    }
}

/// In order of ranks.
fn named(verdict: &Verdict) -> Vec<i64> {
    let mut ranks: Vec<i64> = verdict.named.iter().map(|named| named.rank).collect();
    ranks.sort_unstable();
    ranks
}

#[test]
fn the_rank_that_is_late_is_named_with_its_steps_and_nobody_in_a_clean_run() {
    for seed in 0..10 {
        for (steps, noise) in
            [12, 60, 200].into_iter().flat_map(|steps| [0.0005, 0.005, 0.02].map(|noise| (steps, noise)))
        {
            let job = Job { steps, noise, seed, ..JOB };
            let what = format!("seed {seed}, {steps} steps, noise {noise}");
            assert_eq!(named(&job.judge(|_, _, _| 0.0)), NOBODY, "{what}");
            let late = seed as usize * 3 % 8;
            let far = (30.0 * noise * 100.0).max(4.0);
            for (from, to) in [(steps / 2, steps / 2 + 1), (steps / 3, 2 * steps / 3), (1, steps)] {
                let more =
                    |_: &mut Random, rank, step| if rank == late && (from..to).contains(&step) { far } else { 0.0 };
                let verdict = job.judge(more);
                // What costs too little of the run is counted alone.
                if far * (to - from) as f64 / (110.0 * steps as f64) < 0.0005 {
                    assert_eq!((named(&verdict), verdict.below), (vec![], 1), "{what}");
                    continue;
                }
                assert_eq!(named(&verdict), [late as i64], "{what}, {from} to {to}");
                let found: Vec<i64> = verdict.named[0].steps.iter().map(|(step, _)| *step).collect();
                assert_eq!(found, (from as i64..to as i64).collect::<Vec<_>>(), "{what}");
            }
        }
    }
}

#[test]
fn a_delay_as_long_as_the_step_in_every_step_is_named_with_its_size() {
    for (ranks, ms) in [(4, 30.0), (8, 100.0), (64, 120.0)] {
        let verdict = Job { ranks, ..JOB }.judge(|_, rank, _| if rank == 3 { ms } else { 0.0 });
        assert_eq!(named(&verdict), [3]);
        let total = verdict.named[0].total_ns as f64 / MS / 59.0;
        assert!((total / ms - 1.0).abs() < 0.05, "{total}");
        assert!(verdict.named[0].share <= 1.0);
    }
}

#[test]
fn a_rank_that_is_late_in_most_steps_hides_no_other() {
    for seed in 0..20 {
        let job = Job { seed, ..JOB };
        // One after the other, both at once, and a few steps beside many.
        for (first, second) in [(5..30, 30..55), (10..50, 10..50), (30..60, 4..14)] {
            let of = |rank, step| rank == 2 && first.contains(&step) || rank == 5 && second.contains(&step);
            let verdict = job.judge(|_, rank, step| if of(rank, step) { 8.0 } else { 0.0 });
            assert_eq!(named(&verdict), [2, 5], "seed {seed}");
        }
    }
}

#[test]
fn pauses_and_tails_that_hit_all_ranks_alike_name_nobody_and_are_said() {
    for seed in 0..50 {
        for (ranks, often) in [(8, 0.02), (8, 0.1), (64, 0.01), (64, 0.1)] {
            let job = Job { ranks, seed, steps: 100, ..JOB };
            let verdict =
                job.judge(|random, _, _| if random.unit() < often { 30.0 * (0.5 + random.unit()) } else { 0.0 });
            assert_eq!(named(&verdict), NOBODY, "seed {seed}, {ranks} ranks, {often}");
            let spread = verdict.spread.expect("the pauses are said");
            assert!(spread.ranks > 1 && spread.steps > 2 && spread.share > 0.01, "{spread:?}");
            let tails = job.judge(|random, _, _| 0.5 / (random.unit() + 1e-4).powf(0.6));
            assert_eq!(named(&tails), NOBODY, "seed {seed}, {ranks} ranks");
        }
    }
    // One that is late again and again among them is named.
    let verdict = Job { ranks: 64, steps: 100, ..JOB }.judge(|random, rank, step| {
        let pause = if random.unit() < 0.02 { 30.0 } else { 0.0 };
        pause + if rank == 9 && step % 5 == 0 { 20.0 } else { 0.0 }
    });
    assert_eq!(named(&verdict), [9]);
}

#[test]
fn the_spread_of_devices_and_of_batches_names_nobody_and_a_slower_device_stands_out() {
    for seed in 0..50 {
        for ranks in [4, 8, 64] {
            let job = Job { ranks, seed, devices: 0.01, ..JOB };
            assert_eq!(named(&job.judge(|_, _, _| 0.0)), NOBODY, "seed {seed}, {ranks} ranks");
            let batches = job.judge(|random, _, _| 60.0 * (random.unit() - 0.5));
            assert_eq!(named(&batches), NOBODY, "seed {seed}, {ranks} ranks: batches");
        }
        // In noise that is as large as the change: only the mean of many steps shows it.
        let job = Job { ranks: 32, steps: 200, noise: 0.03, seed, ..JOB };
        let verdict = job.judge(|_, rank, step| if rank == 7 && step >= 80 { 6.0 } else { 0.0 });
        assert_eq!(named(&verdict), [7], "seed {seed}");
        let named = &verdict.named[0];
        let (first, mean) = (named.steps[0].0, named.total_ns as f64 / MS / named.steps.len() as f64);
        assert!((60..=100).contains(&first) && (mean - 6.0).abs() < 1.5, "seed {seed}: since {first}, {mean} ms");
    }
}

#[test]
fn the_start_of_a_run_comes_before_no_steady_fault() {
    for seed in 0..20 {
        let start =
            |random: &mut Random, step: usize| if step < 4 { 2_000.0 * random.unit() / (1 + step) as f64 } else { 0.0 };
        let job = Job { seed, ..JOB };
        let verdict = job.judge(|random, _, step| start(random, step));
        assert_eq!(named(&verdict), NOBODY, "seed {seed}");
        assert!(verdict.start >= 1 && verdict.steps + verdict.start == 60, "{verdict:?}");
        let verdict = job.judge(|random, rank, step| start(random, step) + if rank == 4 { 8.0 } else { 0.0 });
        assert_eq!(verdict.named.first().map(|named| named.rank), Some(4), "seed {seed}: {verdict:?}");
    }
}

#[test]
fn of_two_or_three_ranks_one_is_named_if_it_takes_longer_than_devices_and_steps_differ_by() {
    for (ranks, seed) in [2, 3].into_iter().flat_map(|ranks| (0..20).map(move |seed| (ranks, seed))) {
        let what = format!("{ranks} ranks, seed {seed}");
        let job = Job { ranks, seed, ..JOB };
        let of_last = |rank: usize, ms: f64| if rank + 1 == ranks { ms } else { 0.0 };
        let last = [ranks as i64 - 1];
        for noise in [0.0005, 0.005, 0.02] {
            let job = Job { noise, ..job };
            assert_eq!(named(&job.judge(|_, rank, _| of_last(rank, 3.0))), NOBODY, "{what}: devices differ");
            for ms in [12.0, 30.0, 300.0] {
                let always = job.judge(|_, rank, _| of_last(rank, ms));
                assert_eq!(named(&always), last, "{what}, {noise}: by {ms} ms in all steps");
                let total = always.named[0].total_ns as f64 / MS / 59.0;
                assert!((total / ms - 1.0).abs() < 0.25, "{what}, {noise}: {total} for {ms}");
                // Twenty steps of much noise show no small change.
                if ms < 1_000.0 * noise {
                    continue;
                }
                let later = job.judge(|_, rank, step| if step >= 40 { of_last(rank, ms) } else { 0.0 });
                assert_eq!(named(&later), last, "{what}, {noise}: by {ms} ms since step 40");
                assert!(later.named[0].steps[0].0.abs_diff(40) < 3, "{what}, {noise}: {:?}", later.named[0].steps[0]);
            }
        }
        assert_eq!(named(&job.judge(|_, rank, step| if step == 20 { of_last(rank, 900.0) } else { 0.0 })), last);
        // That one took less than usual is no fault of the other one.
        let fast = job.judge(|_, rank, step| if step % 9 == 4 { of_last(rank, -60.0) } else { 0.0 });
        assert_eq!(named(&fast), NOBODY, "{what}");
        let pauses = job.judge(|random, _, _| if random.unit() < 0.1 { 30.0 * random.unit() } else { 0.0 });
        assert_eq!(named(&pauses), NOBODY, "{what}: pauses");
        let batches = job.judge(|random, _, _| 60.0 * (random.unit() - 0.5));
        assert_eq!(named(&batches), NOBODY, "{what}: batches");
    }
}

#[test]
fn a_few_long_steps_of_one_rank_are_named_beside_another_one_that_is_late_for_long() {
    for seed in 0..20 {
        let job = Job { ranks: 64, steps: 300, seed, ..JOB };
        let verdict = job.judge(|_, rank, step| match rank {
            20 if (110..190).contains(&step) => 12.0,
            41 if (60..62).contains(&step) => 30.0,
            _ => 0.0,
        });
        assert_eq!(named(&verdict), [20, 41], "seed {seed}");
    }
}

/// Of traces, a step is the time between two collectives: parts of one step follow each other, and a fault is in all of them or in one.
#[test]
fn of_two_ranks_one_is_named_whose_fault_is_not_alike_in_all_parts_of_a_step() {
    for seed in 0..20 {
        let job = Job { ranks: 2, steps: 90, seed, ..JOB };
        for parts in [[96.0, 32.0, 32.0], [150.0, 0.0, 0.0], [20.0, 40.0, 8.0]] {
            for since in [0, 45] {
                let verdict = job.judge(|_, rank, step| if rank == 1 && step >= since { parts[step % 3] } else { 0.0 });
                assert_eq!(named(&verdict), [1], "seed {seed}, {parts:?} since {since}");
            }
            let both = job.judge(|_, _, step| parts[step % 3]);
            assert_eq!(named(&both), NOBODY, "seed {seed}, {parts:?} at both");
        }
    }
}

#[test]
fn one_step_that_costs_more_than_all_jitter_is_named_beside_it() {
    for seed in 0..20 {
        let job = Job { ranks: 4, steps: 100, seed, ..JOB };
        let jitter = |rank: usize, step: usize| if step % 31 == 7 * rank { 12.0 } else { 0.0 };
        assert_eq!(named(&job.judge(|_, rank, step| jitter(rank, step))), NOBODY, "seed {seed}");
        let late = job.judge(|_, rank, step| jitter(rank, step) + if rank == 2 && step == 50 { 2_000.0 } else { 0.0 });
        assert_eq!(named(&late), [2], "seed {seed}");
    }
}

#[test]
fn what_is_not_enough_says_nothing() {
    let steps = LEAST_STEPS;
    let late = |_: &mut Random, rank, _| if rank == 3 { 50.0 } else { 0.0 };
    let verdict = Job { steps: steps - 1, ..JOB }.judge(late);
    assert!(named(&verdict).is_empty() && verdict.steps < LEAST_STEPS, "{verdict:?}");
    assert_eq!(named(&Job { steps: steps + 2, ..JOB }.judge(late)), [3]);
    // Nobody does the same work as another one.
    let rows: Vec<Step> =
        (0..60).flat_map(|step| (0..4).map(move |rank| Step { rank, step, own_ns: 1 + rank * 50 })).collect();
    let verdict = Own::new(&(0..4).map(|rank| (rank, rank as usize)).collect::<HashMap<_, _>>(), &rows).judge(1 << 40);
    assert_eq!((verdict.ranks, named(&verdict)), (0, vec![]));
}

#[test]
fn a_rank_is_compared_with_those_that_do_the_same_and_a_hole_is_no_zero() {
    // The second four work twice as long, and rank 6 longer still, in steps of which rank 5 has no row.
    let rows = (0..60).flat_map(|step| (0..8).map(move |rank| (rank, step)));
    let rows: Vec<Step> = rows
        .filter(|(rank, step)| *rank != 5 || *step < 30)
        .map(|(rank, step)| {
            let own_ns = if rank < 4 { 50_000_000 } else { 100_000_000 } + rank * 1_000 + step % 7 * 2_000;
            Step { rank, step, own_ns: own_ns + if rank == 6 && step >= 30 { 9_000_000 } else { 0 } }
        })
        .collect();
    let own = Own::new(&(0..8).map(|rank| (rank, rank as usize / 4)).collect(), &rows);
    assert!(own.ranks().iter().copied().eq(0..8) && own.steps().iter().copied().eq(0..60));
    let verdict = own.judge(60 * 110_000_000);
    assert_eq!(named(&verdict), [6]);
    assert_eq!(verdict.named[0].steps.len(), 30);
    assert_eq!((own.more_ns(5, 40), own.more_ns(0, 40)), (None, Some(-2_000)));
    assert_eq!(own.more_ns(6, 40), Some(9_002_000), "beyond the lower one of ranks 4 and 7");
}
