//! Since when a rank is slow: the step at which its device work changed, compared with that of its peers.

use warpline_judge::clocks::median;

/// Deviations, squared, by which two begins differ for certain: 99 of 100 changes lie within.
const CERTAIN: f64 = 9.21;

/// A change of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since {
    /// The first slow step.
    pub step: i64,
    /// The change was not before this step.
    pub least: i64,
    /// The change was not after this step.
    pub most: i64,
}

/// Where `more`, which is what each step took longer than usual as a share, in order of steps, changes for the worse:
/// the two levels, before and after, that fit best. Where the first level is slow as well, which is more than `limit`,
/// it was so from the begin. Noise of single steps does not move it: what is more than three deviations from the
/// level's median counts as three.
pub fn since(more: &[(i64, f64)], limit: f64) -> Option<Since> {
    let (first, n) = (more.first()?.0, more.len());
    let from_the_begin = Some(Since { step: first, least: first, most: first });
    if n < 4 {
        return from_the_begin;
    }
    let deviation = deviation(more);
    let middle = median(&mut more.iter().map(|step| step.1).collect::<Vec<_>>());
    // Within what the two levels may be, and some noise, so that one hiccup does not form a level of its own.
    let (low, high) = (0.0_f64.min(middle) - 3.0 * deviation, limit.max(middle) * 2.0 + 3.0 * deviation);
    let values: Vec<f64> = more.iter().map(|step| step.1.clamp(low, high)).collect();
    let mut sums = vec![(0.0, 0.0)];
    for value in &values {
        let (sum, squares) = sums[sums.len() - 1];
        sums.push((sum + value, squares + value * value));
    }
    // The sum of squares of a stretch around its mean.
    let left = |from: usize, to: usize| {
        let (n, sum, squares) = ((to - from) as f64, sums[to].0 - sums[from].0, sums[to].1 - sums[from].1);
        if n > 0.0 { squares - sum * sum / n } else { 0.0 }
    };
    let mean = |from: usize, to: usize| (sums[to].0 - sums[from].0) / ((to - from).max(1)) as f64;
    let cost = |at: usize| left(0, at) + left(at, n);
    let best = (1..n).filter(|at| mean(*at, n) > mean(0, *at)).min_by(|a, b| cost(*a).total_cmp(&cost(*b)))?;
    if mean(0, best) > limit || mean(best, n) - mean(0, best) < limit / 2.0 {
        return from_the_begin;
    }
    let allowed = cost(best) + CERTAIN * deviation * deviation;
    let is_possible = |at: &usize| cost(*at) <= allowed;
    let least = (1..=best).rev().take_while(is_possible).last().unwrap_or(best);
    let most = (best..n).take_while(is_possible).last().unwrap_or(best);
    Some(Since { step: more[best].0, least: more[least].0, most: more[most].0 })
}

/// The deviation of each step from the next, so that a change of level counts once.
fn deviation(more: &[(i64, f64)]) -> f64 {
    let mut differences: Vec<_> = more.windows(2).map(|two| (two[1].1 - two[0].1).abs()).collect();
    (1.4826 * median(&mut differences) / std::f64::consts::SQRT_2).max(1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The noise of a step: another seed, another sequence.
    fn made(seed: u64, n: i64, change: i64, by: f64, noise: f64) -> Vec<(i64, f64)> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut around = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1_u64 << 30) as f64 - 1.0
        };
        let mut normal = || (around() + around() + around() + around()) * 0.866;
        (0..n).map(|step| (step, if step >= change { by } else { 0.0 } + noise * normal())).collect()
    }

    #[test]
    fn a_change_is_found_to_the_step_and_the_truth_is_within() {
        let mut within = 0;
        for seed in 0..100 {
            let change = 5 + seed as i64 % 90;
            let found = since(&made(seed, 100, change, 0.05, 0.003), 0.01).unwrap();
            assert_eq!(found.step, change, "seed {seed}");
            assert!(found.least <= change && change <= found.most && found.most - found.least <= 1, "{found:?}");
            // The noise is as large as the change: the step is not exact, and the interval shows it.
            let noisy = since(&made(seed, 400, 100 + change, 0.05, 0.03), 0.01).unwrap();
            within += usize::from((noisy.least..=noisy.most).contains(&(100 + change)));
            assert!((noisy.step - 100 - change).abs() < 30, "seed {seed}: {noisy:?}");
        }
        assert!(within >= 95, "{within}");
    }

    #[test]
    fn a_rank_that_is_slow_from_the_begin_has_no_change() {
        let more = made(1, 100, 0, 0.05, 0.003);
        assert_eq!(since(&more, 0.01), Some(Since { step: 0, least: 0, most: 0 }));
        assert_eq!(since(&more[..2], 0.01), Some(Since { step: 0, least: 0, most: 0 }));
        assert_eq!(since(&[], 0.01), None);
    }

    #[test]
    fn one_hiccup_is_no_change() {
        let mut more = made(2, 100, 60, 0.05, 0.003);
        more[20].1 = 4.0;
        more[90].1 = 4.0;
        assert_eq!(since(&more, 0.01).unwrap().step, 60);
    }
}
