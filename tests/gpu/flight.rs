//! The flight recorder on a real GPU: what a hung kernel, a lost context, a panic and `kill -9` leave, and what it costs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use gpu::{Gpu, Pinned};
use warpline::recovery::{Recovered, recover};
use warpline::{Session, SessionBuilder};
use warpline_tests::{alone, resident_bytes};

use super::trace::{Slice, slices};
use super::{BAD, HUNG, KERNEL, MS, US, assert_exact, device, memory};
use crate::child::{Child, kill_me, scratch, when_killed};

const LONG: Duration = Duration::from_secs(30);
const STALL: Duration = Duration::from_millis(500);

fn beside(path: &Path, what: &str) -> PathBuf {
    PathBuf::from(format!("{}.{what}", path.display()))
}

fn appears(path: &Path) {
    let begin = Instant::now();
    while !path.exists() {
        assert!(begin.elapsed() < LONG, "no `{}`", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn recovered(path: &Path) -> (Recovered, Vec<Slice>) {
    let mut trace = Vec::new();
    let found = recover(&mut fs::File::open(path).expect("the file is there"), &mut trace).expect("it has zones");
    (found, slices(&trace))
}

fn kernels(gpu: &Gpu, stream: &Arc<CudaStream>, count: u64) {
    for n in 0..count {
        let _zone = KERNEL.zone(stream).field("n", n);
        gpu.spin(stream, 5 * US, None).expect("launched");
    }
    stream.synchronize().expect("no error");
}

/// In a process that is to be killed: a session with a flight recorder, and a thousand zones on a stream.
fn recording(file: &str, builder: SessionBuilder) -> (&'static Gpu, Arc<CudaStream>, Session) {
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let session = builder.budget(1.0).flight_at(1 << 20, file).start().expect("no other session");
    kernels(gpu, &stream, 1_000);
    (gpu, stream, session)
}

/// The line at which the zone of [`hang`] begins: its range is declared in another file.
const HANG: u32 = line!() + 4;

fn hang(gpu: &Gpu, stream: &Arc<CudaStream>) -> Pinned {
    let flag = Pinned::new(1).expect("memory");
    let _zone = HUNG.zone(stream).field("layer", 12_u64);
    gpu.hang(stream, flag.as_ptr()).expect("launched");
    flag
}

#[track_caller]
fn names_the_hung_zone(slices: &[Slice]) {
    let hung = slices.iter().find(|slice| slice.name == "cuda_tests.hung").unwrap_or_else(|| panic!("{slices:#?}"));
    assert_eq!((hung.argument("status"), hung.argument("layer")), (Some("open"), Some("12")));
    assert_eq!(hung.argument("open"), Some("the stream has not come to its end"));
    let place = format!("{}:{HANG}", file!());
    assert_eq!(hung.argument("began_at"), Some(place.as_str()), "{hung:?}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_hung_kernel_is_told_and_kill_9_leaves_what_it_hung_at() {
    let test = "flight::a_hung_kernel_is_told_and_kill_9_leaves_what_it_hung_at";
    if let Some(file) = when_killed(test) {
        let (gpu, stream, session) = recording(&file, Session::builder().stall(STALL));
        let well = gpu.stream().expect("a stream");
        let _flag = hang(gpu, &stream);
        let begin = Instant::now();
        let trace = beside(file.as_ref(), "stall.pftrace");
        while !trace.exists() {
            kernels(gpu, &well, 100);
            assert!(begin.elapsed() < LONG);
        }
        println!("told after {:?}", begin.elapsed());
        let found = session.dump(beside(file.as_ref(), "dump.pftrace")).expect("it is written beside a hung kernel");
        assert!(found.open_zones >= 1 && found.zones >= 1_000, "{found:?}");
        kill_me();
    }
    let file = scratch("cuda-hung");
    Child::start(test, &file).wait_until_killed();
    for name in ["stall.pftrace", "dump.pftrace"] {
        names_the_hung_zone(&slices(&fs::read(beside(&file, name)).expect("it is there")));
    }
    let (found, slices) = recovered(&file);
    println!("{found:?}");
    names_the_hung_zone(&slices);
    let said = slices.iter().find(|slice| slice.name.contains("it is at `cuda_tests.hung` (layer = 12), which thread"));
    let said = &said.unwrap_or_else(|| panic!("{slices:#?}")).name;
    assert!(said.ends_with(&format!(" s ago at {}:{HANG}", file!())), "{said}");
    println!("{said}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn kill_9_in_the_middle_of_a_kernel_leaves_its_zone() {
    let test = "flight::kill_9_in_the_middle_of_a_kernel_leaves_its_zone";
    if let Some(file) = when_killed(test) {
        let (gpu, stream, _session) = recording(&file, Session::builder());
        let _flag = hang(gpu, &stream);
        // The recorder looks ten times a second.
        std::thread::sleep(Duration::from_millis(500));
        kill_me();
    }
    let file = scratch("cuda-killed");
    Child::start(test, &file).wait_until_killed();
    let (found, slices) = recovered(&file);
    assert!((found.zones, found.open_zones, found.has_incident) == (1_000, 1, false), "{found:?}");
    names_the_hung_zone(&slices);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_lost_context_leaves_a_trace_that_names_the_zone() {
    let test = "flight::a_lost_context_leaves_a_trace_that_names_the_zone";
    if let Some(file) = when_killed(test) {
        let (gpu, stream, session) = recording(&file, Session::builder());
        std::thread::sleep(Duration::from_millis(200));
        {
            let _zone = BAD.zone(&stream).field("step", 7_u64);
            gpu.spin(&stream, 300 * MS, None).expect("launched");
            gpu.poke(&stream, 16).expect("launched");
        }
        stream.synchronize().expect_err("address 16 is nobody's");
        appears(&beside(file.as_ref(), "stream_failed.pftrace"));
        let report = session.finish();
        assert_exact(&report);
        println!("{report}");
        kill_me();
    }
    let file = scratch("cuda-lost");
    Child::start(test, &file).wait_until_killed();
    for slices in [slices(&fs::read(beside(&file, "stream_failed.pftrace")).expect("it is there")), recovered(&file).1]
    {
        let bad = slices.iter().find(|slice| slice.name == "cuda_tests.bad").unwrap_or_else(|| panic!("{slices:#?}"));
        assert_eq!((bad.argument("status"), bad.argument("step")), (Some("open"), Some("7")));
        let said = slices.iter().find(|slice| slice.name.contains("it was at `cuda_tests.bad` (step = 7)"));
        let said = &said.unwrap_or_else(|| panic!("{slices:#?}")).name;
        assert!(said.contains("ILLEGAL_ADDRESS") || said.contains("illegal"), "{said}");
        println!("{said}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_panic_beside_a_hung_kernel_leaves_a_trace() {
    let test = "flight::a_panic_beside_a_hung_kernel_leaves_a_trace";
    if let Some(file) = when_killed(test) {
        let (gpu, stream, _session) = recording(&file, Session::builder());
        let _flag = hang(gpu, &stream);
        let begin = Instant::now();
        let _ = std::panic::catch_unwind(|| panic!("the loss is NaN"));
        println!("the hook took {:?}", begin.elapsed());
        assert!(begin.elapsed() < Duration::from_secs(2));
        kill_me();
    }
    let file = scratch("cuda-panic");
    Child::start(test, &file).wait_until_killed();
    names_the_hung_zone(&slices(&fs::read(beside(&file, "panic.pftrace")).expect("it is there")));
}

/// What a launch costs its thread, in ns: the median of rounds.
fn median_ns(stream: &Arc<CudaStream>, launch: impl Fn(u64)) -> f64 {
    let mut rounds: Vec<_> = (0..40)
        .map(|_| {
            let begin = Instant::now();
            (0..500).for_each(&launch);
            let ns = begin.elapsed().as_nanos() as f64 / 500.0;
            stream.synchronize().expect("no error");
            ns
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// The same of a launch in a zone.
fn cost_ns(gpu: &Gpu, stream: &Arc<CudaStream>, builder: SessionBuilder) -> f64 {
    let session = builder.start().expect("no other session");
    let ns = median_ns(stream, |n| {
        let _zone = KERNEL.zone(stream).field("n", n);
        gpu.null(stream).expect("launched");
    });
    assert_exact(&session.finish());
    ns
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn what_the_recorder_costs() {
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    drop(memory().0.finish());
    let folder = scratch("cuda-cost");
    let mut ratios = Vec::new();
    for round in 0..5 {
        let none = median_ns(&stream, |_| gpu.null(&stream).expect("launched"));
        let plain = cost_ns(gpu, &stream, Session::builder());
        let perfetto = cost_ns(gpu, &stream, Session::builder().perfetto(beside(&folder, "pftrace")));
        let flight =
            cost_ns(gpu, &stream, Session::builder().budget(1.0).flight_at(64 << 20, beside(&folder, "flight")));
        println!(
            "round {round}: a launch {none:.0} ns; with a zone {plain:.0} ns with no sink, {perfetto:.0} with a trace, {flight:.0} with a flight recorder"
        );
        ratios.push(flight / plain);
    }
    // A launching thread shares its machine with others: single rounds are up to 40 % apart.
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[2] < 1.2, "with the recorder a zone costs {ratios:.2?} of one without");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_long_run_keeps_its_newest_zones_in_flat_memory() {
    const ZONES: u64 = 1_000_000;
    let _turn = alone();
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let (trace, file) = (scratch("cuda-long-trace"), scratch("cuda-long"));
    let session = Session::builder().perfetto(&trace).rotate(16 << 20).keep(3).flight_at(16 << 20, &file);
    let session = session.start().expect("no other session");
    let (begin, mut resident) = (Instant::now(), Vec::new());
    for part in 0..20 {
        for n in part * ZONES / 20..(part + 1) * ZONES / 20 {
            let _zone = KERNEL.zone(&stream).field("n", n);
            gpu.null(&stream).expect("launched");
            if n % 512 == 511 {
                drop(_zone);
                stream.synchronize().expect("no error");
            }
        }
        resident.push(resident_bytes() >> 10);
    }
    let took = begin.elapsed();
    let report = session.finish();
    assert_exact(&report);
    assert_eq!(report.begun, ZONES);
    println!("{ZONES} zones in {took:?}; resident KiB {resident:?}\n{report}");
    for sink in &report.sinks {
        let there: u64 = sink.kept.files.iter().map(|file| file.zones).sum();
        assert_eq!(there + sink.kept.removed_zones, report.recorded, "{}: {report}", sink.name);
    }
    let (early, late) = (resident[5..10].iter().max().expect("some"), resident[10..].iter().max().expect("some"));
    assert!(late.saturating_sub(*early) < 8 << 10, "resident memory grew: {resident:?}");
}
