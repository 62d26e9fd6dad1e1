//! The mirror to NVTX where the tool is a bad one, an old one, or none: nothing harms the program, and what is wrong is said
//! once. Each case runs in a process of its own, as a process looks for a tool once.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;

use warpline::timeline::Semaphore;
use warpline::{HostStream, Session};
use warpline_tests::this_test;

use crate::harness::nvtx::*;
use crate::harness::nvtx_zones::*;

#[test]
fn a_tool_without_payloads_gets_the_rest() {
    for mode in ["no-payload", "mute"] {
        with_tool(this_test!(), mode, &[], |tool| {
            all_sorts();
            let log = tool.log();
            let pushes: Vec<_> = log.iter().filter(|line| line.call == "push").collect();
            assert_eq!((pushes.len(), count(&log, "pop")), (4 * 25 * 8, 4 * 25 * 8));
            assert!(pushes.iter().all(|line| line.arguments[5] == "-"));
            // With no handles there is the default domain, and the name itself.
            let kind = if mode == "mute" { ("-", "ascii") } else { ("stub", "registered") };
            assert!(pushes.iter().all(|line| (line.arguments[0].as_str(), line.arguments[1].as_str()) == kind));
            let of_ranges = warpline::catalog().iter().map(|range| range.namespace()).collect::<BTreeSet<_>>().len();
            assert_eq!(count(&log, "schema"), if mode == "mute" { of_ranges + 4 } else { 0 });
        });
    }
}

#[test]
fn a_tool_that_takes_pushes_alone_gets_pushes_alone() {
    with_tool(this_test!(), "poor", &[], |tool| {
        all_sorts();
        let log = tool.log();
        assert_eq!((count(&log, "push"), count(&log, "pop")), (4 * 25 * 8, 4 * 25 * 8));
        let others: BTreeSet<_> = log.iter().map(|line| line.call.as_str()).collect();
        assert_eq!(others, ["start", "push", "pop", "schema"].into());
    });
}

#[test]
fn a_refused_range_is_not_ended() {
    let test = this_test!();
    with_tool(test, "deny", &[], |tool| {
        {
            let outer = PLAIN.host();
            let refused = COLORED.host();
            assert!(outer.is_active() && !refused.is_active(), "nobody sees a refused zone");
            nested(0);
        }
        drop(PLAIN.host());
        let log = tool.log();
        assert_eq!((count(&log, "push"), count(&log, "refused"), count(&log, "pop")), (3, 1, 3));
        assert_eq!(nesting(&log, tid()), ["plain", "plain/nested", "plain"]);
        // A session records what the tool refuses.
        let session = Session::builder().start().unwrap();
        assert!(COLORED.host().is_active());
        assert!(COLORED.host().is_active());
        let report = session.finish();
        assert_eq!((report.begun, report.recorded), (2, 2), "{report}");
        assert_eq!(count(&tool.log(), "pop"), 3);
        let notes: Vec<_> = report.notes.iter().filter(|note| note.contains("NVTX")).collect();
        assert!(
            notes.len() == 1 && notes[0].starts_with("2 ranges are missing from the view of the NVTX tool"),
            "{report}"
        );
        let report = Session::builder().start().unwrap().finish();
        assert!(report.notes.is_empty(), "those of a session before: {report}");
    })
    .inspect(|stderr| {
        let told = "warpline: the NVTX tool refuses a range (nvtxDomainRangePushEx returned -1), and maybe others: ";
        assert!(stderr.starts_with(told) && stderr.lines().count() == 1, "{stderr}");
    });
    // A negative result is no refusal from a tool that never counts.
    for mode in ["levels", "minus-one"] {
        with_tool(test, mode, &[], |tool| {
            all_sorts();
            assert!(PLAIN.host().is_active());
            assert_eq!((count(&tool.log(), "push"), count(&tool.log(), "pop")), (4 * 25 * 8 + 1, 4 * 25 * 8 + 1));
        });
    }
}

#[test]
fn a_refused_wait_is_not_ended() {
    with_tool(this_test!(), "deny-text", &[], |tool| {
        let outer = PLAIN.host();
        assert!(Semaphore::named("late", 0).wait(1, Duration::from_millis(1)).is_err());
        let log = tool.log();
        assert_eq!((count(&log, "push"), count(&log, "refused"), count(&log, "pop")), (1, 1, 0), "the zone is open");
        drop(outer);
        assert_eq!(count(&tool.log(), "pop"), 1);
    });
}

#[test]
fn a_tool_that_believes_in_larger_tables_breaks_nothing() {
    with_tool(this_test!(), "large", &[], |tool| {
        all_sorts();
        assert_as_the_catalog_says(&tool.log());
        assert_eq!(tool.log()[0].arguments, ["[0, 16, 9, 15, 7, 16, 7, 0]"], "the sizes of the headers");
        assert_eq!((count(&tool.log(), "push"), count(&tool.log(), "pop")), (4 * 25 * 8, 4 * 25 * 8));
    });
}

