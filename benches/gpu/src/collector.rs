//! What reading the events back costs: the CPU time of warpline's thread per zone, beside a reader that asks each event.
//!
//! The naive reader asks after the work is done, so that each event costs it one query; polling earlier would cost more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use gpu::{Event, Gpu, Result};
use warpline::Session;
use warpline::timing::EndMode;

use crate::clock::{cpu_ns_of_this_thread, cpu_ns_of_thread};
use crate::figures::{Table, median, verdict};
use crate::options::Options;

warpline::range! {
    READ = "gpu_bench.read": "A zone that is read back.";
}

const BATCH: usize = 256;
const ROUNDS: usize = 5;
/// Eager, and lazy.
const GOALS_NS: [f64; 2] = [900.0, 650.0];

pub fn run(options: &Options) -> Result {
    let gpu = Gpu::new(0)?;
    let stream = gpu.stream()?;
    let zones = options.size("zones", 100_000) as usize;
    let events = Event::many(2 * BATCH)?;
    let title =
        format!("collector: CPU ns per zone of the thread that reads the events, {ROUNDS} rounds of {zones} zones");
    let columns = ["reader", "zones/s", "CPU ns per zone", "goal 900, lazy 650", "dropped"];
    let mut table = Table::new(&title, &columns);
    let kinds = [
        ("warpline, eager", EndMode::Eager, Pause::Never),
        ("warpline, lazy", EndMode::Lazy, Pause::Never),
        ("warpline, eager, waits for each batch", EndMode::Eager, Pause::Wait),
        ("warpline, lazy, waits for each batch", EndMode::Lazy, Pause::Wait),
        ("warpline, eager, rests 10 ms", EndMode::Eager, Pause::Rest(Duration::from_millis(10))),
    ];
    let mut naive = Vec::new();
    let mut ours = [const { (Vec::new(), Vec::new(), 0) }; 5];
    let mut idle = Vec::new();
    for _ in 0..ROUNDS {
        naive.push(naive_reader(&stream, &events)?);
        for ((_, ends, pause), (cpu, rates, dropped)) in kinds.into_iter().zip(&mut ours) {
            let session = Session::builder().ends(ends).start()?;
            warm_up(&gpu, &stream)?;
            let before = collector_ns()?;
            let begin = Instant::now();
            // A paced round is a tenth as long in zones, and still longer in time.
            let count = if let Pause::Rest(_) = pause { (zones / 10).max(BATCH) } else { zones };
            for _ in 0..count.div_ceil(BATCH) {
                launch(&gpu, &stream)?;
                if let Pause::Wait | Pause::Rest(_) = pause {
                    stream.synchronize()?;
                }
                if let Pause::Rest(rest) = pause {
                    std::thread::sleep(rest);
                }
            }
            stream.synchronize()?;
            let time = begin.elapsed();
            std::thread::sleep(Duration::from_millis(50)); // what is left is read
            let done = count.div_ceil(BATCH) * BATCH;
            cpu.push((collector_ns()? - before) as f64 / done as f64);
            rates.push(done as f64 / time.as_secs_f64());
            if let (EndMode::Lazy, Pause::Wait) = (ends, pause) {
                // A device that rests for a second is left alone.
                std::thread::sleep(Duration::from_millis(1_100));
                let before = collector_ns()?;
                std::thread::sleep(Duration::from_secs(1));
                idle.push((collector_ns()? - before) as f64);
            }
            *dropped += session.finish().dropped.total();
        }
    }
    for ((name, ends, _), (cpu, rates, dropped)) in kinds.into_iter().zip(&ours) {
        let ns = median(cpu);
        table.row(&[
            name.to_owned(),
            format!("{:.0}", median(rates)),
            format!("{ns:.0}"),
            verdict(ns, GOALS_NS[usize::from(ends == EndMode::Lazy)]).to_owned(),
            dropped.to_string(),
        ]);
    }
    table.row(&["2 queries + elapsed time".to_owned(), String::new(), format!("{:.0}", median(&naive))]);
    table.print();
    println!("\nan idle session's thread uses {:.0} us of CPU a second", median(&idle) / 1e3);
    Ok(())
}

/// What the program does after each batch.
#[derive(Clone, Copy)]
enum Pause {
    Never,
    /// It waits for the device.
    Wait,
    /// It waits, and then does nothing.
    Rest(Duration),
}

/// Empty zones.
fn launch(gpu: &Gpu, stream: &Arc<CudaStream>) -> Result {
    for _ in 0..BATCH {
        let _zone = READ.zone(stream);
        gpu.null(stream)?;
    }
    Ok(())
}

fn warm_up(gpu: &Gpu, stream: &Arc<CudaStream>) -> Result {
    for _ in 0..8 {
        launch(gpu, stream)?;
        stream.synchronize()?;
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn collector_ns() -> Result<i64> {
    cpu_ns_of_thread("warpline")?.ok_or_else(|| "there is no thread `warpline`; has the collector been renamed?".into())
}

fn naive_reader(stream: &CudaStream, events: &[Event]) -> Result<f64> {
    let mut cpu = 0;
    let mut zones = 0;
    for _ in 0..64 {
        for event in events {
            event.record(stream)?;
        }
        stream.synchronize()?;
        let before = cpu_ns_of_this_thread();
        for pair in events.chunks_exact(2) {
            let complete = pair[0].is_complete()? && pair[1].is_complete()?;
            if !complete {
                return Err("an event of a synchronised stream is not complete".into());
            }
            std::hint::black_box(pair[0].elapsed_ms(&pair[1])?);
            zones += 1;
        }
        cpu += cpu_ns_of_this_thread() - before;
    }
    Ok(cpu as f64 / f64::from(zones))
}
