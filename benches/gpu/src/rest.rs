//! Where zones stand after the program has rested, and how long they read: a burst of zones, a rest, and one zone around a kernel that
//! reads the device's %globaltimer, which a running kernel relates to the host's clock right after it.
//!
//! By default, as a new user records. A zone that ends a rest has nothing before it from which its time could be extrapolated.

use std::thread::sleep;
use std::time::Duration;

use gpu::{Gpu, Pinned, Result};
use warpline::Session;
use warpline::record::ZoneRecord;
use warpline::sink::MemorySink;
use warpline::timing::EndMode;

use crate::figures::{Table, verdict};
use crate::options::Options;
use crate::position::{ask, on_host};

warpline::range! {
    RESTED = "gpu_bench.rested": "A zone around a kernel after a rest.";
}

/// The length of each zone's kernel.
const KERNEL_NS: u64 = 200_000;
const BURST: usize = 20;
const GOAL_NS: f64 = 10_000.0;

pub fn run(options: &Options) -> Result {
    let longest = options.size("seconds", 60);
    let (short, long) = ([0, 1, 2, 5, 30, 60], [5, 60, longest]);
    // Lazy ends are not the default with one stream, and rest only for a minute.
    let (rests, kinds): (&[u64], &[EndMode]) =
        if longest > 60 { (&long, &[EndMode::Auto]) } else { (&short, &[EndMode::Auto, EndMode::Lazy]) };
    let gpu = Gpu::new(0)?;
    let (stream, asking) = (gpu.stream()?, gpu.stream()?);
    let (mailbox, times) = (Pinned::new(3)?, Pinned::new(2)?);
    ask(&gpu, &asking, &mailbox)?; // warms up
    let title = format!("rest: zones of {} us after rests", KERNEL_NS / 1_000);
    let columns = [
        "ends",
        "rest s",
        "begin less the kernel's us",
        "goal 10",
        "begin less the launch's us",
        "length less the kernel's us",
        "bound us",
        "positions within us",
    ];
    let mut table = Table::new(&title, &columns);
    for &ends in kinds {
        let sink = MemorySink::new(1 << 12);
        let session = Session::builder().sink(sink.clone()).ends(ends).start()?;
        for &rest in rests {
            for _ in 0..BURST {
                let _zone = RESTED.zone(&stream);
                gpu.spin(&stream, KERNEL_NS, None)?;
            }
            stream.synchronize()?;
            let _ = zones(&sink, BURST)?;
            sleep(Duration::from_secs(rest));
            {
                let _zone = RESTED.zone(&stream);
                gpu.spin(&stream, KERNEL_NS, Some(times.times(0)))?;
            }
            let zone = zones(&sink, 1)?.remove(0);
            let tie = ask(&gpu, &asking, &mailbox)?;
            let [begin, end] = times.read_times(0);
            let span = zone.gpu.ok_or("the zone has no times")?;
            let off_ns = (span.begin_ns - on_host(&[tie], begin as i64)) as f64;
            let behind_launch_ns = (span.begin_ns - zone.host.begin_ns) as f64;
            let is_right = off_ns.abs() <= GOAL_NS && behind_launch_ns >= -GOAL_NS;
            let longer_ns = span.duration_ns() - (end - begin) as i64;
            table.row(&[
                format!("{ends:?}"),
                rest.to_string(),
                format!("{:.2}", off_ns / 1e3),
                verdict(if is_right { off_ns.abs() } else { f64::INFINITY }, GOAL_NS).to_owned(),
                format!("{:.2}", behind_launch_ns / 1e3),
                format!("{:.2}", longer_ns as f64 / 1e3),
                format!("{:.2}", zone.end_early_by_ns as f64 / 1e3),
                String::new(),
            ]);
        }
        let report = session.finish();
        for clock in &report.clocks {
            let within = format!("{:.2}", clock.worst_uncertainty_ns as f64 / 1e3);
            table.row(&[
                format!("{ends:?}"),
                "all".to_owned(),
                String::new(),
                String::new(),
                String::new(),
                String::new(),
                String::new(),
                within,
            ]);
        }
    }
    table.print();
    Ok(())
}

/// Waits for so many zones.
fn zones(sink: &MemorySink, count: usize) -> Result<Vec<ZoneRecord>> {
    let mut zones = Vec::new();
    for _ in 0..20_000 {
        zones.extend(sink.take());
        if zones.len() >= count {
            return Ok(zones);
        }
        sleep(Duration::from_micros(500));
    }
    Err(format!("{} of {count} zones after 10 s", zones.len()).into())
}
