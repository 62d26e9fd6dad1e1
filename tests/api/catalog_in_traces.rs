//! The catalog in the traces of a session: in each file of a rotated trace, in what a flight recorder keeps, and in a trace whose
//! program is killed at once.

use std::fs;

use warpline::sink::{Batch, PerfettoSink, Progress, SessionInfo, Sink};
use warpline::{HostStream, Session, gpu_zone, host_zone};
use warpline_tests::alone;

use crate::trace::{Slice, slices};

/// Fills files.
#[gpu_zone("api.catalog_in_traces.step", fields(step = step, half = step / 2))]
fn step(stream: &HostStream, step: u64) {
    let _ = step;
    stream.launch(|| ());
}

/// Is in the catalog and never runs.
#[host_zone("api.catalog_in_traces.never", level = fine, color = 0x2060C0)]
fn never() {}

fn entries<'a>(slices: &'a [Slice], name: &str) -> Vec<&'a Slice> {
    slices.iter().filter(|slice| slice.track == "catalog" && slice.name == name).collect()
}

/// Whether the slices have the whole catalog of this program `times` times.
fn check(slices: &[Slice], times: usize) {
    let catalog = warpline::catalog();
    let heads = entries(slices, "catalog");
    assert_eq!(heads.len(), times);
    for head in heads {
        assert_eq!(head.argument("hash"), Some(&*format!("{:#018x}", catalog.hash())));
        assert_eq!(head.argument("ranges"), Some(&*catalog.len().to_string()));
        assert_eq!(head.argument("left_out"), None);
    }
    let ranges = entries(slices, "range");
    assert_eq!(ranges.len(), times * catalog.len());
    assert_eq!(entries(slices, "namespace").len(), times * catalog.namespaces().len());
    let of = |name: &str| *ranges.iter().find(|range| range.argument("name") == Some(name)).expect("it is linked");
    let never = of("api.catalog_in_traces.never");
    let said = ["namespace", "description", "kind", "level", "color", "file"].map(|name| never.argument(name));
    let file = Some(file!());
    let expected = ["api", "Is in the catalog and never runs.", "host", "fine", "#2060c0"].map(Some);
    assert_eq!((&said[..5], said[5]), (&expected[..], file));
    assert_eq!(of("api.catalog_in_traces.step").argument("fields"), Some("step half"));
    let mut times: Vec<_> = slices.iter().filter(|slice| slice.track == "catalog").map(|slice| slice.ns).collect();
    times.sort_unstable();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "instants of one time nest");
}

#[test]
fn each_file_of_a_rotated_trace_has_the_catalog() {
    let _turn = alone();
    let folder = std::env::temp_dir().join(format!("warpline-catalog-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    if warpline::catalog().is_empty() {
        never();
    }
    let setting = format!("perfetto={},rotate=4MiB,keep=4,ring=65536,timeout=60s", folder.join("t.pftrace").display());
    let session = Session::builder().settings(&setting).and_then(|session| session.start()).expect("it starts");
    let stream = HostStream::new("compute");
    for n in 0..60_000 {
        step(&stream, n);
        if n % 1_000 == 0 {
            stream.synchronize().expect("nothing panicked");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
    let report = session.finish();
    let files = &report.sinks[0].kept.files;
    assert!(files.len() > 1, "{report}");
    for file in files {
        check(&slices(&fs::read(&file.path).expect("it is there")), 1);
    }
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn the_start_of_a_session_does_not_wait_for_the_catalog() {
    let _turn = alone();
    let path = std::env::temp_dir().join(format!("warpline-catalog-{}.pftrace", std::process::id()));
    let mut sink = PerfettoSink::create(&path).expect("a file");
    let held = || entries(&slices(&fs::read(&path).expect("it is there")), "range").len();
    sink.start(&SessionInfo::now()).expect("room");
    assert_eq!(held(), 0);
    // The collector makes this call ten times a second, also if nothing is recorded.
    sink.progress(&Progress::default()).expect("room");
    check(&slices(&fs::read(&path).expect("it is there")), 1);
    sink.progress(&Progress::default()).expect("room");
    sink.write(Batch::Zones(&[])).expect("room");
    sink.flush().expect("room");
    assert_eq!(held(), warpline::catalog().len(), "it is written once");
    fs::remove_file(&path).expect("it is ours");
}
