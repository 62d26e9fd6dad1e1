//! Comparisons of made-up runs whose truth is known: with heavy tails, drift within a run, and lengths that depend on those before.

use super::samples::Lengths;
use super::statistics::Random;
use super::*;

const RANGES: usize = 6;
const STEPS: usize = 300;
const PER_STEP: usize = 3;

/// How lengths vary.
#[derive(Clone, Copy)]
struct Noise {
    /// The share of a step's level that the next step keeps, and the size of its changes.
    memory: f64,
    level: f64,
    /// The largest drift from the begin of a run to its end. Each run has its own.
    drift: f64,
    /// The share of lengths that are up to 20 times as long.
    tail: f64,
}

const MODELS: [Noise; 4] = [
    Noise { memory: 0.0, level: 0.0, drift: 0.0, tail: 0.0 },
    Noise { memory: 0.0, level: 0.01, drift: 0.0, tail: 0.03 },
    Noise { memory: 0.95, level: 0.006, drift: 0.0, tail: 0.01 },
    Noise { memory: 0.8, level: 0.01, drift: 0.02, tail: 0.03 },
];

fn subject(range: usize) -> Subject {
    Subject { what: What::Range, name: format!("demo.{range}").into(), range: None }
}

/// Returns a run in which one range takes `factor` times as long.
fn run(noise: Noise, random: &mut Random, slow: Option<(usize, f64)>) -> Run {
    let mut run = Run::default();
    // What slows one range slows the others: they share the device.
    let drift = noise.drift * (2.0 * random.share() - 1.0);
    let mut level = 0.0;
    let levels: Vec<f64> = (0..STEPS)
        .map(|_| {
            level = noise.memory * level + noise.level * (random.share() + random.share() - 1.0) * 2.0;
            level
        })
        .collect();
    for range in 0..RANGES {
        let factor = slow.filter(|(slow, _)| *slow == range).map_or(1.0, |(_, factor)| factor);
        let mean = 20_000.0 * (1.0 + range as f64) * factor;
        let mut lengths = Vec::new();
        for (step, level) in levels.iter().enumerate() {
            let drifted = 1.0 + level + drift * step as f64 / STEPS as f64;
            for _ in 0..PER_STEP {
                let own = 1.0 + 0.04 * (random.share() + random.share() + random.share() - 1.5);
                let tail = if random.share() < noise.tail { 1.0 + 19.0 * random.share() } else { 1.0 };
                lengths.push(((step * 32 / STEPS) as u16, (mean * drifted * own * tail) as u64));
            }
        }
        let count = lengths.len() as u64;
        run.subjects.insert(subject(range), Lengths { lengths, count, bounded: 0 });
    }
    run
}

#[test]
fn equal_runs_do_not_fail_and_eight_percent_in_one_range_are_found() {
    for (model, noise) in MODELS.into_iter().enumerate() {
        let mut random = Random::new(100 + model as u64);
        let mut found = 0;
        for pair in 0..10 {
            let base = run(noise, &mut random, None);
            let equal =
                Comparison::new(std::slice::from_ref(&base), &[run(noise, &mut random, None)], Some(0.05), pair);
            assert!(!equal.has_regressed(), "model {model}, pair {pair}: {}", equal.to_text(false));
            let slow = pair as usize % RANGES;
            let slower = Comparison::new(&[base], &[run(noise, &mut random, Some((slow, 1.08)))], Some(0.05), pair);
            let regressed: Vec<_> = slower.compared.iter().filter(|one| one.verdict == Verdict::Regressed).collect();
            found += u32::from(regressed.iter().any(|one| one.subject == subject(slow)));
            assert!(
                regressed.iter().all(|one| one.subject == subject(slow)),
                "model {model}: {}",
                slower.to_text(false)
            );
        }
        assert_eq!(found, 10, "model {model}");
    }
}

#[test]
fn equal_runs_are_rarely_called_different() {
    // Without the limit, what remains is the level of the test.
    for noise in [MODELS[1], MODELS[3]] {
        let mut random = Random::new(11);
        let different = (0..20)
            .filter(|seed| {
                let (base, new) = (run(noise, &mut random, None), run(noise, &mut random, None));
                let comparison = Comparison::new(&[base], &[new], None, *seed);
                comparison.compared.iter().any(|one| matches!(one.verdict, Verdict::Slower | Verdict::Faster))
            })
            .count();
        assert!(different <= 1, "{different} of 20");
    }
}

