//! The text of `warpline report` on traces that sessions write now: each differs in its times, which are masked.

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use warpline::collective::ProcessGroup;
use warpline::{HostStream, Session, collective, gpu_zone, host_zone, step};

use crate::support::alone;
use crate::support::texts::assert_golden;

/// Has another zone inside.
#[gpu_zone("cli.golden.step", stream = stream)]
fn train(stream: &HostStream) {
    stream.launch(|| sleep(Duration::from_millis(4)));
    matmul(stream);
}

/// Is inside another zone.
#[gpu_zone("cli.golden.matmul", stream = stream)]
fn matmul(stream: &HostStream) {
    stream.launch(|| sleep(Duration::from_millis(40)));
}

/// Works on its thread.
#[host_zone("cli.golden.load")]
fn load() {
    sleep(Duration::from_millis(1));
}

/// Is the same on all ranks.
#[collective("cli.golden.sum", kind = "all_reduce", count = 1_000, dtype = f32, group = group, op = "sum")]
fn sum(stream: &HostStream, group: &ProcessGroup) {
    stream.launch(|| sleep(Duration::from_millis(1)));
}

fn report(trace: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_warpline"))
        .args(["report", trace.to_str().unwrap()])
        .env_remove("WARPLINE")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The text without what another run may say differently: measured values, the spaces that align them, first calls, and the path.
fn masked(text: &str) -> String {
    let is_kept = |block: &&str| !block.starts_with("on the critical path");
    let blocks: Vec<String> = text
        .split("\n\n")
        .filter(is_kept)
        .map(|block| {
            let lines = block.lines().filter(|line| !line.contains("first call"));
            lines.map(masked_line).collect::<Vec<_>>().join("\n")
        })
        .collect();
    blocks.join("\n\n") + "\n"
}

/// Each number with a unit is `#` with it, and only one space is between words.
fn masked_line(line: &str) -> String {
    const UNITS: [(&str, &[&str]); 3] =
        [("time", &["ns", "µs", "ms", "s"]), ("%", &["%"]), ("rate", &["GB/s", "MB/s", "kB/s", "B/s"])];
    let mut words: Vec<String> = Vec::new();
    for word in line.replace(['│', '≥'], " ").split_whitespace() {
        let unit = word.trim_end_matches([',', ')', ';', ':']);
        let kind = UNITS.iter().find(|(_, units)| units.contains(&unit)).map(|(kind, _)| kind);
        match words.last_mut().filter(|last| is_number(last)).zip(kind) {
            Some((number, kind)) => *number = format!("#{kind}"),
            None => words.push(word.to_owned()),
        }
    }
    words.join(" ")
}

fn is_number(word: &str) -> bool {
    let digits = word.trim_start_matches(['(', '±']);
    digits.starts_with(|c: char| c.is_ascii_digit()) && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
}

#[test]
fn a_program_with_steps() {
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("steps.pftrace");
    let session = Session::builder().perfetto(&trace).quiet().start().unwrap();
    let stream = HostStream::new("compute");
    for number in 0..6_u32 {
        step(number);
        load();
        train(&stream);
        stream.synchronize().unwrap();
    }
    session.finish();
    assert_golden("report/run_with_steps.txt", &masked(&report(&trace)));
}

#[test]
fn two_ranks() {
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..2 {
        let trace = folder.path().join(format!("rank{rank}.pftrace"));
        let session = Session::builder().perfetto(trace).quiet().start().unwrap();
        let (compute, comm) = (HostStream::new("compute"), HostStream::new("comm"));
        let group = ProcessGroup::new("tp0", [0, 1], rank).with_comm_id(7);
        for _ in 0..5 {
            matmul(&compute);
            compute.synchronize().unwrap();
            sum(&comm, &group);
            comm.synchronize().unwrap();
        }
        session.finish();
    }
    // Which of them is slower is up to the machine.
    let text = masked(&report(folder.path())).replace("is that of rank1:", "is that of rank0:");
    assert_golden("report/run_of_two_ranks.txt", &text);
}
