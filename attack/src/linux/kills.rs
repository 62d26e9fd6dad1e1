//! SIGKILL of programs that start, record or finish: each file that is left can be read and is consistent, a trace has every zone that
//! was flushed, and the next program with the same settings starts, finishes and counts right.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use fastrand::Rng;
use warpline::report::Report;
use warpline::sink::{Batch, Sink};
use warpline::{HostStream, Session};

use super::child::{Child, command};
use super::files::{self, End};
use super::harness::Run;

warpline::range! {
    STEP = "attack.step": "A step of an attacked program.";
    PART = "attack.part": "What its host does.", kind = host;
}

/// Threads of a program under heavy load.
const HEAVY: usize = 4;

/// Steps in each session of a program that finishes one after the other.
const STEPS: u64 = 200;

/// What a program says each time its files have been flushed, with the number of steps in them.
const FLUSHED: &str = "flushed ";

/// What a program writes.
struct Output {
    settings: &'static str,
    /// How many zones a file has.
    read: fn(&Path, End) -> Result<u64, String>,
    extension: &'static str,
    /// A file keeps every zone of its session.
    keeps_all: bool,
}

const PERFETTO: Output =
    Output { settings: "perfetto=t.pftrace", read: pftrace, extension: "pftrace", keeps_all: true };
const ROTATED: Output = Output {
    settings: "perfetto=t.pftrace,rotate=64KiB,keep=3",
    read: pftrace,
    extension: "pftrace",
    keeps_all: false,
};
const FLIGHT: Output = Output {
    settings: "flight=256KiB:t.flight,budget=100%",
    read: files::flight,
    extension: "flight",
    keeps_all: false,
};
const CHROME: Output = Output { settings: "chrome=t.json", read: chrome, extension: "json", keeps_all: true };

fn pftrace(path: &Path, end: End) -> Result<u64, String> {
    files::pftrace(&std::fs::read(path).map_err(|error| error.to_string())?, end)
}

fn chrome(path: &Path, end: End) -> Result<u64, String> {
    files::chrome(&std::fs::read(path).map_err(|error| error.to_string())?, end)
}

/// A fault that is made on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// So many bytes at this share of the file are lost.
    Damage {
        at_percent: usize,
        bytes: usize,
    },
    /// Most of the file is lost: what was flushed before the last flush, too.
    Most,
    /// The program counts wrong.
    Account,
}

pub(crate) fn perfetto(run: &mut Run) {
    attack(run, &PERFETTO, Planted::Nothing);
}

pub(crate) fn rotated(run: &mut Run) {
    attack(run, &ROTATED, Planted::Nothing);
}

pub(crate) fn flight(run: &mut Run) {
    attack(run, &FLIGHT, Planted::Nothing);
}

pub(crate) fn chrome_file(run: &mut Run) {
    attack(run, &CHROME, Planted::Nothing);
}

pub(crate) fn planted_perfetto(run: &mut Run) {
    attack(run, &PERFETTO, Planted::Damage { at_percent: 50, bytes: 16 });
}

pub(crate) fn planted_rotated(run: &mut Run) {
    attack(run, &ROTATED, Planted::Damage { at_percent: 50, bytes: 16 });
}

pub(crate) fn planted_flight(run: &mut Run) {
    attack(run, &FLIGHT, Planted::Damage { at_percent: 0, bytes: 8 });
}

pub(crate) fn planted_chrome(run: &mut Run) {
    attack(run, &CHROME, Planted::Damage { at_percent: 0, bytes: 16 });
}

pub(crate) fn planted_most(run: &mut Run) {
    attack(run, &PERFETTO, Planted::Most);
}

pub(crate) fn planted_account(run: &mut Run) {
    attack(run, &PERFETTO, Planted::Account);
}

