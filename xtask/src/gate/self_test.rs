//! The self-test of the gate, in parts: what the sinks and the commands write passes, and broken traces are refused.
//!
//! The sinks write one trace of each format, whose rows are compared with `tests/gate/*.expected.json`, and each trace of a corpus of broken
//! ones is refused for the right reason. The SQL of every page runs over a trace with known numbers, and the figures of `warpline report` are
//! compared with those of SQL. Then come the traces of the stub driver and the stub CUPTI, of ranks, of another tool with annotations, of
//! examples to their end, of the quickstart recorded from outside, and of processes that are killed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::shell::Stop;

use super::Tools;
use super::parts;

/// A part of the self-test, which returns how many traces it judged.
type Part = fn(&Tools) -> Result<u64, Stop>;

/// The part that needs `warpline-ranks`, which takes minutes to build: a step of its own.
const OF_RANKS_CRATE: &str = "merged";

/// The parts of the self-test, in order.
const PARTS: &[(&str, Part)] = &[
    ("corpus", parts::hand_made),
    ("pages", parts::of_pages),
    ("report", parts::of_report),
    ("cuda", parts::of_cuda),
    ("kernels", parts::of_kernels),
    ("ranks", parts::of_ranks),
    ("merged", parts::of_merged),
    ("annotated", parts::of_annotated),
    ("pieces", parts::of_pieces),
    ("quickstart", parts::of_quickstart),
    ("outside", parts::of_outside),
    ("example-ranks", parts::of_example_ranks),
    ("spans", parts::of_spans),
    ("backend", parts::of_backend),
    ("killed-chrome", parts::of_killed_chrome),
    ("killed", parts::of_killed),
];

/// Checks that there is a part of this name.
///
/// # Errors
/// There is none.
pub fn check_name(name: &str) -> Result<(), String> {
    let names: Vec<_> = PARTS.iter().map(|(part, _)| *part).collect();
    if names.contains(&name) {
        return Ok(());
    }
    Err(format!("`gate --self-test` has no part `{name}`; it has {}", names.join(", ")))
}

/// What the gate can show of itself and of the sinks, without `warpline-ranks`. Returns how many traces it judged.
///
/// # Errors
/// What the machine lacks, or the first trace that was judged wrongly.
pub fn self_test() -> Result<u64, Stop> {
    of(|part| part != OF_RANKS_CRATE)
}

/// What it can show of `warpline-ranks`.
///
/// # Errors
/// What the machine lacks, or the first trace that was judged wrongly.
pub fn self_test_of_ranks() -> Result<u64, Stop> {
    of(|part| part == OF_RANKS_CRATE)
}

/// Runs the chosen parts, and returns how many traces they judged. Two parts run at a time, each with a reader: a reader uses one core, and
/// much of the rest is waiting.
///
/// # Errors
/// What the machine lacks, or the first trace that was judged wrongly.
pub fn of(is_chosen: impl Fn(&str) -> bool) -> Result<u64, Stop> {
    let parts: Vec<Part> = PARTS.iter().filter(|(name, _)| is_chosen(name)).map(|(_, part)| *part).collect();
    let (next, is_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let row = |tools: Tools| {
        let mut judged = 0;
        while !is_failed.load(Ordering::Relaxed)
            && let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed))
        {
            judged += part(&tools).inspect_err(|_| is_failed.store(true, Ordering::Relaxed))?;
        }
        Ok(judged)
    };
    // The first call installs what is missing.
    let own = Tools::ready()?;
    if parts.len() == 1 {
        return row(own);
    }
    let other = Tools::ready()?;
    thread::scope(|scope| {
        let other = scope.spawn(|| row(other));
        let own = row(own);
        let other = other.join().unwrap_or_else(|_| Err(Stop::Failed("a part of the self-test panicked".to_owned())));
        Ok(own? + other?)
    })
}
