//! Where zones stand in time: a thousand a second on two streams, each around a kernel that reads the device's
//! %globaltimer, which is put on the host's clock by asking a running kernel for the time, once a second.
//!
//! The error is the zone's begin less the kernel's: below 0 because the begin event comes first. An unmarked kernel before
//! the zone keeps the stream busy while the zone's is launched, or the launch would be in it as well.

use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use gpu::{Gpu, Pinned, Result};
use warpline::sink::MemorySink;
use warpline::{Session, Value};

use crate::clock::boottime_ns;
use crate::figures::{Table, median, percentile, slope, verdict};
use crate::options::Options;

warpline::range! {
    STAMP = "gpu_bench.stamp": "A zone around a kernel that reads the device's clock.", fields(k);
}

const RATE: usize = 1_000;
const QUESTIONS: u32 = 64;
const AHEAD_NS: u64 = 30_000;
const GOAL_NS: f64 = 5_000.0;

/// The device's clock on the host's, at one instant.
pub struct Tie {
    device_ns: i64,
    host_ns: i64,
    /// Half the time that the question and its answer took.
    pub within_ns: i64,
}

/// One zone's begin, less its kernel's.
struct Off {
    stream: usize,
    second: f64,
    ns: f64,
}

pub fn run(options: &Options) -> Result {
    let gpu = Gpu::new(0)?;
    let streams = gpu.streams(2)?;
    let asking = gpu.stream()?;
    let mailbox = Pinned::new(3)?;
    let seconds = options.size("seconds", 60) as usize;
    let zones = seconds * RATE;
    let times = Pinned::new(2 * zones)?;
    let sink = MemorySink::new(zones);
    ask(&gpu, &asking, &mailbox)?; // warms up
    let session = Session::builder().sink(sink.clone()).start()?;
    let mut ties = vec![ask(&gpu, &asking, &mailbox)?];
    let begin = Instant::now();
    for k in 0..zones {
        sleep_until(begin + Duration::from_secs(1) * k as u32 / RATE as u32);
        let stream = &streams[k % 2];
        gpu.spin(stream, AHEAD_NS, None)?;
        {
            let _zone = STAMP.zone(stream).field("k", k as u64);
            gpu.spin(stream, 0, Some(times.times(k)))?;
        }
        if k % RATE == RATE - 1 {
            ties.push(ask(&gpu, &asking, &mailbox)?);
        }
    }
    for stream in &streams {
        stream.synchronize()?;
    }
    let report = session.finish();
    let mut offs = Vec::with_capacity(zones);
    for zone in sink.take() {
        let (Some(Value::U64(k)), Some(span)) = (zone.fields.get("k"), zone.gpu) else { continue };
        let k = *k as usize;
        let ns = (span.begin_ns - on_host(&ties, times.read_times(k)[0] as i64)) as f64;
        offs.push(Off { stream: k % 2, second: k as f64 / RATE as f64, ns });
    }
    let title = format!("position: {zones} zones in {seconds} s on two streams, begin less the kernel's, in us");
    let columns =
        ["stream", "zones", "median", "p50 of size", "p99 of size", "goal 5", "p99 around the median", "drift in ns/s"];
    let mut table = Table::new(&title, &columns);
    let mut drifts = Vec::new();
    for stream in [Some(0), Some(1), None] {
        let some: Vec<&Off> = offs.iter().filter(|off| stream.is_none_or(|wanted| wanted == off.stream)).collect();
        let ns: Vec<f64> = some.iter().map(|off| off.ns).collect();
        let middle = median(&ns);
        let sizes: Vec<f64> = ns.iter().map(|ns| ns.abs()).collect();
        let around: Vec<f64> = ns.iter().map(|ns| (ns - middle).abs()).collect();
        let drift = slope(&some.iter().map(|off| (off.second, off.ns)).collect::<Vec<_>>());
        drifts.push(drift);
        let p99 = percentile(&sizes, 99.0);
        table.row(&[
            stream.map_or("both".to_owned(), |stream| stream.to_string()),
            some.len().to_string(),
            format!("{:.2}", middle / 1e3),
            format!("{:.2}", median(&sizes) / 1e3),
            format!("{:.2}", p99 / 1e3),
            verdict(p99, GOAL_NS).to_owned(),
            format!("{:.2}", percentile(&around, 99.0) / 1e3),
            format!("{drift:.1}"),
        ]);
    }
    table.print();
    let within = ties.iter().map(|tie| tie.within_ns as f64).collect::<Vec<_>>();
    worst_seconds(&offs);
    println!("\ndrift between the streams: {:.1} ns/s", drifts[0] - drifts[1]);
    println!("the yardstick itself is within {:.2} us (median of {} ties)", median(&within) / 1e3, ties.len());
    for clock in &report.clocks {
        println!("the report says of {}: positions within {:.2} us", clock.device, clock.uncertainty_ns as f64 / 1e3);
    }
    Ok(())
}

