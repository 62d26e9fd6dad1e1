//! What a report says of zones whose length is only a bound: no bound reads like a length.

use super::*;

/// Returns a range with `count` zones of 100 µs, of which `bounded` may have taken 1 µs to 3.72 ms each.
fn with_bounded(name: &str, count: u64, bounded: u64) -> RangeStats {
    let timed_ns = 100_000 * (count - bounded) as i64;
    let mut stats = range(name.to_owned(), true, timed_ns, count.max(1));
    let all_ns = timed_ns + 3_720_000 * bounded as i64;
    (stats.bounded, stats.bounded_max_ns) = (bounded, 3_720_000 * i64::from(bounded > 0));
    (stats.bounded_total_ns, stats.bounded_least_ns) = (3_720_000 * bounded as i64, 1_000 * bounded as i64);
    (stats.total_ns, stats.share) = (all_ns, all_ns as f64 / 1e9);
    let length = |ns| if count > bounded { ns } else { 0 };
    (stats.mean_ns, stats.min_ns, stats.max_ns) = (length(100_000), length(90_000), length(120_000));
    (stats.p50_ns, stats.p99_ns) = (length(100_000), length(120_000));
    stats
}

fn semaphore(name: &str, waited_early_ns: i64) -> SemaphoreStats {
    SemaphoreStats { name: name.to_owned(), waits: 9, waited_ns: 1_000_000_000, waited_early_ns }
}

fn report() -> Report {
    let mut inside = with_bounded("demo.around", 10, 0);
    (inside.self_ns, inside.self_early_ns) = (400_000, 300_000);
    let mut busy = stream("compute", &[]);
    (busy.busy_ns, busy.uncertain_ns, busy.idle_ns) = (900_000_000, 500_000_000, Some(100_000_000));
    let mut known = stream("copy", &[]);
    (known.busy_ns, known.uncertain_ns, known.idle_ns) = (900_000_000, 4_000_000, Some(90_000_000));
    let mut held = stream("side", &[("compute", 900_000_000), ("copy", 100_000_000)]);
    (held.waiting_early_ns, held.waited_for[0].early_ns, held.idle_ns) = (800_000_000, 800_000_000, Some(100_000_000));
    let mut some = collective(CollectiveKind::AllReduce, "tp0 [0,1]", Some(183e9));
    (some.bounded, some.total_early_ns) = (36, 8_000_000);
    let mut none = collective(CollectiveKind::AllGather, "tp0 [0,1]", None);
    (none.bounded, none.total_early_ns) = (96, 8_000_000);
    let step = |name: &'static str, steps, bounded_steps, ns| RangeStepStats {
        name: name.into(),
        on_stream: true,
        steps,
        zones: 2 * steps,
        bounded_steps,
        mean_ns: ns,
        p50_ns: ns,
        p99_ns: ns,
        max_ns: ns,
    };
    Report {
        // The last one is bounded by 3.72 ms in 100 ms.
        ranges: vec![
            with_bounded("demo.some", 40, 12),
            with_bounded("demo.none", 2, 2),
            inside,
            with_bounded("demo.few", 1_000, 1),
        ],
        range_steps: vec![step("demo.some", 8, 1, 100_000), step("demo.none", 0, 2, 0)],
        collectives: vec![some, none],
        begun: 1_052,
        recorded: 1_052,
        ends: made(|ends: &mut EndCounts| {
            (ends.on_streams, ends.found, ends.latest_ns, ends.bounded) = (1_052, 36, 56_200_000, 15);
        }),
        waits: WaitCounts { begun: 1, recorded: 1, ..WaitCounts::default() },
        streams: vec![busy, known, held],
        semaphores: vec![semaphore("loaded", 900_000_000), semaphore("saved", 10_000_000)],
        critical_path: Some(CriticalPath {
            from_ns: 0,
            is_assumed: false,
            to_ns: 1_000_000_000,
            early_by_ns: 400_000_000,
            arrows: 1,
            stretches: Vec::new(),
            parts: vec![part("(end not timed)", "compute", 400_000_000), part("demo.none", "compute", 1_000_000)],
        }),
        duration: Duration::from_secs(1),
        ..Report::default()
    }
}

#[test]
fn a_bound_is_printed_with_its_sign() {
    reads(&report(), include_str!("bounds.txt"));
}

#[test]
fn a_sample_prints_bounds_with_their_sign_too() {
    let mut report = report();
    report.ranges.iter_mut().for_each(|range| range.seen = 2 * range.count);
    let text = report.to_string();
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
    assert!(line("demo.some").contains(" ≤≈47.4 ms "), "{text}");
    assert!(line("demo.none").ends_with(" ≤3.72 ms  ≤3.72 ms") && line("demo.few").contains(" ≈104 ms "), "{text}");
}

