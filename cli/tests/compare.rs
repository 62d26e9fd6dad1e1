//! `warpline compare`: equal runs pass, and a range that takes 8 % more is found. A machine that is busy makes real runs
//! differ, so most runs here are written with the noise of a quiet one; two are real, and one of them takes twice as long.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warpline::sink::{Batch, Sink};
use warpline::{HostStream, Session, gpu_zone};
use warpline_core::record::EndSource;
use warpline_report::Report;
use warpline_report::fixture::{self, ATTENTION, COPY, STEP, main_thread, span, stream, zone};
use warpline_trace::write::perfetto::PerfettoSink;

use crate::support::alone;

/// Works for this long on its stream.
#[gpu_zone("cli.pair.steady", stream = stream)]
fn steady(stream: &HostStream, time: Duration) {
    stream.launch(move || spin(time));
}

/// Works for this long on its stream, or longer in a newer version.
#[gpu_zone("cli.pair.changed", stream = stream)]
fn changed(stream: &HostStream, time: Duration) {
    stream.launch(move || spin(time));
}

/// A stream sleeps worse than it counts.
fn spin(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

const PAIRS: usize = 10;
const STEPS: u32 = 240;
/// So short that other programs interrupt few of them.
const TIME: Duration = Duration::from_micros(20);

/// Records a real run.
fn run(path: &Path, factor: f64) {
    let _turn = alone();
    let session = Session::builder().perfetto(path).start().unwrap();
    let stream = HostStream::new("compute");
    // Without steps of the program: their time on the host is that of the whole machine, which other tests use as well.
    for _ in 0..STEPS {
        for _ in 0..3 {
            steady(&stream, TIME);
            changed(&stream, TIME.mul_f64(factor));
        }
        stream.synchronize().unwrap();
    }
    let report = session.finish();
    assert_eq!(report.recorded, u64::from(STEPS) * 6, "{report}");
}

/// Writes a run of `demo.attention` and `demo.copy`, both of 20 us. The second one takes `factor` times as long. The clock of
/// the GPU differs from run to run by up to 1 %, each zone by up to `noise`, and one zone in fifty is interrupted for up to 100 us.
fn write_run(path: &Path, factor: f64, noise: f64, random: &mut fastrand::Rng) {
    let mut sink = PerfettoSink::create(path).unwrap();
    sink.start(&fixture::session()).unwrap();
    let (main, compute) = (main_thread(), stream(1, "compute"));
    let clock = 1.0 + 0.01 * (random.f64() - 0.5);
    let mut at = 0;
    for _ in 0..STEPS * 3 {
        for (range, factor) in [(&ATTENTION, 1.0), (&COPY, factor)] {
            let mut length = 20_000.0 * clock * factor * (1.0 + noise * random.f64());
            if random.u32(..50) == 0 {
                length += 100_000.0 * random.f64();
            }
            let gpu = span(at + 1_000, at + 1_000 + length as i64);
            sink.write(Batch::Zones(&[zone(range, Some(&compute), &main, span(at, at + 500), Some(gpu))])).unwrap();
            at += 200_000;
        }
    }
    let recorded = u64::from(STEPS) * 6;
    sink.finish(&Report { begun: recorded, recorded, ..Report::default() }).unwrap();
}

fn compare(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_warpline")).arg("compare").args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Returns the ranges whose median has regressed.
fn regressed(text: &str) -> Vec<String> {
    let told: Value = serde_json::from_str(text).unwrap();
    let figures = told["figures"].as_array().unwrap().iter();
    figures
        .filter(|one| one["verdict"] == "regressed" && one["kind"] == "range" && one["figure"] == "median")
        .map(|one| one["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_range_that_takes_twice_as_long_is_found_in_real_runs() {
    let folder = tempfile::tempdir().unwrap();
    let [base, slow] = ["base", "slow"].map(|name| folder.path().join(name));
    run(&base, 1.0);
    run(&slow, 2.0);
    let [base, slow] = [&base, &slow].map(|path| path.to_str().unwrap());
    let (status, text, errors) = compare(&[base, slow, "--fail-above", "5%", "--format", "json"]);
    assert_eq!(status, Some(1), "{errors}{text}");
    assert!(regressed(&text).contains(&"cli.pair.changed".to_owned()), "{text}");
}

#[test]
fn ten_pairs_of_equal_runs_pass_and_eight_percent_more_is_found_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = |what: &str, pair: usize| -> PathBuf { folder.path().join(format!("{what}{pair}.pftrace")) };
    let mut random = fastrand::Rng::with_seed(0);
    for pair in 0..PAIRS {
        let [base, equal, slow] = ["base", "equal", "slow"].map(|what| path(what, pair));
        write_run(&base, 1.0, 0.03, &mut random);
        write_run(&equal, 1.0, 0.03, &mut random);
        write_run(&slow, 1.08, 0.03, &mut random);
        let [base, equal, slow] = [&base, &equal, &slow].map(|path| path.to_str().unwrap());
        let (status, text, errors) = compare(&[base, equal, "--fail-above", "5%"]);
        assert_eq!((status, errors.as_str()), (Some(0), ""), "{pair}: {text}");
        let (status, text, _) = compare(&[base, slow, "--fail-above", "5%", "--format", "json"]);
        assert_eq!((status, regressed(&text)), (Some(1), vec!["demo.copy".to_owned()]), "{pair}: {text}");
    }
    // All of them together: several runs a side, also as folders. The same seed gives the same answer.
    for side in ["base", "slow"] {
        let runs = folder.path().join(side);
        fs::create_dir(&runs).unwrap();
        for pair in 0..PAIRS {
            fs::rename(path(side, pair), runs.join(format!("{pair}.pftrace"))).unwrap();
        }
    }
    let [base, slow] = ["base", "slow"].map(|side| folder.path().join(side).to_str().unwrap().to_owned());
    let all = ["--fail-above", "5%", "--format", "markdown", "--seed", "7"];
    let args: Vec<&str> = [base.as_str(), slow.as_str()].into_iter().chain(all).collect();
    let (first, again) = (compare(&args), compare(&args));
    assert!(
        first.0 == Some(1)
            && first.1.contains("| `demo.copy` | median |")
            && first.1.contains("10 runs against 10 runs"),
        "{first:?}"
    );
    assert_eq!(first, again);
}

#[test]
fn a_limit_with_every_figure_undecided_has_status_two() {
    let folder = tempfile::tempdir().unwrap();
    let [base, new] = ["base", "new"].map(|name| folder.path().join(name));
    let mut random = fastrand::Rng::with_seed(0);
    write_run(&base, 1.0, 20.0, &mut random);
    write_run(&new, 1.0, 20.0, &mut random);
    let [base, new] = [&base, &new].map(|path| path.to_str().unwrap());
    let (status, text, errors) = compare(&[base, new, "--fail-above", "5%"]);
    assert_eq!((status, text.as_str()), (Some(2), ""), "{errors}");
    assert!(errors.contains("the variation within each side hides every difference below "), "{errors}");
    let (status, text, errors) = compare(&[base, new]);
    assert!(status == Some(0) && text.contains("cannot tell (could see ≥"), "{errors}{text}");
}

/// 64 zones of three ranges. Those of the ranges for which this returns a time have ends that may be so much earlier.
fn run_with_ends(path: &Path, early_by_ns: impl Fn(&str, i64) -> i64) {
    let mut sink = PerfettoSink::create(path).unwrap();
    sink.start(&fixture::session()).unwrap();
    let (main, compute) = (main_thread(), stream(1, "compute"));
    for number in 0..64_i64 {
        let mut at = number * 10_000_000;
        for range in [&ATTENTION, &COPY, &STEP] {
            let early_by_ns = early_by_ns(range.name(), number);
            let gpu = span(at + 1_000, at + 21_000 + number % 7 * 10 + early_by_ns);
            let mut zone = zone(range, Some(&compute), &main, span(at, at + 500), Some(gpu));
            if early_by_ns > 0 {
                (zone.end, zone.end_early_by_ns) = (EndSource::Boundary, early_by_ns);
            }
            sink.write(Batch::Zones(&[zone])).unwrap();
            at += 3_000_000;
        }
    }
    sink.finish(&Report { begun: 192, recorded: 192, ..Report::default() }).unwrap();
}

#[test]
fn a_zone_whose_end_is_not_timed_is_no_sample() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    run_with_ends(&path("base"), |_, _| 0);
    run_with_ends(&path("new"), |range, number| match range {
        "demo.attention" => 2_000_000,
        "demo.copy" if number % 4 == 0 => 2_000_000,
        // Less than 5 % of the length.
        "demo.step" => 900,
        _ => 0,
    });
    run_with_ends(&path("none"), |_, _| 2_000_000);
    let [base, new, none] = ["base", "new", "none"].map(|name| path(name).to_str().unwrap().to_owned());
    let (status, text, errors) = compare(&[&base, &new, "--fail-above", "25%"]);
    assert_eq!((status, errors.as_str()), (Some(0), ""), "{text}");
    for said in [
        "\nnot timed: demo.attention (64 of 64 of the new side)\n",
        "\npartly timed: demo.copy (16 of 64 of the new side)\n",
        " with too few blocks to judge, 1 not timed\n",
        "\nzones whose end is only bounded are in no figure; `ends=eager` times them\n",
    ] {
        assert!(text.contains(said), "{text}");
    }
    let (_, text, _) = compare(&[&base, &new, "--format", "json"]);
    let told: Value = serde_json::from_str(&text).unwrap();
    let figures = told["figures"].as_array().unwrap();
    let of = |name: &str| figures.iter().find(|one| one["name"] == name && one["figure"] == "median");
    assert!(of("demo.attention").is_none(), "{text}");
    let copy = of("demo.copy").unwrap();
    assert_eq!((&copy["base_bounded"], &copy["new_bounded"], &copy["new_count"]), (&0.into(), &16.into(), &64.into()));
    assert!(copy["change"].as_f64().unwrap().abs() < 0.01, "{copy}");
    assert_eq!(of("demo.step").unwrap()["new_bounded"], 0, "{text}");
    let attention = json!({
        "kind": "range", "name": "demo.attention", "range": null,
        "base_count": 64, "new_count": 64, "base_bounded": 0, "new_bounded": 64,
    });
    assert_eq!(told["not_timed"], json!([attention]));
    let (_, text, _) = compare(&[&base, &new, "--format", "markdown"]);
    assert!(
        text.starts_with("⚠️ ") && text.contains("Not timed: `demo.attention` (64 of 64 of the new side)"),
        "{text}"
    );
    // Nothing is left to compare.
    let (status, text, errors) = compare(&[&base, &none]);
    assert_eq!((status, text.as_str()), (Some(2), ""), "{errors}");
    assert!(
        errors.contains("the ends of all zones of one side are not timed by events; record with `ends=eager`"),
        "{errors}"
    );
}

#[test]
fn a_limit_with_nothing_judged_has_status_two_and_the_wall_time_is_always_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let write = |name: &str, us: u32| {
        let event = |at: u32| {
            format!(
                r#"{{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":{},"dur":{us},"args":{{}}}}"#,
                at * 1_000
            )
        };
        let events: Vec<_> = (0..3).map(event).collect();
        fs::write(path(name), format!(r#"{{"traceEvents":[{}]}}"#, events.join(","))).unwrap();
    };
    write("base.json", 100);
    write("new.json", 900);
    let (base, new) = (path("base.json"), path("new.json"));
    let (status, text, errors) = compare(&[&base, &new, "--fail-above", "5%"]);
    assert_eq!((status, text.as_str()), (Some(2), ""), "{errors}");
    assert!(errors.contains("a side needs 8 blocks of a figure, and none has more than 1"), "{errors}");
    let (status, text, errors) = compare(&[&base, &new]);
    assert_eq!(status, Some(0), "{errors}");
    // From 0 to 2.1 ms, and to 2.9 ms.
    let wall = text.lines().find(|line| line.contains("wall time")).expect("it is in every comparison");
    assert!(wall.contains("2.10 ms") && wall.contains("2.90 ms") && wall.contains("too few"), "{text}");
    // Three runs a side that agree tell that they differ.
    let sides = |name: &str, us: u32| -> Vec<String> {
        (0..3)
            .map(|at| {
                write(&format!("{name}{at}.json"), us + at);
                path(&format!("{name}{at}.json"))
            })
            .collect()
    };
    let (bases, news) = (sides("b", 100), sides("n", 900));
    let args: Vec<&str> = ["--base"]
        .into_iter()
        .chain(bases.iter().map(String::as_str))
        .chain(["--new"])
        .chain(news.iter().map(String::as_str))
        .collect();
    let (status, text, errors) = compare(&[&args[..], &["--fail-above", "5%"]].concat());
    let wall = text.lines().find(|line| line.contains("wall time")).expect("it is in every comparison");
    assert!(status == Some(1) && wall.contains("regressed"), "{errors}{text}");
}

#[test]
fn wrong_input_has_status_two() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("wrong");
    fs::write(&wrong, "no trace").unwrap();
    let wrong = wrong.to_str().unwrap();
    for args in [
        &["missing", "missing"][..],
        &[wrong, wrong],
        &[wrong],
        &["--base", wrong],
        &[wrong, wrong, "--fail-above", "x"],
        &[],
    ] {
        let (status, text, errors) = compare(args);
        assert_eq!((status, text.as_str()), (Some(2), ""), "{args:?}: {errors}");
        assert!(errors.starts_with("error: "), "{args:?}: {errors}");
    }
}
