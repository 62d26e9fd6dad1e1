//! Two streams of a thread pool whose clock drifts: a table of the zones' lengths, and a trace for Perfetto.
//!
//! `cargo run -p warpline-example-backend` writes `pool.pftrace`; `WARPLINE=…` changes what is written.
#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pool_backend::{Pool, PoolDevice, PoolError, PoolStream, drifting_clock};
use warpline::Session;
use warpline::sink::MemorySink;

warpline::namespace!("pool", "an example of a backend of one's own");

/// The number of steps, and how long the closures of a step are busy.
const STEPS: u64 = 20;
const LOAD: Duration = Duration::from_millis(1);
const SCALE: Duration = Duration::from_millis(3);

/// Loads a batch.
#[warpline::gpu_zone("pool.load", fields(step = step))]
fn load(stream: &PoolStream, step: u64) -> Result<(), PoolError> {
    stream.launch(|| busy(LOAD))
}

/// Scales a batch.
#[warpline::gpu_zone("pool.scale", fields(step = step))]
fn scale(stream: &PoolStream, step: u64) -> Result<(), PoolError> {
    stream.launch(|| busy(SCALE))
}

fn busy(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let zones = MemorySink::new(1_000);
    let file = std::env::args().nth(1).unwrap_or_else(|| "pool.pftrace".to_owned());
    let session = Session::builder().env_or(&format!("perfetto={file}"))?.sink(zones.clone()).start()?;
    // A clock that began a year before the host's, and gains 80 µs each second.
    let pool = PoolDevice::new(Pool::new(2, drifting_clock(31_536_000_000_000_000, 80.0))?);
    let (copy, compute) = (Arc::new(pool.stream("copy")), pool.stream("compute"));
    for step in 0..STEPS {
        load(&copy, step)?;
        scale(&compute, step)?;
    }
    copy.synchronize();
    compute.synchronize();
    let report = session.finish();
    report.print();
    let zones = zones.take();
    println!("\n{:<12} {:<8} {:>5} {:>9} {:>9}", "range", "stream", "zones", "shortest", "longest");
    for name in ["pool.load", "pool.scale"] {
        let of_range = || zones.iter().filter(|zone| zone.range.name() == name);
        let lengths_ns: Vec<i64> = of_range().filter_map(|zone| zone.gpu_ns()).collect();
        let stream = of_range().find_map(|zone| zone.stream.as_ref()).map_or("", |stream| stream.name.as_str());
        let ms = |ns: Option<&i64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.3} ms", *ns as f64 / 1e6));
        let (shortest, longest) = (ms(lengths_ns.iter().min()), ms(lengths_ns.iter().max()));
        println!("{name:<12} {stream:<8} {:>5} {shortest:>9} {longest:>9}", lengths_ns.len());
    }
    if zones.len() as u64 != 2 * STEPS {
        return Err(format!("{} zones of {} were recorded", zones.len(), 2 * STEPS).into());
    }
    Ok(())
}