#[test]
fn programs_read_which_figures_are_bounds_and_no_bound_as_a_length() {
    let json: serde_json::Value = serde_json::from_str(&report().to_json()).expect("JSON");
    let ranges = json["ranges"].as_array().expect("ranges");
    let [some, none, around, few] = &ranges[..] else { panic!("{json}") };
    for key in ["mean_ns", "min_ns", "p50_ns", "p99_ns", "max_ns", "self_ns", "recorded_ns"] {
        assert_eq!(none[key], serde_json::Value::Null, "{key}: {none}");
        assert!(some[key].as_i64().is_some_and(|ns| ns > 0), "{key}: {some}");
    }
    assert_eq!(
        (&none["bounded"], &none["bounded_total_ns"], &none["bounded_least_ns"]),
        (&2.into(), &7_440_000.into(), &2_000.into())
    );
    assert_eq!((&none["total_ns"], &none["total_is_bound"]), (&7_440_000.into(), &true.into()));
    assert_eq!((&some["total_is_bound"], &few["total_is_bound"]), (&true.into(), &false.into()));
    assert_eq!((&around["self_is_bound"], &some["self_is_bound"]), (&true.into(), &false.into()));
    let [busy, known, held] = &json["streams"].as_array().expect("streams")[..] else { panic!("{json}") };
    assert_eq!((&busy["busy_is_bound"], &busy["rest_is_bound"]), (&true.into(), &true.into()));
    assert_eq!((&known["busy_is_bound"], &known["rest_is_bound"]), (&false.into(), &false.into()));
    assert_eq!((&known["waiting_is_bound"], &known["waiting_early_ns"]), (&false.into(), &0.into()));
    assert_eq!((&held["waiting_is_bound"], &held["waiting_early_ns"]), (&true.into(), &800_000_000.into()));
    // The stream may have been idle where it may have waited.
    assert_eq!((&held["busy_is_bound"], &held["rest_is_bound"]), (&false.into(), &true.into()));
    let are_bounds =
        |table: &str| json[table].as_array().map(|rows| rows.iter().map(|row| row["total_is_bound"].clone()).collect());
    assert_eq!(are_bounds("stream_waits"), Some(vec![true.into(), false.into()]));
    assert_eq!(are_bounds("semaphores"), Some(vec![true.into(), false.into()]));
    assert_eq!(json["collectives"][1]["hidden_share"], serde_json::Value::Null);
    assert_eq!(json["range_steps"][1]["mean_ns"], serde_json::Value::Null);
    assert_eq!((&json["ends"]["bounded"], &json["critical_path_is_bound"]), (&15.into(), &true.into()));
    let markdown = report().to_markdown();
    let row = markdown.lines().find(|line| line.starts_with("| demo.none | stream")).expect("a row");
    assert!(row.contains("| ≤7.44 ms |") && row.contains("| ≤3.72 ms |"), "{row}");
    // No cell of a table shows a bound without its sign.
    for (start, cells) in [
        ("| side |", &["| ≤1.00 s |", "| ≥100 ms |"][..]),
        ("| compute |", &["| ≤900 ms |", "| ≥100 ms |"]),
        ("| side | compute |", &["| ≤900 ms |"]),
        ("| loaded |", &["| ≤1.00 s |"]),
        ("| demo.around | stream |", &["| ≤400 µs |"]),
        ("| demo.some | stream |", &["| 12 | ≤44.6 ms | ≥12.0 µs | ≤3.72 ms |"]),
    ] {
        let row = markdown.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start} {markdown}"));
        assert!(cells.iter().all(|cell| row.contains(cell)), "{cells:?} {row}");
    }
    for start in ["| side | copy |", "| saved |", "| copy |"] {
        let row = markdown.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start} {markdown}"));
        assert!(!row.contains(['≤', '≥']), "{row}");
    }
    let csv = report().to_csv();
    let row = csv.lines().find(|line| line.starts_with("ranges,demo.none")).expect("a row");
    assert!(row.contains(",7440000,") && row.contains(",true,") && !row.contains('≤'), "{row}");
}

#[test]
fn more_ranges_are_a_bound_if_one_of_them_is() {
    let mut report = report();
    report.ranges = (0..60).map(|n| with_bounded(&format!("demo.r{n}"), 10, u64::from(n == 50))).collect();
    assert!(report.to_string().contains("\n… and 20 more ranges; their shares add up to ≤2.4 %\n"), "{report}");
    report.ranges[50] = with_bounded("demo.r50", 10, 0);
    assert!(report.to_string().contains("\n… and 20 more ranges; their shares add up to 2.0 %\n"), "{report}");
}
