//! How long zones are, beside the kernels in them: eager zones around spins of 2 to 100 us; then what lazy ends promise
//! (the true end is at most so much earlier) back to back, with idle gaps, and with unmarked kernels between.
//!
//! A kernel's own time comes from the device's %globaltimer as the kernel reads it, and from CUPTI, which sees a little
//! more: the kernel's launch and its end on the device.

use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use gpu::{Gpu, Pinned, Result};
use warpline::Session;
use warpline::record::{EndSource, ZoneRecord};
use warpline::sink::MemorySink;
use warpline::timing::EndMode;

use crate::clock::let_session_settle;
use crate::cupti::Cupti;
use crate::figures::{Table, median, percentile, verdict};
use crate::options::Options;

warpline::range! {
    MEET = "gpu_bench.meet": "The zone by which a session meets the stream.";
    SPIN = "gpu_bench.spin": "A zone around one kernel of known length.";
}

/// Keeps the stream busy until what follows is queued.
const BLOCKER_NS: u64 = 400_000;
/// Zones behind one blocker.
const GROUP: usize = 16;
/// On an idle stream a begin event is through before its kernel is launched: the launch then counts as the zone's.
const LAUNCH_NS: f64 = 8_000.0;

/// What the host does next.
#[derive(Clone, Copy)]
enum Step {
    Zone(u64),
    Unmarked(u64),
    Synchronize,
    Wait(Duration),
}

/// One zone beside its kernel, in ns.
struct Measured {
    zone: ZoneRecord,
    timer: f64,
    cupti: Option<f64>,
}

pub fn run(options: &Options) -> Result {
    let gpu = Gpu::new(0)?;
    let stream = gpu.stream()?;
    let zones = options.size("zones", 400) as usize;
    let lengths = [2_u64, 5, 10, 20, 50, 100].map(|us| us * 1_000);
    measure(&gpu, &stream, &queued(GROUP, 20_000, 0), EndMode::Eager, None)?; // warms up
    let apart = lengths.map(|ns| measure(&gpu, &stream, &queued(zones, ns, 0), EndMode::Eager, None));
    let scenarios = scenarios(zones);
    let mut promises = Vec::new();
    for (name, plan) in &scenarios {
        promises.push((*name, "%globaltimer", measure(&gpu, &stream, plan, EndMode::Lazy, None)?));
    }
    let cupti = Cupti::start();
    let mut table = Table::new(
        &format!("length: zones around one kernel, queued, eager; us, medians of {zones}"),
        &[
            "spin",
            "%globaltimer",
            "CUPTI",
            "zone",
            "corrected",
            "zone off CUPTI",
            "corrected off CUPTI",
            "goal 0.5",
            "off, both on",
        ],
    );
    for (ns, apart) in lengths.into_iter().zip(apart) {
        let apart = apart?;
        let beside =
            cupti.as_ref().ok().map(|cupti| measure(&gpu, &stream, &queued(zones, ns, 0), EndMode::Eager, Some(cupti)));
        length_row(&mut table, ns, &apart, beside.transpose()?.as_deref());
    }
    table.print();
    match &cupti {
        Err(error) => println!("\nno column of CUPTI's: {error}"),
        Ok(cupti) => {
            for (name, plan) in &scenarios {
                promises.push((*name, "CUPTI", measure(&gpu, &stream, plan, EndMode::Lazy, Some(cupti))?));
            }
        }
    }
    let mut table = Table::new(
        "length: what lazy ends promise, spins of 20 us; L is the zone's length, B how much earlier it may have ended",
        &[
            "launched",
            "kernel time from",
            "zones",
            "event / boundary / observed",
            "kernel us",
            "L us",
            "B us",
            "B p99 us",
            "in [L-B, L]",
            "in it, less 8 us for the launch",
            "goal 99%",
            "corrected in it, within 0.5 us",
        ],
    );
    for (name, truth, measured) in &promises {
        promise_row(&mut table, name, truth, measured);
    }
    table.print();
    Ok(())
}

