//! Paths through zones and arrows whose times are known.

use super::log::{Arrow, Passed};
use super::*;
use crate::names::Names;

const A: Track = Track::Stream(1);
const B: Track = Track::Stream(2);
const MAIN: Track = Track::Thread(7);

fn span(begin_ns: i64, end_ns: i64) -> Span {
    Span { begin_ns, end_ns }
}

/// Returns the path through zones (stream, name, begin, end, launch time) and arrows (waiter, end of the wait, signaller,
/// signal time).
fn path(zones: &[(Track, &'static str, i64, i64, i64)], arrows: &[(Track, i64, Track, i64)]) -> CriticalPath {
    let (mut log, mut names) = (PathLog::new(usize::MAX), Names::default());
    for &(on, name, begin, end, launched) in zones {
        let launch = matches!(on, Track::Stream(_)).then_some((MAIN, span(launched, launched + 1)));
        log.zones.push(Passed {
            on,
            name: names.number_if(name, true),
            span: span(begin, end),
            early_by_ns: 0,
            launch,
        });
    }
    for &(on, end_ns, from, at_ns) in arrows {
        log.arrows.push(Arrow { on, end_ns, early_by_ns: 0, from, at_ns });
    }
    log.names = [(A, "a"), (B, "b"), (MAIN, "main")].map(|(place, name)| (place, name.to_owned())).into();
    log.path(None, &names).expect("there are zones")
}

fn parts(path: &CriticalPath) -> Vec<(&str, &str, i64)> {
    let mut parts: Vec<_> = path.parts.iter().map(|part| (part.name.as_str(), part.on.as_str(), part.ns)).collect();
    parts.sort_unstable();
    parts
}

#[test]
fn it_counts_the_innermost_zone_and_each_time_once() {
    let zones = [(A, "outer", 10, 100, 0), (A, "inner", 20, 40, 1), (A, "empty", 30, 30, 2), (B, "after", 110, 150, 3)];
    let path = path(&zones, &[(B, 110, A, 100)]);
    let expected = [
        ("(launch or signal delay)", "a", 10),
        ("(launch or signal delay)", "b", 10),
        ("after", "b", 40),
        ("inner", "a", 20),
        ("outer", "a", 70),
    ];
    assert_eq!((parts(&path), path.from_ns, path.to_ns, path.arrows), (expected.to_vec(), 0, 150, 2));
    assert_eq!(path.parts.iter().map(|part| part.ns).sum::<i64>(), 150);
}

#[test]
fn it_ends_at_the_last_zone_also_where_that_is_on_a_thread() {
    let zones = [(A, "work", 10, 100, 0), (MAIN, "save", 110, 250, 0)];
    let path = path(&zones, &[(MAIN, 105, A, 100)]);
    assert_eq!((path.to_ns, path.arrows), (250, 2));
    assert!(parts(&path).contains(&("save", "main", 140)) && parts(&path).contains(&("work", "a", 90)), "{path:#?}");
    assert_eq!(path.parts.iter().map(|part| part.ns).sum::<i64>(), 250);
}

/// Steps of 45 us: a thread launches work of 40 us, and needs 5 us before it launches the next.
fn steps(count: i64, is_known: bool, waits: bool) -> CriticalPath {
    let (mut log, mut names) = (PathLog::new(usize::MAX), Names::default());
    for step in 0..count {
        let at = 45_000 * step;
        let work = if waits { span(at + 5_000, at + 45_000) } else { span(at + 4_000, at + 9_000) };
        log.passed(
            (A, "a"),
            names.number_if("work", true),
            (work, 0),
            Some((MAIN, "main", span(at + 4_000, at + 4_500))),
        );
        log.passed((MAIN, "main"), names.number_if("step", true), (span(at, at + 45_000), 0), None);
        if is_known && waits {
            log.synchronized((MAIN, "main"), span(at + 4_600, at + 45_000));
        }
    }
    if is_known && !waits {
        // The work has long ended.
        log.synchronized((MAIN, "main"), span(45_000 * count - 10, 45_000 * count));
    }
    log.path(None, &names).expect("there are zones")
}

#[test]
fn a_thread_that_synchronises_in_each_step_hands_the_path_to_its_work_in_each() {
    for count in [1, 2, 10, 100] {
        for is_known in [true, false] {
            let path = steps(count, is_known, true);
            let work = path.range().expect("a range");
            assert_eq!((work.name.as_str(), work.on.as_str(), work.ns), ("work", "a", 40_000 * count), "{path:#?}");
            // Without records of it, the thread may have computed all the time.
            assert_eq!(path.is_assumed, !is_known, "{count}");
            assert_eq!(path.parts.iter().map(|part| part.ns).sum::<i64>(), 45_000 * count);
        }
        for is_known in [true, false] {
            let path = steps(count, is_known, false);
            assert_eq!((path.range().map(|part| &*part.name), path.is_assumed), (Some("step"), false), "{path:#?}");
        }
    }
}

#[test]
fn the_last_zones_are_kept_in_any_order_of_arrival() {
    const ZONES: i64 = 10_000;
    let (mut log, mut names) = (PathLog::new(1_000), Names::default());
    // 7,919 has no divisor in common with the number of zones: all come, and no two neighbours together.
    for zone in (0..ZONES).map(|arrival| arrival * 7_919 % ZONES) {
        let (name, length) = if zone % 2 == 0 { ("long", 300) } else { ("short", 100) };
        let begin = 200 * zone + if zone % 2 == 0 { 0 } else { 100 };
        log.passed(
            (A, "a"),
            names.number_if(name, true),
            (span(begin, begin + length), 0),
            Some((MAIN, "main", span(0, 1))),
        );
    }
    assert!(log.zones.len() <= 1_250, "{}", log.zones.len());
    let path = log.path(None, &names).expect("there are zones");
    let length = path.to_ns - path.from_ns;
    assert_eq!(path.to_ns, 200 * ZONES);
    assert!((199_000..=251_000).contains(&length), "{length}");
    let expected = [("long", 0.75), ("short", 0.25)];
    let found: Vec<_> =
        path.parts.iter().map(|part| (part.name.as_str(), (part.share * 100.0).round() / 100.0)).collect();
    assert_eq!(found, expected, "{path:#?}");
}

#[test]
fn as_many_are_kept_where_all_end_at_once() {
    let (mut log, mut names) = (PathLog::new(1_000), Names::default());
    for begin in 0..10_000 {
        log.passed((A, "a"), names.number_if("work", true), (span(begin, 20_000), 0), None);
        assert!(log.zones.len() <= 1_250);
    }
    assert_eq!(log.zones.last().map(|zone| zone.span.begin_ns), Some(9_999));
    assert_eq!(log.forgotten_until_ns, 20_000);
}

#[test]
fn a_zone_of_a_thread_around_the_work_that_it_launched_is_taken_to_wait_for_it() {
    let zones = [(A, "load", 5, 40, 1), (B, "work", 40, 100, 2), (MAIN, "step", 0, 120, 0)];
    let waited = path(&zones, &[(B, 40, A, 40)]);
    assert_eq!((waited.to_ns, waited.stretches.len(), waited.is_assumed), (120, 4, true), "{waited:#?}");
    assert!(parts(&waited).contains(&("work", "b", 60)) && parts(&waited).contains(&("load", "a", 35)), "{waited:#?}");
    assert_eq!(waited.parts.iter().map(|part| part.ns).sum::<i64>(), 120);
    // Here, the reason of the wait is known.
    let known = path(&zones, &[(MAIN, 110, A, 105)]);
    assert!(parts(&known).iter().all(|(name, ..)| *name != "work"), "{known:#?}");
}

#[test]
fn time_in_which_a_zone_may_have_ended_is_not_the_zones() {
    let (mut log, mut names) = (PathLog::new(usize::MAX), Names::default());
    let mut add = |on, name, zone: Span, early_by_ns| {
        log.passed((on, "a"), names.number_if(name, true), (zone, early_by_ns), Some((MAIN, "main", span(0, 1))));
    };
    // Known within 5 %, a bound within a zone that is timed, and a bound at the end.
    add(A, "known", span(10, 110), 5);
    add(A, "around", span(110, 300), 0);
    add(A, "inner", span(120, 220), 60);
    add(A, "last", span(300, 400), 30);
    let path = log.path(None, &names).expect("there are zones");
    let expected = [
        ("(end not timed)", "a", 90),
        ("(launch or signal delay)", "a", 10),
        ("around", "a", 90),
        ("inner", "a", 40),
        ("known", "a", 100),
        ("last", "a", 70),
    ];
    assert_eq!((parts(&path), path.to_ns, path.early_by_ns), (expected.to_vec(), 400, 30));
    assert_eq!(path.parts.iter().map(|part| part.ns).sum::<i64>(), 400);
}

#[test]
fn time_in_which_a_wait_may_have_ended_is_not_on_the_way() {
    let path = |early_by_ns| {
        let (mut log, mut names) = (PathLog::new(usize::MAX), Names::default());
        let launch = Some((MAIN, "main", span(0, 1)));
        log.passed((A, "a"), names.number_if("copy", true), (span(1, 100), 0), launch);
        log.waited((B, "b"), (span(50, 150), early_by_ns), (A, "a"), 100);
        log.passed((B, "b"), names.number_if("use", true), (span(150, 200), 0), launch);
        log.path(None, &names).expect("there are zones")
    };
    let expected = |on_the_way, uncertain| {
        let all = [
            ("(end not timed)", "b", uncertain),
            ("(launch or signal delay)", "a", 1),
            ("(launch or signal delay)", "b", on_the_way),
            ("copy", "a", 99),
            ("use", "b", 50),
        ];
        all.into_iter().filter(|(.., ns)| *ns > 0).collect::<Vec<_>>()
    };
    // Known within 5 %, a bound, and a bound from before the signal.
    for (early_by_ns, on_the_way, uncertain) in [(5, 50, 0), (30, 20, 30), (90, 0, 50)] {
        assert_eq!(parts(&path(early_by_ns)), expected(on_the_way, uncertain), "{early_by_ns}");
    }
}

#[test]
fn it_ends_whatever_the_arrows_say() {
    let zones = [(A, "one", 0, 50, 0), (B, "two", 0, 60, 0)];
    // Two streams that signal each other at the same time, and arrows without a target.
    let arrows = [(A, 50, B, 50), (B, 50, A, 50), (B, 60, A, 60), (A, 60, B, 60), (B, 55, MAIN, 54)];
    let path = path(&zones, &arrows);
    assert_eq!(path.parts.iter().map(|part| part.ns).sum::<i64>(), 60, "{path:#?}");
}
