//! A log of the flight recorder's write failures, for the session's report and for control clients.
//!
//! Any thread may add a failure. Repeated failures are stored once, with a count.

use std::sync::Mutex;

use warpline_core::lock::lock;
use warpline_core::plural::counted;

/// The maximum number of distinct failures.
const MOST: usize = 8;

#[derive(Default)]
pub(super) struct Failures(Mutex<FailureLog>);

#[derive(Default)]
struct FailureLog {
    /// The first distinct failures, each with its count.
    known: Vec<(String, u64)>,
    /// The number of further failures above the limit.
    more: u64,
}

impl Failures {
    pub(super) fn note(&self, text: String) {
        let mut kept = lock(&self.0);
        let is_full = kept.known.len() == MOST;
        match kept.known.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None if is_full => kept.more += 1,
            None => kept.known.push((text, 1)),
        }
    }

    /// Returns the failures in the order of their first occurrence.
    pub(super) fn texts(&self) -> Vec<String> {
        let kept = lock(&self.0);
        let text = |(text, count): &(String, u64)| match count {
            1 => text.clone(),
            count => format!("{text} ({count} times)"),
        };
        let more =
            (kept.more > 0).then(|| format!("{} of the flight recorder failed", counted(kept.more, "more write")));
        kept.known.iter().map(text).chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_for_ever_takes_bounded_memory_and_is_counted() {
        let failures = Failures::default();
        assert!(failures.texts().is_empty());
        for _ in 0..3 {
            failures.note("the disk is full".to_owned());
        }
        (0..100).for_each(|n| failures.note(format!("trace {n}")));
        let texts = failures.texts();
        assert_eq!(texts.len(), MOST + 1);
        assert_eq!((texts[0].as_str(), texts[1].as_str()), ("the disk is full (3 times)", "trace 0"));
        assert_eq!(texts[MOST], "93 more writes of the flight recorder failed");
    }
}
