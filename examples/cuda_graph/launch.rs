//! Starts the ranks as threads, records what they replay, and shows it.
//!
//! The session begins when all ranks are ready to capture, since only what is captured in a session is labelled. A rank that fails
//! ends the program: the other would wait for it for ever. And none runs beyond the limit.

use std::error::Error;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tensor::{Blas, Device, Rendezvous};
use warpline::Session;
use warpline::graph::GraphZones;
use warpline::report::Report;
use warpline::sink::MemorySink;

use crate::block::{Rank, SHAPE};
use crate::options::Options;
use crate::{seen, table};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// Room for the kernels of all replays of two ranks, and for all else.
const MOST_RECORDS: usize = 1 << 20;

/// What a rank tells the thread that waits for it.
enum Told {
    /// It has come so far: it can capture; it is gone.
    Ready,
    /// It has replayed.
    Replayed(Outcome),
    Failed(String),
}

struct Outcome {
    rank: u32,
    zones: GraphZones,
    /// The address of the executable graph, which the rank keeps.
    exec: usize,
    checked: String,
}

/// How many GPUs there are; or what this machine lacks, and what to do.
pub fn gpus() -> std::result::Result<u32, String> {
    let count = Device::gpus().map_err(|why| {
        format!(
            "{why}. Run it where `nvidia-smi` works, or see zones without a GPU:\ncargo run --release --example quickstart"
        )
    })?;
    let (device, _) = Device::gpu(0)?;
    let blas = device.stream("probe").and_then(|stream| Blas::new(&stream));
    blas.map_err(|why| why.to_string())?;
    Ok(count as u32)
}

/// Runs one rank, or two.
pub fn run(options: &Options, gpus: u32) -> Result {
    let (ranks, how) = ranks(options.ranks, gpus, tensor::nccl_version())?;
    if let Some(how) = how {
        println!("{how}");
    }
    println!(
        "a transformer block, captured and replayed {} times: {} sequences of {} tokens, {} numbers a token, {} heads",
        options.replays, SHAPE.batch, SHAPE.tokens, SHAPE.width, SHAPE.heads
    );
    let (tell, told) = channel();
    let mut go = Vec::new();
    for rendezvous in Rendezvous::threads(ranks) {
        let (start, started) = channel();
        go.push(start);
        let (tell, replays) = (tell.clone(), options.replays);
        thread::spawn(move || {
            if let Err(error) = rank(rendezvous, replays, &tell, &started) {
                let _ = tell.send(Told::Failed(error.to_string()));
            }
        });
    }
    drop(tell);
    // A rank's thread that is left behind ends with the process.
    let deadline = Instant::now() + options.limit;
    all(&told, ranks, deadline, options.limit)?;
    let memory = MemorySink::new(MOST_RECORDS);
    let settings = format!("perfetto={},kernels,summary", options.trace);
    let session = Session::builder().env_or(&settings)?.sink(memory.clone()).start()?; // WARPLINE=… wins
    for start in &go {
        let _ = start.send(());
    }
    let outcomes = all(&told, ranks, deadline, options.limit)?;
    if let Some(file) = &options.annotations {
        warpline::graph::save(file).map_err(|error| format!("`{file}`: {error}"))?;
    }
    let report = session.finish();
    let shown = show(&outcomes, options.replays, &memory, &report);
    // Only now may the ranks drop their graphs: `show` has asked for their nodes.
    for start in &go {
        let _ = start.send(());
    }
    all(&told, ranks, deadline, options.limit)?;
    shown?;
    Ok(())
}

/// One, or as many as there are GPUs, up to two; and what to say of it.
fn ranks(
    asked: Option<u32>,
    gpus: u32,
    nccl: std::result::Result<String, String>,
) -> std::result::Result<(u32, Option<String>), String> {
    match (asked, nccl) {
        (Some(2), _) if gpus < 2 => Err(format!("`--ranks 2` needs two GPUs, and this program sees {gpus}")),
        (Some(2), Err(why)) => Err(format!("`--ranks 2`: {why}")),
        (None, Err(why)) if gpus > 1 => Ok((1, Some(format!("one rank on one of {gpus} GPUs: {why}")))),
        (asked, nccl) => match (asked.unwrap_or(gpus.min(2)), nccl) {
            (2, Ok(version)) => Ok((2, Some(format!("two ranks on two GPUs, by NCCL {version}")))),
            _ => Ok((1, None)),
        },
    }
}