fn attack(run: &mut Run, output: &Output, planted: Planted) {
    while let Some(seed) = run.next() {
        let folder = tempfile::tempdir().expect("a folder for traces");
        if let Err(what) = kill_one(run, output, planted, seed, folder.path()) {
            run.failed(seed, what, None);
        }
    }
}

fn kill_one(run: &Run, output: &Output, planted: Planted, seed: u64, folder: &Path) -> Result<(), String> {
    let mut random = Rng::with_seed(seed);
    let load = random.choice(["light", "heavy", "finishing"]).unwrap_or("light");
    let (is_early, after) = (random.u8(0..4) == 0, random.u64(0..250));
    let start = |end: &str| {
        let mut command = command(&run.program, folder, &["worker", "record", load, end]);
        command.env("WARPLINE", format!("quiet,{}", output.settings)).env("WARPLINE_ATTACK_SEED", seed.to_string());
        Child::start(command)
    };
    let child = start("killed")?;
    if is_early {
        std::thread::sleep(Duration::from_micros(after * 100));
    } else {
        child.wait_for("started", run.patience)?;
        std::thread::sleep(Duration::from_millis(after));
    }
    child.signal(libc::SIGKILL);
    let flushed = last_flushed(&child, run.patience)?;
    let (_, said) = child.end(run.patience)?;
    if !said.is_empty() {
        return Err(format!("the program complained before it was killed: {said}"));
    }
    match planted {
        Planted::Damage { at_percent, bytes } => damage(folder, at_percent, bytes),
        Planted::Most => lose_most(folder),
        Planted::Nothing | Planted::Account => {}
    }
    let under = format!("killed under {load} load{}", if is_early { " while it started" } else { "" });
    let zones = read_all(output, folder, End::Killed).map_err(|error| format!("{under}: {error}"))?;
    if output.keeps_all && zones < flushed {
        return Err(format!("{under}: {flushed} zones were flushed, and {zones} are in the trace"));
    }
    if random.u8(0..3) > 0 && planted != Planted::Account {
        return Ok(());
    }
    // The next program is not hindered by what is left.
    let mut next = start(if planted == Planted::Account { "wrong" } else { "finished" })?;
    next.wait_for("started", run.patience)?;
    next.end_input();
    let (status, said) = next.end(run.patience)?;
    // One that ends before its first zone says so.
    let is_quiet = said.lines().all(|line| line.starts_with("warpline: no zone was recorded: "));
    if !status.success() || !is_quiet {
        return Err(format!("{under}: the next program ended with {status} and said: {said}"));
    }
    read_all(output, folder, End::Killed).map(drop)
}

/// How many zones the last session of a killed program had flushed, by the last line that it said.
fn last_flushed(child: &Child, patience: Duration) -> Result<u64, String> {
    let mut flushed = 0;
    while let Some(line) = child.line(patience).map_err(|_| "the killed program's output does not end".to_owned())? {
        flushed = line.strip_prefix(FLUSHED).and_then(|number| number.parse().ok()).unwrap_or(flushed);
    }
    Ok(flushed)
}

