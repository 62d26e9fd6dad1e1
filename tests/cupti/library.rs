//! When CUPTI is there and when it is on: what it is asked, what is left on, and what a session says that cannot have it.

use std::thread;
use std::time::{Duration, Instant};

use warpline::Report;

use super::{OUTER, finish, is_of, start};
use crate::cupti::*;
use crate::stub::{self, Stub, in_child};
use crate::zones::raw;

fn only_note(report: &Report) -> &str {
    assert_eq!(report.notes.len(), 1, "{report}");
    &report.notes[0]
}

#[test]
fn without_kernels_in_the_settings_cupti_is_left_alone() {
    with_cupti("library::without_kernels_in_the_settings_cupti_is_left_alone", |driver, cupti| {
        driver.start();
        let (session, sink) = crate::zones::start(|builder| builder);
        let stream = driver.stream();
        drop(OUTER.zone(&raw(stream)));
        driver.cuStreamSynchronize(stream);
        let (report, ..) = finish(session, &sink);
        assert_eq!((report.recorded, report.notes.len()), (1, 0), "{report}");
        for symbol in ["cuptiGetVersion", "cuptiSubscribe", "cuptiActivityPushExternalCorrelationId"] {
            assert_eq!(cupti.calls(symbol), 0, "{symbol}");
        }
    });
}

#[test]
fn a_stopped_session_turns_cupti_off_and_asks_nothing_of_it_until_it_starts_again() {
    let test = "library::a_stopped_session_turns_cupti_off_and_asks_nothing_of_it_until_it_starts_again";
    with_cupti(test, |driver, cupti| {
        driver.start();
        let stream = driver.stream();
        let launch = || {
            let _zone = OUTER.zone(&raw(stream));
            cupti.launch(kernel(c"k"))
        };
        let (session, sink) = start();
        let before = launch();
        session.stop();
        let until = |is_on: bool| {
            let begin = Instant::now();
            while cupti.stub_cupti_is_on(KERNEL) != is_on {
                assert!(begin.elapsed() < Duration::from_secs(20), "kernels should be on: {is_on}");
                thread::sleep(Duration::from_millis(1));
            }
        };
        until(false);
        // The pass that turned it off ends.
        driver.cuStreamSynchronize(stream);
        thread::sleep(Duration::from_millis(100));
        let calls =
            || ["cuptiActivityFlushAll", "cuptiGetTimestamp", "cuptiActivityEnable"].map(|call| cupti.calls(call));
        let asked = calls();
        launch();
        thread::sleep(Duration::from_millis(300));
        assert_eq!(calls(), asked, "it is asked nothing while the session is stopped");
        session.start();
        until(true);
        let after = launch();
        let (report, zones, kernels) = finish(session, &sink);
        assert_eq!((zones.len(), kernels.len(), report.notes.len()), (2, 2, 0), "{report}");
        for (zone, (kernel, correlation)) in zones.iter().zip(kernels.iter().zip([before, after])) {
            assert!(kernel.correlation == correlation && is_of(kernel.zone, zone), "{kernel:?} of {zone:?}");
        }
        assert_eq!(cupti.stub_cupti_on(), 0);
    });
}

#[test]
fn a_session_leaves_nothing_on() {
    with_cupti("library::a_session_leaves_nothing_on", |driver, cupti| {
        driver.start();
        let stream = driver.stream();
        for round in 1..4 {
            let (session, sink) = start();
            assert!(cupti.stub_cupti_on() > 5 && cupti.stub_cupti_is_on(KERNEL));
            let open = OUTER.zone(&raw(stream));
            cupti.launch(kernel(c"k"));
            let (_, _, kernels) = finish(session, &sink);
            assert_eq!((kernels.len(), kernels[0].zone.map(|zone| zone.sequence)), (1, Some(0)));
            assert_eq!((cupti.stub_cupti_on(), cupti.stub_cupti_lent()), (0, 0), "round {round}");
            // A zone that outlives its session is taken from the stack all the same.
            assert_eq!(cupti.stub_cupti_depth(), 1);
            drop(open);
            assert_eq!(cupti.stub_cupti_depth(), 0);
            let pushed = cupti.calls("cuptiActivityPushExternalCorrelationId");
            drop(OUTER.zone(&raw(stream)));
            assert_eq!(cupti.calls("cuptiActivityPushExternalCorrelationId"), pushed);
            // No launching thread is made to flush, and a forced flush comes once, at the end.
            assert_eq!(cupti.calls("cuptiActivityFlushAll(forced)"), round);
        }
    });
}

