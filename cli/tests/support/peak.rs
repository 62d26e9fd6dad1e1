//! Runs the command `warpline`, and watches the most memory that it ever has.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What a run came to.
pub struct Ran {
    /// The exit status; none if a signal ended it, such as the abort of a process that gets no memory.
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub wall: Duration,
    pub peak_kib: u64,
}

/// Runs it with these arguments.
pub fn warpline<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let [out, err] = ["out", "err"].map(|name| folder.path().join(name));
    let begin = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_warpline"))
        .args(args)
        .env_remove("WARPLINE")
        .stdin(Stdio::null())
        .stdout(File::create(&out).unwrap())
        .stderr(File::create(&err).unwrap())
        .spawn()
        .unwrap();
    let (ended, peak_kib) = watched(&mut child);
    let wall = begin.elapsed();
    let text = |path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    Ran { status: ended.code(), stdout: text(&out), stderr: text(&err), wall, peak_kib }
}

/// The name of the command's processes in `/proc`.
const NAME: &str = "Name:\twarpline\n";

/// Waits for a run of the command, and returns the most KiB that it had resident, as the kernel counts them (`VmHWM`), up to a millisecond
/// before its end.
pub fn watched(child: &mut Child) -> (ExitStatus, u64) {
    let (status, mut peak_kib, begin) = (format!("/proc/{}/status", child.id()), 0, Instant::now());
    loop {
        if let Some(ended) = child.try_wait().unwrap() {
            assert!(peak_kib > 0 || begin.elapsed() < Duration::from_secs(1), "its memory was never seen");
            return (ended, peak_kib);
        }
        let mut text = fs::read_to_string(&status).unwrap_or_default();
        // A child that has just been started may still show the name and the memory of this process.
        if !text.starts_with(NAME) {
            text.clear();
        }
        let high = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        peak_kib = high.unwrap_or(0).max(peak_kib);
        std::thread::sleep(Duration::from_millis(1));
    }
}