/// Reads every file of the output.
fn read_all(output: &Output, folder: &Path, end: End) -> Result<u64, String> {
    let mut zones = 0;
    for path in paths(folder).into_iter().filter(|path| path.extension().is_some_and(|it| it == output.extension)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        zones += (output.read)(&path, end).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(zones)
}

fn paths(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Overwrites a part of each file that has anything in it.
fn damage(folder: &Path, at_percent: usize, count: usize) {
    for path in paths(folder) {
        let Ok(mut bytes) = std::fs::read(&path) else { continue };
        let at = bytes.len() * at_percent / 100;
        let end = bytes.len().min(at + count);
        bytes[at..end].fill(0xFF);
        std::fs::write(&path, bytes).expect("the folder can be written to");
    }
}

/// Says how many steps have been flushed. Sinks are flushed in turns, and this one comes first: it says what all sinks had in the turn
/// before.
#[derive(Default)]
struct Witness {
    steps: u64,
    flushed: u64,
}

impl Witness {
    fn say(&self) -> std::io::Result<()> {
        writeln!(std::io::stdout(), "{FLUSHED}{}", self.flushed)
    }
}

impl Sink for Witness {
    fn write(&mut self, batch: Batch<'_>) -> std::io::Result<()> {
        self.steps += batch.zones().iter().filter(|record| record.range.name() == STEP.name()).count() as u64;
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.say()?;
        self.flushed = self.steps;
        Ok(())
    }

    fn finish(&mut self, _: &Report) -> std::io::Result<()> {
        self.say()
    }
}

fn start(end: &str) -> Session {
    let settings = std::env::var("WARPLINE").unwrap_or_default();
    let builder = Session::builder().settings(&settings);
    let builder = builder.map(|it| if end == "killed" { it.sink(Witness::default()) } else { it });
    match builder.and_then(|builder| builder.start()) {
        Ok(session) => session,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(3)
        }
    }
}

fn lose_most(folder: &Path) {
    for path in paths(folder) {
        let bytes = std::fs::read(&path).expect("the file is there");
        std::fs::write(&path, &bytes[..bytes.len() / 8]).expect("the folder can be written to");
    }
}

/// A program that records as `WARPLINE` says. It works until it is killed, or until its standard input ends; then its account
/// has to be exact. Under the load `finishing` it makes short sessions until it is killed, and one more.
pub(crate) fn worker(load: &str, end: &str) {
    let mut session = start(end);
    println!("started");
    let _ = std::io::stdout().flush();
    if load == "finishing" && end == "killed" {
        loop {
            finish(session, work(0, Duration::ZERO, STEPS, &AtomicBool::new(false)), end);
            // The next session empties the file.
            println!("{FLUSHED}0");
            session = start(end);
        }
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let threads = if load == "heavy" { HEAVY } else { 1 };
    let pause = if load == "heavy" { Duration::ZERO } else { Duration::from_micros(300) };
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let is_over = is_over.clone();
            std::thread::spawn(move || work(thread, pause, u64::MAX, &is_over))
        })
        .collect();
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    is_over.store(true, Relaxed);
    let begun = workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum();
    finish(session, begun, end);
}

fn finish(session: Session, begun: u64, end: &str) {
    if let Err(error) = account(&session.finish(), begun + u64::from(end == "wrong")) {
        eprintln!("{error}");
        std::process::exit(3)
    }
}

/// Makes steps, at most so many, and returns how many zones began.
fn work(thread: usize, pause: Duration, steps: u64, is_over: &AtomicBool) -> u64 {
    let mut stream = HostStream::new(&format!("stream {thread}.0"));
    let mut n = 0_u64;
    while n < steps && !is_over.load(Relaxed) {
        if n % 5_000 == 4_999 {
            let _ = stream.synchronize();
            stream = HostStream::new(&format!("stream {thread}.{n}"));
        }
        let zone = STEP.zone(&stream).field("n", n).field("what", "a text of some length").label("a label");
        stream.launch(|| ());
        drop(PART.host().field("n", (thread as u64) << 32 | n));
        drop(zone);
        n += 1;
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    let _ = stream.synchronize();
    2 * n
}

/// Whether a report says of each zone that began what became of it.
pub(crate) fn account(report: &Report, begun: u64) -> Result<(), String> {
    if report.begun != begun {
        return Err(format!("{begun} zones began, and the report has {}", report.begun));
    }
    if report.recorded + report.captured + report.dropped.total() != report.begun {
        return Err(format!("recorded, captured and dropped are not what began: {report}"));
    }
    let records = report.recorded + report.waits.recorded;
    match report.sinks.iter().find(|sink| sink.taken + sink.lost != records) {
        None => Ok(()),
        Some(sink) => {
            Err(format!("{}: {} taken and {} lost are not {records} recorded", sink.name, sink.taken, sink.lost))
        }
    }
}