/// Zones behind a blocker, in groups; after each, an unmarked kernel if that has a length.
fn queued(zones: usize, ns: u64, unmarked_ns: u64) -> Vec<Step> {
    let mut plan = Vec::new();
    for _ in 0..zones.div_ceil(GROUP) {
        plan.push(Step::Unmarked(BLOCKER_NS));
        for _ in 0..GROUP {
            plan.push(Step::Zone(ns));
            if unmarked_ns > 0 {
                plan.push(Step::Unmarked(unmarked_ns));
            }
        }
        plan.push(Step::Synchronize);
    }
    plan
}

/// Zones on a stream that is idle for so long before each.
fn idle(zones: usize, gap: Duration) -> Vec<Step> {
    (0..zones).flat_map(|_| [Step::Zone(20_000), Step::Synchronize, Step::Wait(gap)]).collect()
}

fn scenarios(zones: usize) -> Vec<(&'static str, Vec<Step>)> {
    vec![
        ("back to back", queued(zones, 20_000, 0)),
        ("50 us idle between", idle(zones, Duration::from_micros(50))),
        ("200 us idle between", idle(zones, Duration::from_micros(200))),
        ("1 ms idle between", idle(zones, Duration::from_millis(1))),
        ("10 ms idle between", idle(zones.min(200), Duration::from_millis(10))),
        ("50 us unmarked between", queued(zones, 20_000, 50_000)),
    ]
}

/// Carries out the plan in a session of its own.
fn measure(
    gpu: &Gpu,
    stream: &Arc<CudaStream>,
    plan: &[Step],
    ends: EndMode,
    cupti: Option<&Cupti>,
) -> Result<Vec<Measured>> {
    let marked = plan.iter().filter(|step| matches!(step, Step::Zone(_))).count();
    let times = Pinned::new(2 * marked.max(1))?;
    let sink = MemorySink::new(marked + 1);
    let session = Session::builder().calibrate().ends(ends).sink(sink.clone()).start()?;
    drop(MEET.zone(stream));
    stream.synchronize()?;
    let_session_settle();
    if let Some(cupti) = cupti {
        cupti.take()?; // what was launched before the plan
    }
    let mut zone = 0;
    for step in plan {
        match *step {
            Step::Zone(ns) => {
                let _zone = SPIN.zone(stream);
                gpu.spin(stream, ns, Some(times.times(zone)))?;
                zone += 1;
            }
            Step::Unmarked(ns) => gpu.spin(stream, ns, None)?,
            Step::Synchronize => stream.synchronize()?,
            Step::Wait(time) => {
                let begin = Instant::now();
                while begin.elapsed() < time {
                    std::hint::spin_loop();
                }
            }
        }
    }
    stream.synchronize()?;
    let report = session.finish();
    if report.recorded != marked as u64 + 1 {
        return Err(format!("of {} zones {} are recorded: {report}", marked + 1, report.recorded).into());
    }
    let kernels = cupti.map(|cupti| kernels_of_zones(cupti, plan)).transpose()?;
    let mut zones = sink.take();
    zones.retain(|zone| ptr::eq(zone.range, &SPIN));
    zones.sort_by_key(|zone| zone.sequence);
    let one = |(index, zone)| {
        let [begin, end] = times.read_times(index);
        Measured { zone, timer: (end - begin) as f64, cupti: kernels.as_ref().map(|kernels| kernels[index]) }
    };
    Ok(zones.into_iter().enumerate().map(one).collect())
}

