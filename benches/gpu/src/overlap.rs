//! Whether timing costs streams their overlap: N streams, each with 40 kernels of 1 ms launched in turns; no session, the
//! default, eager ends, and `timing=kernels`. The number of hardware queues is fixed as a process begins, so each has a process of its own.

use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::CudaStream;
use gpu::{Gpu, Result, cupti_name, require_driver};
use warpline::timing::{EndMode, Timing};
use warpline::{Session, SessionBuilder};

use crate::figures::{Table, median, ratio, verdict};
use crate::options::Options;

warpline::range! {
    KERNEL = "gpu_bench.kernel": "A zone around one kernel among those of other streams.";
}

const KERNELS: usize = 40;
const KERNEL_NS: u64 = 1_000_000;

pub fn run(options: &Options) -> Result {
    let rounds = options.size("rounds", 7);
    if let Some(connections) = options.connections {
        return one_process(connections, rounds);
    }
    require_driver()?;
    let title = format!("overlap: wall ms of N streams x {KERNELS} kernels of 1 ms, medians of {rounds} rounds");
    let mut table = Table::new(
        &title,
        &[
            "connections",
            "streams",
            "off",
            "default",
            "default / off",
            "goal 1.01",
            "eager",
            "eager / off",
            "kernels",
            "kernels / off",
            "goal 1.10",
        ],
    );
    for connections in ["1", "8", "32"] {
        let output = Command::new(std::env::current_exe()?)
            .args(["overlap", &format!("--connections={connections}"), &format!("--rounds={rounds}")])
            .env("CUDA_DEVICE_MAX_CONNECTIONS", connections)
            .env_remove("WARPLINE")
            .output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stdout);
            return Err(format!("with {connections} connections: {}: {said}", output.status).into());
        }
        for line in String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.strip_prefix("row ")) {
            table.row(&line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>());
        }
    }
    table.print();
    Ok(())
}

/// The rows of one number of connections.
fn one_process(connections: u64, rounds: u64) -> Result {
    for streams in [1, 2, 4, 5, 8, 16, 32] {
        // A device context of its own: how many streams are alive decides what the default does.
        let gpu = Gpu::new(0)?;
        let streams = gpu.streams(streams)?;
        wall_ms(&gpu, &streams)?; // warms up
        let (mut off, mut default, mut eager, mut kernels) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let has_cupti = cupti_name().is_some();
        for _ in 0..rounds {
            off.push(wall_ms(&gpu, &streams)?);
            default.push(in_session(&gpu, &streams, Session::builder().ends(EndMode::Auto))?);
            eager.push(in_session(&gpu, &streams, Session::builder().ends(EndMode::Eager))?);
            if has_cupti {
                kernels.push(in_session(&gpu, &streams, Session::builder().timing(Timing::Kernels))?);
            }
        }
        let over = ratio(&default, &off);
        let by_kernels = if has_cupti {
            let over = ratio(&kernels, &off);
            format!("{:.2}|{over:.3}|{}", median(&kernels), verdict(over, 1.1))
        } else {
            "no CUPTI||".to_owned()
        };
        println!(
            "row {connections}|{}|{:.2}|{:.2}|{over:.3}|{}|{:.2}|{:.3}|{by_kernels}",
            streams.len(),
            median(&off),
            median(&default),
            verdict(over, 1.01),
            median(&eager),
            ratio(&eager, &off)
        );
    }
    Ok(())
}

fn in_session(gpu: &Gpu, streams: &[Arc<CudaStream>], builder: SessionBuilder) -> Result<f64> {
    let session = builder.start()?;
    for stream in streams {
        let _first = KERNEL.zone(stream); // the session meets the stream before the clock runs
        gpu.null(stream)?;
    }
    let wall = wall_ms(gpu, streams);
    let dropped = session.finish().dropped.total();
    if dropped > 0 {
        return Err(format!("{dropped} zones were dropped; the figure would not count").into());
    }
    wall
}

fn wall_ms(gpu: &Gpu, streams: &[Arc<CudaStream>]) -> Result<f64> {
    for stream in streams {
        stream.synchronize()?;
    }
    let begin = Instant::now();
    for _ in 0..KERNELS {
        for stream in streams {
            let _zone = KERNEL.zone(stream);
            gpu.spin(stream, KERNEL_NS, None)?;
        }
    }
    for stream in streams {
        stream.synchronize()?;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}
