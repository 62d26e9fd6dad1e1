//! The judge on jobs whose truth is known: with few calls and with many, with small noise and with large.

use std::collections::BTreeMap;

use warpline_judge::blame::{Followed, History, Loss, Open, Spent, cost, follow, named};
use warpline_judge::{Collectives, Form, Key, Met};

const US: i64 = 1_000;
const MS: i64 = 1_000_000;
const SUM: &str = "all_reduce";
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

    /// Near to a normal distribution of this deviation.
    fn noise(&mut self, ns: i64) -> i64 {
        let sum: f64 = (0..12).map(|_| self.unit()).sum();
        ((sum - 6.0) * ns as f64) as i64
    }
}

/// What ranks called, each by a clock that all share.
#[derive(Default)]
struct Job {
    met: Vec<Met>,
    calls: BTreeMap<i64, Vec<(i64, Spent)>>,
    run_ns: i64,
}

impl History for Job {
    fn own_ns(&self, _: i64, _: i64) -> Option<i64> {
        Some(0)
    }

    fn calls_before(&self, rank: i64, at_ns: i64) -> impl Iterator<Item = Spent> {
        let calls = self.calls.get(&rank).into_iter().flatten().rev();
        calls.filter(move |(begin_ns, _)| *begin_ns < at_ns).map(|(_, spent)| *spent)
    }
}

impl Job {
    /// Ranks meet when they come, and leave when the transfer of 100 us has ended.
    fn meet(&mut self, group: u32, seq: u64, members: &[usize], at: &mut [i64]) {
        let came: Vec<(i64, i64)> = members.iter().map(|rank| (*rank as i64, at[*rank])).collect();
        let left_ns = self.add(group, seq, &came, 100 * US);
        members.iter().for_each(|rank| at[*rank] = left_ns);
    }

    /// Adds a collective to which these ranks came then, and returns when they left.
    fn add(&mut self, group: u32, seq: u64, came: &[(i64, i64)], transfer_ns: i64) -> i64 {
        let (rank, at_ns) = came.iter().copied().max_by_key(|(_, at)| *at).unwrap();
        let others: i64 = came.iter().map(|(_, at)| at_ns - at).sum();
        let (key, form) = (Key { group, turn: 0, seq }, Form { group, kind: SUM, bytes: 0 });
        self.met.push(Met {
            key,
            kind: SUM,
            bytes: 0,
            ranks: came.len() as u32,
            size: came.len() as u32,
            rank,
            begin_ns: at_ns,
            at_ns,
            late_ns: others / (came.len() as i64 - 1),
            err_ns: 0,
            is_certain: true,
            least_ns: transfer_ns,
            least_early_ns: transfer_ns,
        });
        for (rank, begin_ns) in came {
            let dur_ns = at_ns + transfer_ns - begin_ns;
            self.calls
                .entry(*rank)
                .or_default()
                .push((*begin_ns, Spent { key, form, dur_ns, early_ns: 0, arrivals: None }));
        }
        at_ns + transfer_ns
    }

    /// The ranks that are named, and what was followed.
    fn named(&self) -> (Vec<i64>, Vec<Followed>) {
        let collectives = Collectives::new(self.met.clone());
        let followed: Vec<Followed> =
            collectives.standing_out().iter().map(|event| follow(&collectives, self, event)).collect();
        let losses = followed.iter().flat_map(|followed| &followed.causes).map(|cause| Loss {
            rank: cause.met.rank,
            step: 0,
            key: cause.met.key,
            late_ns: cause.late_ns,
        });
        let (named, _) = named(&cost(losses), self.run_ns);
        (named.into_iter().map(|named| named.rank).collect(), followed)
    }
}

/// How a rank is late.
#[derive(Clone, Copy, Debug)]
struct Fault {
    rank: usize,
    ns: i64,
    from: u64,
    to: u64,
}

/// Eight ranks in steps of 150 ms. Pairs meet five times in a step, and each fourth rank once at its end. Each stretch of work has this noise.
fn job(seed: u64, steps: u64, noise_ns: i64, faults: &[Fault]) -> Job {
    let (mut random, mut job, mut at) = (Random::new(seed), Job::default(), [0_i64; 8]);
    for step in 0..steps {
        for call in 0..5 {
            for (rank, at) in at.iter_mut().enumerate() {
                *at += 25 * MS + random.noise(noise_ns);
                let is_now = |fault: &&Fault| call == 2 && fault.rank == rank && (fault.from..fault.to).contains(&step);
                *at += faults.iter().filter(is_now).map(|fault| fault.ns).sum::<i64>();
            }
            for pair in 0..4 {
                job.meet(pair as u32, step * 5 + call, &[2 * pair, 2 * pair + 1], &mut at);
            }
        }
        at.iter_mut().for_each(|at| *at += 25 * MS + random.noise(noise_ns));
        for column in 0..2 {
            let members: Vec<usize> = (column..8).step_by(2).collect();
            job.meet(4 + column as u32, step, &members, &mut at);
        }
    }
    job.run_ns = at[0];
    job
}

