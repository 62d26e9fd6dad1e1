//! Zones that make a viewer of Tracy work hard, and the check that it got every one of them to the nanosecond.
//!
//! ```sh
//! cargo run --release -p warpline-examples --features tracy --example tracy -- run 1000000 lengths.csv
//! tracy-capture -o zones.tracy                     # in another terminal, before, while or after it runs
//! tracy-csvexport -g zones.tracy > zones.csv
//! cargo run --release -p warpline-examples --features tracy --example tracy -- compare lengths.csv zones.csv
//! ```
//!
//! Four threads launch on eight streams, each on all of them, so that zones of different threads begin and end in between
//! each other. With `--features tracy-ondemand` only what happens while a viewer is connected is sent: then `compare` finds
//! no zone that should not be there.

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::process::ExitCode;
use std::time::Duration;

use warpline::report::Report;
use warpline::sink::{Batch, Sink};
use warpline::{HostStream, Session, Zone, gpu_zone, host_zone};

warpline::namespace!("load", "zones for Tracy");

const STREAMS: usize = 8;
const THREADS: usize = 4;

/// Zones that one call of `step` makes on its stream.
const ZONES_A_STEP: usize = 6;

const USAGE: &str = "usage: tracy run ZONES LENGTHS.csv | tracy compare LENGTHS.csv ZONES.csv…";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["run", zones, lengths] => zones.parse().map_err(Into::into).and_then(|zones| run(zones, lengths)),
        ["compare", lengths, ref captures @ ..] if !captures.is_empty() => compare(lengths, captures),
        _ => Err(USAGE.into()),
    };
    result.map_or_else(
        |error| {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn run(zones: usize, lengths: &str) -> Result<(), Box<dyn Error>> {
    let file = Lengths(BufWriter::new(File::create(lengths)?));
    let session =
        Session::builder().tracy().ring(1 << 16).finish_timeout(Duration::from_secs(60)).sink(file).start()?;
    let streams: [HostStream; STREAMS] = std::array::from_fn(|at| HostStream::new(&format!("stream {at}")));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let streams = &streams;
            scope.spawn(move || launch(thread, streams, zones / THREADS / ZONES_A_STEP));
        }
    });
    for stream in &streams {
        stream.synchronize()?;
    }
    println!("{}", session.finish());
    Ok(())
}

/// Launches on one stream after another.
#[host_zone("load.launch")]
fn launch(thread: usize, streams: &[HostStream], steps: usize) {
    for step in 0..steps {
        let stream = &streams[(thread + step) % streams.len()];
        run_step(stream, step);
        // Not faster than the streams are: the ring of each would run full.
        if step % 64 == 0 {
            let _ = stream.synchronize();
        }
    }
}

/// A zone with others in it, one of which overlaps them.
#[gpu_zone("load.step")]
fn run_step(stream: &HostStream, step: usize) {
    let overlaps = OVERLAPS.async_zone(stream);
    work(stream, step);
    let nested = nested(stream, step);
    drop(overlaps);
    drop(nested);
}

warpline::range! {
    NESTED = "load.nested": "Has zones inside.";
    OVERLAPS = "load.overlaps": "Ends while a zone that began after it is open.";
}

/// A zone that has one inside and is still open.
fn nested(stream: &HostStream, step: usize) -> Zone {
    let zone = NESTED.zone(stream);
    work(stream, step / 2);
    work(stream, 3);
    zone
}

/// Some work.
#[gpu_zone("load.work", lane = "work")]
fn work(stream: &HostStream, amount: usize) {
    stream.launch(move || {
        std::hint::black_box((0..amount % 7 * 100).sum::<usize>());
    });
}

/// Writes down how long each zone was.
struct Lengths(BufWriter<File>);

impl Sink for Lengths {
    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        let on_stream = batch.zones().iter().filter_map(|record| Some((record.range.name(), record.gpu_ns()?)));
        on_stream.into_iter().try_for_each(|(name, ns)| writeln!(self.0, "{name},{ns}"))
    }

    fn finish(&mut self, _: &Report) -> io::Result<()> {
        self.0.flush()
    }
}

/// Compares names and lengths of what was recorded with what captures hold.
fn compare(lengths: &str, captures: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut recorded: HashMap<(String, i64), usize> = HashMap::new();
    let mut zones = 0_usize;
    for line in BufReader::new(File::open(lengths)?).lines() {
        let line = line?;
        let (name, length) = line.split_once(',').ok_or("not a file that `run` wrote")?;
        *recorded.entry((name.to_owned(), length.parse()?)).or_default() += 1;
        zones += 1;
    }
    let (mut shown, mut wrong) = (0_usize, 0_usize);
    for capture in captures {
        for line in BufReader::new(File::open(capture)?).lines().skip(1) {
            let line = line?;
            let [name, _file, _begin, length] = line.split(',').collect::<Vec<_>>()[..] else {
                return Err(line.into());
            };
            match recorded.get_mut(&(name.to_owned(), length.parse()?)) {
                Some(left) if *left > 0 => (*left, shown) = (*left - 1, shown + 1),
                _ => wrong += 1,
            }
        }
    }
    println!("{zones} zones recorded, {shown} of them shown with their length, {wrong} shown that were not recorded");
    if wrong > 0 { Err("the captures hold zones that were not recorded so".into()) } else { Ok(()) }
}