/// The lengths of the kernels that stand in zones, in the order of the plan.
fn kernels_of_zones(cupti: &Cupti, plan: &[Step]) -> Result<Vec<f64>> {
    let kernels: Vec<_> = cupti.take()?.into_iter().filter(|kernel| kernel.name.contains("spin")).collect();
    let launched: Vec<_> = plan.iter().filter(|step| matches!(step, Step::Zone(_) | Step::Unmarked(_))).collect();
    if kernels.len() != launched.len() {
        let (seen, wanted) = (kernels.len(), launched.len());
        return Err(format!("CUPTI saw {seen} of {wanted} kernels; give it larger buffers").into());
    }
    let marked = launched.into_iter().zip(kernels).filter(|(step, _)| matches!(step, Step::Zone(_)));
    Ok(marked.map(|(_, kernel)| kernel.length_ns()).collect())
}

fn raw_ns(measured: &Measured) -> f64 {
    measured.zone.gpu_ns().map_or(f64::NAN, |ns| ns as f64)
}

fn corrected_ns(measured: &Measured) -> f64 {
    measured.zone.gpu_ns_corrected().map_or(f64::NAN, |ns| ns as f64)
}

fn us(samples: &[Measured], figure: impl Fn(&Measured) -> f64) -> f64 {
    median(&samples.iter().map(figure).collect::<Vec<_>>()) / 1e3
}

fn length_row(table: &mut Table, ns: u64, apart: &[Measured], beside: Option<&[Measured]>) {
    let (raw, corrected, timer) = (us(apart, raw_ns), us(apart, corrected_ns), us(apart, |one| one.timer));
    let mut cells = vec![format!("{}", ns / 1_000), format!("{timer:.2}")];
    let truth = beside.map(|beside| us(beside, |one| one.cupti.unwrap_or(f64::NAN)));
    cells.push(truth.map_or_else(String::new, |truth| format!("{truth:.2}")));
    cells.extend([format!("{raw:.2}"), format!("{corrected:.2}")]);
    let truth = truth.unwrap_or(timer);
    let off = (corrected - truth).abs();
    cells.extend([format!("{:+.2}", raw - truth), format!("{:+.2}", corrected - truth), verdict(off, 0.5).to_owned()]);
    if let Some(beside) = beside {
        let off = us(beside, |one| (corrected_ns(one) - one.cupti.unwrap_or(f64::NAN)).abs());
        cells.push(format!("{off:.2}"));
    }
    table.row(&cells);
}

fn promise_row(table: &mut Table, name: &str, truth: &str, measured: &[Measured]) {
    let length = |one: &Measured| one.cupti.unwrap_or(one.timer);
    let early_by = |one: &Measured| one.zone.end_early_by_ns as f64;
    let share = |is_inside: &dyn Fn(&Measured) -> bool| {
        100.0 * measured.iter().filter(|one| is_inside(one)).count() as f64 / measured.len() as f64
    };
    let exact = share(&|one| (raw_ns(one) - early_by(one)..=raw_ns(one)).contains(&length(one)));
    let launched = share(&|one| (raw_ns(one) - early_by(one) - LAUNCH_NS..=raw_ns(one)).contains(&length(one)));
    let corrected =
        share(&|one| (corrected_ns(one) - early_by(one) - 500.0..=corrected_ns(one) + 500.0).contains(&length(one)));
    let found = |how: EndSource| measured.iter().filter(|one| one.zone.end == how).count();
    let bounds: Vec<f64> = measured.iter().map(early_by).collect();
    table.row(&[
        name.to_owned(),
        truth.to_owned(),
        measured.len().to_string(),
        format!("{} / {} / {}", found(EndSource::Event), found(EndSource::Boundary), found(EndSource::Observed)),
        format!("{:.2}", us(measured, length)),
        format!("{:.2}", us(measured, raw_ns)),
        format!("{:.2}", median(&bounds) / 1e3),
        format!("{:.2}", percentile(&bounds, 99.0) / 1e3),
        format!("{exact:.1}%"),
        format!("{launched:.1}%"),
        verdict(-launched, -99.0).to_owned(),
        format!("{corrected:.1}%"),
    ]);
}
