//! Replaces `steps` in a build without the feature `enable`: nothing takes steps.

#[path = "steps/schedule.rs"]
mod schedule;

pub use schedule::{NotRecorded, Schedule};

use crate::collective::IntoCount;

/// Begins step `number` of the program on this thread, and ends the step before it.
///
/// Call it once at the begin of each iteration, on one thread. Steps are in the report, in traces, and in the tables of
/// many ranks (`ranks=DIR`); the settings `wait`, `warmup`, `active` and `repeat` choose the steps that are recorded.
/// The last step ends when the session finishes or stops; it is counted and has no record. Without a session, the call
/// is one relaxed load.
///
/// ```
/// for step in 0..3_u64 {
///     warpline::step(step);
///     // … forward, backward, optimizer …
/// }
/// ```
#[inline]
pub fn step(_number: impl IntoCount) {}

/// The step of a zone whose mark has `step`. Dropping it ends the step.
#[doc(hidden)]
#[derive(Debug)]
#[must_use]
pub struct StepGuard();

impl StepGuard {
    #[inline(always)]
    pub fn next() -> StepGuard {
        StepGuard()
    }

    #[inline(always)]
    pub fn numbered<N: IntoCount>(_number: impl FnOnce() -> N) -> StepGuard {
        StepGuard()
    }
}

/// Returns the number of the step that is open: none.
pub fn current() -> Option<u64> {
    None
}

/// Returns whether a step has ended: none has.
pub fn has_ended() -> bool {
    false
}
