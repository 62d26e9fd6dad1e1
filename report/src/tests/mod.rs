//! The exact text of a report: with more ranges than are shown, long names, collectives, streams and a critical path.

mod bounds;

use std::time::Duration;

use super::*;
use crate::path::PathPart;
use warpline_core::collective::CollectiveKind;

fn range(name: String, on_stream: bool, total_ns: i64, count: u64) -> RangeStats {
    let mean_ns = total_ns / count as i64;
    RangeStats {
        name: name.into(),
        on_stream,
        in_replays: false,
        count,
        seen: count,
        failed: 0,
        total_ns,
        total_error_ns: 0,
        recorded_ns: total_ns,
        self_ns: total_ns,
        self_early_ns: 0,
        share: total_ns as f64 / 10e9,
        first_ns: None,
        mean_ns,
        min_ns: mean_ns / 2,
        p50_ns: mean_ns,
        p99_ns: mean_ns * 2,
        max_ns: mean_ns * 3,
        mean_launch_ns: 31_400,
        work: None,
        bounded: 0,
        bounded_total_ns: 0,
        bounded_least_ns: 0,
        bounded_max_ns: 0,
    }
}

fn collective(kind: CollectiveKind, group: &str, bus: Option<f64>) -> CollectiveStats {
    CollectiveStats {
        group: group.to_owned(),
        kind,
        count: 96,
        sized: if bus.is_some() { 96 } else { 0 },
        bytes: bus.map_or(0, |_| 1_610_612_736),
        bounded: 0,
        total_ns: 9_020_000,
        total_early_ns: 0,
        bus_p50: bus,
        bus_p99: bus.map(|bus| bus * 1.1),
        hidden: 0.874,
        hidden_by_kernels: false,
    }
}

fn stream(name: &str, waited_for: &[(&str, i64)]) -> StreamStats {
    let waited_for =
        waited_for.iter().map(|(by, ns)| WaitedFor { by: (*by).to_owned(), count: 9, ns: *ns, early_ns: 0 }).collect();
    StreamStats {
        name: name.to_owned(),
        device: "NVIDIA H100 80GB HBM3".to_owned(),
        streams: 1,
        busy_ns: 2_550_000_000,
        uncertain_ns: 0,
        waiting_ns: 1_000_000_000,
        waiting_early_ns: 0,
        idle_ns: Some(450_000_000),
        not_recorded_ns: 0,
        waited_for,
    }
}

fn part(name: &str, on: &str, ns: i64) -> PathPart {
    PathPart { name: name.to_owned(), on: on.to_owned(), ns, share: ns as f64 / 4e9 }
}

fn whole() -> Report {
    let mut ranges: Vec<_> =
        (0..500).map(|n| range(format!("model.layer{n:03}.mlp"), true, 4_000_000_000 / (n + 1), 1_000)).collect();
    ranges[1].name = "model.decoder.attention.scaled_dot_product.flash.forward".into();
    (ranges[1].first_ns, ranges[1].failed) = (Some(147_000_000), 3);
    ranges[2] = range("model.load".to_owned(), false, 1_300_000_000, 1);
    let stretch =
        [part("model.layer000.mlp", "compute", 3_000_000_000), part("(launch or signal delay)", "copy", 1_000_000)];
    Report {
        ranges,
        collectives: vec![
            collective(CollectiveKind::AllReduce, "tp0 [0,1]", Some(183e9)),
            collective(CollectiveKind::ReduceScatter, "data_parallel_inner_and_outer [0,8,16,24]", Some(1.5e9)),
            collective(CollectiveKind::AllReduce, "solo [0]", None),
        ],
        begun: 499_001,
        recorded: 499_001,
        waits: WaitCounts { begun: 27, recorded: 27, ..WaitCounts::default() },
        streams: vec![
            stream("compute", &[("copy", 900_000_000), ("communication of the gradients", 100_000_000)]),
            stream("copy", &[("compute", 1_000_000_000)]),
            stream("communication of the gradients", &[]),
        ],
        critical_path: Some(CriticalPath {
            from_ns: 0,
            is_assumed: false,
            to_ns: 4_000_000_000,
            early_by_ns: 0,
            arrows: 12,
            stretches: Vec::new(),
            parts: stretch.to_vec(),
        }),
        duration: Duration::from_millis(10_250),
        clocks: vec![ClockFigures {
            device: "NVIDIA H100 80GB HBM3".to_owned(),
            uncertainty_ns: 1_200,
            worst_uncertainty_ns: 1_200,
            bracket_ns: 1_280,
            busy_bracket_ns: 1_510,
            bracket_is_bound: false,
        }],
        notes: vec!["sink perfetto is slow; record less".to_owned()],
        ..Report::default()
    }
}

/// Compares all but the last line break.
#[track_caller]
fn reads(report: &Report, expected: &str) {
    let text = report.to_string();
    assert_eq!(text.trim_end(), expected.trim_end(), "\n{text}\n");
    for columns in [80, 100, 160] {
        let text = format!("{report:columns$}");
        let is_wider = |line: &&str| line.chars().count() > columns && line.contains(' ');
        assert_eq!(text.lines().filter(is_wider).collect::<Vec<_>>(), Vec::<&str>::new());
    }
}

