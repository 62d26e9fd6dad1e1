//! One rank: a loop of steps. Each reads a batch, computes, sums in pairs, computes, sums over all, and meets at a barrier.
//!
//! What its collectives do on the stream is to tell the hub that they are there, by the machine's clock, and to wait for its answer.

use std::env;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use warpline::collective::ProcessGroup;
use warpline::{HostStream, Session, collective, gpu_zone, host_zone};

use crate::clock::{self, machine_ns};
use crate::hub::{Answer, Arrival, Meeting, PAIR, WORLD};

/// The number of ranks.
pub const RANKS: u32 = 8;

/// The time of a step without its collectives, about.
const LOAD: Duration = Duration::from_millis(5);
const COMPUTE: Duration = Duration::from_millis(100);

/// The rank that the hub makes late for some time, and by how much.
pub const LATE: u32 = 2;
const LATE_BY: Duration = Duration::from_millis(200);

/// A connection to the hub.
struct Hub {
    socket: Mutex<TcpStream>,
    /// Work of the device since the last arrival.
    worked_ns: AtomicI64,
    /// When the stream ended what it did last, on the machine's clock.
    ended_ns: AtomicI64,
    is_late: AtomicBool,
    is_over: AtomicBool,
}

impl Hub {
    /// Waits until all ranks of the meeting have come. A hub that is gone ends the rank.
    fn meet(&self, meeting: Meeting) {
        let (at_ns, from_ns) = (machine_ns(), self.ended_ns.load(Ordering::Relaxed));
        let arrival = Arrival { meeting, at_ns, from_ns, worked_ns: self.worked_ns.swap(0, Ordering::Relaxed) };
        let mut socket = self.socket.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut answer = [0];
        if socket.write_all(&arrival.to_bytes()).and_then(|()| socket.read_exact(&mut answer)).is_err() {
            std::process::exit(3);
        }
        self.is_late.store(answer[0] == Answer::BeLate as u8, Ordering::Relaxed);
        if answer[0] == Answer::Last as u8 {
            self.is_over.store(true, Ordering::Relaxed);
        }
        self.ended_ns.store(machine_ns(), Ordering::Relaxed);
    }
}

/// Reads the next batch.
#[host_zone("soak.load")]
fn load(takes: Duration) {
    thread::sleep(takes);
}

/// Works on the device.
#[gpu_zone("soak.work", stream = stream)]
fn work(stream: &HostStream, hub: &Arc<Hub>) {
    let hub = Arc::clone(hub);
    stream.launch(move || {
        let begin_ns = machine_ns();
        thread::sleep(COMPUTE);
        let end_ns = machine_ns();
        hub.worked_ns.fetch_add(end_ns - begin_ns, Ordering::Relaxed);
        hub.ended_ns.store(end_ns, Ordering::Relaxed);
    });
}

/// Sums over the two ranks of a pair.
#[collective("soak.pair", kind = "all_reduce", count = 1 << 18, dtype = f32, group = group, seq = seq)]
fn pair(stream: &HostStream, group: &ProcessGroup, seq: u64, hub: &Arc<Hub>) {
    meet(stream, PAIR, seq, hub);
}

/// Sums over all ranks.
#[collective("soak.sum", kind = "all_reduce", count = 1 << 20, dtype = f32, group = group, seq = seq)]
fn sum(stream: &HostStream, group: &ProcessGroup, seq: u64, hub: &Arc<Hub>) {
    meet(stream, WORLD, seq, hub);
}

fn meet(stream: &HostStream, group: u8, seq: u64, hub: &Arc<Hub>) {
    let hub = Arc::clone(hub);
    stream.launch(move || hub.meet(Meeting { group, seq }));
}

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    env::var(name).ok()?.parse().ok()
}

/// Runs a rank until the hub says that it is over.
pub fn run() -> ExitCode {
    let (Some(()), Some(rank), Ok(hub)) = (clock::take(), variable::<u32>("RANK"), env::var("SOAK_HUB")) else {
        eprintln!("error: `soak` starts its ranks itself");
        return ExitCode::from(2);
    };
    match steps(rank, &hub) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: rank {rank}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn steps(rank: u32, hub: &str) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("cannot reach the hub: {error}");
    let mut socket = TcpStream::connect(hub).map_err(wrong)?;
    socket.set_nodelay(true).map_err(wrong)?;
    socket.write_all(&rank.to_le_bytes()).map_err(wrong)?;
    // The number in each group that the ranks are at: not zero for a rank that is started again.
    let mut next = [[0; 8]; 2];
    next.iter_mut().try_for_each(|next| socket.read_exact(next)).map_err(wrong)?;
    let [next_world, next_pair] = next.map(u64::from_le_bytes);
    let hub = Arc::new(Hub {
        socket: Mutex::new(socket),
        worked_ns: AtomicI64::new(0),
        ended_ns: AtomicI64::new(machine_ns()),
        is_late: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
    });
    let session = Session::from_env();
    let world = ProcessGroup::new("dp0", 0..RANKS, rank);
    let first = rank / 2 * 2;
    let couple = ProcessGroup::new(format!("tp{}", rank / 2), [first, first + 1], rank % 2);
    let stream = HostStream::new("compute");
    // Two collectives of all ranks in a step, and one of a pair.
    for step in next_world / 2.. {
        warpline::step(step);
        load(if hub.is_late.load(Ordering::Relaxed) { LOAD + LATE_BY } else { LOAD });
        work(&stream, &hub);
        if step >= next_pair {
            pair(&stream, &couple, step, &hub);
        }
        work(&stream, &hub);
        for seq in [2 * step, 2 * step + 1] {
            if seq >= next_world {
                sum(&stream, &world, seq, &hub);
            }
        }
        stream.synchronize().map_err(|error| error.to_string())?;
        if hub.is_over.load(Ordering::Relaxed) {
            break;
        }
    }
    let report = session.finish();
    let lost: u64 = report.sinks.iter().map(|sink| sink.lost).sum();
    if lost > 0 || report.sinks.iter().any(|sink| sink.errors > 0) {
        return Err(format!("its tables lack records: {report}"));
    }
    Ok(())
}
