//! The tables of a rank, read back with Parquet's own reader and compared with the records of the same session.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::record::ZoneRecord;
use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline::{HostStream, Session, dynamic, host_zone};
use warpline_tests::{alone, empty_folder};

use crate::tables::{Row, files, rows, rows_of};

warpline::range! {
    LOAD = "api.ranks.load": "Loads a batch.", kind = host;
    FORWARD = "api.ranks.forward": "A part of a step.";
    SYNC = "api.ranks.sync": "What ranks match by number.", kind = collective;
}

/// One iteration.
#[host_zone("api.ranks.step", step = number)]
fn step(streams: &[HostStream; 2], group: &ProcessGroup, number: u64) {
    drop(LOAD.host());
    {
        let _zone = FORWARD.zone(&streams[0]);
        streams[0].launch(|| thread::sleep(Duration::from_micros(400)));
    }
    for size in [1_u64 << 20, 100] {
        let message = Message::new(CollectiveKind::AllReduce).count(size).dtype(DataType::F32).group(group);
        let _zone = SYNC.zone(&streams[1]).message(message);
        streams[1].launch(|| thread::sleep(Duration::from_micros(200)));
    }
    streams.iter().for_each(|stream| stream.synchronize().expect("no panic"));
}

fn streams() -> [HostStream; 2] {
    [HostStream::new("compute"), HostStream::new("comm")]
}

struct Run {
    report: Report,
    zones: Vec<ZoneRecord>,
    steps: Vec<warpline::record::StepRecord>,
}

fn run(root: &Path, window: Duration, work: impl FnOnce()) -> Run {
    let records = MemorySink::new(1_000_000);
    let builder = Session::builder().ranks(root).ranks_window(window).ring(1 << 14).sink(records.clone());
    let session = builder.start().expect("no other session");
    work();
    let report = session.finish();
    Run { report, zones: records.take(), steps: records.take_steps() }
}

fn one(rows: Vec<Row>) -> Row {
    let [row] = rows.try_into().expect("one row");
    row
}

