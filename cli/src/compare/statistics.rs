//! How two sides differ in a quantile, and how sure that is: a bootstrap over blocks, with Student's t.
//!
//! The measure is the logarithm of the ratio of the quantiles. Its standard error comes from draws of whole blocks with
//! replacement, within each run, so that what is correlated stays together. What differs from run to run is added: it
//! is measured where a side has several runs, and taken to be [`RUN_TO_RUN`] where it is not measured, or is smaller.
//! Two runs of one binary differ by more than their blocks do.

use std::f64::consts::{PI, SQRT_2};

use warpline_core::hashing::splitmix64;

use super::samples::Lengths;

/// The number of draws.
const DRAWS: u64 = 400;

/// The relative difference between equal runs that is expected without a measurement, as a standard deviation.
const RUN_TO_RUN: f64 = 0.007;

/// The degrees of freedom of that expectation.
const EXPECTED_FREEDOM: f64 = 30.0;

/// The least number of blocks of a side with which a difference is judged.
pub(super) const LEAST_BLOCKS: usize = 8;

/// The least number of runs of a side with which a difference of runs is judged.
const LEAST_RUNS: usize = 3;

/// The least number of lengths that are above the quantile.
pub(super) const LEAST_ABOVE: f64 = 8.0;

/// The difference of one quantile between two sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Difference {
    pub(super) base_ns: f64,
    pub(super) new_ns: f64,
    /// The logarithm of the ratio, and its standard error; the error is none where there is too little to judge.
    pub(super) log_ratio: f64,
    pub(super) error: Option<f64>,
    /// Degrees of freedom.
    pub(super) freedom: f64,
    pub(super) blocks: Sides,
}

/// How much there is of a subject on one side.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Blocks {
    pub(super) blocks: usize,
    pub(super) lengths: usize,
}

/// How much there is of a subject on both sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides(pub(super) [Blocks; 2]);

impl Sides {
    /// The side with less of it.
    pub(super) fn min(self) -> Blocks {
        let [base, new] = self.0;
        Blocks { blocks: base.blocks.min(new.blocks), lengths: base.lengths.min(new.lengths) }
    }
}

impl Difference {
    /// The ratio minus 1.
    pub(super) fn change(&self) -> f64 {
        self.log_ratio.exp() - 1.0
    }

    /// The least change that would be sure with this probability of an error.
    pub(super) fn tellable(&self, alpha: f64) -> Option<f64> {
        Some((student(1.0 - alpha / 2.0, self.freedom) * self.error?).exp() - 1.0)
    }

    /// The confidence interval of the change, with this probability of an error.
    pub(super) fn interval(&self, alpha: f64) -> Option<(f64, f64)> {
        let half = student(1.0 - alpha / 2.0, self.freedom) * self.error?;
        Some(((self.log_ratio - half).exp() - 1.0, (self.log_ratio + half).exp() - 1.0))
    }
}

/// The lengths of one side, sorted, each with the number of its block.
struct Side {
    sorted: Vec<(u64, u32)>,
    /// The number of lengths of each block.
    sizes: Vec<u64>,
    /// The blocks of each run.
    runs: Vec<std::ops::Range<u32>>,
}

impl Side {
    fn new(runs: &[&Lengths]) -> Side {
        let (mut sorted, mut ranges, mut blocks) = (Vec::new(), Vec::new(), 0_u32);
        for run in runs {
            let first = blocks;
            let mut last = None;
            for (block, ns) in &run.lengths {
                // Blocks without a length do not count.
                if last != Some(*block) {
                    blocks += 1;
                    last = Some(*block);
                }
                sorted.push((*ns, blocks - 1));
            }
            ranges.push(first..blocks);
        }
        sorted.sort_unstable();
        let mut sizes = vec![0; blocks as usize];
        sorted.iter().for_each(|(_, block)| sizes[*block as usize] += 1);
        Side { sorted, sizes, runs: ranges }
    }

    fn blocks(&self) -> usize {
        self.runs.iter().map(|run| run.len()).sum()
    }

    /// The quantile of the lengths, of which each counts as often as its block was drawn.
    fn quantile(&self, quantile: f64, weights: &[u32]) -> f64 {
        let all: u64 = self.sizes.iter().zip(weights).map(|(size, weight)| size * u64::from(*weight)).sum();
        let wanted = quantile * all as f64;
        let mut below = 0_u64;
        for (ns, block) in &self.sorted {
            below += u64::from(weights[*block as usize]);
            if below as f64 > wanted {
                return *ns as f64;
            }
        }
        self.sorted.last().map_or(0.0, |(ns, _)| *ns as f64)
    }

    fn quantile_of_all(&self, quantile: f64) -> f64 {
        self.quantile(quantile, &vec![1; self.blocks()])
    }

