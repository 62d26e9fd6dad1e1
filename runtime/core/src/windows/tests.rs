//! The state of windows is the process's, so each case runs in a forked process of its own.

use std::sync::Arc;

use super::*;
use crate::backend::Limits;
use crate::catalog::spec::RangeMeta;
use crate::fork::testing::in_a_fork;
use crate::stream::current;
use crate::stream::recorder::Recorder;
use crate::timing::EndMode;
use crate::zone::begin;

const fn range(label: &'static str) -> RangeSpec {
    RangeSpec::new(RangeMeta { namespace: "windows", label, description: "A range of the tests.", ..RangeMeta::EMPTY })
}

static STEP: RangeSpec = range("windows.step\0");
static PART: RangeSpec = range("windows.part\0");

/// Starts what a session with windows has, in this phase.
fn begin_windows(phase: Phase) -> Arc<Recorder> {
    let limits = Limits { zones: 64, events: 64, ends: EndMode::Eager, watch: false };
    let recorder = current::reserve(|epoch| Arc::new(Recorder::new(epoch, limits))).expect("no other session");
    switch::mirror(false);
    let epoch = recorder.epoch();
    begin_session(epoch, true);
    suspend(epoch, true);
    switch::turn_on(epoch);
    set(epoch, Phase::Counting, true);
    plan(epoch, 1.0, i64::MAX);
    set(epoch, phase, true);
    recorder
}

#[test]
fn a_field_that_panics_inside_a_root_leaves_the_root_open() {
    in_a_fork(|| {
        let recorder = begin_windows(Phase::Open);
        let root = STEP.host();
        assert!(root.is_active() && roots().under_way == 1);
        let part = begin(&PART).and_then(|request| request.on_host()).expect("it is part of a recorded root");
        assert!(!part.fill(|_| panic!("a field")).start().is_active());
        assert_eq!(roots().under_way, 1, "the window waits for the root");
        // Nor does one of the root's own range end it.
        let same = begin(&STEP).and_then(|request| request.on_host()).expect("it is part of a recorded root");
        drop(same.fill(|_| panic!("a field")).start());
        set(recorder.epoch(), Phase::Closing, true);
        assert!(PART.host().is_active(), "the root is recorded to its end");
        drop(root);
        assert_eq!(roots().under_way, 0);
    });
}

#[test]
fn a_root_whose_field_panics_or_has_roots_of_its_own_leaves_the_count_of_others() {
    in_a_fork(|| {
        let _recorder = begin_windows(Phase::Open);
        // That of another thread.
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        let builder = || begin(&STEP).and_then(|request| request.on_host()).expect("a window is open");
        drop(builder().fill(|_| panic!("a field")).start());
        assert_eq!(roots().under_way, 1, "the other thread's");
        let outer = builder().fill(|builder| {
            drop(PART.host());
            builder
        });
        drop(outer.start());
        assert_eq!(roots().under_way, 1, "the other thread's");
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
                let _recorder = begin_windows(Phase::Counting);
                drop(root.take());
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
        let recorder = begin_windows(Phase::Open);
        let first = recorder.epoch();
        current::remove(first);
        drop(recorder);
        let recorder = begin_windows(Phase::Open);
        for late in [suspend, |epoch, _| finish(epoch), |epoch, awake| set(epoch, Phase::Closed, awake)] {
            late(first, false);
            assert!(is_open() && STEP.host().is_active());
        }
        // Nor does it give windows to one that has none.
        begin_session(recorder.epoch(), false);
        suspend(first, false);
        assert!(STEP.host().is_active() && switch::word().is_some_and(|word| !word.is_windowed()));
    });
}