#[test]
fn a_tool_that_calls_the_program_back_does_not_find_itself() {
    with_tool(this_test!(), "reenter", &[], |tool| {
        tool.call_back(begin_zones);
        all_sorts();
        let log = tool.log();
        // The zones of its own callbacks are not told.
        assert_eq!((count(&log, "push"), count(&log, "pop"), count(&log, "start")), (4 * 25 * 8, 4 * 25 * 8, 1));
        assert_as_the_catalog_says(&log);
        let session = Session::builder().start().unwrap();
        all_sorts_of_one_thread();
        let report = session.finish();
        assert_eq!(report.recorded, report.begun, "{report}");
        assert!(report.begun > 5, "those of the callbacks are recorded: {report}");
    });
}

#[test]
fn a_tool_that_unloads_itself_stays_and_one_that_leaves_is_left_alone() {
    let test = this_test!();
    with_tool(test, "unload", &[], |tool| {
        all_sorts();
        assert_eq!((count(&tool.log(), "push"), count(&tool.log(), "pop")), (4 * 25 * 8, 4 * 25 * 8));
    });
    with_tool(test, "leave", &[], |tool| {
        (0..20).for_each(|_| nested(0));
        assert_eq!((count(&tool.log(), "push"), count(&tool.log(), "pop")), (10, 9));
        all_sorts();
        assert_eq!(count(&tool.log(), "push"), 10);
    });
}

/// Runs zones with these variables, with no session and with one; gives what was said on standard error and in the report.
fn said(test: &str, environment: &[(&str, OsString)]) -> Option<(Vec<String>, Vec<String>)> {
    let output = in_child(test, environment, || {
        all_sorts();
        let session = Session::builder().start().unwrap();
        all_sorts();
        let report = session.finish();
        assert_eq!(report.recorded, report.begun, "{report}");
        report.notes.iter().for_each(|note| println!("note: {note}"));
        // A session that is dropped says its notes itself: not what was said before.
        drop(Session::builder().start().unwrap());
    })?;
    let notes = output.stdout.lines().filter_map(|line| Some(line.strip_prefix("note: ")?.to_owned())).collect();
    Some((output.stderr.lines().map(str::to_owned).collect(), notes))
}

#[test]
fn what_is_wrong_with_a_tool_is_said_once() {
    let test = this_test!();
    let stub = library().into_os_string();
    let name = library().display().to_string();
    let path = |path: &str| vec![(PATH, OsString::from(path))];
    let mode = |mode: &str| vec![(PATH, stub.clone()), ("STUB_NVTX", mode.into())];
    let asked = |line: &str| vec![("WARPLINE", OsString::from(line))];
    type Case<'a> = (Vec<(&'a str, OsString)>, Option<String>);
    let cases: [Case<'_>; 13] = [
        (vec![], None),
        // That of a program with pointers of the other size.
        (
            vec![(if PATH.contains("64") { "NVTX_INJECTION32_PATH" } else { "NVTX_INJECTION64_PATH" }, stub.clone())],
            None,
        ),
        (path(""), None),
        (path("./."), None),
        ([path("./."), asked("nvtx")].concat(), None),
        ([path("/no/such/tool.so"), asked("nvtx=off")].concat(), None),
        (asked("nvtx=off"), None),
        (
            asked("nvtx"),
            Some(format!(
                "there is no NVTX tool: start the program under `nsys profile` or `ncu --nvtx`, or set {PATH}"
            )),
        ),
        (
            path("/no/such/tool.so"),
            Some(format!(
                "`/no/such/tool.so`, which {PATH} names, cannot be opened (/no/such/tool.so: cannot open shared object file: No such file"
            )),
        ),
        (
            path(std::env::current_exe().unwrap().to_str().unwrap()),
            Some(format!(
                "`{0}`, which {PATH} names, cannot be opened ({0}: cannot dynamically load",
                std::env::current_exe().unwrap().display()
            )),
        ),
        (
            path("libm.so.6"),
            Some(format!(
                "`libm.so.6`, which {PATH} names, has no InitializeInjectionNvtx2: name the library of an NVTX tool"
            )),
        ),
        (
            mode("refuse"),
            Some(format!(
                "`{name}` refused to start (InitializeInjectionNvtx2 returned 0); its documentation says why"
            )),
        ),
        (mode("empty"), Some(format!("`{name}` does not support ranges in domains: use a tool for NVTX 3"))),
    ];
    for (environment, expected) in cases {
        let Some((stderr, notes)) = said(test, &environment) else { continue };
        match expected {
            None => assert_eq!((stderr, notes), (vec![], vec![]), "{environment:?}"),
            Some(expected) => {
                let expected = format!("no zone reaches NVTX: {expected}");
                assert!(notes.len() == 1 && notes[0].starts_with(&expected), "{environment:?}: {notes:?}");
                assert_eq!(stderr, [format!("warpline: {}", notes[0])], "{environment:?}");
            }
        }
    }
}

