//! What time does to a session: many zones in one, with memory, coverage and the account; and many sessions, with the time
//! of a step after them beside that before the first.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use gpu::{Gpu, Result};
use warpline::Session;
use warpline::sink::{Batch, Sink};

use crate::figures::{Table, median, percentile};
use crate::options::Options;

warpline::range! {
    SOAK = "gpu_bench.soak": "One of very many zones.";
}

/// Zones between two waits of the launching thread: as many as a ring holds at least.
const BATCH: u64 = 1024;
const TENTHS: usize = 10;
const READ: Duration = Duration::from_millis(3);

pub fn run(options: &Options) -> Result {
    let gpu = Gpu::new(0)?;
    let stream = gpu.stream()?;
    cycles(&gpu, &stream, options.size("cycles", 100))?;
    zones(&gpu, &stream, options.size("zones", 10_000_000).next_multiple_of(TENTHS as u64 * BATCH))
}

/// Sessions started and stopped.
fn cycles(gpu: &Gpu, stream: &Arc<CudaStream>, cycles: u64) -> Result {
    let before = steps_ns(gpu, stream)?;
    let columns = ["after cycles", "step ns", "p5", "p95", "over never started", "RSS MiB", "device MiB"];
    let mut table = Table::new(&format!("soak: {cycles} sessions; ns of a launch with an unrecorded zone"), &columns);
    let row = |done: u64, steps: &[f64]| -> Result<Vec<String>> {
        Ok(vec![
            done.to_string(),
            format!("{:.0}", median(steps)),
            format!("{:.0}", percentile(steps, 5.0)),
            format!("{:.0}", percentile(steps, 95.0)),
            format!("{:.3}", median(steps) / median(&before)),
            format!("{:.1}", mib(resident_bytes()?)),
            format!("{:.1}", mib(gpu.memory_in_use()? as u64)),
        ])
    };
    table.row(&row(0, &before)?);
    let mut lost = 0;
    for cycle in 1..=cycles {
        let session = Session::builder().start()?;
        for _ in 0..100 {
            let _zone = SOAK.zone(stream);
            gpu.null(stream)?;
        }
        stream.synchronize()?;
        let report = session.finish();
        lost += 100 - report.recorded.min(100);
        if cycle == cycles.min(10) || cycle == cycles / 2 || cycle == cycles {
            table.row(&row(cycle, &steps_ns(gpu, stream)?)?);
        }
    }
    table.print();
    println!("\n{lost} of {} zones were not recorded", 100 * cycles);
    Ok(())
}

/// What a launch takes with a zone around it that nobody records.
fn steps_ns(gpu: &Gpu, stream: &Arc<CudaStream>) -> Result<Vec<f64>> {
    let mut samples = Vec::new();
    for _ in 0..200 {
        let begin = Instant::now();
        for _ in 0..256 {
            let _zone = SOAK.zone(stream);
            gpu.null(stream)?;
        }
        samples.push(begin.elapsed().as_nanos() as f64 / 256.0);
        stream.synchronize()?;
    }
    Ok(samples)
}

/// Many zones in one session.
fn zones(gpu: &Gpu, stream: &Arc<CudaStream>, zones: u64) -> Result {
    let coverage = Coverage(Arc::new([const { AtomicU64::new(0) }; TENTHS]), zones);
    let session = Session::builder().sink(Coverage(Arc::clone(&coverage.0), zones)).start()?;
    let columns = ["zones", "s", "RSS MiB", "device MiB"];
    let mut table = Table::new(&format!("soak: {zones} zones, a null kernel in every 16th"), &columns);
    let begin = Instant::now();
    for tenth in 1..=TENTHS as u64 {
        for _ in 0..zones / TENTHS as u64 / BATCH {
            for zone in 0..BATCH {
                let _zone = SOAK.zone(stream);
                if zone % 16 == 0 {
                    gpu.null(stream)?;
                }
            }
            stream.synchronize()?;
            // As in a program that waits for its device now and then: the session gets to read.
            std::thread::sleep(READ);
        }
        table.row(&[
            (zones / TENTHS as u64 * tenth).to_string(),
            format!("{:.1}", begin.elapsed().as_secs_f64()),
            format!("{:.1}", mib(resident_bytes()?)),
            format!("{:.1}", mib(gpu.memory_in_use()? as u64)),
        ]);
    }
    std::thread::sleep(Duration::from_millis(100));
    let report = session.finish();
    table.print();
    let counts: Vec<u64> = coverage.0.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    println!("\nrecorded per tenth: {counts:?}");
    let dropped = report.dropped.total();
    let is_exact = report.begun == report.recorded + dropped && counts.iter().sum::<u64>() == report.recorded;
    println!(
        "begun {} = recorded {} + dropped {dropped}: {}; the loop began {zones}",
        report.begun,
        report.recorded,
        if is_exact { "exact" } else { "NOT EXACT" }
    );
    report.dropped.reasons().for_each(|(reason, count)| println!("  {reason}: {count}"));
    if is_exact { Ok(()) } else { Err("the account of the session is not exact".into()) }
}

/// Counts the records of each tenth of the zones, by their number on the stream.
struct Coverage(Arc<[AtomicU64; TENTHS]>, u64);

impl Sink for Coverage {
    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        for record in batch.zones() {
            let tenth = record.sequence * TENTHS as u64 / self.1;
            if let Some(count) = self.0.get(tenth as usize) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

fn resident_bytes() -> Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = pages.split_whitespace().nth(1).ok_or("/proc/self/statm has no second number")?.parse()?;
    // SAFETY: it reads a constant of the system.
    Ok(pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
