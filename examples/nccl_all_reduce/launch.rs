//! Starts ranks: as threads of this process, as the one that a launcher says this process is, or as processes of our own.
//!
//! A rank that fails takes the others with it: they would wait for it for ever. And none runs beyond the limit.

use std::error::Error;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tensor::{Comm, Device, Rendezvous};
use warpline::Session;

use crate::model::{HIDDEN, Rank};
use crate::options::Options;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// What a rank tells the thread that waits for it.
enum Told {
    /// It has come so far: it has met the others; it has left them.
    Ready,
    /// It is done, and this is what it checked.
    Done(String),
    Failed(String),
}

/// Runs the ranks that this process has: all, or the one that a launcher says it is.
pub fn ranks(options: &Options) -> Result {
    let launched = Rendezvous::from_env()?;
    let is_launched = launched.is_some();
    let gpus = gpus(options);
    let mine = match launched {
        Some(_) if options.ranks.is_some() => {
            return Err("`--ranks` are threads, and a launcher says that this process is one rank: leave it out".into());
        }
        Some(rank) => match &options.rendezvous {
            Some(file) => vec![rank.by_file(file)],
            None => vec![rank],
        },
        None => Rendezvous::threads(options.ranks.unwrap_or_else(|| gpus.as_ref().map_or(2, |count| *count))),
    };
    let world = mine[0].ranks();
    if !HIDDEN.is_multiple_of(world as usize) {
        return Err(format!("{world} ranks cannot share {HIDDEN} hidden units; take a number that divides them").into());
    }
    match &gpus {
        Ok(count) if mine.iter().any(|rank| rank.local_rank() >= *count) => {
            return Err(format!(
                "NCCL wants a GPU for each rank, and this host has {count} for {world}; take fewer, or `--host`"
            )
            .into());
        }
        Ok(_) => println!("NCCL {}: {}", tensor::nccl_version()?, of_world(world)),
        Err(why) => println!("in-process streams and collectives of the reference: {why}; {}", of_world(world)),
    }
    let (which, late) = (if is_launched { mine[0].rank().to_string() } else { "all".to_owned() }, options.late);
    if let Some(late) = late.filter(|late| late.rank >= world) {
        return Err(format!("there is no rank {} to be late: there are {world}, counted from 0", late.rank).into());
    }
    let trace = options.trace.replace("{rank}", &which);

    let (tell, told) = channel();
    let mut go = Vec::new();
    for rendezvous in mine {
        let (start, started) = channel();
        go.push(start);
        let (tell, steps, on_gpu) = (tell.clone(), options.steps, gpus.is_ok());
        thread::spawn(move || {
            let failed = tell.clone();
            if let Err(error) = rank(rendezvous, on_gpu, steps, late, &tell, &started) {
                let _ = failed.send(Told::Failed(error.to_string()));
            }
        });
    }
    drop(tell);
    // A rank's thread that is left behind ends with the process.
    let deadline = Instant::now() + options.limit;
    all(&told, go.len(), deadline, options.limit)?;
    // From here on, so that every rank counts its collectives from the same one.
    let session = Session::from_env_or(&format!("perfetto={trace},summary")); // WARPLINE=… wins
    for start in &go {
        let _ = start.send(());
    }
    for checked in all(&told, go.len(), deadline, options.limit)? {
        println!("{checked}");
    }
    println!();
    // The streams are there until all zones are read.
    session.finish();
    for start in &go {
        let _ = start.send(());
    }
    all(&told, go.len(), deadline, options.limit)?;
    Ok(())
}

fn of_world(world: u32) -> String {
    match world {
        1 => "a world of one rank, in which nothing is moved; two GPUs show more".to_owned(),
        _ => format!("a world of {world} ranks"),
    }
}

/// How many GPUs the ranks can have; or why there are to be none.
fn gpus(options: &Options) -> std::result::Result<u32, String> {
    if options.host {
        return Err("as asked for".to_owned());
    }
    let count = Device::gpus()?;
    tensor::nccl_version()?;
    Ok(count as u32)
}

/// What one rank does, on a thread of its own.
fn rank(
    rendezvous: Rendezvous,
    on_gpu: bool,
    steps: usize,
    late: Option<crate::options::Late>,
    tell: &Sender<Told>,
    started: &Receiver<()>,
) -> Result {
    let device = if on_gpu { Device::gpu(rendezvous.local_rank() as usize)?.0 } else { Device::host() };
    let comm = Comm::new("tp0", &device, rendezvous)?;
    let mut rank = Rank::new(&device, comm, steps, late)?;
    tell.send(Told::Ready)?;
    if started.recv().is_err() {
        return Ok(()); // Another rank has failed.
    }
    rank.run()?;
    tell.send(Told::Done(rank.check()?))?;
    if started.recv().is_ok() {
        drop((rank, device));
        tell.send(Told::Ready)?;
    }
    Ok(())
}

/// Waits until each of so many ranks has told something, and returns what they checked. The first failure ends it.
fn all(told: &Receiver<Told>, ranks: usize, deadline: Instant, limit: Duration) -> Result<Vec<String>> {
    let mut checked = Vec::new();
    for _ in 0..ranks {
        match told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Told::Ready) => {}
            Ok(Told::Done(text)) => checked.push(text),
            Ok(Told::Failed(error)) => return Err(error.into()),
            Err(_) => return Err(format!("a rank is not done within {limit:?}; `--limit` gives it longer").into()),
        }
    }
    checked.sort();
    Ok(checked)
}

/// Starts this program once for each rank, as a launcher does, and shows what each says, one after the other.
pub fn processes(count: u32, arguments: &[String]) -> Result {
    let program = std::env::current_exe()?;
    let place = std::env::temp_dir().join(format!("nccl_all_reduce-{}", std::process::id()));
    let asked = arguments.iter().position(|argument| argument == "--processes").unwrap_or(0);
    let rest =
        || arguments.iter().enumerate().filter(|(at, _)| !(asked..=asked + 1).contains(at)).map(|(_, text)| text);
    let mut running = Vec::new();
    for rank in 0..count {
        let child = Command::new(&program)
            .args(rest())
            .arg("--rendezvous")
            .arg(&place)
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", count.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        match child {
            Ok(child) => running.push(child),
            Err(error) => {
                end(&mut running);
                return Err(error.into());
            }
        }
    }
    // Read while they run, or one that says much would wait for a reader.
    let readers: Vec<_> = running
        .iter_mut()
        .filter_map(|child| child.stdout.take())
        .map(|mut stdout| {
            thread::spawn(move || {
                let mut said = String::new();
                let _ = stdout.read_to_string(&mut said);
                said
            })
        })
        .collect();
    let failed = wait(&mut running);
    end(&mut running);
    let _ = std::fs::remove_file(&place);
    for (rank, reader) in readers.into_iter().enumerate() {
        println!("=== rank {rank}\n{}", reader.join().unwrap_or_default());
    }
    match failed? {
        None => Ok(()),
        Some((rank, status)) => Err(format!("rank {rank} ended with {status}; the others were ended").into()),
    }
}

/// Until all have ended well, or one has not. Each ends itself at its limit.
fn wait(running: &mut [Child]) -> Result<Option<(usize, ExitStatus)>> {
    loop {
        let mut left = 0;
        for (rank, child) in running.iter_mut().enumerate() {
            match child.try_wait()? {
                Some(status) if !status.success() => return Ok(Some((rank, status))),
                Some(_) => {}
                None => left += 1,
            }
        }
        if left == 0 {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn end(running: &mut [Child]) {
    for child in running {
        // One that has ended already is no failure.
        let _ = child.kill();
        let _ = child.wait();
    }
}