/// Zones without kernels, and one line that says why.
fn only_zones(driver: &Stub, said: &[&str]) {
    let (session, sink) = start();
    let stream = driver.stream();
    drop(OUTER.zone(&raw(stream)));
    driver.cuStreamSynchronize(stream);
    let (report, zones, kernels) = finish(session, &sink);
    assert_eq!((zones.len(), kernels.len()), (1, 0), "{report}");
    let note = only_note(&report);
    assert!(note.starts_with("no kernels are recorded: "), "{note}");
    for said in said {
        assert!(note.contains(said), "`{said}` is not in: {note}");
    }
}

#[test]
fn another_tool_has_cupti_and_zones_are_recorded_all_the_same() {
    with_cupti("library::another_tool_has_cupti_and_zones_are_recorded_all_the_same", |driver, cupti| {
        driver.start();
        cupti.fail("cuptiSubscribe", 39);
        only_zones(driver, &["another tool uses CUPTI", "39 (CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)"]);
        assert_eq!((cupti.stub_cupti_on(), cupti.calls("cuptiActivityRegisterCallbacks")), (0, 0));
        // It has gone: the next session gets CUPTI.
        cupti.fail("cuptiSubscribe", 0);
        let (session, sink) = start();
        cupti.launch(kernel(c"k"));
        assert_eq!(finish(session, &sink).2.len(), 1);
    });
}

#[test]
fn a_start_that_fails_anywhere_leaves_nothing_on() {
    with_cupti("library::a_start_that_fails_anywhere_leaves_nothing_on", |driver, cupti| {
        driver.start();
        for symbol in ["cuptiActivityRegisterCallbacks", "cuptiActivityEnable", "cuptiGetTimestamp"] {
            cupti.fail(symbol, 15);
            only_zones(driver, &["CUPTI finds no CUDA driver", symbol, "15 (CUPTI_ERROR_NOT_INITIALIZED)"]);
            assert_eq!((cupti.stub_cupti_on(), cupti.stub_cupti_lent()), (0, 0), "{symbol}");
            cupti.fail(symbol, 0);
        }
        let (session, sink) = start();
        cupti.launch(kernel(c"k"));
        assert_eq!(finish(session, &sink).2.len(), 1);
    });
}

#[test]
fn an_old_cupti_records_all_calls() {
    with_cupti("library::an_old_cupti_records_all_calls", |driver, cupti| {
        driver.start();
        cupti.fail("cuptiActivityEnableDriverApi", 11);
        let (session, sink) = start();
        assert!(cupti.stub_cupti_is_on(4) && cupti.stub_cupti_is_on(5));
        let stream = driver.stream();
        let outer = OUTER.zone(&raw(stream));
        cupti.launch(kernel(c"k"));
        drop(outer);
        let (_, _, kernels) = finish(session, &sink);
        assert_eq!(kernels[0].zone.map(|zone| zone.range.name()), Some("cupti_test.outer"));
        assert_eq!(cupti.stub_cupti_on(), 0);
    });
}

#[test]
fn without_a_library_that_is_one_the_report_says_what_to_do() {
    let test = "library::without_a_library_that_is_one_the_report_says_what_to_do";
    library();
    in_child(test, stub::Driver::Current, || {
        let driver = Stub::load();
        driver.start();
        name_library("/nowhere/libcupti.so.13".as_ref());
        only_zones(
            &driver,
            &["`/nowhere/libcupti.so.13`, which WARPLINE_CUPTI names, cannot be opened", "correct the path"],
        );
        // What was looked for once is not looked for again.
        only_zones(&driver, &["correct the path"]);
    });
}

#[test]
fn a_library_without_the_symbols_is_refused_with_the_one_that_it_lacks() {
    let test = "library::a_library_without_the_symbols_is_refused_with_the_one_that_it_lacks";
    in_child(test, stub::Driver::Current, || {
        let driver = Stub::load();
        driver.start();
        name_library("libcuda.so.1".as_ref());
        only_zones(&driver, &["`libcuda.so.1` has no `cuptiGetVersion`", "install CUPTI of CUDA 12.0 or newer"]);
    });
}

#[test]
fn a_cupti_of_cuda_11_is_refused() {
    with_cupti("library::a_cupti_of_cuda_11_is_refused", |driver, cupti| {
        driver.start();
        cupti.stub_cupti_version(16);
        only_zones(driver, &["CUPTI of an old toolkit (it says version 16)", "12.0 or newer"]);
    });
}
