//! What recording kernels costs the thread that launches, beside CUPTI activity with callbacks that throw everything away;
//! and how long zones are beside the kernels in them, both as one session says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use gpu::{Gpu, Result};
use warpline::Session;
use warpline::record::{KernelRecord, ZoneRecord};
use warpline::sink::MemorySink;
use warpline::timing::EndMode;

use crate::clock::let_session_settle;
use crate::cupti::{Bare, WORK};
use crate::figures::{Table, median, percentile, ratio, verdict};
use crate::options::Options;

warpline::range! {
    LAUNCHES = "gpu_bench.launches": "A zone around many launches.";
    LAUNCH = "gpu_bench.launch": "A zone around one launch.";
    LENGTH = "gpu_bench.kernel_length": "A zone around one kernel of known length.";
}

/// Launches in one timed batch: as many as a stream queues without making the thread wait.
const BATCH: usize = 512;
const BATCHES: usize = 8;

/// Zones behind one kernel that keeps the stream busy until they are queued.
const GROUP: usize = 16;
const BLOCKER_NS: u64 = 400_000;

#[derive(Clone, Copy)]
enum What {
    Plain,
    Bare,
    Session { zones: Zones, kernels: bool },
}

#[derive(Clone, Copy, PartialEq)]
enum Zones {
    /// One around the batch.
    One,
    /// One around each launch.
    Each,
}

pub fn run(options: &Options) -> Result {
    let gpu = Gpu::new(0)?;
    let stream = gpu.stream()?;
    costs(options, &gpu, &stream)?;
    lengths(options, &gpu, &stream)
}

fn costs(options: &Options, gpu: &Gpu, stream: &Arc<CudaStream>) -> Result {
    let rounds = options.size("rounds", 20);
    let before = measure(gpu, stream, What::Plain)?.0;
    let rivals = [
        What::Plain,
        What::Bare,
        What::Session { zones: Zones::One, kernels: true },
        What::Session { zones: Zones::Each, kernels: false },
        What::Session { zones: Zones::Each, kernels: true },
    ];
    let mut samples: [Vec<f64>; 5] = Default::default();
    let mut lost = 0;
    for round in 0..=rounds {
        for (rival, samples) in rivals.into_iter().zip(&mut samples) {
            let (ns, lost_now) = measure(gpu, stream, rival)?;
            // The first round warms up.
            if round > 0 {
                samples.push(ns);
                lost += lost_now;
            }
        }
    }
    let [plain, bare, one, each_off, each_on] = &samples;
    let columns = [
        "plain, before CUPTI",
        "plain",
        "bare CUPTI",
        "session, one zone",
        "session / bare",
        "goal 1.10",
        "a zone a launch, no kernels",
        "a zone a launch",
        "kernels add",
        "bare adds",
        "lost",
    ];
    let title = format!("kernels: CPU ns a launch of a null kernel, medians of {rounds} rounds of {BATCHES} x {BATCH}");
    let mut table = Table::new(&title, &columns);
    table.row(&[
        format!("{before:.0}"),
        format!("{:.0}", median(plain)),
        format!("{:.0}", median(bare)),
        format!("{:.0}", median(one)),
        format!("{:.3}", ratio(one, bare)),
        verdict(ratio(one, bare), 1.10).to_owned(),
        format!("{:.0}", median(each_off)),
        format!("{:.0}", median(each_on)),
        format!("{:.0}", median(each_on) - median(each_off)),
        format!("{:.0}", median(bare) - median(plain)),
        lost.to_string(),
    ]);
    table.print();
    Ok(())
}