/// The seconds with the largest errors: whether they come at the beginning, or whenever something else happens.
fn worst_seconds(offs: &[Off]) {
    let last = offs.iter().map(|off| off.second as usize).max().unwrap_or(0);
    let size = |second| {
        let of_second = offs.iter().filter(|off| off.second as usize == second);
        percentile(&of_second.map(|off| off.ns.abs()).collect::<Vec<_>>(), 99.0)
    };
    let mut seconds: Vec<(usize, f64)> = (0..=last).map(|second| (second, size(second))).collect();
    seconds.sort_by(|a, b| b.1.total_cmp(&a.1));
    let worst: Vec<String> =
        seconds.iter().take(5).map(|(second, ns)| format!("second {second}: {:.2} us", ns / 1e3)).collect();
    println!("\np99 of the worst seconds: {}", worst.join(", "));
}

/// Asks a running kernel for the time, many times, and keeps the quickest answer.
pub fn ask(gpu: &Gpu, stream: &Arc<CudaStream>, mailbox: &Pinned) -> Result<Tie> {
    let question: *mut u32 = mailbox.as_ptr().cast();
    // SAFETY: the mailbox has three numbers of 8 bytes: question, answer, time.
    let (answer, time) = unsafe { (question.add(2), mailbox.as_ptr().add(2)) };
    // SAFETY: as above, and no kernel runs that uses the mailbox.
    unsafe {
        ptr::write_volatile(question, 0);
        ptr::write_volatile(answer, 0);
    }
    gpu.answer(stream, mailbox.as_ptr(), QUESTIONS)?;
    let mut best: Option<Tie> = None;
    for number in 1..=QUESTIONS {
        let asked = boottime_ns();
        // SAFETY: pinned memory that only the kernel and this thread use; hence volatile.
        unsafe { ptr::write_volatile(question, number) };
        // SAFETY: as above.
        while unsafe { ptr::read_volatile(answer) } != number {
            if boottime_ns() - asked > 3_000_000_000 {
                return Err("the kernel that tells the time does not answer".into());
            }
            std::hint::spin_loop();
        }
        let answered = boottime_ns();
        // SAFETY: as above; the kernel wrote the time before its answer.
        let device_ns = unsafe { ptr::read_volatile(time) } as i64;
        let within_ns = (answered - asked) / 2;
        if best.as_ref().is_none_or(|best| within_ns < best.within_ns) {
            best = Some(Tie { device_ns, host_ns: asked + within_ns, within_ns });
        }
    }
    stream.synchronize()?;
    best.ok_or_else(|| "no question was asked".into())
}

/// A time of the device on the host's clock: on the line through the ties around it.
pub fn on_host(ties: &[Tie], device_ns: i64) -> i64 {
    let after = ties.partition_point(|tie| tie.device_ns <= device_ns).clamp(1, (ties.len() - 1).max(1));
    let (Some(a), b) = (ties.get(after - 1), ties.get(after)) else { return 0 };
    let Some(b) = b else { return a.host_ns + device_ns - a.device_ns };
    let rate = (b.host_ns - a.host_ns) as f64 / (b.device_ns - a.device_ns) as f64;
    a.host_ns + ((device_ns - a.device_ns) as f64 * rate) as i64
}

fn sleep_until(instant: Instant) {
    let left = instant.saturating_duration_since(Instant::now());
    // A sleep is late by tens of us; the rest is waited out.
    std::thread::sleep(left.saturating_sub(Duration::from_micros(200)));
    while Instant::now() < instant {
        std::hint::spin_loop();
    }
}
