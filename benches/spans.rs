//! What a span of `tracing` costs the thread that is in it: with a registry alone, with the layer and no session, with a
//! session that records, and with `tracing-chrome`, which records the same.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use tracing::dispatcher::{Dispatch, with_default};
use tracing::info_span;
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry;
use warpline::Session;
use warpline::sink::MemorySink;

/// As many as no buffer is full of; then the thread that collects gets its time.
const BATCH: u64 = 1_000;
const PAUSE: Duration = Duration::from_millis(10);

/// A new span with a field, entered, left and closed.
fn whole(n: u64) {
    let _span = info_span!("work", n).entered();
    black_box(n);
}

fn measure(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, dispatch: &Dispatch) {
    with_default(dispatch, || {
        group.bench_function(format!("{name}: new, entered, left"), |b| b.iter_custom(|spans| batches(spans, whole)));
        let span = info_span!("work", n = 1);
        let again = |_| span.in_scope(|| black_box(()));
        group.bench_function(format!("{name}: entered again, left"), |b| b.iter_custom(|spans| batches(spans, again)));
    });
}

fn batches(spans: u64, one: impl Fn(u64)) -> Duration {
    let (mut spent, mut left) = (Duration::ZERO, spans);
    while left > 0 {
        let batch = left.min(BATCH);
        left -= batch;
        let started = Instant::now();
        (0..batch).for_each(&one);
        spent += started.elapsed();
        std::thread::sleep(PAUSE);
    }
    spent
}

fn spans(c: &mut Criterion) {
    let mut group = c.benchmark_group("span");
    measure(&mut group, "registry alone", &Dispatch::new(registry()));
    let layer = Dispatch::new(registry().with(warpline::tracing::layer()));
    measure(&mut group, "warpline, no session", &layer);
    let sink = MemorySink::new(0);
    let session = Session::builder().sink(sink).start().expect("no other session");
    measure(&mut group, "warpline, recording", &layer);
    let report = session.finish();
    println!(
        "{} spans begun, {} recorded, {} dropped",
        report.spans.begun,
        report.spans.recorded,
        report.spans.dropped()
    );
    let (chrome, guard) = tracing_chrome::ChromeLayerBuilder::new().writer(std::io::sink()).include_args(true).build();
    measure(&mut group, "tracing-chrome", &Dispatch::new(registry().with(chrome)));
    drop(guard);
    group.finish();
}

criterion_group! {
    name = all;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(4)).sample_size(20);
    targets = spans
}
criterion_main!(all);
