//! When CUPTI is there and when it is on: what it is asked, what is left on, and what a session says that cannot have it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use warpline::report::Report;
use warpline_tests::this_test;

use super::{HOST, OUTER, finish, is_of, start};
use crate::harness::cupti::*;
use crate::harness::driver::{self, Stub, in_child};
use crate::harness::zones::raw;

fn only_note(report: &Report) -> &str {
    assert_eq!(report.notes.len(), 1, "{report}");
    &report.notes[0]
}

#[test]
fn without_kernels_in_the_settings_cupti_is_left_alone() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, sink) = crate::harness::zones::start(|builder| builder);
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
    let test = this_test!();
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
    with_cupti(this_test!(), |driver, cupti| {
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
            // CUPTI was ended, and the stack of a zone that outlives its session with it.
            assert_eq!(cupti.stub_cupti_depth(), 0);
            drop(open);
            let calls = ["Push", "Pop"].map(|call| cupti.calls(&format!("cuptiActivity{call}ExternalCorrelationId")));
            assert_eq!(calls, [round, 0], "a call would begin CUPTI again");
            drop(OUTER.zone(&raw(stream)));
            assert!(!cupti.stub_cupti_is_attached());
            // No launching thread is made to flush, and a forced flush comes once, at the end.
            assert_eq!(cupti.calls("cuptiActivityFlushAll(forced)"), round);
        }
    });
}

#[test]
fn the_last_session_with_kernels_ends_cupti_and_the_next_one_begins_it_again() {
    let test = this_test!();
    with_cupti(test, |driver, cupti| {
        driver.start();
        let stream = driver.stream();
        let (session, sink) = crate::harness::zones::start(|builder| builder);
        finish(session, &sink);
        assert_eq!(cupti.calls("cuptiFinalize"), 0, "nobody has asked for kernels");
        for round in 1..=3 {
            let (session, sink) = start();
            assert!(cupti.stub_cupti_is_attached());
            for _ in 0..10 {
                let _zone = OUTER.zone(&raw(stream));
                cupti.launch(kernel(c"k"));
            }
            let (report, zones, kernels) = finish(session, &sink);
            assert_eq!((zones.len(), kernels.len(), report.notes.len()), (10, 10, 0), "{report}");
            assert!(kernels.iter().all(|kernel| kernel.zone.is_some()), "{kernels:?}");
            assert_eq!(["cuptiSubscribe", "cuptiFinalize"].map(|call| cupti.calls(call)), [round; 2]);
            assert!(!cupti.stub_cupti_is_attached());
        }
    });
}

#[test]
fn threads_in_zones_call_nothing_of_a_cupti_that_was_ended() {
    with_cupti(this_test!(), |driver, cupti| {
        let context = driver.start();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    assert_eq!(driver.cuCtxSetCurrent(context), driver::SUCCESS);
                    let stream = driver.stream();
                    while !is_over.load(Ordering::Relaxed) {
                        let _outer = OUTER.zone(&raw(stream));
                        let _inner = HOST.host();
                    }
                });
            }
            for round in 1..=30 {
                let (session, _sink) = start();
                thread::sleep(Duration::from_millis(2));
                let report = session.finish();
                assert_eq!((report.notes.len(), cupti.calls("cuptiFinalize")), (0, round), "{report}");
                thread::sleep(Duration::from_millis(2));
                assert!(!cupti.stub_cupti_is_attached(), "a zone has begun CUPTI again");
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
}

/// A session with kernels and this work, at whose end CUPTI stays; the report says that, and why.
fn stays(cupti: &Cupti, work: impl FnOnce(), why: &[&str]) {
    let before = cupti.calls("cuptiFinalize");
    let (session, sink) = start();
    work();
    let (report, ..) = finish(session, &sink);
    assert_eq!((cupti.calls("cuptiFinalize"), cupti.stub_cupti_on()), (before, 0), "{report}");
    let said = report.notes.join("\n");
    let stays = "CUPTI stays in this process, so launches of CUDA graphs stay slower";
    for said_of in [stays].iter().chain(why) {
        assert!(said.contains(said_of), "`{said_of}` is not in: {said}");
    }
}

#[test]
fn cupti_stays_where_a_graph_was_launched_under_it_and_the_report_says_what_launches_cost() {
    let test = this_test!();
    with_cupti(test, |driver, cupti| {
        driver.start();
        let stream = driver.stream();
        let replays = || (0..3).for_each(|_| cupti.replay(stream, 9, 2, 1_000_000, 1_000));
        let cost = "3 launches of CUDA graphs took 3.00 µs each (median) with `kernels`";
        stays(cupti, replays, &["a graph was launched while CUPTI traced kernels", cost]);
        // Also a later session, in which none was: that graph may be launched again at any time.
        stays(cupti, || _ = cupti.launch(kernel(c"k")), &["a graph was launched while CUPTI traced kernels"]);
    });
}

#[test]
fn cupti_stays_where_the_device_may_still_be_at_work_for_it() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let why = ["work that CUPTI traced may not be complete"];
        stays(cupti, || _ = cupti.launch(Launch { is_pending: 1, ..kernel(c"running") }), &why);
        // A launch of which nothing but the call has been reported.
        cupti.stub_cupti_complete();
        stays(cupti, || _ = cupti.launch(Launch { is_unreported: 1, ..kernel(c"running") }), &why);
        // It may still run when a later session ends.
        stays(cupti, || _ = cupti.launch(kernel(c"k")), &why);
    });
}

