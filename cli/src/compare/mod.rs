//! `warpline compare`: which ranges, steps, kernels and collectives became slower from one version of a program to the
//! next.
//!
//! `samples` reads the runs of both sides, `statistics` finds differences and how sure they are, and `show` writes
//! them. A difference is a regression if it is above the limit, and if it is sure that there is one at all, at a level
//! that accounts for the number of comparisons.

mod samples;
mod show;
mod statistics;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::files;
use crate::inputs::{self, TRACES};
use crate::output;
use crate::trace::ReadError;
use samples::{Lengths, Run, Subject, What};
use statistics::{Blocks, Difference};

/// The probability with which equal runs are called different, of all comparisons together.
const ALPHA: f64 = 0.01;

/// Without a limit, equal runs are called the same if a difference of this size would have been seen.
const TELLABLE: f64 = 0.05;

/// The quantiles that are compared, with their names.
const QUANTILES: [(&str, f64); 2] = [("median", 0.5), ("p99", 0.99)];

/// Why nothing was compared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompareError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("no zone, step or kernel in the traces of the {0} side; record with `WARPLINE=perfetto=FILE`")]
    Empty(&'static str),
    #[error("the two sides have nothing in common: no range, step or kernel is in both; compare runs of one program")]
    NothingInCommon,
    #[error(
        "nothing can be compared: for everything that is in both sides, the ends of all zones of one side are not timed by events; record with `ends=eager`"
    )]
    NotTimed,
    #[error(
        "nothing is judged, so nothing can be slower than the limit: {0}; leave out `--fail-above` to see the figures"
    )]
    NotJudged(String),
}

/// The traces to compare, and the options.
#[derive(Debug)]
pub(crate) struct Comparing {
    pub(crate) base: Vec<PathBuf>,
    pub(crate) new: Vec<PathBuf>,
    /// The limit, as a share.
    pub(crate) limit: Option<f64>,
    pub(crate) seed: u64,
}

/// The result of comparing one quantile of one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// Slower by more than the limit, and surely slower.
    Regressed,
    /// Surely slower.
    Slower,
    /// Surely faster.
    Faster,
    /// No difference is sure, and one of the limit, or of [`TELLABLE`] without a limit, would have been.
    Same,
    /// No difference is sure, and one that is smaller than this share could not have been.
    CannotTell,
    /// There are too few blocks or lengths.
    TooFew,
}

/// One quantile of one subject.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    subject: Subject,
    quantile: &'static str,
    difference: Difference,
    zones: [Zones; 2],
    verdict: Verdict,
}

/// How much there is of a subject on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Zones {
    count: u64,
    /// The number of those whose length is only a bound. They enter no figure.
    bounded: u64,
}

impl Zones {
    fn sum(runs: &[&Lengths]) -> Zones {
        let sum = |number: fn(&Lengths) -> u64| runs.iter().map(|run| number(run)).sum();
        Zones { count: sum(|run| run.count), bounded: sum(|run| run.bounded) }
    }

    fn is_not_timed(self) -> bool {
        self.bounded > 0 && self.bounded == self.count
    }
}

/// The whole comparison.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    compared: Vec<Compared>,
    appeared: Vec<Subject>,
    gone: Vec<Subject>,
    /// The subjects that are in both sides, but have no known length on one of them.
    not_timed: Vec<(Subject, [Zones; 2])>,
    runs: [usize; 2],
    limit: Option<f64>,
    /// The probability of an error of one comparison.
    alpha: f64,
    seed: u64,
    left_out: u64,
}

/// Reads the runs of both sides and compares them. Warnings go to standard error.
pub(crate) fn compare(comparing: &Comparing) -> Result<Comparison, CompareError> {
    let read = |paths: &[PathBuf]| -> Result<Vec<Run>, ReadError> {
        files::expand(paths, TRACES)?.iter().map(|path| samples::read(path)).collect()
    };
    let sides = [read(&comparing.base)?, read(&comparing.new)?];
    for (side, name) in sides.iter().zip(["base", "new"]) {
        if side.iter().all(|run| run.subjects.keys().all(|subject| subject.what == What::Wall)) {
            return Err(CompareError::Empty(name));
        }
    }
    let comparison = Comparison::new(&sides[0], &sides[1], comparing.limit, comparing.seed);
    let has_only_wall = comparison.compared.iter().all(|one| one.subject.what == What::Wall);
    if has_only_wall && !comparison.not_timed.is_empty() {
        return Err(CompareError::NotTimed);
    }
    if has_only_wall {
        return Err(CompareError::NothingInCommon);
    }
    if comparison.limit.is_some() && comparison.decides_nothing() {
        return Err(CompareError::NotJudged(comparison.needs()));
    }
    if comparison.left_out > 0 {
        let slices = output::counted(comparison.left_out, "slice");
        output::complain(format_args!(
            "warning: {slices} of further ranges and kernels left out; compare a part of the ranges"
        ));
    }
    Ok(comparison)
}