fn nobody_asks() -> HostStream {
    panic!("the zone is off");
}

#[test]
fn the_zone_that_looks_for_a_tool_and_finds_none_is_off() {
    in_child(this_test!(), &[], || {
        for _ in 0..2 {
            warpline::block::gpu_zone!("stub.nvtx_tests.off", &nobody_asks(), description = "Asks for nothing.", {});
        }
    });
}

#[test]
fn who_wants_no_mirror_gets_none() {
    let test = this_test!();
    with_tool(test, "record", &[("WARPLINE", "summary,nvtx=off")], |tool| {
        all_sorts();
        drop(Session::builder().nvtx(true).start().unwrap());
        all_sorts();
        assert!(tool.log().is_empty(), "off wins");
    });
    with_tool(test, "record", &[("WARPLINE", "off")], |tool| {
        drop(PLAIN.host());
        let session = Session::from_env_or("nvtx=off");
        drop(PLAIN.host());
        session.finish();
        assert_eq!(
            count(&tool.log(), "push"),
            2,
            "`off` is about the session; the settings in the program are replaced"
        );
        let open = COLORED.host();
        drop(Session::builder().nvtx(false).start().unwrap());
        drop(PLAIN.host());
        drop(open);
        assert_eq!((count(&tool.log(), "push"), count(&tool.log(), "pop")), (3, 3), "what was open is ended");
        drop(Session::builder().start().unwrap());
        drop(PLAIN.host());
        assert_eq!(count(&tool.log(), "push"), 4, "another session says otherwise");
    });
}

#[test]
fn the_library_of_old_toolkits_is_good_enough_for_who_asks() {
    let test = this_test!();
    let folder = as_old_library("libnvToolsExt.so.1", None);
    for (line, ranges) in [("nvtx", 4 * 25 * 8), ("summary", 0)] {
        let environment = [("LD_LIBRARY_PATH", folder.clone().into_os_string()), ("WARPLINE", line.into())];
        let output = in_child(test, &environment, || {
            all_sorts();
            let log = Tool::open("libnvToolsExt.so.1".as_ref()).log();
            assert_eq!((count(&log, "push"), count(&log, "pop")), (ranges, ranges));
            assert_as_the_catalog_says(&log);
            if ranges == 0 {
                // A session can ask when nobody did before.
                drop(Session::from_env_or(""));
                drop(Session::builder().nvtx(true).start().unwrap());
                drop(PLAIN.host());
                assert_eq!(count(&Tool::open("libnvToolsExt.so.1".as_ref()).log(), "push"), 1);
            }
        });
        // The report of the session is there.
        assert!(output.is_none_or(|output| !output.stderr.contains("NVTX")));
    }
}

#[test]
fn the_library_of_old_toolkits_may_have_its_other_name_and_simple_ranges_alone() {
    let test = this_test!();
    let folder = as_old_library("libnvToolsExt.so", Some("simple"));
    let environment = [("LD_LIBRARY_PATH", folder.into_os_string()), ("WARPLINE", "nvtx".into())];
    let output = in_child(test, &environment, || {
        nested(0);
        drop(COLORED.host());
        let log = Tool::open("libnvToolsExt.so".as_ref()).log();
        let calls: Vec<_> = log.iter().map(|line| (line.call.as_str(), line.arguments.join(" "))).collect();
        let (push, pop) = ("simple-push", ("simple-pop", String::new()));
        let expected = [
            (push, "stub.nvtx_tests.nested".to_owned()),
            pop.clone(),
            (push, "stub.nvtx_tests.colored".to_owned()),
            pop,
        ];
        assert_eq!(calls, expected);
    });
    assert!(output.is_none_or(|output| output.stderr.is_empty()));
}

#[test]
fn an_old_library_that_is_of_no_use_is_named() {
    let test = this_test!();
    let older = as_old_library("libnvToolsExt.so.1", Some("older"));
    let broken = as_old_library("libnvToolsExt.so.1", Some("broken"));
    let cases = [
        (
            older,
            "and `libnvToolsExt.so.1` has neither nvtxDomainRangePushEx nor nvtxRangePushA and nvtxRangePop: start the",
        ),
        (broken, "/libnvToolsExt.so.1: file too short): start the program under `nsys profile`"),
    ];
    for (folder, expected) in cases {
        let environment = [("LD_LIBRARY_PATH", folder.into_os_string()), ("WARPLINE", OsString::from("nvtx"))];
        let Some((stderr, notes)) = said(test, &environment) else { continue };
        assert!(stderr.len() == 1 && notes.len() == 1, "{stderr:?}");
        assert!(
            notes[0].starts_with("no zone reaches NVTX: there is no NVTX tool, and") && notes[0].contains(expected),
            "{notes:?}"
        );
    }
}