#[test]
fn cupti_stays_where_it_cannot_be_ended_as_nvidia_wants_it() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let launch = || _ = cupti.launch(kernel(c"k"));
        cupti.fail("cuptiEnableCallback", 1);
        stays(cupti, launch, &["CUPTI reported no driver call"]);
        cupti.fail("cuptiEnableCallback", 0);
        cupti.fail("cuptiFinalize", 7);
        let (session, sink) = start();
        launch();
        let (report, ..) = finish(session, &sink);
        assert!(only_note(&report).contains("cuptiFinalize returned 7"), "{report}");
        assert_eq!(cupti.calls("cuptiFinalize"), 1, "what it leaves when it fails is not known");
        assert_eq!(cupti.stub_cupti_on(), 0);
    });
}

#[test]
fn a_cupti_that_crashes_when_it_is_begun_again_stays() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        // CUDA 12.4's.
        cupti.stub_cupti_version(22);
        stays(cupti, || _ = cupti.launch(kernel(c"k")), &["CUPTI of CUDA 12.8 or newer"]);
    });
}

#[test]
fn cupti_stays_where_a_tool_was_injected() {
    with_cupti(this_test!(), |driver, cupti| {
        // SAFETY: the child has begun its one test, and no other thread reads the environment yet.
        unsafe { std::env::set_var("CUDA_INJECTION64_PATH", "/opt/tool.so") };
        driver.start();
        stays(cupti, || _ = cupti.launch(kernel(c"k")), &["CUDA_INJECTION64_PATH"]);
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
    with_cupti(this_test!(), |driver, cupti| {
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
    with_cupti(this_test!(), |driver, cupti| {
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
fn a_start_that_fails_does_not_end_a_cupti_that_has_traced_a_graph() {
    /// Another thread launches one where kernels are on.
    extern "C" fn launch() {
        let cupti = Cupti::open(&library());
        if cupti.stub_cupti_is_on(KERNEL) {
            cupti.launch(Launch { graph: 9, node: 9 << 32, ..kernel(c"node") });
        }
    }
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        cupti.fail("cuptiGetTimestamp", 15);
        cupti.stub_cupti_asks(launch);
        only_zones(driver, &["CUPTI finds no CUDA driver", "a graph was launched while CUPTI traced kernels"]);
        assert_eq!((cupti.calls("cuptiFinalize"), cupti.stub_cupti_on(), cupti.stub_cupti_lent()), (0, 0, 0));
    });
}

#[test]
fn an_old_cupti_records_all_calls() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        cupti.fail("cuptiActivityEnableDriverApi", 11);
        let (session, sink) = start();
        assert!(cupti.stub_cupti_is_on(4) && cupti.stub_cupti_is_on(5));
        let stream = driver.stream();
        let outer = OUTER.zone(&raw(stream));
        cupti.launch(kernel(c"k"));
        drop(outer);
        let (_, _, kernels) = finish(session, &sink);
        assert_eq!(kernels[0].zone.map(|zone| zone.range.name()), Some("stub.cupti_test.outer"));
        assert_eq!(cupti.stub_cupti_on(), 0);
    });
}

#[test]
fn without_a_library_that_is_one_the_report_says_what_to_do() {
    let test = this_test!();
    library();
    in_child(test, driver::Driver::Current, || {
        let driver = Stub::load();
        driver.start();
        name_library("/nowhere/libcupti.so.13".as_ref());
        only_zones(
            &driver,
            &[
                "`/nowhere/libcupti.so.13`, which WARPLINE_CUPTI names, cannot be opened (/nowhere/libcupti.so.13: cannot open shared object \
                 file: No such file or directory)",
                "correct the path",
            ],
        );
        // What was looked for once is not looked for again.
        only_zones(&driver, &["correct the path"]);
    });
}

#[test]
fn a_library_without_the_symbols_is_refused_with_the_one_that_it_lacks() {
    let test = this_test!();
    in_child(test, driver::Driver::Current, || {
        let driver = Stub::load();
        driver.start();
        name_library("libcuda.so.1".as_ref());
        only_zones(&driver, &["`libcuda.so.1` has no `cuptiGetVersion`", "install CUPTI of CUDA 12.0 or newer"]);
    });
}

#[test]
fn a_cupti_of_cuda_11_is_refused() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        cupti.stub_cupti_version(16);
        only_zones(driver, &["CUPTI of an old toolkit (it reports version 16)", "12.0 or newer"]);
    });
}

#[test]
fn a_cupti_that_returns_no_version_is_not_called_old() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        // As CUPTI of CUDA 13.3 or newer does without a driver.
        cupti.fail("cuptiGetVersion", 999);
        let answer = "returns no version, cuptiGetVersion returned 999 (CUPTI_ERROR_UNKNOWN): ";
        only_zones(driver, &[answer, "install a CUDA driver, which CUPTI of CUDA 13.3 or newer needs"]);
    });
}

/// How often a session begins each of two libraries, which the process finds as CUPTI of CUDA 13 and of CUDA 12; the second is not opened for that.
fn begun_of_two() -> [u64; 2] {
    let (session, sink) = start();
    finish(session, &sink);
    ["libcupti.so.13", "libcupti.so.12"].map(|name| of_name(name).calls("cuptiSubscribe"))
}

#[test]
fn of_two_libraries_the_newer_is_opened() {
    with_two(this_test!(), |driver| {
        driver.start();
        assert_eq!(begun_of_two(), [1, 0]);
    });
}

#[test]
fn a_library_that_the_program_has_loaded_comes_before_a_newer_one() {
    with_two(this_test!(), |driver| {
        driver.start();
        // As PyTorch loads its own before the first session.
        let _loaded = of_name("libcupti.so.12");
        assert_eq!(begun_of_two(), [0, 1]);
    });
}

#[test]
fn a_library_that_is_newer_than_the_driver_comes_last() {
    with_two(this_test!(), |driver| {
        driver.stub_driver_version(12_090);
        driver.start();
        assert_eq!(begun_of_two(), [0, 1]);
    });
}