#[test]
fn several_runs_a_side_that_differ_by_themselves_need_more_to_be_called_slower() {
    let mut random = Random::new(3);
    let mut side =
        |factors: [f64; 3]| -> Vec<Run> { factors.map(|factor| run(MODELS[1], &mut random, Some((0, factor)))).into() };
    let steady = Comparison::new(&side([1.0, 1.0, 1.0]), &side([1.08, 1.08, 1.08]), Some(0.05), 1);
    assert!(steady.has_regressed(), "{}", steady.to_text(false));
    let wild = Comparison::new(&side([0.9, 1.0, 1.1]), &side([0.98, 1.08, 1.18]), Some(0.05), 1);
    assert!(!wild.has_regressed(), "{}", wild.to_text(false));
}

#[test]
fn wide_intervals_tell_nothing_and_narrow_ones_say_the_same() {
    let mut random = Random::new(21);
    let mut runs = |noise| [run(noise, &mut random, None), run(noise, &mut random, None)];
    let [base, new] = runs(MODELS[0]);
    let steady = Comparison::new(&[base], &[new], None, 1);
    let medians = |of: &Comparison| -> Vec<Verdict> {
        of.compared.iter().filter(|one| one.quantile == "median").map(|one| one.verdict).collect()
    };
    assert!(medians(&steady).iter().all(|verdict| *verdict == Verdict::Same), "{}", steady.to_text(false));
    // Levels that move by 40 % from step to step.
    let [base, new] = runs(Noise { memory: 0.9, level: 0.2, drift: 0.3, tail: 0.0 });
    let [base, new] = [[base], [new]];
    let wild = Comparison::new(&base, &new, None, 1);
    assert!(medians(&wild).iter().all(|verdict| *verdict == Verdict::CannotTell), "{}", wild.to_text(false));
    for one in &wild.compared {
        let half = (one.difference.interval(wild.alpha).unwrap().1 + 1.0).ln() - one.difference.log_ratio;
        assert!((one.difference.tellable(wild.alpha).unwrap() - (half.exp() - 1.0)).abs() < 1e-9);
    }
    assert!(wild.to_text(false).contains("cannot tell (could see ≥"), "{}", wild.to_text(false));
    // A limit beyond what can be seen is kept.
    let limited = Comparison::new(&base, &new, Some(10.0), 1);
    assert!(medians(&limited).iter().all(|verdict| *verdict == Verdict::Same), "{}", limited.to_text(false));
}

#[test]
fn too_few_blocks_say_how_many_it_takes() {
    let mut random = Random::new(5);
    let mut short = |blocks: u16| {
        let mut run = run(MODELS[0], &mut random, None);
        run.subjects.values_mut().for_each(|of| of.lengths.retain(|(block, _)| *block < blocks));
        run
    };
    let few = Comparison::new(&[short(3)], &[short(5)], Some(0.05), 1);
    assert!(few.judges_nothing());
    let needs = few.needs();
    assert!(needs.contains("needs 8 blocks") && needs.contains("none has more than 3"), "{needs}");
    assert!(!Comparison::new(&[short(8)], &[short(8)], Some(0.05), 1).judges_nothing());
}

#[test]
fn what_is_new_or_gone_is_listed_and_texts_say_what_was_found() {
    let mut random = Random::new(5);
    let (mut base, mut new) = (run(MODELS[0], &mut random, None), run(MODELS[0], &mut random, Some((2, 1.2))));
    let kernel = |name: &str| Subject { what: What::Kernel, name: name.into(), range: Some("demo.1".into()) };
    base.subjects.insert(kernel("gemm_v1"), Lengths { lengths: vec![(0, 5)], count: 1, bounded: 0 });
    new.subjects.insert(kernel("gemm|v2"), Lengths { lengths: vec![(0, 5)], count: 1, bounded: 0 });
    let comparison = Comparison::new(&[base], &[new], Some(0.05), 0);
    let (text, markdown) = (comparison.to_text(false), comparison.to_markdown());
    assert!(text.contains("new: gemm|v2 in demo.1\ngone: gemm_v1 in demo.1\n"), "{text}");
    assert!(text.contains("figures are slower by more than 5 %") && text.contains("regressed"), "{text}");
    assert!(
        markdown.starts_with("❌ **warpline compare**") && markdown.contains("New: `gemm\\|v2 in demo.1`"),
        "{markdown}"
    );
    let json: serde_json::Value = serde_json::from_str(&comparison.to_json()).unwrap();
    assert_eq!((&json["regressed"], &json["figures"][0]["name"]), (&true.into(), &"demo.2".into()));
}