const STEPS: [u64; 3] = [12, 60, 200];
const NOISE: [i64; 3] = [5 * US, 40 * US, 300 * US];

#[test]
fn the_rank_that_is_late_is_named_first() {
    let (mut runs, mut wrong) = (0, Vec::new());
    for seed in 0..12 {
        for (steps, noise_ns) in STEPS.into_iter().flat_map(|steps| NOISE.map(|noise_ns| (steps, noise_ns))) {
            let rank = seed as usize * 3 % 8;
            let one = Fault { rank, ns: 20 * MS, from: steps / 2, to: steps / 2 + 1 };
            let third = Fault { rank, ns: 30 * noise_ns, from: steps / 3, to: 2 * steps / 3 };
            let always = Fault { rank, ns: 30 * noise_ns, from: 0, to: steps };
            for fault in [one, third, always] {
                // A single late arrival in a long run costs too little of it.
                let costs = fault.ns as f64 * (fault.to - fault.from) as f64 / (150e6 * steps as f64);
                let (named, _) = job(seed, steps, noise_ns, &[fault]).named();
                runs += 1;
                let is_right = if costs > 0.001 {
                    named.first() == Some(&(rank as i64))
                } else {
                    named.iter().all(|named| *named == rank as i64)
                };
                if !is_right {
                    wrong.push(format!("seed {seed}, {steps} steps, noise {noise_ns}: {fault:?}: {named:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {runs}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn nobody_is_named_in_a_clean_run() {
    for seed in 0..12 {
        for (steps, noise_ns) in STEPS.into_iter().flat_map(|steps| NOISE.map(|noise_ns| (steps, noise_ns))) {
            let (named, _) = job(seed, steps, noise_ns, &[]).named();
            assert_eq!(named, NOBODY, "seed {seed}, {steps} steps, noise {noise_ns}");
        }
    }
}

#[test]
fn many_small_late_arrivals_in_a_long_step_cost_what_one_large_one_does() {
    // Rank 1 comes 0.1 ms late to each of twenty collectives in a step of 150 ms: 2 ms of it.
    let (mut job, mut random, mut at) = (Job::default(), Random::new(1), [0_i64; 2]);
    for seq in 0..800 {
        at.iter_mut().for_each(|at| *at += 7 * MS + random.noise(2 * US));
        at[1] += 100 * US;
        job.meet(0, seq, &[0, 1], &mut at);
    }
    job.run_ns = at[0];
    assert_eq!(job.named().0, [1]);
}

#[test]
fn a_rank_that_holds_up_most_calls_hides_no_other() {
    // Rank 2 is late in half of the run, and rank 5 in a few of the other steps.
    for seed in 0..20 {
        let most = Fault { rank: 2, ns: 3 * MS, from: 30, to: 60 };
        let few = Fault { rank: 5, ns: 12 * MS, from: 4, to: 14 };
        let (mut named, _) = job(seed, 60, 20 * US, &[most, few]).named();
        named.sort_unstable();
        assert_eq!(named, [2, 5], "seed {seed}");
    }
    // Rank 5 is late in a quarter of the calls of a group, and rank 0, which is last now and then by chance as well, in half: a quarter is quiet.
    let mut job = Job { run_ns: 120 * 1_000 * MS, ..Job::default() };
    let mut random = Random::new(2);
    for seq in 0..120_u64 {
        let mut came = [0, 1, 2, 3, 4, 5, 6, 7].map(|rank| (rank, seq as i64 * 1_000 * MS + random.noise(MS)));
        match seq {
            30..60 => came[5].1 += 100 * MS,
            60.. => came[0].1 += 50 * MS,
            _ => {}
        }
        job.add(0, seq, &came, MS);
    }
    let mut named = job.named().0;
    named.sort_unstable();
    assert_eq!(named, [0, 5]);
    // In its own group it is last in 80 of 100 calls: the others show what is usual, and rank 1 is far from that.
    let mut job = Job { run_ns: 100 * 10 * MS, ..Job::default() };
    let mut random = Random::new(3);
    for seq in 0..100_u64 {
        let mut came = [0, 1, 2, 3].map(|rank| (rank, seq as i64 * 10 * MS + random.noise(US)));
        match seq % 20 {
            0 => came[1].1 += 2 * MS,
            5 | 10 | 15 => {}
            _ => came[0].1 += 4 * MS,
        }
        job.add(0, seq, &came, 100 * US);
    }
    assert_eq!(job.named().0, [0, 1]);
}

#[test]
fn groups_with_other_noise_do_not_hide_what_is_far_from_usual() {
    // In group 1, ranks come within 2 ms of one another, in most calls of the run. Rank 1 comes 1 ms late to group 0 in a third of its calls.
    let mut job = Job { run_ns: 60 * 100 * MS, ..Job::default() };
    let mut random = Random::new(4);
    for seq in 0..60_u64 {
        let zero = seq as i64 * 100 * MS;
        let late = if seq % 3 == 0 { MS } else { 0 };
        job.add(0, seq, &[(0, zero + random.noise(US)), (1, zero + random.noise(US) + late)], 100 * US);
        for more in 0..4 {
            let came = [2, 3].map(|rank| (rank, zero + (1 + more as i64) * 20 * MS + random.noise(2 * MS)));
            job.add(1, 4 * seq + more, &came, 100 * US);
        }
    }
    assert_eq!(job.named().0, [1]);
}

#[test]
fn a_rank_that_always_comes_early_makes_nobody_late() {
    let of = |late_ns: i64| {
        let mut job = Job { run_ns: 200 * 100 * MS, ..Job::default() };
        let mut random = Random::new(6);
        for seq in 0..200_u64 {
            let mut came = [0, 1, 2, 3].map(|rank| (rank, seq as i64 * 100 * MS + random.noise(20 * US)));
            came[3].1 -= 20 * MS;
            came[1].1 += if seq % 8 == 0 { late_ns } else { 0 };
            job.add(0, seq, &came, 100 * US);
        }
        job.named().0
    };
    assert_eq!((of(0), of(2 * MS)), (NOBODY.to_vec(), vec![1]));
}

#[test]
fn a_short_run_has_what_is_usual_from_all_groups() {
    // Six calls of each of four groups: none has ten.
    let mut job = Job { run_ns: 6 * 100 * MS, ..Job::default() };
    let mut random = Random::new(5);
    for (seq, group) in (0..6_u64).flat_map(|seq| (0..4_u32).map(move |group| (seq, group))) {
        let mut came = [0, 1].map(|rank| (i64::from(2 * group) + rank, seq as i64 * 100 * MS + random.noise(5 * US)));
        came[1].1 += if (seq, group) == (3, 2) { 9 * MS } else { 0 };
        job.add(group, seq, &came, 100 * US);
    }
    assert_eq!(job.named().0, [5]);
    job.met.retain(|met| (2..4).contains(&met.key.seq));
    assert_eq!(job.named().0, NOBODY, "eight calls show nothing");
}

#[test]
fn where_half_of_the_calls_are_late_the_others_are_what_is_usual() {
    let mut job = Job { run_ns: 20 * 100 * MS, ..Job::default() };
    for seq in 0..20_u64 {
        let zero = seq as i64 * 100 * MS;
        job.add(0, seq, &[(0, zero), (1, zero + US + if seq % 2 == 0 { 4 * MS } else { 0 })], 100 * US);
    }
    assert_eq!(job.named().0, [1]);
}

#[test]
fn of_a_rank_that_is_usually_last_its_usual_late_arrivals_count() {
    // It is last in all calls: in three of four by 4 ms or more, and in the others by what noise has.
    let mut job = Job { run_ns: 80 * 100 * MS, ..Job::default() };
    let mut random = Random::new(7);
    for seq in 0..80_u64 {
        let zero = seq as i64 * 100 * MS;
        let late = if seq % 4 == 0 { 400 * US } else { 4 * MS + random.noise(200 * US) };
        job.add(0, seq, &[(0, zero), (1, zero + late)], 100 * US);
    }
    assert_eq!(Collectives::new(job.met.clone()).standing_out().len(), 60);
}

#[test]
fn a_rank_that_waited_is_not_to_blame_and_a_wait_before_the_groups_last_meeting_explains_nothing() {
    let zero = |step: u64| step as i64 * 100 * MS;
    let quiet = |job: &mut Job, step: u64| {
        job.add(0, step, &[(0, zero(step)), (1, zero(step) + US)], 100 * US);
        job.add(1, 2 * step, &[(1, zero(step) + 10 * MS), (2, zero(step) + 10 * MS + 2 * US)], 100 * US);
        job.add(1, 2 * step + 1, &[(1, zero(step) + 60 * MS), (2, zero(step) + 60 * MS + 3 * US)], 100 * US);
    };
    let made = |late: &dyn Fn(&mut Job)| {
        let mut job = Job { run_ns: zero(30), ..Job::default() };
        (0..30).filter(|step| *step != 20).for_each(|step| quiet(&mut job, step));
        late(&mut job);
        job.calls.values_mut().for_each(|calls| calls.sort_by_key(|(begin_ns, _)| *begin_ns));
        job
    };
    // Rank 0 is 8 ms late, so that rank 1 comes late to group 1.
    let waited = made(&|job| {
        job.add(0, 20, &[(0, zero(20) + 8 * MS), (1, zero(20))], 100 * US);
        job.add(1, 40, &[(1, zero(20) + 18 * MS), (2, zero(20) + 10 * MS)], 100 * US);
    });
    let (named, followed) = waited.named();
    assert_eq!(named, [0]);
    let through = followed.iter().flat_map(|followed| &followed.causes).map(|cause| cause.chain.len()).max();
    assert_eq!(through, Some(2), "{followed:?}");
    // Rank 1 had waited for rank 0, met rank 2, and is late the next time by itself.
    let own = made(&|job| {
        job.add(0, 20, &[(0, zero(20) + 8 * MS), (1, zero(20))], 100 * US);
        job.add(1, 40, &[(1, zero(20) + 18 * MS), (2, zero(20) + 18 * MS + US)], 100 * US);
        job.add(1, 41, &[(1, zero(20) + 75 * MS), (2, zero(20) + 68 * MS)], 100 * US);
    });
    let (mut named, _) = own.named();
    named.sort_unstable();
    assert_eq!(named, [0, 1]);
}

#[test]
fn a_wait_that_nothing_shows_makes_no_verdict() {
    for (early_ns, kind, open) in [(9 * MS, SUM, Open::NotTimed), (0, "recv", Open::NotJudged)] {
        let mut job = Job { run_ns: 30 * 100 * MS, ..Job::default() };
        for step in 0..30_u64 {
            let zero = step as i64 * 100 * MS;
            let late = if step == 20 { 8 * MS } else { 0 };
            // Rank 1 began it at once, and its end was seen when it came to group 1.
            job.add(0, step, &[(0, zero + US), (1, zero)], 100 * US);
            if step == 20 {
                let (_, spent) = job.calls.get_mut(&1).and_then(|calls| calls.last_mut()).unwrap();
                (spent.dur_ns, spent.early_ns) = (9 * MS, early_ns);
                if kind != SUM {
                    (spent.key.group, spent.form) = (7, Form { group: 7, kind, bytes: 0 });
                }
            }
            job.add(1, step, &[(1, zero + MS + late), (2, zero + MS)], 100 * US);
        }
        let (named, followed) = job.named();
        assert_eq!(named, NOBODY, "{kind}");
        assert!(followed.iter().any(|followed| followed.open == Some(open)), "{followed:?}");
    }
}

#[test]
fn nobody_is_late_in_place_of_a_rank_that_is_missing() {
    let of = |transfer_ns: i64| {
        let mut job = Job { run_ns: 40 * 100 * MS, ..Job::default() };
        for seq in 0..40_u64 {
            let zero = seq as i64 * 100 * MS;
            let late = if seq == 30 { 10 * MS } else { 0 };
            let takes = if seq == 30 { transfer_ns } else { 100 * US };
            job.add(0, seq, &[(0, zero), (1, zero + late + US)], takes);
        }
        for met in &mut job.met {
            (met.ranks, met.size) = (if met.key.seq == 30 { 2 } else { 3 }, 3);
        }
        job.named().0
    };
    assert_eq!(of(100 * US), [1], "nobody else came later");
    assert_eq!(of(5 * MS), NOBODY, "both may have waited for the one that is missing");
}

#[test]
fn a_lateness_within_the_errors_or_without_proof_is_none() {
    let of = |err_ns: i64, is_certain: bool| {
        let mut job = Job { run_ns: 40 * 100 * MS, ..Job::default() };
        for seq in 0..40_u64 {
            let zero = seq as i64 * 100 * MS;
            job.add(0, seq, &[(0, zero), (1, zero + US + if seq == 30 { 3 * MS } else { 0 })], 100 * US);
        }
        job.met.iter_mut().for_each(|met| (met.err_ns, met.is_certain) = (err_ns, is_certain));
        job.named().0
    };
    assert_eq!(of(900 * US, true), [1]);
    assert_eq!(of(1_100 * US, true), NOBODY);
    assert_eq!(of(0, false), NOBODY);
}

#[test]
fn late_arrivals_add_up_in_a_group_and_not_across_groups() {
    let loss = |rank, step, group, seq, late_ns| Loss { rank, step, key: Key { group, turn: 0, seq }, late_ns };
    let cost = cost([
        loss(3, 1, 0, 7, 40),
        // The same one, seen from two sides.
        loss(3, 1, 0, 7, 30),
        loss(3, 1, 0, 8, 10),
        loss(3, 1, 1, 5, 45),
        loss(3, 2, 1, 6, 5),
        loss(4, 2, 1, 7, 1),
    ]);
    assert_eq!(cost, BTreeMap::from([((3, 1), 50), ((3, 2), 5), ((4, 2), 1)]));
    let (of_run, below) = named(&cost, 10_000);
    assert_eq!((of_run.len(), of_run[0].rank, of_run[0].total_ns, below), (1, 3, 55, 1));
}
