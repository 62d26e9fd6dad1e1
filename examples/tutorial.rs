//! The program of `docs/tutorial.md`: it scores batches on one stream while another stream loads them.
//! `cargo run --release --example tutorial [-- --fixed]`

use std::error::Error;
use std::time::{Duration, Instant};

use warpline::timeline::Semaphore;
use warpline::{HostStream, Session, gpu_zone, host_zone};

warpline::namespace!("tutorial", "scores batches");

const BATCHES: u64 = 50;

/// Copies a batch to the device.
#[gpu_zone("tutorial.load", fields(batch = batch))]
fn load(stream: &HostStream, batch: u64) {
    stream.launch(move || std::thread::sleep(Duration::from_millis(2))); // a copy engine uses no core
}

/// Scores a batch.
#[gpu_zone("tutorial.score", fields(batch = batch))]
fn score(stream: &HostStream, batch: u64) {
    stream.launch(move || {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(3) {
            std::hint::spin_loop();
        }
    });
}

/// Waits for each step before it launches the next.
#[host_zone("tutorial.one_by_one")]
fn one_by_one(copy: &HostStream, compute: &HostStream) -> Result<(), Box<dyn Error>> {
    for batch in 0..BATCHES {
        load(copy, batch);
        copy.synchronize()?;
        score(compute, batch);
        compute.synchronize()?;
    }
    Ok(())
}

/// Launches everything, and lets `compute` wait for `copy`.
#[host_zone("tutorial.overlapped")]
fn overlapped(copy: &HostStream, compute: &HostStream) -> Result<(), Box<dyn Error>> {
    let loaded = Semaphore::named("batch loaded", 0);
    for batch in 0..BATCHES {
        load(copy, batch);
        loaded.signal_on(copy, batch + 1)?;
        loaded.wait_on(compute, batch + 1)?;
        score(compute, batch);
    }
    compute.synchronize()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let session = Session::from_env_or("perfetto=tutorial.pftrace,summary");
    let (copy, compute) = (HostStream::new("copy"), HostStream::new("compute"));
    let is_fixed = std::env::args().any(|argument| argument == "--fixed");
    if is_fixed {
        overlapped(&copy, &compute)?
    } else {
        one_by_one(&copy, &compute)?
    }
    session.finish();
    Ok(())
}
