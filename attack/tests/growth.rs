//! Four times the input takes about four times the time: hostile orders of slices, many devices, and zones in zones have no quadratic cost.
//!
//! The CPU time is measured, which other programs on the machine do not lengthen, and the best of a few tries counts. A quadratic cost takes
//! sixteen times as long.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Command, Stdio};

use warpline::{HostStream, Session};

warpline::namespace!("growth", "zones in zones");

warpline::range! {
    NESTED = "growth.nested": "A zone within others.";
}

/// The most times as long that four times the input may take.
const MOST: f64 = 9.0;

const TRIES: usize = 2;

/// The CPU seconds that this process, or its children that have ended, have taken.
fn cpu(whose: libc::c_int) -> f64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the place is valid for the call, and zeros are a value of the type.
    let usage = unsafe {
        libc::getrusage(whose, usage.as_mut_ptr());
        usage.assume_init()
    };
    [usage.ru_utime, usage.ru_stime].iter().map(|time| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6).sum()
}

/// Compares the costs of `n` and `4 n`. Nothing else of this process may run meanwhile.
#[track_caller]
fn grows(n: u64, cost: impl Fn(u64) -> f64) {
    let best = |n| (0..TRIES).map(|_| cost(n)).fold(f64::INFINITY, f64::min);
    let [once, four_times] = [best(n), best(4 * n)];
    println!("{n}: {once:.3} s; {}: {four_times:.3} s", 4 * n);
    // Below this, the start of a process is more than the work.
    assert!(four_times < 0.2 || four_times < MOST * once, "{n}: {once:.3} s; {}: {four_times:.3} s", 4 * n);
}

/// The CPU time of `warpline report` for a Chrome trace of these slices: category, process, begin and length in µs.
fn report(slices: impl Iterator<Item = (&'static str, u64, u64, u64)>) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace.json");
    write(&trace, slices).expect("it can be written");
    let before = cpu(libc::RUSAGE_CHILDREN);
    let status = Command::new(env!("CARGO_BIN_EXE_warpline-attack"))
        .args(["report".as_ref(), trace.as_os_str()])
        .env("WARPLINE_ATTACK_AS_COMMAND", "the command")
        .stdout(Stdio::null())
        .status()
        .expect("it starts");
    assert!(status.success(), "{status}");
    cpu(libc::RUSAGE_CHILDREN) - before
}

fn write(trace: &Path, slices: impl Iterator<Item = (&'static str, u64, u64, u64)>) -> std::io::Result<()> {
    let mut out = BufWriter::new(File::create(trace)?);
    write!(out, "[")?;
    for (at, (category, process, begin, length)) in slices.enumerate() {
        let comma = if at == 0 { "" } else { ",\n" };
        write!(
            out,
            r#"{comma}{{"ph":"X","cat":"{category}","name":"a","pid":{process},"tid":1,"ts":{begin},"dur":{length}}}"#
        )?;
    }
    write!(out, "]")?;
    out.flush()
}

/// The CPU time of a session's end with so many zones that end within one another, all of which wait in the ring.
fn finish(zones: u64) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("t.pftrace");
    let session = Session::builder().ring(1 << 17).perfetto(&trace).quiet();
    // Its processor time is judged, however long it waits for a processor.
    let session = session.finish_timeout(std::time::Duration::from_secs(600)).start().expect("no other session");
    let stream = HostStream::new("compute");
    let mut open = Vec::new();
    for _ in 0..zones {
        open.push(NESTED.zone(&stream));
    }
    while let Some(zone) = open.pop() {
        drop(zone);
    }
    stream.synchronize().expect("no panic");
    let before = cpu(libc::RUSAGE_SELF);
    let report = session.finish();
    let cost = cpu(libc::RUSAGE_SELF) - before;
    assert_eq!((report.recorded, report.sinks[0].lost), (zones, 0), "{report}");
    assert!(fs::metadata(&trace).expect("it is there").len() > zones * 10);
    cost
}

/// One test, because each measures the whole process.
#[test]
fn time_grows_with_the_input_and_not_with_its_square() {
    // Each slice is before all that were read until then.
    grows(12_000, |n| report((0..n).rev().map(|at| ("user_annotation", 1, 10 * at, 5))));
    // Each is on a device of its own.
    grows(10_000, |n| report((0..n).map(|at| ("gpu_user_annotation", at, 10 * at, 5))));
    // Each is within the one before.
    grows(8_000, |n| report((0..n).map(|at| ("user_annotation", 1, at, 2 * (n - at)))));
    // Each overlaps with all others, and none is within another.
    grows(8_000, |n| report((0..n).map(|at| ("user_annotation", 1, at, n))));
    grows(4_000, finish);
}
