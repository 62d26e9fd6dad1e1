//! Traces of two ranks, each a process of its own: `cargo xtask gate --self-test` reads each, and both in an archive.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, thread};

use warpline::collective::ProcessGroup;
use warpline::{HostStream, Session, collective, gpu_zone};
use warpline_tests::{again, this_test};

/// Longer than what the points of a zone add.
const MOVES: Duration = Duration::from_millis(1);

/// Compute.
#[gpu_zone("api.ranks.compute")]
fn compute(stream: &HostStream) {
    stream.launch(|| thread::sleep(MOVES / 2));
}

/// Sums over the ranks.
#[collective("api.ranks.sum", kind = "all_reduce", count = 1_000, dtype = f32, group = group, op = "sum")]
fn sum(stream: &HostStream, group: &ProcessGroup) {
    stream.launch(|| thread::sleep(MOVES));
}

/// To the other rank, or from it.
#[collective("api.ranks.send", kind = "send", count = 16, dtype = "bf16", group = group, peer = 1 - group.rank(), fields(dtype = "own"))]
fn send(stream: &HostStream, group: &ProcessGroup) {
    stream.launch(|| thread::sleep(MOVES));
}

/// Says to a child which rank it is.
const RANK: &str = "WARPLINE_TEST_RANK";

fn path(rank: u32, suffix: &str) -> PathBuf {
    let folder = env::var_os("WARPLINE_GATE_DIR").map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    folder.join(format!("rank{rank}.{suffix}"))
}

fn run(rank: u32) {
    let session = Session::builder().perfetto(path(rank, "pftrace")).chrome(path(rank, "json")).start();
    let session = session.expect("no other session");
    let (main, comm) = (HostStream::new("main"), HostStream::new("comm"));
    let both = ProcessGroup::new("tp0", [0, 1], rank).with_description("tensor parallel").with_comm_id(99);
    let pipeline = ProcessGroup::new("pp", [0, 1], rank);
    for _ in 0..4 {
        compute(&main);
        sum(&comm, &both);
    }
    send(&comm, &pipeline);
    let report = session.finish();
    assert_eq!((report.begun, report.recorded, report.collectives.len()), (9, 9, 2), "{report}");
}

#[test]
fn traces_of_two_ranks() {
    if let Some(rank) = env::var(RANK).ok().and_then(|rank| rank.parse().ok()) {
        return run(rank);
    }
    for rank in 0..2 {
        let mut child = again(this_test!(), RANK, rank.to_string());
        let child = child.env("RANK", rank.to_string()).output().expect("the test runs again");
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        assert_eq!(rank_in(&path(rank, "json")), Some(u64::from(rank)));
    }
}

/// The rank that a Chrome trace says.
fn rank_in(path: &Path) -> Option<u64> {
    let trace: serde_json::Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    trace["distributedInfo"]["rank"].as_u64()
}