#[test]
fn the_tables_say_what_the_records_say() {
    let _turn = alone();
    let root = empty_folder("ranks_tables");
    let group = ProcessGroup::new("dp", [0, 1, 2, 5], 0);
    let Run { report, zones, steps } = run(&root, Duration::from_secs(3600), || {
        let streams = streams();
        (7..27).for_each(|number| step(&streams, &group, number));
    });
    assert!(report.sinks.iter().all(|sink| sink.errors == 0 && sink.lost == 0), "{report}");

    let window = one(rows(&root, "windows"));
    let expected = [
        "rank",
        "host",
        "boot_id",
        "pid",
        "begin_ns",
        "end_ns",
        "realtime_offset_ns",
        "clock_err_ns",
        "steps",
        "steps_dropped",
        "zones_begun",
        "zones_recorded",
        "zones_captured",
        "zones_dropped",
        "collectives_begun",
        "collectives_kept",
        "collectives_left_out",
        "coarsened",
        "version",
    ];
    assert_eq!(window.columns(), expected);
    assert_eq!((window.int("rank"), window.int("pid"), window.int("steps")), (0, i64::from(std::process::id()), 20));
    assert_eq!((window.int("zones_begun"), window.int("zones_recorded")), (report.begun as i64, zones.len() as i64));
    assert_eq!((window.int("zones_dropped"), window.int("zones_captured"), window.text("coarsened")), (0, 0, ""));
    let unix_ns = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("later").as_nanos() as i64;
    let end_unix_ns = window.int("end_ns") + window.int("realtime_offset_ns");
    assert!((unix_ns - end_unix_ns).abs() < 60_000_000_000, "{end_unix_ns}");

    let by_step = rows(&root, "steps");
    assert_eq!(by_step.len(), steps.len());
    for (row, step) in by_step.iter().zip(&steps) {
        let [wall, compute, comm, hidden, wait, idle, uncertain, launch] =
            ["wall_ns", "compute_ns", "comm_ns", "comm_hidden_ns", "wait_ns", "idle_ns", "uncertain_ns", "launch_ns"]
                .map(|name| row.int(name));
        assert_eq!(
            (row.int("step"), row.int("begin_ns"), wall),
            (step.number as i64, step.host.begin_ns, step.duration_ns())
        );
        assert_eq!(compute + comm - hidden + wait + idle + uncertain, wall, "the parts of a step add up: {row:?}");
        assert_eq!(uncertain, 0, "an in-process stream times every end");
        assert!(
            compute >= 350_000 && comm >= 350_000 && (0..=compute.min(comm)).contains(&hidden) && idle >= 0,
            "{row:?}"
        );
        assert!(launch > 0 && launch < wall && row.int("zones") == 5 && row.int("dropped") == 0, "{row:?}");
    }

    let stages = rows(&root, "stages");
    let of_first: Vec<_> =
        stages.iter().filter(|row| row.int("step") == 7).map(|row| (row.int("idx"), row.text("name"))).collect();
    assert_eq!(
        of_first,
        [(0, "api.ranks.load"), (1, "api.ranks.forward"), (2, "api.ranks.sync"), (3, "api.ranks.sync")],
        "the step itself is around its stages"
    );
    assert_eq!(stages.len(), 4 * steps.len());
    assert!(stages.iter().all(|row| row.int("end_early_ns") == 0));

    let ranges = rows(&root, "ranges");
    let sketches = rows(&root, "sketches");
    for name in ["api.ranks.step", "api.ranks.load", "api.ranks.forward", "api.ranks.sync"] {
        let lengths: Vec<i64> =
            zones.iter().filter(|zone| zone.range.name() == name).map(|zone| zone.duration_ns()).collect();
        let whole = one(ranges.iter().filter(|row| row.is_null("step") && row.text("name") == name).cloned().collect());
        assert_eq!((whole.int("n"), whole.int("sum_ns")), (lengths.len() as i64, lengths.iter().sum()), "{name}");
        assert_eq!(["bounded", "bounded_sum_ns", "bounded_least_ns"].map(|name| whole.int(name)), [0; 3], "{name}");
        assert_eq!(
            (whole.int("min_ns"), whole.int("max_ns")),
            (*lengths.iter().min().expect("some"), *lengths.iter().max().expect("some"))
        );
        let of_steps: Vec<_> = ranges.iter().filter(|row| !row.is_null("step") && row.text("name") == name).collect();
        assert_eq!(of_steps.len(), steps.len());
        assert_eq!(of_steps.iter().map(|row| row.int("sum_ns")).sum::<i64>(), whole.int("sum_ns"));
        let buckets: Vec<_> = sketches.iter().filter(|row| row.text("name") == name).collect();
        assert_eq!(buckets.iter().map(|row| row.int("n")).sum::<i64>(), lengths.len() as i64);
        let base = 2_f64.powf(1.0 / 32.0);
        let (low, high) = (buckets[0].int("bucket") as i32, buckets[buckets.len() - 1].int("bucket") as i32);
        assert!(
            base.powi(low) < whole.int("min_ns") as f64
                && whole.int("max_ns") as f64 <= base.powi(high + 1) * 1.000_001
        );
    }

    let kept = rows(&root, "collectives");
    let all: BTreeMap<i64, &ZoneRecord> =
        zones.iter().filter_map(|zone| Some((zone.message.as_ref()?.seq? as i64, zone))).collect();
    assert_eq!(
        (all.len(), window.int("collectives_begun"), window.int("collectives_kept")),
        (40, 40, kept.len() as i64)
    );
    assert_eq!(window.int("collectives_left_out"), 40 - kept.len() as i64);
    for row in &kept {
        let zone = all[&row.int("seq")];
        let gpu = zone.gpu.expect("on a stream");
        assert_eq!((row.int("begin_ns"), row.int("dur_ns")), (gpu.begin_ns, gpu.duration_ns()));
        let bytes = zone.message.as_ref().and_then(|message| message.bytes()).expect("known") as i64;
        assert_eq!((row.int("bytes"), row.text("kind"), row.text("range")), (bytes, "all_reduce", "api.ranks.sync"));
    }
    let large: BTreeSet<i64> = (0..40).step_by(2).collect();
    let sampled: BTreeSet<i64> =
        kept.iter().filter(|row| row.text("why") == "sample").map(|row| row.int("seq")).collect();
    assert!(
        large.is_subset(&sampled) && sampled.len() < 40,
        "large ones are all kept, of small ones a part: {sampled:?}"
    );

    let comm = one(rows(&root, "comms"));
    assert!(comm.text("comm").starts_with("dp#") && comm.text("comm").len() == 11);
    assert_eq!((comm.text("members"), comm.int("size"), comm.int("sampling")), ("0-2,5", 4, 16));
    assert_eq!((comm.int("last_seq"), comm.text("signature").len()), (39, 16));
    std::fs::remove_dir_all(root).expect("a folder");
}

