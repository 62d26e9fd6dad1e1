//! What a zone costs by itself, without the driver: ns of the thread that launches and CPU ns of the collector's thread, on CUDA streams of
//! a driver whose calls cost nearly nothing and on in-process streams; and the CPU time of an idle session.
//!
//! `cargo bench -p warpline-benches --features cuda --bench collector`. The driver is the stub of the tests with its feature `free`; the
//! bench builds it, and runs again with it in place of `libcuda.so.1`.

use std::ffi::c_void;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use warpline::sink::MemorySink;
use warpline::timing::EndMode;
use warpline::{HostStream, RawStream, Session, SessionBuilder};

warpline::namespace!("bench", "Benchmarks.");

warpline::range! {
    COLLECTED = "bench.collected": "A zone that does nothing.";
}

const FOLDER: &str = "WARPLINE_BENCH_DRIVER";
const ZONES: usize = 400_000;
const ROUNDS: usize = 5;
/// A burst, and the rest behind it: the collector keeps up, so every zone counts.
const BURST: usize = 256;
const REST: Duration = Duration::from_micros(300);

fn main() {
    if std::env::var_os(FOLDER).is_none() {
        return again_on_the_driver();
    }
    let streams: Vec<RawStream> = (0..2_usize)
        // SAFETY: the driver takes any number for a stream.
        .map(|n| unsafe { RawStream::from_ptr((0x1000 + 64 * n) as *mut c_void) })
        .collect();
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    println!("a zone, {ROUNDS} rounds of {ZONES}: ns on its thread and CPU ns of the collector, medians (all)");
    let row = |name: &str, build: &dyn Fn(SessionBuilder) -> SessionBuilder, zone: &dyn Fn(usize)| {
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            return;
        }
        let rounds: Vec<Round> = (0..ROUNDS).map(|_| round(build, zone)).collect();
        let dropped: u64 = rounds.iter().map(|round| round.dropped).sum();
        let [launch, collect] =
            [|round: &Round| round.launch_ns, |round: &Round| round.collect_ns].map(|of| median(rounds.iter().map(of)));
        println!("{name:24} {launch}, collector {collect}, {dropped} dropped");
    };
    let on_stream = |n: usize| drop(COLLECTED.zone(&streams[n & 1]));
    row("eager", &|session| session.ends(EndMode::Eager), &on_stream);
    row("lazy", &|session| session.ends(EndMode::Lazy), &on_stream);
    row("eager, in memory", &|session| session.ends(EndMode::Eager).sink(MemorySink::new(ZONES + 1)), &on_stream);
    let host = HostStream::new("bench");
    row("in-process", &|session| session, &|_| drop(COLLECTED.zone(&host)));
    if only.is_none_or(|only| only == "idle") {
        idle(&on_stream);
    }
}

/// What a zone cost in one round.
struct Round {
    launch_ns: f64,
    collect_ns: f64,
    dropped: u64,
}

/// The median, and all values in order.
fn median(values: impl Iterator<Item = f64>) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let all: Vec<String> = values.iter().map(|ns| format!("{ns:.0}")).collect();
    format!("{:5.0} ({})", values[values.len() / 2], all.join(" "))
}

fn round(build: &dyn Fn(SessionBuilder) -> SessionBuilder, zone: &dyn Fn(usize)) -> Round {
    let session = build(Session::builder()).start().expect("no other session");
    zone(0);
    std::thread::sleep(Duration::from_millis(100)); // the number of streams is known
    let (before, mut launching) = (collector_ns(), Duration::ZERO);
    for first in (0..ZONES).step_by(BURST) {
        let begin = Instant::now();
        (first..ZONES.min(first + BURST)).for_each(zone);
        launching += begin.elapsed();
        std::thread::sleep(REST);
    }
    std::thread::sleep(Duration::from_millis(20)); // what is left is read
    let cpu = collector_ns() - before;
    let dropped = session.finish().dropped.total();
    let per_zone = |ns: f64| ns / ZONES as f64;
    Round { launch_ns: per_zone(launching.as_nanos() as f64), collect_ns: per_zone(cpu as f64), dropped }
}

fn idle(zone: &dyn Fn(usize)) {
    let session = Session::builder().start().expect("no other session");
    (0..1_000).for_each(zone);
    // A device that rests for a second is left alone.
    std::thread::sleep(Duration::from_millis(1_500));
    let (before, begin) = (collector_ns(), Instant::now());
    std::thread::sleep(Duration::from_secs(4));
    let cpu = (collector_ns() - before) as f64;
    println!("an idle session: {:.0} us of CPU a second", cpu / 1e3 / begin.elapsed().as_secs_f64());
    session.finish();
}

/// The CPU time of the collector's thread.
fn collector_ns() -> i64 {
    for task in std::fs::read_dir("/proc/self/task").expect("tasks").flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if read("comm").trim_end() == "warpline" {
            let first = read("schedstat").split_whitespace().next().and_then(|ns| ns.parse().ok());
            return first.expect("the thread's time");
        }
    }
    panic!("there is no thread `warpline`");
}

fn again_on_the_driver() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("free-driver");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--release", "--package", "warpline-stub-driver", "--features", "free"])
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"), "--target-dir"])
        .arg(&target)
        .status();
    assert!(built.is_ok_and(|status| status.success()), "the driver is built");
    std::fs::copy(target.join("release/libwarpline_stub_driver.so"), target.join("libcuda.so.1")).expect("a copy");
    let this = std::env::current_exe().expect("this program");
    let status = Command::new(this)
        .args(std::env::args().skip(1))
        .env("LD_LIBRARY_PATH", &target)
        .env(FOLDER, "1")
        .status()
        .expect("it runs");
    assert!(status.success());
}
