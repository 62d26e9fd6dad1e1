//! What a step costs the thread that launches it: the boundary alone, and a step of 20 zones and 4 collectives without a session, with a
//! session, and with the tables of many ranks. And what the tables cost the process in all, writer included.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};
use std::{env, fs};

use criterion::{Criterion, criterion_group, criterion_main};
use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::{HostStream, Session, SessionBuilder};

warpline::namespace!("bench", "steps that do next to nothing");

warpline::range! {
    PART = "bench.ranks.part": "A part of a step.";
    SYNC = "bench.ranks.sync": "What ranks match by number.", kind = collective;
}

/// Sessions of each kind.
const ROUNDS: u32 = 5;

const PARTS: usize = 20;
const SYNCS: usize = 4;

fn step(stream: &HostStream, group: &ProcessGroup, number: u64) {
    warpline::step(number);
    for _ in 0..PARTS {
        drop(black_box(PART.zone(stream)));
    }
    for _ in 0..SYNCS {
        if let Some(zone) = Some(SYNC.zone(stream)).filter(|zone| zone.is_active()) {
            let message = Message::new(CollectiveKind::AllReduce).count(1 << 20).dtype(DataType::F32).group(group);
            drop(zone.message(message));
        }
    }
}

fn settings(which: &str) -> Option<SessionBuilder> {
    let builder = Session::builder().ring(1 << 16);
    match which {
        "off" => None,
        "session" => Some(builder),
        _ => Some(builder.ranks(folder())),
    }
}

fn folder() -> std::path::PathBuf {
    env::temp_dir().join(format!("warpline-bench-ranks-{}", std::process::id()))
}

/// Time of all threads of the process on a processor.
fn processor() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn steps(c: &mut Criterion) {
    let mut benches = c.benchmark_group("steps");
    let (stream, group) = (HostStream::new("compute"), ProcessGroup::new("dp", 0..8, 0));
    for which in ["off", "session", "ranks"] {
        let session = settings(which).map(|builder| builder.start().expect("no other session"));
        let mut number = 0_u64;
        benches.bench_function(format!("boundary/{which}"), |bench| {
            bench.iter(|| {
                number += 1;
                warpline::step(black_box(number));
            });
        });
        // At the pace of a program: without pauses, the ring would be full and zones cost less.
        benches.bench_function(format!("step/{which}"), |bench| {
            bench.iter_custom(|count| {
                let mut sum = Duration::ZERO;
                for _ in 0..count {
                    number += 1;
                    let begin = Instant::now();
                    step(&stream, &group, number);
                    sum += begin.elapsed();
                    std::thread::sleep(Duration::from_micros(200));
                }
                sum
            });
        });
        drop(session);
    }
    benches.finish();
    let _ = fs::remove_dir_all(folder());
    for step in [Duration::from_millis(10), Duration::from_millis(100)] {
        whole(&stream, &group, step);
    }
}

/// The share of a step that the process spends in all, on all of its threads: sessions with and without tables in turn, and the medians of
/// both. `STEPS` and `ROUNDS` have other numbers: with 6,000 steps of 10 ms, a session writes one window, as a program does in a minute.
fn whole(stream: &HostStream, group: &ProcessGroup, step_time: Duration) {
    let number = |name: &str| env::var(name).ok().and_then(|number| number.parse::<u32>().ok());
    let (steps, rounds) = (number("STEPS").unwrap_or(600), number("ROUNDS").unwrap_or(ROUNDS));
    let steps = (steps / (step_time.as_millis() as u32 / 10)).max(10);
    let mut spent: BTreeMap<&str, Vec<Spent>> = BTreeMap::new();
    for _ in 0..rounds {
        for which in ["off", "session", "ranks"] {
            let session = settings(which).map(|builder| builder.start().expect("no other session"));
            let before = Spent::now();
            for number in 0..u64::from(steps) {
                step(stream, group, number);
                std::thread::sleep(step_time);
            }
            let mut its = Spent::now();
            let report = session.map(Session::finish);
            // The writer and the end of the session, whose threads are gone by now.
            its.processor = processor();
            let lost: u64 = report.iter().flat_map(|report| &report.sinks).map(|sink| sink.lost).sum();
            assert_eq!(lost, 0, "records are lost: {report:?}");
            let mut its = its.since(&before, steps);
            its.bytes = sizes(&folder()) as f64 / f64::from(steps);
            let _ = fs::remove_dir_all(folder());
            spent.entry(which).or_default().push(its);
        }
    }
    let median = |which: &str, of: fn(&Spent) -> f64| {
        let mut all: Vec<f64> = spent[which].iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    println!("\n{steps} steps of {} ms, us of processor time a step, medians of {rounds}:", step_time.as_millis());
    println!("{:8} {:>9} {:>9} {:>9} {:>9} {:>9}", "", "all", "launch", "collector", "progress", "the rest");
    for which in ["off", "session", "ranks"] {
        let [all, launch, collector, progress] = [
            median(which, Spent::all_us),
            median(which, |spent| spent.launch_us),
            median(which, |spent| spent.collector_us),
            median(which, |spent| spent.progress_us),
        ];
        let rest = all - launch - collector - progress;
        println!("{which:8} {all:9.1} {launch:9.1} {collector:9.1} {progress:9.1} {rest:9.1}");
    }
    let pairs = spent["ranks"].iter().zip(&spent["session"]);
    let mut more: Vec<f64> = pairs.map(|(ranks, session)| ranks.all_us() - session.all_us()).collect();
    more.sort_by(f64::total_cmp);
    let more = more[more.len() / 2];
    let share = more / step_time.as_secs_f64() / 1e4;
    println!(
        "`ranks=` adds {more:.1} us a step, {share:.3} % of it; {:.0} bytes a step",
        median("ranks", |spent| spent.bytes)
    );
}

/// Time on a processor: of the whole process, and of threads by their names.
#[derive(Clone, Debug, Default)]
struct Spent {
    processor: Duration,
    threads: BTreeMap<String, u64>,
    launch_us: f64,
    collector_us: f64,
    progress_us: f64,
    all_us: f64,
    bytes: f64,
}

impl Spent {
    fn now() -> Spent {
        let mut threads = BTreeMap::new();
        let mine = std::process::id().to_string();
        for thread in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let read = |name: &str| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            let name = if thread.file_name() == *mine { "launch".to_owned() } else { read("comm").trim().to_owned() };
            let ns = read("schedstat").split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
            *threads.entry(name).or_default() += ns;
        }
        Spent { processor: processor(), threads, ..Spent::default() }
    }

    fn since(self, before: &Spent, steps: u32) -> Spent {
        let of = |name: &str| {
            let ns = |spent: &Spent| spent.threads.get(name).copied().unwrap_or(0);
            ns(&self).saturating_sub(ns(before)) as f64 / 1e3 / f64::from(steps)
        };
        Spent {
            launch_us: of("launch"),
            collector_us: of("warpline"),
            progress_us: of("warpline-progre"),
            all_us: (self.processor - before.processor).as_secs_f64() * 1e6 / f64::from(steps),
            ..Spent::default()
        }
    }

    fn all_us(&self) -> f64 {
        self.all_us
    }
}

/// The sizes of the files below a folder.
fn sizes(folder: &std::path::Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => sizes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

fn quick() -> Criterion {
    Criterion::default()
        .measurement_time(Duration::from_secs(2))
        .warm_up_time(Duration::from_millis(500))
        .sample_size(20)
}

criterion_group! { name = benches; config = quick(); targets = steps }
criterion_main!(benches);
