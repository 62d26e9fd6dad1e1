//! The buffers of CUPTI: from CUDA 13.0 on, each launching thread has one of its own unless an attribute turns that off.

use std::sync::Barrier;
use std::thread;

use warpline_tests::this_test;

use super::{finish, start};
use crate::harness::cupti::*;

/// More than CUPTI may have buffers.
const THREADS: usize = 100;

/// Each thread launches a kernel while the others live.
fn launch_on_threads(cupti: &Cupti) {
    let all = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                all.wait();
                cupti.launch(kernel(c"k"));
                all.wait();
            });
        }
    });
}

/// A session in which more threads launch than there are buffers.
fn session(cupti: &Cupti, notes: usize) {
    let (session, sink) = start();
    launch_on_threads(cupti);
    let (report, _, kernels) = finish(session, &sink);
    assert_eq!((report.kernels.buffers_refused, report.kernels.lost()), (0, 0), "{report}");
    assert_eq!((kernels.len(), report.notes.len()), (THREADS, notes), "{report}");
    assert!(cupti.stub_cupti_most_lent() <= 4, "{} buffers", cupti.stub_cupti_most_lent());
}

#[test]
fn launching_threads_share_buffers() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        // CUPTI is ended after each session, and its settings with it.
        (0..2).for_each(|_| session(cupti, 0));
    });
}

#[test]
fn launching_threads_share_buffers_of_a_cupti_that_stays() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        cupti.fail("cuptiFinalize", 7);
        (0..2).for_each(|_| session(cupti, 1));
        // Only before anything is recorded.
        assert_eq!(cupti.calls("cuptiActivitySetAttribute"), 2);
    });
}

#[test]
fn a_cupti_that_knows_no_buffers_of_threads_is_used_as_it_is() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        // CUDA 12.2's.
        cupti.stub_cupti_version(20);
        session(cupti, 1);
        cupti.stub_cupti_version(28);
        session(cupti, 1);
    });
}
