//! What CUPTI's times are off against the device's %globaltimer: kernels that read it as they begin, beside CUPTI's records of them, both
//! on the host's clock. For minutes, and after rests.

use std::thread::sleep;
use std::time::{Duration, Instant};

use gpu::{Gpu, Pinned, Result, cupti_name};
use warpline::Session;
use warpline::sink::MemorySink;

use crate::figures::{Table, median, percentile};
use crate::options::Options;
use crate::position::{Tie, ask, on_host};

warpline::range! {
    KERNEL = "gpu_bench.cupti_clock": "A zone around a kernel that reads the device's clock.";
}

const EVERY: Duration = Duration::from_millis(5);
const KERNEL_NS: u64 = 100_000;
const RESTS_S: [u64; 3] = [5, 20, 60];

pub fn run(options: &Options) -> Result {
    if cupti_name().is_none() {
        println!("cupti-clock: no CUPTI on this host");
        return Ok(());
    }
    let seconds = options.size("seconds", 120);
    let gpu = Gpu::new(0)?;
    let (stream, asking) = (gpu.stream()?, gpu.stream()?);
    let mailbox = Pinned::new(3)?;
    let count = (seconds * 1_000 / EVERY.as_millis() as u64) as usize;
    let times = Pinned::new(2 * (count + RESTS_S.len()))?;
    ask(&gpu, &asking, &mailbox)?; // warms up
    let sink = MemorySink::new(8 * count);
    let session = Session::builder().sink(sink.clone()).kernels(true).start()?;
    let mut ties = vec![ask(&gpu, &asking, &mailbox)?];
    let begin = Instant::now();
    for k in 0..count {
        sleep((begin + EVERY * k as u32).saturating_duration_since(Instant::now()));
        gpu.spin(&stream, KERNEL_NS, Some(times.times(k)))?;
        if k % 200 == 199 {
            ties.push(ask(&gpu, &asking, &mailbox)?);
        }
    }
    for (n, rest) in RESTS_S.into_iter().filter(|rest| rest * 4 <= seconds).enumerate() {
        sleep(Duration::from_secs(rest));
        gpu.spin(&stream, KERNEL_NS, Some(times.times(count + n)))?;
        stream.synchronize()?;
        ties.push(ask(&gpu, &asking, &mailbox)?);
    }
    stream.synchronize()?;
    let report = session.finish();
    let mut kernels: Vec<_> = sink.take_kernels().into_iter().filter(|kernel| kernel.name.contains("spin")).collect();
    kernels.sort_by_key(|kernel| kernel.gpu.begin_ns);
    let off: Vec<f64> = kernels
        .iter()
        .enumerate()
        .map(|(k, kernel)| (kernel.gpu.begin_ns - on_host(&ties, times.read_times(k)[0] as i64)) as f64)
        .collect();
    print(seconds, count, &off, &ties);
    println!("{} kernels were recorded and {} dropped", report.kernels.recorded, report.kernels.dropped);
    Ok(())
}

fn print(seconds: u64, count: usize, off: &[f64], ties: &[Tie]) {
    let title = format!("cupti-clock: begin of kernels by CUPTI less that by %globaltimer, {seconds} s, in us");
    let mut table = Table::new(&title, &["kernels", "median", "p1", "p99", "p99 of size", "largest"]);
    let mut row = |name: String, ns: &[f64]| {
        let sizes: Vec<f64> = ns.iter().map(|ns| ns.abs()).collect();
        let us = |ns: f64| format!("{:.2}", ns / 1e3);
        let of = |ns: &[f64], p| us(percentile(ns, p));
        table.row(&[name, us(median(ns)), of(ns, 1.0), of(ns, 99.0), of(&sizes, 99.0), of(&sizes, 100.0)]);
    };
    let steady = &off[..count.min(off.len())];
    row(format!("all {}", steady.len()), steady);
    for (minute, part) in steady.chunks(12_000).enumerate() {
        row(format!("minute {}", minute + 1), part);
    }
    for (rest, ns) in RESTS_S.iter().zip(off.get(count..).unwrap_or_default()) {
        row(format!("after a rest of {rest} s"), &[*ns]);
    }
    table.print();
    let within: Vec<f64> = ties.iter().map(|tie| tie.within_ns as f64).collect();
    println!("the yardstick itself is within {:.2} us (median of {} ties)", median(&within) / 1e3, ties.len());
}
