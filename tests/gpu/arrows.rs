//! Waits of the streams of a GPU in a session: when they were, whom they were for, and what recording them costs.

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::CudaStream;
use warpline::Session;
use warpline::record::{EndSource, WaitRecord, ZoneRecord};
use warpline::sink::MemorySink;
use warpline::timeline::{Semaphore, declare_wait};
use warpline::timing::EndMode;
use warpline_tests::alone;

use super::timeline::Cuda;
use super::{INNER, MS, OUTER, US, assert_exact, device, start};
use crate::timelines::arrows::random_graphs;
use crate::timelines::device::LONG;

/// What two points and a wait between them take of a stream, at most; and how far a boundary can be off.
const NEAR_NS: i64 = 40_000;

fn spin(stream: &Arc<CudaStream>, ns: u64) {
    device().spin(stream, ns, None).expect("launched");
}

fn two() -> [Arc<CudaStream>; 2] {
    [(); 2].map(|()| device().stream().expect("a stream"))
}

/// One stream works, and signals by `order`, and the other waits and works.
fn recorded(ends: EndMode, order: impl Fn(&Arc<CudaStream>, &Arc<CudaStream>)) -> (WaitRecord, ZoneRecord, ZoneRecord) {
    let [copy, compute] = two();
    // Kernels are loaded, and streams known.
    spin(&copy, US);
    spin(&compute, US);
    device().context.synchronize().expect("idle");
    let (session, memory): (Session, MemorySink) = start(Session::builder().ends(ends));
    {
        let _zone = OUTER.zone(&copy);
        spin(&copy, 5 * MS);
    }
    order(&copy, &compute);
    {
        let _zone = INNER.zone(&compute);
        spin(&compute, MS);
    }
    compute.synchronize().expect("idle");
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.waits.begun, report.waits.recorded), (1, 1), "{report}");
    println!("{report}");
    let zones = memory.take();
    let zone = |name| zones.iter().find(|zone: &&ZoneRecord| zone.range.name() == name).expect("a zone").clone();
    (memory.take_waits().remove(0), zone("cuda_tests.outer"), zone("cuda_tests.inner"))
}

fn check(ends: EndMode, order: impl Fn(&Arc<CudaStream>, &Arc<CudaStream>)) {
    let (wait, copy, used) = recorded(ends, order);
    let (gpu, copy, used) = (wait.gpu.expect("a stream"), copy.gpu.expect("a stream"), used.gpu.expect("a stream"));
    let signal = wait.signal.as_ref().expect("the other stream");
    println!("{ends:?}: wait {gpu:?} ({} ns), copy {copy:?}, use {used:?}, signal {signal:?}", gpu.duration_ns());
    assert_eq!(wait.end, if ends == EndMode::Eager { EndSource::Event } else { EndSource::Boundary });
    assert!(gpu.duration_ns() > 4_000_000 && gpu.begin_ns < signal.at_ns, "it waited");
    assert!(signal.at_ns <= gpu.end_ns && gpu.end_ns - signal.at_ns < NEAR_NS, "{} ns", gpu.end_ns - signal.at_ns);
    assert!((used.begin_ns - gpu.end_ns).abs() < NEAR_NS);
    if ends == EndMode::Eager {
        assert!((gpu.end_ns - copy.end_ns).abs() < NEAR_NS, "the wait ended with the copy");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_wait_ends_when_the_other_streams_work_does() {
    let _turn = alone();
    for ends in [EndMode::Eager, EndMode::Lazy] {
        check(ends, |copy, compute| {
            let copied = Semaphore::named("copied", 0);
            copied.signal_on(copy, 1).expect("recorded");
            copied.wait_on(compute, 1).expect("queued");
        });
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_wait_of_cudarcs_is_declared_with_one_call() {
    let _turn = alone();
    for ends in [EndMode::Eager, EndMode::Lazy] {
        check(ends, |copy, compute| {
            let event = copy.record_event(None).expect("recorded");
            declare_wait("copied", compute, copy, || compute.wait(&event)).expect("queued");
        });
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn arrows_in_the_trace_are_the_edges_of_random_graphs() {
    let _turn = alone();
    random_graphs(&Cuda, 16, 100);
}

/// Streams in pairs: in each, one works in pieces, and the other waits for each piece and works.
fn pairs_ms(pairs: usize, pieces: u64) -> f64 {
    let streams: Vec<_> = (0..pairs).map(|_| two()).collect();
    let semaphores: Vec<_> = streams.iter().map(|_| Semaphore::new(0)).collect();
    device().context.synchronize().expect("idle");
    let begin = Instant::now();
    for piece in 1..=pieces {
        for ([first, second], semaphore) in streams.iter().zip(&semaphores) {
            spin(first, 100 * US);
            semaphore.signal_on(first, piece).expect("recorded");
            semaphore.wait_on(second, piece).expect("queued");
            spin(second, 100 * US);
        }
    }
    for (semaphore, [_, second]) in semaphores.iter().zip(&streams) {
        semaphore.signal_on(second, pieces + 1).expect("recorded");
        semaphore.wait(pieces + 1, LONG).expect("it ends");
    }
    begin.elapsed().as_secs_f64() * 1e3
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn recording_waits_costs_streams_no_overlap() {
    let _turn = alone();
    for pairs in [1, 2, 4, 8] {
        pairs_ms(pairs, 8);
        let mut without: Vec<f64> = (0..5).map(|_| pairs_ms(pairs, 40)).collect();
        let (session, memory) = start(Session::builder());
        // The session gets to know how many streams there are.
        pairs_ms(pairs, 40);
        std::thread::sleep(std::time::Duration::from_millis(100));
        let mut with: Vec<f64> = (0..5).map(|_| pairs_ms(pairs, 40)).collect();
        let report = session.finish();
        assert_exact(&report);
        assert_eq!(report.waits.recorded, memory.take_waits().len() as u64);
        without.sort_by(f64::total_cmp);
        with.sort_by(f64::total_cmp);
        println!("{pairs} pairs: {:.2} ms without a session, {:.2} ms while waits are recorded", without[2], with[2]);
        assert!(with[2] < without[2] * 1.5 + 1.0, "{with:?} {without:?}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn what_a_signal_and_a_wait_cost_their_thread_while_they_are_recorded() {
    let _turn = alone();
    let [first, second] = two();
    let semaphore = Semaphore::new(0);
    let mut value = 0;
    let mut ns = || {
        let mut rounds: Vec<f64> = (0..21)
            .map(|_| {
                let begin = Instant::now();
                for _ in 0..128 {
                    value += 1;
                    semaphore.signal_on(&first, value).expect("recorded");
                    semaphore.wait_on(&second, value).expect("queued");
                }
                let ns = begin.elapsed().as_nanos() as f64 / 128.0;
                semaphore.wait(value, LONG).expect("it ends");
                second.synchronize().expect("idle");
                ns
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        rounds[10]
    };
    let without = ns();
    for ends in [EndMode::Eager, EndMode::Lazy] {
        let (session, _) = start(Session::builder().ends(ends));
        let with = ns();
        let report = session.finish();
        println!(
            "{ends:?}: a signal and a wait: {without:.0} ns without a session, {with:.0} ns while it records; {report}"
        );
        assert_exact(&report);
        let after = ns();
        assert!(after < without * 1.5 + 500.0, "{after} ns after a session, {without} before");
    }
}
