//! A step of two ranks on two GPUs, eagerly and as a graph: the figures of the report are the same. `run.sh` leaves this out where there is
//! one GPU; `replays` has the same for one, without NCCL.

use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use gpu::{DeviceMemory, Result};
use warpline::Session;
use warpline::collective::{CollectiveKind, DataType, Message};
use warpline::record::ReplayTiming;
use warpline::report::{CollectiveStats, RangeStats, Report};
use warpline::sink::MemorySink;
use warpline::timing::{EndMode, GraphTiming};
use warpline_tests::{alone, this_test};

use super::captured::{capture, register};
use super::collectives::{RANKS, Rank, on_two_gpus};
use super::{CHILD, US, assert_exact, child_with, start};

warpline::range! {
    FORWARD = "cuda_tests.graphed_forward": "Before the gradients.";
    BACKWARD = "cuda_tests.graphed_backward": "Beside the sum of the gradients.";
    GRADIENTS = "cuda_tests.graphed_gradients": "Sums the gradients of both ranks.", kind = collective;
}

const STEPS: usize = 20;

/// Some 128 MiB: half a millisecond or more between two GPUs.
const COUNT: usize = 32 << 20;

/// The kernels beside it.
const BESIDE_US: u64 = 200;

/// What begins and ends of a zone with two kernels add: brackets, and launches within a graph.
const MARGIN_NS: i64 = 15_000;

/// What a rank has besides.
struct Step<'a> {
    rank: &'a Rank,
    compute: Arc<CudaStream>,
    gradients: DeviceMemory,
    barrier: DeviceMemory,
}

