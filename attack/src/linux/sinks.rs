//! Sinks that fail, block and panic at random: the session's account and each sink's stay exact, and the program notices nothing.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use warpline::report::Report;
use warpline::sink::{Batch, Progress, SessionInfo, Sink};
use warpline::{HostStream, Session};

use super::harness::{Run, skewed};
use super::kills::account;
use super::worker::{Tries, tries_of};

warpline::range! {
    LOAD = "attack.load": "What the host does.", kind = host;
    KERNEL = "attack.kernel": "What a stream does.";
}

pub(crate) fn attack(run: &mut Run) {
    tries_of(run, &["sinks", "right"]);
}

pub(crate) fn planted(run: &mut Run) {
    tries_of(run, &["sinks", "wrong"]);
}

/// A sink that does wrong at random.
struct Wild {
    random: Mutex<Rng>,
    /// Of a hundred calls, so many fail, so many panic and so many take long.
    fails: u8,
    panics: u8,
    blocks: u8,
    /// The records that it took without an error.
    took: Arc<AtomicU64>,
}

/// An error that cannot even be shown.
#[derive(Debug)]
struct Unspeakable;

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("an error that cannot be shown")
    }
}

impl Error for Unspeakable {}

/// What a panic may carry: its drop panics, too.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("the payload of a panic panics")
        }
    }
}

impl Wild {
    fn do_something(&self) -> io::Result<()> {
        let (what, how, us) = {
            let mut random = self.random.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            (random.u8(0..100), random.u8(0..8), skewed(&mut random, 0, 5_000))
        };
        if what < self.fails {
            return Err(match how {
                0 => io::Error::other(Unspeakable),
                1 => io::Error::from_raw_os_error(libc::ENOSPC),
                _ => io::Error::other("a wild sink"),
            });
        }
        if what < self.fails + self.panics {
            match how {
                0 => std::panic::panic_any(Bomb),
                _ => panic!("a wild sink"),
            }
        }
        if what < self.fails + self.panics + self.blocks {
            std::thread::sleep(Duration::from_micros(us));
        }
        Ok(())
    }
}

impl Sink for Wild {
    fn name(&self) -> String {
        "wild".to_owned()
    }

    fn start(&mut self, _: &SessionInfo) -> io::Result<()> {
        self.do_something()
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        self.do_something()?;
        if let Batch::Zones(_) | Batch::Waits(_) = batch {
            self.took.fetch_add(batch.len() as u64, Relaxed);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.do_something()
    }

    fn progress(&mut self, _: &Progress) -> io::Result<()> {
        self.do_something()
    }

    fn finish(&mut self, _: &Report) -> io::Result<()> {
        self.do_something()
    }
}

/// Records one session after another, each with wild sinks of its own.
pub(crate) fn worker(variant: &str) {
    std::panic::set_hook(Box::new(|_| ()));
    silence();
    let mut tries = Tries::of_process();
    while let Some(seed) = tries.next() {
        tries.is_now(seed.to_string().as_bytes());
        let session = || one_session(&mut Rng::with_seed(seed), u64::from(variant == "wrong"));
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(session)) {
            Ok(Ok(())) => {}
            Ok(Err(what)) => tries.fail(&what),
            Err(panic) => {
                tries.fail(&format!("a panic reaches the program: {}", super::inputs::text(&*panic)));
            }
        }
    }
}

/// Each failing sink says so on standard error, which nobody reads here.
fn silence() {
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        // SAFETY: both are open descriptors.
        unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), libc::STDERR_FILENO) };
    }
}

fn one_session(random: &mut Rng, surplus: u64) -> Result<(), String> {
    let mut took = Vec::new();
    let mut builder = Session::builder().ring(random.usize(1..300)).finish_timeout(Duration::from_secs(50)).quiet();
    for _ in 0..random.usize(1..4) {
        let count = Arc::new(AtomicU64::new(0));
        took.push(count.clone());
        let [fails, panics, blocks] = [random.u8(0..30), random.u8(0..30), random.u8(0..30)];
        let calm = random.u8(0..4) == 0;
        let [fails, panics] = if calm { [0, 0] } else { [fails, panics] };
        let random = Mutex::new(Rng::with_seed(random.u64(..)));
        builder = builder.sink(Wild { random, fails, panics, blocks, took: count });
    }
    let session = builder.start().map_err(|error| format!("the session does not start: {error}"))?;
    let (threads, zones) = (random.u64(1..4), skewed(random, 1, 2_000));
    let streams: Vec<_> = (0..threads).map(|n| HostStream::new(&format!("stream {n}"))).collect();
    std::thread::scope(|scope| {
        for stream in &streams {
            scope.spawn(move || {
                for n in 0..zones {
                    let zone = KERNEL.zone(stream).field("n", n);
                    stream.launch(|| ());
                    drop(LOAD.host());
                    drop(zone);
                }
            });
        }
    });
    streams.iter().try_for_each(|stream| stream.synchronize().map_err(|error| error.to_string()))?;
    let report = session.finish();
    account(&report, threads * zones * 2)?;
    // `sinks` has those that were given, in order.
    for (sink, took) in report.sinks.iter().zip(&took) {
        let took = took.load(Relaxed) + surplus;
        if sink.taken != took {
            return Err(format!("a sink took {took} records, and the report says {}", sink.taken));
        }
    }
    Ok(())
}
