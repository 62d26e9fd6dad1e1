//! Replays of graphs in a session with `graph_timing`, on a stub driver: a batch of collectives has its entries.
#![cfg(target_os = "linux")]

#[path = "stub-driver/harness.rs"]
mod stub;
#[path = "stub-driver/zones.rs"]
mod zones;

use std::ffi::c_void;
use std::thread;
use std::time::{Duration, Instant};

use stub::*;
use warpline::graph::{GraphZones, RawGraph};
use warpline::{CollectiveKind, DataType, GraphTiming, MemorySink, Message, ProcessGroup, ReplayRecord};
use zones::*;

warpline::namespace!("cuda_replays", "zones that are captured and timed");

warpline::range! {
    GRADIENTS = "cuda_replays.gradients": "Sums all gradients.", kind = collective;
    GRADIENT = "cuda_replays.gradient": "Sums one gradient.", kind = collective;
}

const US: u64 = 1_000;

/// A graph that is registered, and an executable one of it.
struct Captured {
    graph: RawGraph,
    exec: Handle,
    zones: GraphZones,
}

fn captured(driver: &Stub, stream: Handle, work: impl FnOnce()) -> Captured {
    let (mut graph, mut exec) = (0, 0);
    assert_eq!(driver.cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
    work();
    assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), SUCCESS);
    assert_eq!(driver.cuGraphInstantiateWithFlags(&mut exec, graph, 0), SUCCESS);
    // SAFETY: the stub driver treats handles as numbers; no other thread uses the graph.
    let graph = unsafe { RawGraph::from_ptr(graph as *mut c_void, exec as *mut c_void) };
    let zones = GraphZones::of(&graph).expect("a graph that is alive");
    Captured { graph, exec, zones }
}

fn kernel(driver: &Stub, stream: Handle, us: u64) {
    assert_eq!(driver.stub_launch(stream, us * US), SUCCESS);
}

/// Waits until the collector has handed out so many replays.
fn wait_for_replays(sink: &MemorySink, count: usize) -> Vec<ReplayRecord> {
    let (mut taken, since) = (Vec::new(), Instant::now());
    while taken.len() < count && since.elapsed() < Duration::from_secs(20) {
        taken.extend(sink.take_replays());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(taken.len(), count);
    taken
}

#[test]
fn a_batch_of_collectives_has_its_entries_in_every_timed_replay() {
    on_stub("a_batch_of_collectives_has_its_entries_in_every_timed_replay", |driver| {
        driver.start();
        for timing in [GraphTiming::Stamps, GraphTiming::Events] {
            let (session, sink) = start(|builder| builder.graph_timing(timing));
            let (stream, group) = (driver.stream(), ProcessGroup::new("tp0", [0, 1], 0));
            let message =
                |count: u64| Message::new(CollectiveKind::AllReduce).count(count).dtype(DataType::F32).group(&group);
            let captured = captured(driver, stream, || {
                let mut batch = GRADIENTS.batch(&raw(stream));
                (1..=3).for_each(|n| batch.add(&GRADIENT, || message(1_000 * n)));
                kernel(driver, stream, 30);
            });
            for _ in 0..4 {
                captured.zones.before_launch(&captured.graph).expect("exchanged");
                assert_eq!(driver.cuGraphLaunch(captured.exec, stream), SUCCESS);
            }
            for replay in wait_for_replays(&sink, 4) {
                assert_eq!((replay.kernels, replay.zones.len()), (1, 4), "{timing:?}");
                let [batch, entries @ ..] = &replay.zones[..] else { panic!("{replay:?}") };
                assert_eq!((batch.zone.range.name(), batch.lane.as_deref()), (GRADIENTS.name(), None));
                for (entry, index) in entries.iter().zip(0..) {
                    let of = entry.zone.entry.expect("an entry of the batch");
                    assert_eq!((of.index, of.of, of.share), (index, 3, f64::from(index + 1) / 6.0));
                    assert_eq!((entry.zone.gpu, entry.zone.bracket_ns), (batch.zone.gpu, batch.zone.bracket_ns));
                    assert_eq!((entry.lane.as_deref(), entry.kernels), (Some(group.lane()), 1));
                    let said = entry.zone.message.as_ref().expect("what it moves");
                    assert_eq!((said.count, said.seq), (Some(1_000 * u64::from(index + 1)), Some(index.into())));
                    assert!(entry.zone.bandwidth().is_some_and(|bandwidth| bandwidth.algorithm > 0.0));
                }
            }
            let report = session.finish();
            assert_exact(&report);
            // As `begun` counts entries, so do the zones of replays.
            assert_eq!((report.captured, report.graph_timing.zones), (4, 16), "{report}");
        }
    });
}