impl<'a> Step<'a> {
    fn new(rank: &'a Rank) -> Step<'a> {
        let memory = |count: usize| DeviceMemory::zeroed(count * size_of::<f32>()).expect("memory");
        let step =
            Step { compute: rank.gpu.stream().expect("a stream"), gradients: memory(COUNT), barrier: memory(1), rank };
        // The streams do not wait for the default stream, on which the zeros are written.
        rank.gpu.context.synchronize().expect("no error");
        step
    }

    fn sum(&self, memory: &DeviceMemory, count: usize) -> Result {
        let Rank { comm, stream, .. } = self.rank;
        // SAFETY: there are so many elements, which live until the streams are synchronised; one thread calls.
        Ok(unsafe { comm.all_reduce(memory.0, memory.0, count, stream.cu_stream().cast()) }?)
    }

    /// 100 µs of kernels, then a sum beside 200 µs of kernels. Both ranks begin it together: the wait of one for the other's launch is
    /// before it, in a sum that is not marked.
    fn queue(&self) -> Result {
        let Rank { gpu, stream: comm, group, .. } = self.rank;
        comm.wait(&self.compute.record_event(None)?)?;
        self.sum(&self.barrier, 1)?;
        self.compute.wait(&comm.record_event(None)?)?;
        {
            let _zone = FORWARD.zone(&self.compute);
            (0..2).try_for_each(|_| gpu.spin(&self.compute, 50 * US, None))?;
        }
        comm.wait(&self.compute.record_event(None)?)?;
        {
            let message = Message::new(CollectiveKind::AllReduce).count(COUNT).dtype(DataType::F32).group(group);
            let _zone = GRADIENTS.zone(comm).message(message);
            self.sum(&self.gradients, COUNT)?;
        }
        {
            let _zone = BACKWARD.zone(&self.compute);
            (0..2).try_for_each(|_| gpu.spin(&self.compute, BESIDE_US * US / 2, None))?;
        }
        Ok(self.compute.wait(&comm.record_event(None)?)?)
    }

    fn synchronize(&self) {
        self.compute.synchronize().expect("no error");
        self.rank.stream.synchronize().expect("no error");
    }
}

/// Waits until so many replays are complete.
fn wait_for_replays(sink: &MemorySink, count: usize, timing: ReplayTiming) {
    let (mut replays, since) = (Vec::new(), Instant::now());
    while replays.len() < count && since.elapsed() < Duration::from_secs(20) {
        replays.extend(sink.take_replays());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(replays.len(), count);
    assert!(replays.iter().all(|replay| replay.timed_by == timing && replay.unplaced == 0), "{replays:?}");
}

/// Each range of one report with that of the same name of the other.
fn pairs<'a>(eager: &'a Report, graphed: &'a Report) -> Vec<(&'a RangeStats, &'a RangeStats)> {
    assert_eq!((eager.ranges.len(), graphed.ranges.len()), (3, 3), "{eager}\n{graphed}");
    let other = |one: &RangeStats| graphed.ranges.iter().find(|other| other.name == one.name);
    eager.ranges.iter().map(|one| (one, other(one).expect("the same ranges"))).collect()
}

fn one(report: &Report) -> &CollectiveStats {
    let [one] = &report.collectives[..] else { panic!("one kind in one group: {report}") };
    one
}

fn assert_same(eager: &Report, graphed: &Report) {
    for (one, other) in pairs(eager, graphed) {
        assert_eq!((one.count, one.in_replays), (STEPS as u64 * u64::from(RANKS), false), "{eager}");
        assert_eq!((other.count, other.in_replays), (one.count, true), "{graphed}");
        // Kernels of NCCL take other times in other runs; the others spin for theirs.
        let share = if one.name == GRADIENTS.name() { 10 } else { 50 };
        let (p50_ns, other_ns) = (one.p50_ns, other.p50_ns);
        assert!((p50_ns - other_ns).abs() < MARGIN_NS + p50_ns / share, "{}: {p50_ns} and {other_ns} ns", one.name);
        // The mean is the busy time by the count; one step of 20 may take longer.
        let (mean_ns, other_ns) = (one.total_ns / one.count as i64, other.total_ns / other.count as i64);
        assert!((mean_ns - other_ns).abs() < 2 * MARGIN_NS + mean_ns / 5, "{}: {mean_ns} and {other_ns} ns", one.name);
    }
    let (one, other) = (one(eager), one(graphed));
    assert_eq!((one.count, one.sized, one.bytes, &one.group), (other.count, other.sized, other.bytes, &other.group));
    assert_eq!((one.kind, one.bytes), (CollectiveKind::AllReduce, one.count * COUNT as u64 * 4));
    let bus = |of: &CollectiveStats| of.bus_p50.expect("size and group are known");
    assert!((bus(other) / bus(one) - 1.0).abs() < 0.15, "{:.3e} and {:.3e} bytes/s", bus(one), bus(other));
    // What is beside the sum, of the sum.
    let wanted = |of: &CollectiveStats| (BESIDE_US * US) as f64 * of.count as f64 / of.total_ns as f64;
    for of in [one, other] {
        assert!(
            (of.hidden - wanted(of).min(1.0)).abs() < 0.1,
            "{:.2} hidden, not {:.2}: {of:?}",
            of.hidden,
            wanted(of)
        );
    }
    assert!((one.hidden - other.hidden).abs() < 0.1, "{:.2} and {:.2} hidden", one.hidden, other.hidden);
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn a_graphed_run_of_two_ranks_has_the_figures_of_the_eager_run() {
    if std::env::var_os(CHILD).is_none() {
        let _turn = alone();
        // Otherwise NCCL registers the buffers of graphs, and moves data in another way in them.
        println!("{}", child_with(this_test!(), "alone", &[("NCCL_GRAPH_REGISTER", "0")]));
        return;
    }
    two_ranks();
}

fn two_ranks() {
    let together = Barrier::new(RANKS as usize);
    // Of the sessions, which rank 0 starts and ends for both.
    let session: Mutex<Option<(Session, MemorySink)>> = Mutex::new(None);
    let reports = Mutex::new(Vec::new());
    let lock = || session.lock().unwrap_or_else(PoisonError::into_inner);
    on_two_gpus(|rank| {
        let step = Step::new(rank);
        let leads = rank.comm.rank() == 0;
        // Connects the ranks, and loads the kernels.
        step.queue().expect("launched");
        step.synchronize();
        let begin = |builder| {
            if leads {
                *lock() = Some(start(builder));
            }
            together.wait();
        };
        let end = |timing: Option<ReplayTiming>| {
            together.wait();
            if leads {
                let (session, sink) = lock().take().expect("it was started");
                if let Some(timing) = timing {
                    wait_for_replays(&sink, STEPS * RANKS as usize, timing);
                }
                let report = session.finish();
                assert_exact(&report);
                reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
            }
            together.wait();
        };
        begin(Session::builder().ends(EndMode::Eager));
        for _ in 0..STEPS {
            together.wait();
            step.queue().expect("launched");
            step.synchronize();
        }
        end(None);
        let stamps = Session::builder().graph_timing(GraphTiming::Stamps);
        for (timing, builder) in
            [(ReplayTiming::Stamps, stamps), (ReplayTiming::Kernels, Session::builder().kernels(true))]
        {
            begin(builder);
            let graph = capture(&step.compute, || step.queue());
            let zones = register(&graph, 0);
            for _ in 0..STEPS {
                together.wait();
                graph.launch(0, &step.compute).expect("launched");
                step.synchronize();
            }
            end(Some(timing));
            drop((zones, graph));
        }
    });
    let reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
    let [eager, stamps, kernels] = &reports[..] else { panic!("three sessions") };
    for (name, report) in [("eager", eager), ("stamps", stamps), ("kernels", kernels)] {
        let of = one(report);
        println!("child: {name}: {:.1} GB/s, {:.3} hidden; ", of.bus_p50.unwrap_or(f64::NAN) / 1e9, of.hidden);
        for range in &report.ranges {
            println!("child: {} {} times, p50 {} ns; ", range.name, range.count, range.p50_ns);
        }
    }
    assert_same(eager, stamps);
    assert_same(eager, kernels);
}