#[test]
fn a_whole_report_reads_like_this() {
    reads(&whole(), include_str!("whole.txt"));
    // With room, the own time of a range is there as a time, too.
    let mut report = whole();
    report.ranges[0].self_ns = 1_000_000_000;
    let text = format!("{report:120}");
    let lines: Vec<_> =
        text.lines().take(2).map(|line| line.split_whitespace().take(9).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines[0], "on streams count total self share mean p50 p99");
    assert!(lines[1].ends_with(" 1000 4.00 s 1.00 s 25 % 40"), "{text}");
}

#[test]
fn streams_that_are_told_together_have_a_line_of_their_own() {
    let mut report = whole();
    report.streams = (0..20).map(|n| stream(&format!("stream {n}"), &[])).collect();
    report.streams.push(StreamStats { streams: 998_976, ..stream("…", &[("compute", 1_000)]) });
    let text = report.to_string();
    let line =
        text.lines().find(|line| line.starts_with("(998976 more streams, folded)")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains(" ≤2.55 s ") && line.ends_with("compute 0 %"), "{line}");
    assert!(text.contains("\n… and 4 more streams\n"), "{text}");
}

/// Returns a value of a type that other crates cannot write whole.
fn made<T: Default>(set: impl FnOnce(&mut T)) -> T {
    let mut value = T::default();
    set(&mut value);
    value
}

/// Returns a report with every account, with this value in each of its counts.
fn each(count: u64) -> Report {
    let files = (0..count).map(|n| TraceFile { path: format!("trace.{n}.pftrace").into(), zones: 1, bytes: 64 });
    Report {
        begun: count,
        recorded: count,
        ends: made(|ends: &mut EndCounts| {
            (ends.on_streams, ends.found, ends.latest_ns, ends.bounded) = (count, count, 4_000, count);
        }),
        fields: made(|fields: &mut FieldCounts| {
            (fields.cut, fields.left_out, fields.lanes_left_out) = (count, count, count);
        }),
        spans: SpanCounts { begun: count, recorded: count, ..SpanCounts::default() },
        waits: WaitCounts { begun: count, recorded: count, depths_dropped: count, ..WaitCounts::default() },
        kernels: KernelCounts {
            recorded: count,
            dropped: count,
            untimed: count,
            buffers_refused: count,
            uncertainty_ns: 5_040,
        },
        kernel_timing: KernelTimingCounts { timed: count, without_work: count, lost: count },
        graph_timing: GraphTimingCounts {
            replays: count,
            by_kernels: count,
            incomplete: count,
            mixed: count,
            lost: count,
            unknown: count,
            stopped: count,
            untimed_refused: count,
            ..GraphTimingCounts::default()
        },
        sinks: vec![SinkReport {
            name: "perfetto".to_owned(),
            lost: count,
            errors: count,
            first_error: Some("full".to_owned()),
            kept: Retention { files: files.collect(), removed: count, removed_zones: count },
            ..SinkReport::default()
        }],
        ..Report::default()
    }
}

#[test]
fn a_report_counts_in_the_singular_and_in_the_plural() {
    assert_eq!(each(1).to_string().trim_end(), include_str!("ones.txt").trim_end());
    assert_eq!(each(2).to_string().trim_end(), include_str!("twos.txt").trim_end());
}

#[test]
fn a_report_of_a_filtered_sample_reads_like_this() {
    let mut report = whole();
    report.ranges.truncate(4);
    for (n, range) in report.ranges.iter_mut().enumerate() {
        range.seen = range.count * [16, 10, 1, 2][n];
        range.total_error_ns = range.total_ns / 50;
    }
    // A sample of two zones does not represent the others.
    report.ranges[3].count = 2;
    report.ranges[3].seen = 2000;
    report.not_sampled = 25_000;
    report.left_out = LeftOut { ranges: 12, of_ranges: 16, while_stopped: true };
    for stream in &mut report.streams {
        stream.not_recorded_ns = stream.idle_ns.take().unwrap_or(0);
    }
    (report.begun, report.recorded, report.dropped.ring_full) = (4_002, 4_001, 1);
    reads(&report, include_str!("sample.txt"));
}

#[test]
fn what_an_empty_pair_reads_on_an_idle_stream_is_not_called_nothing_where_it_is_not_known() {
    let clock = |bracket_ns, busy_bracket_ns| Report {
        clocks: vec![ClockFigures {
            device: "NVIDIA H100".to_owned(),
            uncertainty_ns: 1_200,
            worst_uncertainty_ns: 1_200,
            bracket_ns,
            busy_bracket_ns,
            bracket_is_bound: false,
        }],
        ..Report::default()
    };
    let idle_unknown = clock(0, 3_100).to_string();
    assert!(
        idle_unknown.contains("a zone longer by 3.10 µs behind queued work; on an idle stream that is not known"),
        "{idle_unknown}"
    );
    let unknown = clock(0, 0).to_string();
    assert!(unknown.contains("it is not known by how much its events make a zone longer"), "{unknown}");
}

