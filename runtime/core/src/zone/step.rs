//! The steps of the program: the calls that a training loop makes, and the guard that a mark with `step` holds.
//!
//! A process has one sequence of steps, which belongs to the session that takes them: `steps` has it.

use crate::collective::IntoCount;
use crate::if_feature;

/// The id of a step, if a session takes it.
#[cfg(feature = "enable")]
type Id = Option<std::num::NonZeroU32>;
#[cfg(not(feature = "enable"))]
type Id = std::marker::PhantomData<()>;

/// Begins step `number` of the program on this thread, and ends the step before it.
///
/// Call it once at the begin of each iteration, on one thread. Steps are in the report, in traces, and in the tables of many ranks
/// (`ranks=DIR`); the settings `wait`, `warmup`, `active` and `repeat` choose the steps that are recorded. The last step ends when the session
/// finishes or stops; it is counted and has no record. Without a session, the call is one relaxed load.
///
/// ```
/// for step in 0..3_u64 {
///     warpline::step(step);
///     // … forward, backward, optimizer …
/// }
/// ```
#[inline]
pub fn step(number: impl IntoCount) {
    let _ = if_feature!("enable", taken::begin(|| Some(number.into_count())), number);
}

/// The step of a zone whose mark has `step`. Dropping it ends the step.
#[doc(hidden)]
#[derive(Debug)]
#[must_use]
pub struct StepGuard(Id);

impl StepGuard {
    /// Begins a step with the next number.
    #[inline(always)]
    pub fn next() -> StepGuard {
        StepGuard(if_feature!("enable", taken::begin(|| None), std::marker::PhantomData))
    }

    /// Begins a step with this number, which is computed only if a session takes steps.
    #[inline(always)]
    pub fn numbered<N: IntoCount>(number: impl FnOnce() -> N) -> StepGuard {
        StepGuard(if_feature!("enable", taken::begin(|| crate::panics::caught(|| number().into_count())), {
            let _ = number;
            std::marker::PhantomData
        }))
    }
}

/// The calls with a session that takes steps.
#[cfg(feature = "enable")]
mod taken {
    use std::num::NonZeroU32;

    use super::{Id, StepGuard};
    use crate::reentrancy::Inside;
    use crate::steps;
    use crate::stream::recorder;
    use crate::stream::thread::{self, Thread};

    impl Drop for StepGuard {
        #[inline(always)]
        fn drop(&mut self) {
            if let Some(id) = self.0 {
                end(id);
            }
        }
    }

    /// Begins a step if a session takes steps.
    #[inline(always)]
    pub(super) fn begin(number: impl FnOnce() -> Option<u64>) -> Id {
        if steps::are_taken() { begin_taken(number()) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn begin_taken(number: Option<u64>) -> Id {
        // Before the recorder, which this thread may be the last to hold.
        let _inside = Inside::enter();
        let recorder = recorder::any()?;
        recorder.steps().begin(number, thread::with(Thread::id), recorder.windows())
    }

    #[cold]
    #[inline(never)]
    fn end(id: NonZeroU32) {
        // A child of a fork ends no step of its parent.
        if !steps::are_taken() {
            return;
        }
        let _inside = Inside::enter();
        if let Some(recorder) = recorder::any() {
            recorder.steps().end(id, recorder.windows());
        }
    }
}

#[cfg(all(test, feature = "enable", not(loom)))]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::backend::Limits;
    use crate::clock::now_ns;
    use crate::lock::lock;
    use crate::step::Schedule;
    use crate::stream::recorder::{self, Recorder};
    use crate::timing::EndMode;

    /// A process has one session.
    static TURN: Mutex<()> = Mutex::new(());

    fn begin_session(schedule: Option<Schedule>) -> Arc<Recorder> {
        let limits = Limits { zones: 64, events: 64, ends: EndMode::Eager, watch: false };
        let recorder = recorder::reserve(|epoch| Arc::new(Recorder::new(epoch, limits))).expect("no other session");
        recorder.steps().begin_session(schedule);
        recorder
    }

    fn end_session(recorder: &Recorder) {
        recorder.steps().end_session();
        recorder::remove(recorder.epoch());
    }

    #[test]
    fn a_guard_ends_no_step_of_a_later_session() {
        let _turn = lock(&TURN);
        let first = begin_session(None);
        let guard = StepGuard::next();
        end_session(&first);
        let second = begin_session(None);
        second.turn_on();
        let _its = StepGuard::next();
        drop(guard);
        assert_eq!(second.steps().current(), Some(0), "the step of the second session runs");
        end_session(&second);
    }

    #[test]
    fn the_collector_of_an_earlier_session_takes_no_step_of_a_later_one() {
        let _turn = lock(&TURN);
        let first = begin_session(None);
        end_session(&first);
        let second = begin_session(None);
        second.turn_on();
        (0..3_u32).for_each(step);
        first.steps().collect(|ended| panic!("{ended:?} is the second session's"));
        let mut numbers = Vec::new();
        second.steps().collect(|ended| numbers.push(ended.number));
        assert_eq!(numbers, [0, 1]);
        end_session(&second);
    }

    #[test]
    fn numbers_of_steps_end_at_the_greatest() {
        let _turn = lock(&TURN);
        let session = begin_session(None);
        step(u64::MAX);
        let _next = StepGuard::next();
        step(1_u32);
        assert_eq!(session.steps().current(), Some(1));
        end_session(&session);
    }

    #[test]
    fn a_warm_up_ends_with_its_session() {
        let _turn = lock(&TURN);
        let session = begin_session(Some(Schedule { wait: 0, warmup: 2, active: 1, repeat: 0 }));
        step(0_u32);
        let inside = now_ns();
        end_session(&session);
        assert!(session.steps().is_warmup(inside), "what ran in it may be read later");
        assert!(!session.steps().is_warmup(now_ns() + 1), "a recording from outside after the session loses nothing");
    }
}
