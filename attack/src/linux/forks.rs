//! Forks while other threads record: a child begins and ends zones, makes and drops streams, forks again, and comes to its end.
//! The parent's account stays exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fastrand::Rng;
use warpline::{HostStream, Session};

use super::harness::Run;
use super::kills::account;
use super::worker::{Tries, tries_of};

warpline::range! {
    STEP = "attack.forked_step": "A step of a program that forks.";
    HOST = "attack.forked_host": "What its host does.", kind = host;
}

/// What a child does. The order is that of the words in which a failure names it.
const ACTIONS: [&str; 5] =
    ["ends at once", "records host zones", "records zones on a stream", "drops a stream", "forks"];

pub(crate) fn attack(run: &mut Run) {
    tries_of(run, &["forks", "right"]);
}

pub(crate) fn planted_hang(run: &mut Run) {
    tries_of(run, &["forks", "hang"]);
}

pub(crate) fn planted_crash(run: &mut Run) {
    tries_of(run, &["forks", "crash"]);
}

/// Forks one child after another while threads record; a try is a child.
pub(crate) fn worker(variant: &str) {
    let session = Session::builder().perfetto("t.pftrace").quiet().start().expect("no other session");
    let (begun, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let threads: Vec<_> = (0..2)
        .map(|thread| {
            let (begun, is_over) = (begun.clone(), is_over.clone());
            std::thread::spawn(move || record(thread, &begun, &is_over))
        })
        .collect();
    let mut tries = Tries::of_process();
    let patience = Duration::from_secs(if variant == "hang" { 1 } else { 20 });
    let mut streams: Vec<_> = (0..8).map(|n| HostStream::new(&format!("inherited {n}"))).collect();
    while let Some(seed) = tries.next() {
        tries.is_now(seed.to_string().as_bytes());
        let mut random = Rng::with_seed(seed);
        let action = random.usize(..ACTIONS.len());
        if let Err(what) = forked(patience, || act(action, variant, &mut streams, &mut random)) {
            tries.fail(&format!("a forked child that {} {what}", ACTIONS[action]));
        }
    }
    is_over.store(true, Relaxed);
    threads.into_iter().for_each(|thread| drop(thread.join()));
    if let Err(what) = account(&session.finish(), begun.load(Relaxed)) {
        tries.fail(&format!("after the forks: {what}"));
    }
}

/// What the other threads do: zones, and again and again a new stream.
fn record(thread: usize, begun: &AtomicU64, is_over: &AtomicBool) {
    let mut made = 0;
    while !is_over.load(Relaxed) {
        let stream = HostStream::new(&format!("stream {thread}.{}", made % 100));
        made += 1;
        for n in 0..20_u64 {
            let zone = STEP.zone(&stream).field("n", n);
            stream.launch(|| ());
            drop(HOST.host());
            drop(zone);
            begun.fetch_add(2, Relaxed);
        }
        let _ = stream.synchronize();
        // The collector is to come by.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// In the child.
fn act(action: usize, variant: &str, streams: &mut Vec<HostStream>, random: &mut Rng) {
    match variant {
        "hang" if random.u8(0..4) == 0 => loop {
            std::thread::park();
        },
        "crash" if random.u8(0..4) == 0 => std::process::abort(),
        _ => {}
    }
    match action {
        0 => {}
        1 => (0..100).for_each(|_| drop(HOST.host())),
        2 => {
            for n in 0..100_u64 {
                drop(STEP.zone(&streams[random.usize(..streams.len())]).field("n", n));
            }
        }
        3 => drop(streams.swap_remove(random.usize(..streams.len()))),
        _ => {
            let grandchild = forked(Duration::from_secs(10), || (0..100).for_each(|_| drop(HOST.host())));
            if grandchild.is_err() {
                std::process::abort();
            }
        }
    }
}

/// Does this in a child, and waits for its end.
fn forked(patience: Duration, work: impl FnOnce()) -> Result<(), String> {
    // SAFETY: the child does what a program may do that forks while it has threads, which is what is tried here.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(format!("is not there: {}", std::io::Error::last_os_error())),
        0 => {
            // SAFETY: the call takes numbers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: the call takes a number.
            unsafe { libc::_exit(if done.is_ok() { 0 } else { 4 }) }
        }
        child => {
            let deadline = Instant::now() + patience;
            let mut status = 0;
            loop {
                // SAFETY: the place is valid for the call.
                match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
                    0 if Instant::now() < deadline => std::thread::sleep(Duration::from_micros(200)),
                    0 => {
                        // SAFETY: the calls take numbers and a valid place; the child is this process's own.
                        unsafe {
                            libc::kill(child, libc::SIGKILL);
                            libc::waitpid(child, &raw mut status, 0);
                        }
                        return Err(format!("does not end within {patience:?}"));
                    }
                    _ => break,
                }
            }
            match status {
                0 => Ok(()),
                _ if libc::WIFSIGNALED(status) => Err(format!("was ended by signal {}", libc::WTERMSIG(status))),
                _ if libc::WEXITSTATUS(status) == 4 => Err("panicked".to_owned()),
                _ => Err(format!("ended with status {status}")),
            }
        }
    }
}