    /// Draws blocks with replacement within each run.
    fn draw(&self, random: &mut Random, weights: &mut [u32]) {
        weights.fill(0);
        for run in self.runs.iter().filter(|run| !run.is_empty()) {
            for _ in 0..run.len() {
                weights[run.start as usize + random.below(run.len())] += 1;
            }
        }
    }
}

/// Numbers that are the same for the same seed, on every machine.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        splitmix64(self.0)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// From 0 to 1.
    #[cfg(test)]
    pub(super) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Compares a quantile of the runs of two sides. None if a side has no lengths.
pub(super) fn difference(base: &[&Lengths], new: &[&Lengths], quantile: f64, seed: u64) -> Option<Difference> {
    let sides = [Side::new(base), Side::new(new)];
    if sides.iter().any(|side| side.sorted.is_empty()) {
        return None;
    }
    // A length of zero has no ratio.
    let [base_ns, new_ns] = [0, 1].map(|at| sides[at].quantile_of_all(quantile).max(1.0));
    let log_ratio = (new_ns / base_ns).ln();
    let is_enough = sides
        .iter()
        .all(|side| side.blocks() >= LEAST_BLOCKS && side.sorted.len() as f64 * (1.0 - quantile) >= LEAST_ABOVE);
    let of_blocks = (sides[0].blocks().min(sides[1].blocks()) as f64 - 1.0).max(4.0);
    let variance = is_enough.then(|| {
        let mut random = Random::new(splitmix64(seed));
        let mut weights: Vec<Vec<u32>> = sides.iter().map(|side| vec![0; side.blocks()]).collect();
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..DRAWS {
            let logs: Vec<f64> = sides
                .iter()
                .zip(&mut weights)
                .map(|(side, weights)| {
                    side.draw(&mut random, weights);
                    side.quantile(quantile, weights).max(1.0).ln()
                })
                .collect();
            let log = logs[1] - logs[0];
            (sum, squares) = (sum + log, squares + log * log);
        }
        let draws = DRAWS as f64;
        let within = ((squares - sum * sum / draws) / (draws - 1.0)).max(0.0);
        let (between, of_runs) = between([base, new], quantile);
        // Welch and Satterthwaite: the degrees of freedom of a sum of variances.
        let freedom = (within + between).powi(2) / (within.powi(2) / of_blocks + between.powi(2) / of_runs);
        ((within + between).sqrt(), freedom)
    });
    let (error, freedom) = variance.unzip();
    let freedom = freedom.unwrap_or(of_blocks);
    let blocks = Sides([0, 1].map(|at| Blocks { blocks: sides[at].blocks(), lengths: sides[at].sorted.len() }));
    Some(Difference { base_ns, new_ns, log_ratio, error, freedom, blocks })
}

/// Compares runs of which each has one length. The difference is judged if both sides have several.
pub(super) fn difference_of_runs(base: &[&Lengths], new: &[&Lengths], seed: u64) -> Option<Difference> {
    let difference = difference(base, new, 0.5, seed)?;
    let (variance, freedom) = between([base, new], 0.5);
    let error = (difference.blocks.min().blocks >= LEAST_RUNS).then(|| variance.sqrt());
    Some(Difference { error, freedom, ..difference })
}

/// The variance of the logarithm of the ratio that comes from differences between runs, and its degrees of freedom.
fn between(sides: [&[&Lengths]; 2], quantile: f64) -> (f64, f64) {
    let (mut squares, mut freedom) = (0.0, 0.0);
    for runs in sides {
        let logs: Vec<f64> = runs
            .iter()
            .filter(|run| !run.lengths.is_empty())
            .map(|run| Side::new(&[run]).quantile_of_all(quantile).max(1.0).ln())
            .collect();
        let mean = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
        squares += logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
        freedom += logs.len().saturating_sub(1) as f64;
    }
    let expected = RUN_TO_RUN.powi(2);
    let measured = if freedom > 0.0 { squares / freedom } else { 0.0 };
    // A few runs that agree by chance do not show that all do.
    let (variance, freedom) = if measured > expected { (measured, freedom) } else { (expected, EXPECTED_FREEDOM) };
    (variance * sides.iter().map(|runs| 1.0 / runs.len().max(1) as f64).sum::<f64>(), freedom)
}

/// The quantile of Student's t distribution (Abramowitz and Stegun, 26.7.5).
pub(super) fn student(p: f64, freedom: f64) -> f64 {
    let z = normal(p);
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
        (79.0 * z.powi(9) + 776.0 * z.powi(7) + 1482.0 * z.powi(5) - 1920.0 * z.powi(3) - 945.0 * z) / 92_160.0,
    ];
    terms.iter().zip(1..).fold(z, |sum, (term, power)| sum + term / freedom.powi(power))
}

