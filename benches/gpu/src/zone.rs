//! What a zone costs the thread that launches: an empty zone, eager and lazy, beside the two `cuEventRecord` calls that any
//! such timing needs; alone, and on eight threads with a stream each.

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use gpu::{Event, Gpu, Result};
use warpline::Session;
use warpline::timing::EndMode;
use warpline_benches::allocations;

use crate::clock::let_session_settle;
use crate::figures::{Table, median, percentile, ratio, verdict};
use crate::options::Options;

warpline::range! {
    EMPTY = "gpu_bench.empty": "A zone with nothing in it.";
}

/// Zones in one timed batch: few enough that no ring and no event budget fills on eight streams at once.
const BATCH: usize = 256;
const BATCHES: usize = 8;

#[derive(Clone, Copy)]
enum What {
    Raw,
    /// As above, and between the batches another thread reads the events, as the collector does.
    RawAndRead,
    Zones,
}

/// What one round of one rival gave.
#[derive(Default)]
struct Round {
    ns: f64,
    allocations: u64,
}

pub fn run(options: &Options) -> Result {
    let gpu = Gpu::new(0)?;
    let rounds = options.size("rounds", 40);
    let title =
        format!("zone: CPU ns of the launching thread per zone, medians of {rounds} rounds of {BATCHES} x {BATCH}");
    let columns = [
        "threads",
        "2 x cuEventRecord",
        "eager",
        "eager / raw",
        "goal 1.10",
        "raw, read elsewhere",
        "eager / that",
        "lazy",
        "lazy / eager",
        "goal 0.75",
        "allocations",
        "dropped",
    ];
    let mut table = Table::new(&title, &columns);
    let only = options.given("threads");
    let core = options.given("core");
    for threads in [1, 8].into_iter().filter(|&threads| only.is_none_or(|only| only == threads as u64)) {
        let streams = gpu.streams(threads)?;
        let (mut raw, mut read, mut eager, mut lazy) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut allocated, mut dropped) = (0, 0);
        measure(&gpu, &streams, What::Raw, core)?; // warms up
        for _ in 0..rounds {
            raw.push(measure(&gpu, &streams, What::Raw, core)?.ns);
            read.push(measure(&gpu, &streams, What::RawAndRead, core)?.ns);
            for (ends, samples) in [(EndMode::Eager, &mut eager), (EndMode::Lazy, &mut lazy)] {
                let session = Session::builder().ends(ends).start()?;
                let round = measure(&gpu, &streams, What::Zones, core)?;
                dropped += session.finish().dropped.total();
                samples.push(round.ns);
                allocated += round.allocations;
            }
        }
        let (eager_raw, lazy_eager) = (ratio(&eager, &raw), ratio(&lazy, &eager));
        let lowest = |samples: &[f64]| percentile(samples, 0.0);
        println!(
            "{threads} threads, lowest round: raw {:.0}, eager {:.0}, lazy {:.0} ns; lower quarter: raw {:.0}, eager {:.0}, lazy {:.0} ns",
            lowest(&raw),
            lowest(&eager),
            lowest(&lazy),
            percentile(&raw, 25.0),
            percentile(&eager, 25.0),
            percentile(&lazy, 25.0),
        );
        table.row(&[
            threads.to_string(),
            format!("{:.0}", median(&raw)),
            format!("{:.0}", median(&eager)),
            format!("{eager_raw:.3}"),
            verdict(eager_raw, 1.10).to_owned(),
            format!("{:.0}", median(&read)),
            format!("{:.3}", ratio(&eager, &read)),
            format!("{:.0}", median(&lazy)),
            format!("{lazy_eager:.3}"),
            verdict(lazy_eager, 0.75).to_owned(),
            allocated.to_string(),
            dropped.to_string(),
        ]);
    }
    table.print();
    Ok(())
}

/// One round: a thread a stream; the batches of all threads begin together.
fn measure(gpu: &Gpu, streams: &[Arc<CudaStream>], what: What, core: Option<u64>) -> Result<Round> {
    let together = Barrier::new(streams.len());
    let rounds: Vec<std::result::Result<Round, String>> = std::thread::scope(|scope| {
        let on = |stream| {
            let together = &together;
            scope.spawn(move || {
                core.into_iter().for_each(pin);
                one_thread(gpu, stream, what, together).map_err(|error| error.to_string())
            })
        };
        let threads: Vec<ScopedJoinHandle<_>> = streams.iter().map(on).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    let rounds = rounds.into_iter().collect::<std::result::Result<Vec<Round>, String>>()?;
    Ok(Round {
        ns: median(&rounds.iter().map(|round| round.ns).collect::<Vec<_>>()),
        allocations: rounds.iter().map(|round| round.allocations).sum(),
    })
}

/// Lets this thread run on one core alone, so that neither the scheduler nor the collector, which `taskset` keeps on others, moves it.
fn pin(core: u64) {
    // SAFETY: an empty set is all zeros, the core's bit is set where the set has room for it, and the call reads the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core as usize % libc::CPU_SETSIZE as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

fn one_thread(gpu: &Gpu, stream: &Arc<CudaStream>, what: What, together: &Barrier) -> Result<Round> {
    let prepared = gpu.context.bind_to_thread().map_err(Into::into).and_then(|()| Event::many(2 * BATCH));
    let mut samples = Vec::with_capacity(BATCHES);
    let mut allocated = 0;
    // One batch more than is counted: it makes the stream's ring and fills the pool of events. Every thread comes to every
    // barrier, whatever fails.
    let mut failed = None;
    for batch in 0..=BATCHES {
        together.wait();
        let Ok(events) = &prepared else { continue };
        let before = allocations();
        let begin = Instant::now();
        let outcome = match what {
            What::Raw | What::RawAndRead => raw(stream, events),
            What::Zones => {
                zones(stream);
                Ok(())
            }
        };
        let time = begin.elapsed();
        if batch > 0 {
            samples.push(time.as_nanos() as f64 / BATCH as f64);
            allocated += allocations() - before;
        }
        let synchronized = stream.synchronize().map_err(Into::into);
        failed = failed.or(outcome.and(synchronized).err());
        if matches!(what, What::RawAndRead) {
            std::thread::scope(|scope| {
                scope.spawn(|| events.chunks_exact(2).for_each(|pair| _ = black_box(pair[0].elapsed_ms(&pair[1]))));
            });
        }
        match batch {
            0 => let_session_settle(),
            _ => std::thread::sleep(Duration::from_millis(3)), // the collector gets the time to empty the ring
        }
    }
    prepared?;
    match failed {
        Some(error) => Err(error),
        None => Ok(Round { ns: median(&samples), allocations: allocated }),
    }
}

fn raw(stream: &CudaStream, events: &[Event]) -> Result {
    for pair in events.chunks_exact(2) {
        pair[0].record(stream)?;
        pair[1].record(stream)?;
    }
    Ok(())
}

fn zones(stream: &Arc<CudaStream>) {
    for _ in 0..BATCH {
        drop(EMPTY.zone(stream));
    }
}
