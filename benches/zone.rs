//! What a marked function costs the thread that calls it: with no session, beside peers that are compiled in and not
//! recording; with a session on, on a host stream whose worker is busy, also with a
//! flight recorder; and what an entry of a batch of collectives costs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::sink::MemorySink;
use warpline::{HostStream, Session, SessionBuilder, gpu_zone};
use warpline_benches::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

warpline::namespace!("bench", "functions that do next to nothing");

warpline::range! {
    BATCH = "bench.batch": "Several collectives at once.", kind = collective;
    ENTRY = "bench.entry": "One of them.", kind = collective;
}

#[inline(never)]
fn unmarked(stream: &HostStream, n: u64) -> u64 {
    black_box(stream);
    n.wrapping_mul(3)
}

/// The same, marked.
#[gpu_zone("bench.marked", fields(n = n))]
#[inline(never)]
fn marked(stream: &HostStream, n: u64) -> u64 {
    black_box(stream);
    n.wrapping_mul(3)
}

#[inline(never)]
#[tracing::instrument(level = "info", skip(stream))]
fn with_tracing(stream: &HostStream, n: u64) -> u64 {
    black_box(stream);
    n.wrapping_mul(3)
}

#[inline(never)]
#[fastrace::trace]
fn with_fastrace(stream: &HostStream, n: u64) -> u64 {
    black_box(stream);
    n.wrapping_mul(3)
}

#[inline(never)]
fn with_puffin(stream: &HostStream, n: u64) -> u64 {
    puffin::profile_function!();
    black_box(stream);
    n.wrapping_mul(3)
}

/// Compiled in, nobody records.
fn disabled(c: &mut Criterion) {
    let stream = HostStream::new("bench");
    let mut group = c.benchmark_group("disabled");
    type Function = fn(&HostStream, u64) -> u64;
    let functions: [(&str, Function); 5] = [
        ("unmarked", unmarked),
        ("warpline", marked),
        ("tracing", with_tracing),
        ("fastrace", with_fastrace),
        ("puffin", with_puffin),
    ];
    for (name, function) in functions {
        group.bench_function(name, |b| b.iter(|| function(&stream, black_box(7))));
    }
    // Between the windows of a session with a budget; the first gap is longer than a measurement. No collective keeps it awake.
    let session = Session::builder().budget(1e-9).filter("bench.marked").start().expect("no other session");
    group.bench_function("warpline, closed window", |b| b.iter(|| marked(&stream, black_box(7))));
    drop(session);
    group.finish();
}

/// A session is on; the worker is busy, so nothing has to be woken.
fn recording(c: &mut Criterion) {
    record(c, "busy host stream", Session::builder());
    let folder = std::env::temp_dir().join(format!("warpline-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    record(c, "busy host stream, in memory", Session::builder().sink(MemorySink::new(1 << 16)));
    record(c, "busy host stream, perfetto", Session::builder().perfetto(folder.join("zone.pftrace")));
    record(c, "busy host stream, flight recorder", Session::builder().flight_at(64 << 20, folder.join("zone.flight")));
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

fn record(c: &mut Criterion, name: &str, builder: SessionBuilder) {
    const BATCH: u64 = 1_000;
    let mut group = c.benchmark_group("recording");
    let session = builder.ring(4 * BATCH as usize).start().expect("no other session");
    let stream = HostStream::new("bench");
    let mut allocated = 0;
    group.bench_function(BenchmarkId::new("warpline", name), |b| {
        b.iter_custom(|iterations| {
            let mut spent = Duration::ZERO;
            let mut left = iterations;
            while left > 0 {
                let batch = left.min(BATCH);
                left -= batch;
                let (busy, free) = std::sync::mpsc::channel::<()>();
                stream.launch(move || {
                    let _ = free.recv();
                });
                let before = allocations();
                let started = Instant::now();
                for n in 0..batch {
                    black_box(marked(&stream, n));
                }
                spent += started.elapsed();
                allocated = allocations() - before;
                drop(busy);
                stream.synchronize().expect("nothing panics");
                // The collector looks every 2 ms at the latest.
                std::thread::sleep(Duration::from_millis(3));
            }
            spent
        });
    });
    group.finish();
    let report = session.finish();
    println!("allocations of the launching thread in the last batch of zones: {allocated}");
    println!("{} zones begun, {} recorded, {} dropped", report.begun, report.recorded, report.dropped.total());
}

/// What each further entry of a batch of collectives costs, while it records.
fn entries(c: &mut Criterion) {
    const ENTRIES: u64 = 64;
    let session = Session::builder().start().expect("no other session");
    let stream = HostStream::new("bench");
    let ranks = ProcessGroup::new("tp0", [0, 1], 0);
    c.benchmark_group("batch").bench_function("an entry", |b| {
        b.iter_custom(|iterations| {
            let mut spent = Duration::ZERO;
            for _ in 0..iterations.div_ceil(ENTRIES) {
                let mut batch = BATCH.batch(&stream);
                while !batch.is_active() {
                    // The ring is full: the collector is behind.
                    std::thread::sleep(Duration::from_millis(5));
                    batch = BATCH.batch(&stream);
                }
                let started = Instant::now();
                for count in 0..ENTRIES {
                    let message =
                        || Message::new(CollectiveKind::AllReduce).count(count).dtype(DataType::F32).group(&ranks);
                    batch.add(&ENTRY, message);
                }
                spent += started.elapsed();
                drop(batch);
            }
            spent * iterations as u32 / (iterations.next_multiple_of(ENTRIES)) as u32
        });
    });
    let report = session.finish();
    println!("{} zones begun, {} recorded, {} dropped", report.begun, report.recorded, report.dropped.total());
}

criterion_group! {
    name = zone;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = disabled, recording, entries
}
criterion_main!(zone);