impl Comparison {
    fn new(base: &[Run], new: &[Run], limit: Option<f64>, seed: u64) -> Comparison {
        let subjects =
            |runs: &[Run]| -> BTreeSet<Subject> { runs.iter().flat_map(|run| run.subjects.keys().cloned()).collect() };
        let [of_base, of_new] = [base, new].map(subjects);
        let (mut compared, mut not_timed) = (Vec::new(), Vec::new());
        let bar = inputs::steps(of_base.intersection(&of_new).count() as u64, "comparing");
        for subject in of_base.intersection(&of_new) {
            bar.inc(1);
            let lengths = |runs: &'_ [Run]| -> Vec<Lengths> {
                runs.iter().filter_map(|run| run.subjects.get(subject).cloned()).collect()
            };
            let [base, new] = [base, new].map(lengths);
            let [base, new]: [Vec<&Lengths>; 2] = [base.iter().collect(), new.iter().collect()];
            let zones = [&base, &new].map(|runs| Zones::sum(runs));
            if zones.iter().any(|zones| zones.is_not_timed()) {
                not_timed.push((subject.clone(), zones));
                continue;
            }
            if subject.what == What::Wall {
                // Steps have more of them, and no begin and end of the program.
                if !of_base.iter().any(|one| one.what == What::Step && of_new.contains(one))
                    && let Some(difference) = statistics::difference_of_runs(&base, &new, seed)
                {
                    let (subject, quantile, verdict) = (subject.clone(), QUANTILES[0].0, Verdict::TooFew);
                    compared.push(Compared { subject, quantile, difference, zones, verdict });
                }
                continue;
            }
            for (quantile, p) in QUANTILES {
                if let Some(difference) = statistics::difference(&base, &new, p, seed) {
                    let verdict = Verdict::TooFew;
                    compared.push(Compared { subject: subject.clone(), quantile, difference, zones, verdict });
                }
            }
        }
        bar.finish_and_clear();
        let judged = compared.iter().filter(|one| one.difference.error.is_some()).count().max(1);
        let alpha = ALPHA / judged as f64;
        for one in &mut compared {
            one.verdict = verdict(&one.difference, alpha, limit);
        }
        let change = |one: &Compared| one.difference.log_ratio;
        compared.sort_by(|a, b| a.verdict.cmp(&b.verdict).then_with(|| change(b).total_cmp(&change(a))));
        Comparison {
            compared,
            appeared: of_new.difference(&of_base).cloned().collect(),
            gone: of_base.difference(&of_new).cloned().collect(),
            not_timed,
            runs: [base.len(), new.len()],
            limit,
            alpha,
            seed,
            left_out: base.iter().chain(new).map(|run| run.left_out).sum(),
        }
    }

    /// Whether all runs are too short.
    fn judges_nothing(&self) -> bool {
        self.compared.iter().all(|one| one.verdict == Verdict::TooFew)
    }

    /// Whether no figure has a verdict: a limit says nothing then.
    fn decides_nothing(&self) -> bool {
        self.compared.iter().all(|one| matches!(one.verdict, Verdict::TooFew | Verdict::CannotTell))
    }

    /// The data that the runs lack, if nothing is judged or decided.
    fn needs(&self) -> String {
        let least = self.compared.iter().filter(|one| one.verdict == Verdict::CannotTell);
        let least = least.filter_map(|one| one.difference.tellable(self.alpha)).min_by(f64::total_cmp);
        if let Some(least) = least {
            return format!(
                "the variation within each side hides every difference below {:.0} %: record more or longer runs, on a machine with less other \
                 work",
                (least * 100.0).ceil()
            );
        }
        let most = self.compared.iter().map(|one| one.difference.blocks.min()).max_by_key(|blocks| blocks.blocks);
        let Blocks { blocks, lengths } = most.unwrap_or_default();
        let least = statistics::LEAST_BLOCKS;
        if blocks < least {
            return format!(
                "a side needs {least} blocks of a figure, and none has more than {blocks}: record at least {least} steps, or {} zones of a range, or {least} runs, on each \
                 side",
                least * samples::LEAST_IN_BLOCK
            );
        }
        format!(
            "a side needs {} lengths of a figure, and none has more than {lengths}: record longer or more runs",
            2 * statistics::LEAST_ABOVE as usize
        )
    }

    /// Whether something is slower by more than the limit.
    pub(crate) fn has_regressed(&self) -> bool {
        self.compared.iter().any(|one| one.verdict == Verdict::Regressed)
    }
}

fn verdict(difference: &Difference, alpha: f64, limit: Option<f64>) -> Verdict {
    match difference.interval(alpha) {
        None => Verdict::TooFew,
        Some((low, _)) if low > 0.0 && limit.is_some_and(|limit| difference.change() > limit) => Verdict::Regressed,
        Some((low, _)) if low > 0.0 => Verdict::Slower,
        Some((_, high)) if high < 0.0 => Verdict::Faster,
        Some(_) if difference.tellable(alpha).is_some_and(|least| least <= limit.unwrap_or(TELLABLE)) => Verdict::Same,
        Some(_) => Verdict::CannotTell,
    }
}
