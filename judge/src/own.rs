//! The own time of ranks: how long each took itself in each step, outside of collectives, compared with the ranks that
//! do the same work. It contains no waiting, so the time that a rank takes beyond the others is the time that they
//! wait, however many collectives they wait in, and however many of these were recorded. The verdict and the map use
//! the same matrix.

use std::collections::HashMap;
use std::fmt;

use crate::median;

/// Deviations of single steps beyond which a step is an event.
const FAR: f64 = 8.0;

/// Deviations of the mean of many steps beyond which a rank is slower than others, with many ranks. Deviations of few
/// ranks are known less well.
const SLOWER: f64 = 6.0;

/// The least that is an event: in ns, and of a step.
const LEAST_NS: f64 = 50_000.0;
const LEAST_OF_STEP: f64 = 0.003;

/// The least by which a rank is slower than others, of a step: devices of one kind differ by less.
const LEAST_SLOWER: f64 = 0.01;

/// Two or three ranks do not show by how much devices differ: the least that matters of a step.
const LEAST_OF_FEW: f64 = 0.05;

/// Fewer ranks do not show what is usual among ranks.
const LEAST_RANKS: usize = 4;

/// With fewer steps, nothing is usual.
pub const LEAST_STEPS: usize = 6;

/// The shortest stretch of steps whose mean is compared.
const LEAST_STRETCH: usize = 8;

/// A few events of one rank alone are named if one is so many times as far.
const ALONE: f64 = 2.0;

/// Events of one rank dwarf those of all others if they cost so many times as much.
const DWARFS: f64 = 10.0;

/// How likely chance may be.
const CHANCE: f64 = 1e-4;

/// A first step that takes so much more than most belongs to the start of the run.
const START: f64 = 1.25;

/// A rank that takes less of the run is not named.
pub const LEAST_SHARE: f64 = 0.0005;

/// The share of the run below which long steps that are spread over many ranks are not reported.
const LEAST_SPREAD: f64 = 0.01;

/// Not known.
const NONE: i64 = i64::MIN;

/// The own time of each rank in each step.
#[derive(Debug, Clone, Default)]
pub struct Own {
    ranks: Vec<i64>,
    steps: Vec<i64>,
    own: Vec<i64>,
    more: Vec<i64>,
    /// The ranks that have others to be compared with.
    compared: usize,
}

/// Own time, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The rank.
    pub rank: i64,
    /// The step.
    pub step: i64,
    /// How long it took itself.
    pub own_ns: i64,
}

/// The findings from the matrix.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verdict {
    /// The ranks for which others waited, the most costly first.
    pub named: Vec<Named>,
    /// If no rank is named: long steps of many ranks.
    pub spread: Option<Spread>,
    /// The ranks that were compared; fewer than two say nothing.
    pub ranks: usize,
    /// The steps that were compared; fewer than [`LEAST_STEPS`] say nothing.
    pub steps: usize,
    /// The first steps that belong to the start of the run.
    pub start: usize,
    /// The ranks that cost too little to be named.
    pub below: usize,
    /// By how much ranks that are fine differ in a step, in ns.
    pub deviation_ns: i64,
}

/// A rank that took longer itself than those that do the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Named {
    /// The rank.
    pub rank: i64,
    /// In which steps, and by how much, in ns.
    pub steps: Vec<(i64, i64)>,
    /// All of it, in ns.
    pub total_ns: i64,
    /// The share of the run's time.
    pub share: f64,
}

/// Long steps that hit many ranks alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// How many ranks.
    pub ranks: usize,
    /// In how many steps.
    pub steps: usize,
    /// The share of the run's time, if each step took as long as its slowest rank.
    pub share: f64,
}

impl Verdict {
    /// Whether enough was compared to say which rank is late: two ranks that do the same, in [`LEAST_STEPS`].
    pub fn is_enough(&self) -> bool {
        self.ranks > 1 && self.steps >= LEAST_STEPS
    }
}

impl fmt::Display for Spread {
    /// A sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, steps, share } = self;
        write!(
            f,
            "no rank stands out: long steps are spread over {ranks} ranks, in {steps} steps; a common cause, {:.1} % of the run",
            100.0 * share
        )
    }
}

