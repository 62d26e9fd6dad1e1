//! A process has one session, and its ranges are the process's, so each case runs in a forked process of its own.

use std::sync::Arc;

use super::*;
use crate::backend::Limits;
use crate::catalog::RangeSpec;
use crate::catalog::spec::RangeMeta;
use crate::fork::testing::in_a_fork;
use crate::stream::recorder::{self, Recorder};
use crate::timing::EndMode;
use crate::zone::begin;

const fn range(label: &'static str) -> RangeSpec {
    RangeSpec::new(RangeMeta { namespace: "windows", label, description: "A range of the tests.", ..RangeMeta::EMPTY })
}

static STEP: RangeSpec = range("windows.step\0");
static PART: RangeSpec = range("windows.part\0");

const LIMITS: Limits = Limits { zones: 64, events: 64, ends: EndMode::Eager, watch: false };

/// Starts what a session with windows has, in this phase.
fn begin_windows(phase: Phase) -> Arc<Recorder> {
    let recorder = recorder::reserve(|epoch| Arc::new(Recorder::new(epoch, LIMITS))).expect("no other session");
    switch::mirror(false);
    let windows = recorder.windows();
    windows.suspend(true);
    recorder.turn_on();
    windows.set(Phase::Counting, true);
    windows.plan(1.0, i64::MAX);
    windows.set(phase, true);
    recorder
}

/// Returns the number of roots of the window that have not ended.
fn under_way(recorder: &Recorder) -> u32 {
    recorder.windows().roots().under_way
}

#[test]
fn a_field_that_panics_inside_a_root_leaves_the_root_open() {
    in_a_fork(|| {
        let recorder = begin_windows(Phase::Open);
        let root = STEP.host();
        assert!(root.is_active() && under_way(&recorder) == 1);
        let part = begin(&PART).and_then(|request| request.on_host()).expect("it is part of a recorded root");
        assert!(!part.fill(|_| panic!("a field")).start().is_active());
        assert_eq!(under_way(&recorder), 1, "the window waits for the root");
        // Nor does one of the root's own range end it.
        let same = begin(&STEP).and_then(|request| request.on_host()).expect("it is part of a recorded root");
        drop(same.fill(|_| panic!("a field")).start());
        recorder.windows().set(Phase::Closing, true);
        assert!(PART.host().is_active(), "the root is recorded to its end");
        drop(root);
        assert_eq!(under_way(&recorder), 0);
    });
}

#[test]
fn a_root_whose_field_panics_or_has_roots_of_its_own_leaves_the_count_of_others() {
    in_a_fork(|| {
        let recorder = begin_windows(Phase::Open);
        // That of another thread.
        recorder.windows().under_way.fetch_add(1, Ordering::SeqCst);
        let builder = || begin(&STEP).and_then(|request| request.on_host()).expect("a window is open");
        drop(builder().fill(|_| panic!("a field")).start());
        assert_eq!(under_way(&recorder), 1, "the other thread's");
        let outer = builder().fill(|builder| {
            drop(PART.host());
            builder
        });
        drop(outer.start());
        assert_eq!(under_way(&recorder), 1, "the other thread's");
    });
}

#[test]
fn a_forked_process_follows_its_own_roots() {
    // Once with a root open at the fork, and once with what the parent kept for its thread alone.
    for is_open in [true, false] {
        in_a_fork(|| {
            let _recorder = begin_windows(Phase::Counting);
            let mut root = Some(STEP.host());
            root = root.take().filter(|_| is_open);
            in_a_fork(|| {
                let recorder = begin_windows(Phase::Counting);
                drop(root.take());
                let roots = || recorder.windows().roots();
                let before = roots().counted;
                (0..10).for_each(|_| drop(STEP.host()));
                assert_eq!(roots().counted - before, 10, "each is a root");
            });
        });
    }
}

#[test]
fn a_collector_of_an_earlier_session_changes_no_window_of_a_later_one() {
    in_a_fork(|| {
        let first = begin_windows(Phase::Open);
        recorder::remove(first.epoch());
        let recorder = begin_windows(Phase::Open);
        let lates: [fn(&Windows); 3] =
            [|windows| windows.suspend(false), Windows::finish, |windows| windows.set(Phase::Closed, false)];
        for late in lates {
            late(first.windows());
            assert!(recorder.windows().is_open() && STEP.host().is_active());
        }
        // Nor does it give windows to one that has none.
        recorder::remove(recorder.epoch());
        let recorder = recorder::reserve(|epoch| Arc::new(Recorder::new(epoch, LIMITS))).expect("no other session");
        recorder.turn_on();
        first.windows().suspend(false);
        assert!(STEP.host().is_active() && switch::word().is_some_and(|word| !word.is_windowed()));
    });
}

#[test]
fn a_root_that_is_open_when_another_session_begins_is_not_recorded_by_it() {
    in_a_fork(|| {
        let first = begin_windows(Phase::Open);
        let root = STEP.host();
        recorder::remove(first.epoch());
        let second = begin_windows(Phase::Open);
        assert!(!PART.host().is_active(), "it is inside a root of the first session");
        drop(root);
        assert_eq!(under_way(&second), 0);
        assert!(STEP.host().is_active(), "the next root is the second session's");
    });
}