/// The quantile of the normal distribution, by Newton's method.
fn normal(p: f64) -> f64 {
    let p = p.clamp(1e-12, 1.0 - 1e-12);
    let mut z = 0.0_f64;
    for _ in 0..60 {
        let density = (-z * z / 2.0).exp() / (2.0 * PI).sqrt();
        let step = (cumulative(z) - p) / density.max(1e-300);
        z -= step.clamp(-0.5, 0.5);
        if step.abs() < 1e-12 {
            break;
        }
    }
    z
}

fn cumulative(z: f64) -> f64 {
    0.5 * complement(-z / SQRT_2)
}

/// The complementary error function: its series near 0, and its continued fraction elsewhere.
fn complement(x: f64) -> f64 {
    if x < 0.0 {
        return 2.0 - complement(-x);
    }
    if x < 2.5 {
        let (mut term, mut sum) = (x, x);
        for n in 1..80 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return 1.0 - 2.0 / PI.sqrt() * sum;
    }
    let fraction = (1..60).rev().fold(x, |below, n| x + f64::from(n) / 2.0 / below);
    (-x * x).exp() / PI.sqrt() / fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_distributions_are_those_of_tables() {
        for (p, z) in [(0.5, 0.0), (0.975, 1.959_964), (0.995, 2.575_829), (0.999_99, 4.264_891), (0.01, -2.326_348)] {
            assert!((normal(p) - z).abs() < 1e-5, "{p}: {}", normal(p));
        }
        for (p, freedom, t) in [(0.975, 10.0, 2.228), (0.975, 30.0, 2.042), (0.999, 20.0, 3.552), (0.9995, 8.0, 5.041)]
        {
            assert!((student(p, freedom) - t).abs() < 0.03, "{p} {freedom}: {}", student(p, freedom));
        }
    }

    /// 32 blocks of lengths around `mean` with the noise of each block and of each length.
    fn run(mean: f64, random: &mut Random) -> Lengths {
        let mut lengths = Vec::new();
        for block in 0..32_u16 {
            let shift = 1.0 + 0.02 * (random.share() - 0.5);
            lengths.extend((0..40).map(|_| (block, (mean * shift * (1.0 + 0.1 * random.share())) as u64)));
        }
        let count = lengths.len() as u64;
        Lengths { lengths, count, bounded: 0 }
    }

    #[test]
    fn a_difference_has_an_error_that_repetition_confirms_and_is_the_same_for_a_seed() {
        let mut random = Random::new(7);
        let differences: Vec<Difference> = (0..60)
            .map(|seed| difference(&[&run(1e5, &mut random)], &[&run(1.1e5, &mut random)], 0.5, seed).unwrap())
            .collect();
        let mean = differences.iter().map(|one| one.log_ratio).sum::<f64>() / 60.0;
        let spread = (differences.iter().map(|one| (one.log_ratio - mean).powi(2)).sum::<f64>() / 59.0).sqrt();
        let said = differences.iter().filter_map(|one| one.error).sum::<f64>() / 60.0;
        let without_runs = (said.powi(2) - 2.0 * RUN_TO_RUN.powi(2)).sqrt();
        assert!((mean - 1.1_f64.ln()).abs() < 0.003, "{mean}");
        assert!((without_runs / spread - 1.0).abs() < 0.4, "it says {without_runs}, and is {spread}");
        let (base, new) = (run(1e5, &mut random), run(1e5, &mut random));
        let twice = [0, 1].map(|_| difference(&[&base], &[&new], 0.99, 5).unwrap().error);
        assert_eq!(twice[0], twice[1]);
    }

    #[test]
    fn runs_that_differ_make_a_difference_less_sure_and_too_little_is_not_judged() {
        let mut random = Random::new(9);
        let equal: Vec<Lengths> = (0..4).map(|_| run(1e5, &mut random)).collect();
        let spread: Vec<Lengths> = [0.9e5, 1.1e5, 0.95e5, 1.05e5].map(|mean| run(mean, &mut random)).into();
        let error = |runs: &[Lengths]| {
            let all: Vec<&Lengths> = runs.iter().collect();
            difference(&all[..2], &all[2..], 0.5, 1).unwrap().error.unwrap()
        };
        assert!(error(&equal) < 0.012 && error(&spread) > 0.03, "{} {}", error(&equal), error(&spread));
        let few = Lengths { lengths: (0..7).map(|block| (block, 1_000)).collect(), count: 7, bounded: 0 };
        assert!(difference(&[&few], &[&few], 0.5, 1).unwrap().error.is_none());
        assert!(difference(&[&Lengths::default()], &[&few], 0.5, 1).is_none());
    }
}