impl Own {
    /// The own time in these steps. `peers` gives each rank the number of its group of ranks that do the same work.
    pub fn new(peers: &HashMap<i64, usize>, rows: &[Step]) -> Self {
        let of = |which: fn(&Step) -> i64| {
            let mut all: Vec<i64> = rows.iter().map(which).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let (ranks, steps) = (of(|row| row.rank), of(|row| row.step));
        let mut own = vec![NONE; ranks.len() * steps.len()];
        for row in rows {
            if let (Ok(rank), Ok(step)) = (ranks.binary_search(&row.rank), steps.binary_search(&row.step)) {
                own[rank * steps.len() + step] = row.own_ns;
            }
        }
        let mut groups: HashMap<usize, Vec<usize>> = HashMap::new();
        for (at, rank) in ranks.iter().enumerate() {
            if let Some(group) = peers.get(rank) {
                groups.entry(*group).or_default().push(at);
            }
        }
        groups.retain(|_, members| members.len() > 1);
        let compared = groups.values().map(Vec::len).sum();
        let mut found = Self { more: vec![NONE; own.len()], ranks, steps, own, compared };
        for members in groups.into_values() {
            found.compare(&members);
        }
        if compared < LEAST_RANKS {
            found.compare_in_time();
        }
        found
    }

    /// Where there is no third rank to tell, a step in which the others take less than they usually do is no fault of
    /// this one.
    fn compare_in_time(&mut self) {
        let steps = self.steps.len().max(1);
        for (own, more) in self.own.chunks(steps).zip(self.more.chunks_mut(steps)) {
            let of_others = own.iter().zip(more.iter()).filter(|(_, more)| **more != NONE);
            let usual = median(&mut of_others.map(|(own, more)| own.saturating_sub(*more)).collect::<Vec<_>>());
            for (own, more) in own.iter().zip(more).filter(|(_, more)| **more != NONE) {
                *more = (*more).min(own.saturating_sub(usual));
            }
        }
    }

    /// Compares each of these with the median of the others, in each step in which at least half are known.
    fn compare(&mut self, members: &[usize]) {
        let mut known: Vec<(i64, usize)> = Vec::with_capacity(members.len());
        for step in 0..self.steps.len() {
            let cell = |rank: usize| rank * self.steps.len() + step;
            known.clear();
            known.extend(members.iter().map(|rank| (self.own[cell(*rank)], *rank)).filter(|(own, _)| *own != NONE));
            if known.len() < 2 || 2 * known.len() < members.len() {
                continue;
            }
            known.sort_unstable();
            // The middle of the others; of two, the lower one.
            let middle = (known.len() - 2) / 2;
            for (place, (own, rank)) in known.iter().enumerate() {
                let (others, _) = known[if middle < place { middle } else { middle + 1 }];
                self.more[cell(*rank)] = own.saturating_sub(others);
            }
        }
    }

    /// The ranks, in order.
    pub fn ranks(&self) -> &[i64] {
        &self.ranks
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[i64] {
        &self.steps
    }

    /// How much longer a rank took itself than the median of those that do the same, in a step, in ns. Rank and step
    /// are given by their places in order.
    pub fn more_ns(&self, rank: usize, step: usize) -> Option<i64> {
        self.more.get(rank * self.steps.len() + step).copied().filter(|more| *more != NONE)
    }

    fn row(&self, rank: usize) -> &[i64] {
        &self.more[rank * self.steps.len()..(rank + 1) * self.steps.len()]
    }

    /// Which ranks stand out. `run_ns` is the time of one rank in the run.
    pub fn judge(&self, run_ns: i64) -> Verdict {
        let (start, step_ns) = self.start();
        let steps = self.steps.len() - start;
        let mut verdict = Verdict { ranks: self.compared, steps, start, ..Verdict::default() };
        if !verdict.is_enough() {
            return verdict;
        }
        let noise = Noise::new(self, start, step_ns);
        verdict.deviation_ns = noise.deviation_ns as i64;
        let events = self.events(start, &noise);
        let mut found = by_chance_none(&events, self.compared);
        for (rank, more_ns) in self.slower(start, &noise) {
            found.entry(rank).or_insert(more_ns);
        }
        // Nothing is usual about a few events of one rank alone, if they are far, nor about those that dwarf all
        // others. Those of a rank that is found count no more.
        let cost = |of: &[i64]| of.iter().map(|more| *more as f64).sum::<f64>();
        let rest = || events.iter().filter(|(rank, _)| !found.contains_key(rank));
        let all: f64 = rest().map(|(_, of_one)| cost(of_one)).sum();
        // Among two or three ranks, chance alone gives one rank a few pauses, so a pause counts only if it is as long
        // as a step.
        let least_ns = if self.compared < LEAST_RANKS { noise.step_ns } else { 0.0 }.max(ALONE * noise.far_ns);
        let alone = rest().filter(|(_, of_one)| cost(of_one) >= DWARFS * (all - cost(of_one)));
        let worst = alone.filter_map(|(rank, of_one)| Some((*rank, *of_one.iter().max()?)));
        let alone: Vec<(usize, i64)> = worst.filter(|(_, worst)| *worst as f64 >= least_ns).collect();
        found.extend(alone);
        let share = |ns: i64| (ns as f64 / run_ns.max(1) as f64).min(1.0);
        for (rank, more_ns) in found {
            let steps = self.blamed(rank, start, more_ns, &noise);
            let total_ns = steps.iter().map(|(_, more)| *more).fold(0, i64::saturating_add);
            if share(total_ns) < LEAST_SHARE {
                verdict.below += 1;
                continue;
            }
            verdict.named.push(Named { rank: self.ranks[rank], steps, total_ns, share: share(total_ns) });
        }
        verdict.named.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then(a.rank.cmp(&b.rank)));
        if verdict.named.is_empty() && events.len() > 1 {
            let mut worst = vec![0; self.steps.len()];
            for (rank, _) in &events {
                for (worst, more) in worst.iter_mut().zip(self.row(*rank)).skip(start) {
                    if *more as f64 > noise.far_ns {
                        *worst = (*worst).max(*more);
                    }
                }
            }
            let share = share(worst.iter().copied().fold(0, i64::saturating_add));
            let steps = worst.iter().filter(|worst| **worst > 0).count();
            verdict.spread = Some(Spread { ranks: events.len(), steps, share }).filter(|_| share >= LEAST_SPREAD);
        }
        verdict
    }

    /// How many of the first steps belong to the start of the run, and how long a step takes after them.
    fn start(&self) -> (usize, f64) {
        let of_step = |step: usize| {
            let all = (0..self.ranks.len()).map(|rank| self.own[rank * self.steps.len() + step]);
            median(&mut all.filter(|own| *own != NONE).collect::<Vec<_>>())
        };
        let of_steps: Vec<i64> = (0..self.steps.len()).map(of_step).collect();
        let usual = median(&mut of_steps.clone()) as f64;
        // The first one alone shows nothing: a loop begins with it.
        let most = of_steps.len() / 4;
        let long = of_steps.iter().take(most).take_while(|own| **own as f64 > START * usual).count();
        (long.max(usize::from(most > 1)), usual.max(1.0))
    }

    /// The steps that are far beyond what is usual, by rank.
    fn events(&self, start: usize, noise: &Noise) -> Vec<(usize, Vec<i64>)> {
        let of = |rank: usize| {
            let far = self.row(rank)[start..].iter().copied().filter(|more| *more as f64 > noise.far_ns);
            (rank, far.collect::<Vec<_>>())
        };
        (0..self.ranks.len()).map(of).filter(|(_, events)| !events.is_empty()).collect()
    }

    /// The ranks whose mean of many steps is far beyond those of the others, and by how much. A step counts no more
    /// than noise may be: a few long pauses do not make a rank slow.
    fn slower(&self, start: usize, noise: &Noise) -> Vec<(usize, i64)> {
        if self.compared < LEAST_RANKS {
            return self.slower_of_few(start, noise);
        }
        let mut found: HashMap<usize, (f64, f64)> = HashMap::new();
        let steps = self.steps.len() - start;
        let limit = SLOWER * (1.0 + 8.0 / self.compared as f64);
        let most_ns = (3.0 * noise.deviation_ns).max(1.5 * LEAST_SLOWER * noise.step_ns);
        let mut parts = 1;
        while parts == 1 || steps / parts >= LEAST_STRETCH {
            let mean = |rank: usize, part: usize| {
                let stretch = &self.row(rank)[start + part * steps / parts..start + (part + 1) * steps / parts];
                let known: Vec<i64> = stretch.iter().copied().filter(|more| *more != NONE).collect();
                let clipped = known.iter().map(|more| (*more as f64).clamp(-most_ns, most_ns));
                let mean = clipped.sum::<f64>() / known.len().max(1) as f64;
                (2 * known.len() > stretch.len()).then(|| (mean, median(&mut known.clone())))
            };
            let means: Vec<(usize, f64, i64)> = (0..self.ranks.len())
                .flat_map(|rank| (0..parts).map(move |part| (rank, part)))
                .filter_map(|(rank, part)| mean(rank, part).map(|(mean, usual)| (rank, mean, usual)))
                .collect();
            let mut away: Vec<i64> = means.iter().map(|(_, mean, _)| mean.abs() as i64).collect();
            let deviation = (1.4826 * median(&mut away) as f64).max(0.001 * noise.step_ns);
            for (rank, mean, usual) in means {
                if mean > limit * deviation && mean > LEAST_SLOWER * noise.step_ns {
                    let known = found.entry(rank).or_default();
                    if known.0 < mean / deviation {
                        *known = (mean / deviation, mean.max(usual as f64));
                    }
                }
            }
            parts *= 2;
        }
        found.into_iter().map(|(rank, (_, more_ns))| (rank, more_ns as i64)).collect()
    }

    /// Among two or three ranks, whose means do not show how much ranks differ: those that take longer in more steps
    /// than chance gives to one of two, and by more than devices differ.
    fn slower_of_few(&self, start: usize, noise: &Noise) -> Vec<(usize, i64)> {
        let least_ns = LEAST_OF_FEW * noise.step_ns;
        let slowest = |rank: usize| {
            let row = &self.row(rank)[start..];
            let halved = std::iter::successors(Some(row.len()), |steps| Some(steps / 2));
            let stretches =
                halved.take_while(|steps| *steps >= LEAST_STRETCH).flat_map(|steps| row.chunks_exact(steps));
            let longer = stretches.filter_map(|stretch| {
                let known = stretch.iter().filter(|more| **more != NONE).count();
                let mut longer: Vec<i64> = stretch.iter().copied().filter(|more| *more as f64 > least_ns).collect();
                (at_least(longer.len(), known, 0.5) < CHANCE).then(|| median(&mut longer))
            });
            Some((rank, longer.max()?))
        };
        (0..self.ranks.len()).filter_map(slowest).collect()
    }

    /// The steps in which this rank took longer, by about `more_ns`: those that stand out of noise, or all of the
    /// stretch that explains most.
    fn blamed(&self, rank: usize, start: usize, more_ns: i64, noise: &Noise) -> Vec<(i64, i64)> {
        let row = &self.row(rank)[start..];
        let at = |step: usize| (self.steps[start + step], row[step]);
        let known = |step: &usize| row[*step] != NONE;
        let half = more_ns / 2;
        if half as f64 > 3.0 * noise.deviation_ns {
            return (0..row.len()).filter(known).filter(|step| row[*step] > half).map(at).collect();
        }
        // The stretch with the largest sum of what is beyond half of it.
        let (mut best, mut from, mut sum) = ((0.0, 0..0), 0, 0.0_f64);
        for (step, more) in row.iter().enumerate().filter(|(_, more)| **more != NONE) {
            if sum <= 0.0 {
                (from, sum) = (step, 0.0);
            }
            sum += (*more as f64).clamp(-noise.far_ns, noise.far_ns) - half as f64;
            if sum > best.0 {
                best = (sum, from..step + 1);
            }
        }
        best.1.filter(known).map(at).collect()
    }
}

/// By how much single steps of ranks that are fine differ.
#[derive(Debug, Clone, Copy)]
struct Noise {
    step_ns: f64,
    deviation_ns: f64,
    /// Beyond it, a step is an event.
    far_ns: f64,
}

impl Noise {
    fn new(own: &Own, start: usize, step_ns: f64) -> Self {
        let is_few = own.compared < LEAST_RANKS;
        let (mut away, mut changes) = (Vec::new(), Vec::new());
        for rank in 0..own.ranks.len() {
            let known: Vec<i64> = own.row(rank)[start..].iter().copied().filter(|more| *more != NONE).collect();
            // With few ranks, a difference that lasts is not noise: only what a rank differs by from its own median, or
            // from one step to the next.
            let usual = if is_few { median(&mut known.clone()) } else { 0 };
            away.extend(known.iter().map(|more| more.saturating_sub(usual).saturating_abs()));
            if is_few {
                changes.extend(known.windows(2).map(|pair| pair[1].saturating_sub(pair[0]).saturating_abs()));
            }
        }
        let mut deviation_ns = 1.4826 * median(&mut away) as f64;
        if is_few {
            deviation_ns = deviation_ns.min(1.4826 * median(&mut changes) as f64 / std::f64::consts::SQRT_2);
        }
        let least = if is_few { LEAST_OF_FEW } else { LEAST_OF_STEP } * step_ns;
        Self { step_ns, deviation_ns, far_ns: (FAR * deviation_ns).max(LEAST_NS).max(least) }
    }
}

/// The ranks that have more of these events than chance gives to one of so many, with the usual size of theirs. A rank
/// that is found takes its events away from the others.
fn by_chance_none(events: &[(usize, Vec<i64>)], ranks: usize) -> HashMap<usize, i64> {
    let mut order: Vec<&(usize, Vec<i64>)> = events.iter().collect();
    order.sort_by_key(|(rank, all)| (std::cmp::Reverse(all.len()), *rank));
    let mut all: usize = order.iter().map(|(_, of_one)| of_one.len()).sum();
    let mut others = ranks;
    let mut found = HashMap::new();
    for (rank, of_one) in order {
        if others as f64 * at_least(of_one.len(), all, 1.0 / others.max(2) as f64) > CHANCE {
            break;
        }
        found.insert(*rank, median(&mut of_one.clone()));
        all -= of_one.len();
        others -= 1;
    }
    found
}

/// The probability of at least `k` of `n` where each has the probability `p`.
fn at_least(k: usize, n: usize, p: f64) -> f64 {
    // From the term of k on, each from the one before it, in logarithms: n may be millions.
    let mut log = 0.0;
    for at in 0..k {
        log += ((n - at) as f64 / (at + 1) as f64).ln() + p.ln();
    }
    let mut term = (log + (n - k) as f64 * (1.0 - p).ln()).exp();
    let mut sum = 0.0;
    for at in k..=n {
        sum += term;
        term *= (n - at) as f64 / (at + 1) as f64 * p / (1.0 - p);
        if term < sum * 1e-9 {
            break;
        }
    }
    // The terms grow up to the mean: below it, the sum begins too small to be represented.
    if (k as f64) <= n as f64 * p { 1.0 } else { sum }
}

#[cfg(test)]
mod tests {
    use super::at_least;

    #[test]
    fn a_probability_is_that_of_the_binomial_distribution() {
        // Computed with exact fractions.
        let of = [
            (8, 10, 0.5, 0.0546875),
            (2, 10, 0.1, 0.263_901_070_9),
            (1, 1_000, 1e-5, 0.009_950_215_753_652_415),
            (10, 10, 0.125, 9.313_225_746_154_785e-10),
            (7, 200, 1.0 / 64.0, 0.038_926_742_803_006_3),
        ];
        for (k, n, p, is) in of {
            assert!((at_least(k, n, p) / is - 1.0).abs() < 1e-6, "{k} of {n}: {}, not {is}", at_least(k, n, p));
        }
        // Up to the expected number, the probability is taken as 1.
        assert_eq!((at_least(0, 5, 0.5), at_least(5, 10, 0.5), at_least(3, 10, 0.5)), (1.0, 1.0, 1.0));
        assert_eq!(at_least(0, 0, 0.5), 1.0);
    }
}