#[test]
fn a_window_has_its_length_and_ten_steps_and_each_step_is_in_one() {
    let _turn = alone();
    let root = empty_folder("ranks_windows");
    let group = ProcessGroup::new("dp", [0, 1], 0);
    let (mut count, since) = (0, Instant::now());
    let Run { steps, .. } = run(&root, Duration::from_millis(100), || {
        let streams = streams();
        // A busy machine may close windows late.
        while count < 150 || files(&root, "windows").len() < 4 {
            assert!(since.elapsed() < Duration::from_secs(60), "{count} steps, and no four windows");
            step(&streams, &group, count);
            count += 1;
            thread::sleep(Duration::from_millis(20));
        }
    });
    let files = files(&root, "windows");
    assert!(files.len() >= 4, "{files:?}");
    let windows: Vec<_> = files.iter().flat_map(|file| rows_of(file)).collect();
    for (window, file) in windows[..windows.len() - 1].iter().zip(&files) {
        assert!(window.int("end_ns") - window.int("begin_ns") >= 100_000_000, "{}", file.display());
        assert!(window.int("steps") >= 10 || window.int("steps") == 0, "{window:?}");
    }
    assert!(windows.windows(2).all(|pair| pair[0].int("end_ns") == pair[1].int("begin_ns")));
    let written: Vec<_> = rows(&root, "steps").iter().map(|row| row.int("step")).collect();
    assert_eq!(written, (0..i64::try_from(count).expect("a count")).collect::<Vec<_>>());
    assert_eq!(steps.len() as u64, count);
    let members = rows(&root, "comms");
    assert_eq!(members.iter().filter(|row| !row.is_null("members")).count(), 1, "members are written once");
    std::fs::remove_dir_all(root).expect("a folder");
}

#[test]
fn what_does_not_fit_the_budget_is_left_out_in_order_and_said() {
    let _turn = alone();
    let root = empty_folder("ranks_budget");
    let stream = HostStream::new("many");
    let ranges: Vec<_> =
        (0..400).map(|n| dynamic::range(&format!("api.ranks.kernel_{n}"), "a.rs", n + 1, "many")).collect();
    run(&root, Duration::from_secs(3600), || {
        for number in 0..12_u64 {
            warpline::step(number);
            for (n, range) in ranges.iter().enumerate() {
                let _zone = range.zone(&stream);
                if n % 16 == 0 {
                    stream.launch(|| thread::sleep(Duration::from_micros(20)));
                }
            }
            stream.synchronize().expect("no panic");
        }
    });
    let window = one(rows(&root, "windows"));
    let coarsened: Vec<_> = window.text("coarsened").split(',').collect();
    assert_eq!(coarsened[..2], ["ranges", "stages"], "{coarsened:?}");
    let bytes: u64 = ["windows", "steps", "stages", "ranges", "sketches", "collectives", "comms"]
        .iter()
        .flat_map(|table| files(&root, table))
        .map(|file| std::fs::metadata(file).expect("it is there").len())
        .sum();
    assert!(bytes <= 11 * 2048 || coarsened.contains(&"over budget"), "{bytes} bytes, {coarsened:?}");
    let left = rows(&root, "ranges");
    assert!(left.len() == 400 && left.iter().all(|row| row.is_null("step")), "{} rows", left.len());
    assert_eq!(rows(&root, "steps").len(), 11, "the last step has no end");
    std::fs::remove_dir_all(root).expect("a folder");
}

#[test]
fn two_ranks_keep_the_same_collectives() {
    let _turn = alone();
    let kept: Vec<_> = (0..2)
        .map(|rank| {
            let root = empty_folder(&format!("ranks_sample{rank}"));
            let group = ProcessGroup::new("dp", [0, 1], rank);
            run(&root, Duration::from_secs(3600), || {
                let stream = HostStream::new("comm");
                for _ in 0..600 {
                    let message =
                        Message::new(CollectiveKind::AllReduce).count(1_000).dtype(DataType::F32).group(&group);
                    drop(SYNC.zone(&stream).message(message));
                }
                stream.synchronize().expect("no panic");
            });
            let window = one(rows(&root, "windows"));
            let kept = rows(&root, "collectives");
            assert_eq!(window.int("collectives_begun"), 600);
            assert_eq!(window.int("collectives_kept") + window.int("collectives_left_out"), 600);
            std::fs::remove_dir_all(&root).expect("a folder");
            let sampled = kept.into_iter().filter(|row| row.text("why") == "sample");
            sampled.map(|row| (row.text("comm").to_owned(), row.int("seq"))).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(kept[0], kept[1]);
    assert!((15..80).contains(&kept[0].len()), "about one of 16: {}", kept[0].len());
}
