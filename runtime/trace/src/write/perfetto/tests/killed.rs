//! Tests that a trace survives `kill -9` with every zone that had been flushed, each identified by its number.
//!
//! The test runs itself in another process, which records until it is killed. After each flush, that process prints the number of
//! zones so far; none of those zones may be missing in the file.

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::decode::slices_of_killed;
use warpline::sink::{Batch, PerfettoSink, Sink};
use warpline::{HostStream, Session};
use warpline_report::fixture::STEP;

/// The path of the trace, which also marks the process that is to be killed.
const TRACE: &str = "WARPLINE_TEST_KILLED";

/// A sink after the trace in the list of sinks, so that zones it reports have been flushed to the file.
struct Witness {
    zones: u64,
}

impl Sink for Witness {
    fn name(&self) -> String {
        "witness".to_owned()
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        self.zones += batch.zones().len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        // Bypasses the test harness, which would capture the output.
        writeln!(io::stdout(), "flushed {}", self.zones)
    }
}

fn record_until_killed(trace: &str) -> ! {
    let sink = PerfettoSink::create(trace).expect("the file can be made");
    let _session = Session::builder().sink(sink).sink(Witness { zones: 0 }).start().expect("no other session");
    let stream = HostStream::new("compute");
    let mut n = 0_u64;
    loop {
        let zone = STEP.zone(&stream).field("n", n);
        stream.launch(|| ());
        // A zone that found the ring full has no number.
        n += u64::from(zone.is_active());
        drop(zone);
        if n.is_multiple_of(64) {
            stream.synchronize().expect("nothing panics");
        }
    }
}

#[test]
#[cfg(unix)]
fn a_killed_process_leaves_every_zone_that_was_flushed() {
    if let Ok(trace) = std::env::var(TRACE) {
        record_until_killed(&trace);
    }
    let trace = std::env::temp_dir().join(format!("warpline-killed-{}.pftrace", std::process::id()));
    let mut child = Command::new(std::env::current_exe().expect("the test's own path"))
        .args([
            "--exact",
            "write::perfetto::tests::killed::a_killed_process_leaves_every_zone_that_was_flushed",
            "--nocapture",
        ])
        .env(TRACE, &trace)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the test can run itself");
    let said = BufReader::new(child.stdout.take().expect("piped")).lines();
    let counts = said.map_while(Result::ok).filter_map(|line| line.strip_prefix("flushed ")?.parse::<u64>().ok());
    let flushed = counts.take(8).last().unwrap_or(0);
    child.kill().expect("it runs");
    child.wait().expect("it was killed");

    let bytes = std::fs::read(&trace).expect("the trace is there");
    std::fs::remove_file(&trace).expect("it is ours");
    let (slices, open) = slices_of_killed(&bytes);
    assert!(flushed > 1_000, "{flushed} zones were flushed, too few to tell anything");
    assert!(open <= 2, "{open} slices are open");
    let on_stream = slices.iter().filter(|slice| slice.track == "compute").flat_map(|slice| &slice.annotations);
    let numbers: HashSet<&str> = on_stream.filter(|(name, _)| name == "n").map(|(_, value)| value.as_str()).collect();
    // Zones of one stream and thread are recorded in order.
    let missing: Vec<u64> = (0..flushed).filter(|n| !numbers.contains(format!("uint {n}").as_str())).collect();
    assert!(missing.is_empty(), "{} of {flushed} zones are missing: {:?} …", missing.len(), missing.first());
}