#[test]
fn the_uncertainty_of_positions_is_that_of_the_worst_one() {
    let positions = |worst_uncertainty_ns| {
        let clock = ClockFigures {
            device: "NVIDIA H100".to_owned(),
            uncertainty_ns: 1_500,
            worst_uncertainty_ns,
            bracket_ns: 1_280,
            busy_bracket_ns: 1_510,
            bracket_is_bound: false,
        };
        Report { clocks: vec![clock], ..Report::default() }.to_string()
    };
    assert!(positions(2_900).contains("NVIDIA H100: begins are known within ±2.90 µs,\n"), "{}", positions(2_900));
    let far = positions(70_000);
    assert!(far.contains("begins are known within ±70.0 µs (near a comparison of the clocks ±1.50 µs),\n"), "{far}");
}

#[test]
fn names_in_a_report_neither_drive_the_terminal_nor_begin_lines() {
    let evil = "evil\u{1b}[31m\u{9b}\u{202e}\nFORGED";
    let mut report = Report::default();
    report.ranges.push(range(evil.to_owned(), true, 1_000, 1));
    report.collectives.push(collective(CollectiveKind::AllReduce, evil, None));
    report.streams.push(stream(evil, &[(evil, 5)]));
    report.waits.recorded = 1;
    report.critical_path = Some(CriticalPath {
        from_ns: 0,
        is_assumed: false,
        to_ns: 5,
        early_by_ns: 0,
        arrows: 0,
        stretches: Vec::new(),
        parts: vec![part(evil, evil, 5)],
    });
    report.clocks.push(ClockFigures {
        device: evil.to_owned(),
        uncertainty_ns: 1,
        worst_uncertainty_ns: 1,
        bracket_ns: 1,
        busy_bracket_ns: 1,
        bracket_is_bound: false,
    });
    report.sinks.push(SinkReport {
        name: evil.to_owned(),
        first_error: Some(evil.to_owned()),
        errors: 1,
        ..SinkReport::default()
    });
    report.notes.push(evil.to_owned());
    let text = report.to_string();
    assert!(text.matches("evil\\u{1b}").count() >= 7, "{text}");
    assert!(!text.contains(|c: char| c != '\n' && warpline_core::text::deceives(c)), "{}", text.escape_debug());
    assert!(!text.lines().any(|line| line.starts_with("FORGED")), "{text}");
}

#[test]
fn what_windows_cost_is_said_where_it_is_known() {
    let figures = WindowFigures { windows: 412, recorded: 0.031, cut: 0, ..WindowFigures::default() };
    let said = |figures| Report { windows: Some(figures), ..Report::default() }.to_string();
    let text = said(figures);
    assert!(text.contains("\nrecorded 3.1 % of the time in 412 windows; too few to measure the cost"), "{text}");
    let measured = WindowFigures { slowdown: Some(0.31), slowdown_error: 0.04, cost: Some(0.01), ..figures };
    let line =
        "recorded 3.1 % of the time in 412 windows; the program ran 31 % (± 4 %) slower inside; the session cost 1.0 %";
    assert!(said(measured).contains(line) && !said(measured).contains("budget="), "{}", said(measured));
    let hidden = WindowFigures { slowdown: Some(0.01), slowdown_error: 0.02, cost: Some(0.0003), ..figures };
    assert!(said(hidden).contains("inside, the program ran at most 5.0 % slower"), "{}", said(hidden));
    let dear = WindowFigures { cost: Some(0.09), cut: 1, ..measured };
    assert!(said(dear).contains("a smaller `budget=`") && said(dear).contains("; 1 window closed"), "{}", said(dear));
    let none = said(WindowFigures { windows: 0, ..figures });
    assert!(none.contains("\nno window of the budget opened before the end, so zones are missing; record for longer, or set `budget=100%`"), "{none}");
    assert!(!none.contains("recorded 3.1 %"), "{none}");
    let report = Report { windows: Some(measured), ..Report::default() };
    assert!(!report.is_complete());
    let report =
        Report { duration: Duration::from_nanos(5), left_out: LeftOut { of_ranges: 9, ..report.left_out }, ..report };
    let args = [
        ("duration_ns", 5),
        ("ranges", 9),
        ("windows", 412),
        ("windows_recorded_ppm", 31_000),
        ("windows_cost_ppm", 10_000),
    ];
    assert_eq!(report.said_coverage(), args);
}

/// `no_text` has its like without the feature `build`.
#[test]
fn a_report_of_nothing_is_its_notes() {
    let report = Report { notes: vec!["why".to_owned()], ..Report::default() };
    assert_eq!(report.to_string(), "0 zones begun, 0 recorded, 0 dropped in 0 ns\nnote: why");
}