/// What one rank does, on a thread of its own.
fn rank(rendezvous: Rendezvous, replays: usize, tell: &Sender<Told>, started: &Receiver<()>) -> Result {
    let number = rendezvous.rank();
    let rank = Rank::new(rendezvous)?;
    tell.send(Told::Ready)?;
    if started.recv().is_err() {
        return Ok(()); // The other rank has failed.
    }
    let replayed = rank.replay(replays)?;
    tell.send(Told::Replayed(Outcome {
        rank: number,
        zones: replayed.zones.clone(),
        exec: replayed.captured.exec() as usize,
        checked: replayed.checked.clone(),
    }))?;
    if started.recv().is_ok() {
        drop(replayed);
        tell.send(Told::Ready)?;
    }
    Ok(())
}

/// Waits until each rank has told something, and returns what they replayed. The first failure ends it.
fn all(told: &Receiver<Told>, ranks: u32, deadline: Instant, limit: Duration) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for _ in 0..ranks {
        match told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Told::Ready) => {}
            Ok(Told::Replayed(outcome)) => outcomes.push(outcome),
            Ok(Told::Failed(error)) => return Err(error.into()),
            Err(_) => return Err(format!("a rank is not done within {limit:?}; `--limit` gives it longer").into()),
        }
    }
    outcomes.sort_by_key(|outcome| outcome.rank);
    Ok(outcomes)
}

/// The tables, and what was checked.
fn show(outcomes: &[Outcome], replays: usize, memory: &MemorySink, report: &Report) -> Result {
    if report.kernels.lost() > 0 {
        let lost = report.kernels.lost();
        return Err(
            format!("CUPTI lost {lost} kernels, so the others cannot be compared; take fewer `--replays`").into()
        );
    }
    let (kernels, replayed) = (memory.take_kernels(), memory.take_replays());
    for Outcome { rank, zones, exec, checked } in outcomes {
        if outcomes.len() > 1 {
            println!("\n=== rank {rank}");
        }
        let works = seen::works(zones.nodes());
        if report.kernels.recorded == 0 {
            println!("\n{}", table::of_nodes(&seen::sections(&works)));
            println!("checked: {checked}");
            let why =
                report.notes.first().map_or("the setting `kernels` is not among those of WARPLINE", String::as_str);
            println!("no times, and not compared with CUPTI: {why}");
            continue;
        }
        let own = seen::of_graph(zones.number(), *exec as *mut _, &kernels, &replayed)?;
        println!("\n{}", table::before(&own));
        println!("{}", table::after(&seen::sections(&works), &own));
        for line in table::collectives(&own) {
            println!("{line}");
        }
        println!("checked: {checked}");
        println!("checked: {}", seen::check(&works, &own, replays)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ranks_need_two_gpus_and_nccl() {
        let (there, absent) = (|| Ok("2.28.3".to_owned()), || Err("there is no NCCL".to_owned()));
        let two = Ok((2, Some("two ranks on two GPUs, by NCCL 2.28.3".to_owned())));
        assert_eq!(ranks(None, 1, absent()), Ok((1, None)));
        assert_eq!(ranks(None, 1, there()), Ok((1, None)));
        assert_eq!(ranks(Some(1), 8, there()), Ok((1, None)));
        assert_eq!(ranks(None, 8, there()), two);
        assert_eq!(ranks(Some(2), 2, there()), two);
        assert_eq!(ranks(None, 2, absent()), Ok((1, Some("one rank on one of 2 GPUs: there is no NCCL".to_owned()))));
        assert_eq!(ranks(Some(2), 2, absent()), Err("`--ranks 2`: there is no NCCL".to_owned()));
        assert_eq!(ranks(Some(2), 1, there()), Err("`--ranks 2` needs two GPUs, and this program sees 1".to_owned()));
    }
}