/// ns a launch, and kernels and zones that were lost.
fn measure(gpu: &Gpu, stream: &Arc<CudaStream>, what: What) -> Result<(f64, u64)> {
    let bare = if matches!(what, What::Bare) { Some(Bare::start(WORK)?) } else { None };
    let (zones, session) = match what {
        What::Session { zones, kernels } => {
            // The sink keeps nothing: what it costs to keep is not the launching thread's.
            (Some(zones), Some(Session::builder().kernels(kernels).ends(EndMode::Eager).start()?))
        }
        _ => (None, None),
    };
    let mut samples = Vec::with_capacity(BATCHES);
    // One batch more than is counted: the session meets the stream, CUPTI its context.
    for batch in 0..=BATCHES {
        let begin = Instant::now();
        {
            let _whole = zones.filter(|zones| *zones == Zones::One).map(|_| LAUNCHES.zone(stream));
            for _ in 0..BATCH {
                let _zone = zones.filter(|zones| *zones == Zones::Each).map(|_| LAUNCH.zone(stream));
                gpu.null(stream)?;
            }
        }
        let time = begin.elapsed();
        if batch > 0 {
            samples.push(time.as_nanos() as f64 / BATCH as f64);
        }
        stream.synchronize()?;
        match batch {
            0 => let_session_settle(),
            _ => std::thread::sleep(Duration::from_millis(3)),
        }
    }
    drop(bare);
    let mut lost = 0;
    if let Some(session) = session {
        let report = session.finish();
        if !report.notes.is_empty() {
            return Err(report.notes.join("; ").into());
        }
        lost = report.kernels.lost() + report.dropped.total();
    }
    Ok((median(&samples), lost))
}

fn lengths(options: &Options, gpu: &Gpu, stream: &Arc<CudaStream>) -> Result {
    let zones = options.size("zones", 400) as usize;
    let columns = [
        "spin us",
        "kernel us",
        "zone us",
        "corrected us",
        "zone - kernel us",
        "corrected - kernel us",
        "goal 0.5",
        "kernel begins after its zone, us: p1 / median / p99",
        "kernels tied",
    ];
    let title = format!("kernels: zones by events beside the kernels in them, queued, eager; medians of {zones}");
    let mut table = Table::new(&title, &columns);
    for us in [2_u64, 5, 10, 20, 50, 100] {
        let sink = MemorySink::new(4 * zones + 1_000);
        let builder = Session::builder().kernels(true).calibrate().ends(EndMode::Eager).sink(sink.clone());
        let session = builder.start()?;
        drop(LAUNCHES.zone(stream));
        stream.synchronize()?;
        let_session_settle();
        for _ in 0..zones.div_ceil(GROUP) {
            gpu.spin(stream, BLOCKER_NS, None)?;
            for _ in 0..GROUP {
                let _zone = LENGTH.zone(stream);
                gpu.spin(stream, us * 1_000, None)?;
            }
            stream.synchronize()?;
        }
        let report = session.finish();
        if !report.notes.is_empty() {
            return Err(report.notes.join("; ").into());
        }
        let (records, kernels) = (sink.take(), sink.take_kernels());
        length_row(&mut table, us, &records, &kernels);
    }
    table.print();
    Ok(())
}

fn length_row(table: &mut Table, us: u64, records: &[ZoneRecord], kernels: &[KernelRecord]) {
    let zones: Vec<_> = records.iter().filter(|zone| std::ptr::eq(zone.range, &LENGTH)).collect();
    let mut pairs = Vec::new();
    for kernel in kernels {
        let of = kernel.zone.filter(|of| std::ptr::eq(of.range, &LENGTH));
        pairs.extend(of.and_then(|of| Some((kernel, *zones.iter().find(|zone| zone.sequence == of.sequence)?))));
    }
    let each = |figure: &dyn Fn(&KernelRecord, &ZoneRecord) -> i64| {
        pairs.iter().map(|(kernel, zone)| figure(kernel, zone) as f64 / 1e3).collect::<Vec<f64>>()
    };
    let kernel = median(&each(&|kernel, _| kernel.duration_ns()));
    let raw = median(&each(&|_, zone| zone.gpu_ns().unwrap_or(0)));
    let corrected = median(&each(&|_, zone| zone.gpu_ns_corrected().unwrap_or(0)));
    let off = median(&each(&|kernel, zone| (zone.gpu_ns_corrected().unwrap_or(0) - kernel.duration_ns()).abs()));
    let begins = each(&|kernel, zone| kernel.gpu.begin_ns - zone.gpu.map_or(0, |gpu| gpu.begin_ns));
    table.row(&[
        us.to_string(),
        format!("{kernel:.2}"),
        format!("{raw:.2}"),
        format!("{corrected:.2}"),
        format!("{:+.2}", raw - kernel),
        format!("{:+.2}", corrected - kernel),
        verdict(off, 0.5).to_owned(),
        format!("{:.2} / {:.2} / {:.2}", percentile(&begins, 1.0), median(&begins), percentile(&begins, 99.0)),
        format!("{} of {}", pairs.len(), zones.len()),
    ]);
}
