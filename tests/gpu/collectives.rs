//! Collectives of NCCL on two GPUs, a thread for each: what they move is checked number by number, and what their records
//! say is held against what was called. `run.sh` leaves these tests out where there is one GPU.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::{CudaStream, result};
use gpu::{DeviceMemory, Gpu};
use nccl::{Comm, Error, Library};
use tensor::{Device, Rendezvous};
use warpline::catalog::Kind;
use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup, ReduceOp};
use warpline::record::{DeviceKind, ReplayRecord, Status, ZoneRecord};
use warpline::sink::MemorySink;
use warpline::timing::EndMode;
use warpline::{Session, collective};
use warpline_tests::alone;

use super::{MS, assert_exact, block};

warpline::range! {
    BATCH = "cuda_tests.nccl_batch": "Sums in one group of calls.", kind = collective;
    ENTRY = "cuda_tests.nccl_entry": "One of them.", kind = collective;
}

pub(super) const RANKS: u32 = 2;

/// Elements of a rank's part.
const COUNT: usize = 10_007;

/// Of a buffer: a part for each rank.
const ALL: usize = COUNT * RANKS as usize;

const ROOT: u32 = 1;

/// One rank, on a GPU of its own. What it has for the device goes before the device.
pub(super) struct Rank {
    pub(super) comm: Comm,
    pub(super) group: ProcessGroup,
    from: DeviceMemory,
    to: DeviceMemory,
    pub(super) stream: Arc<CudaStream>,
    pub(super) gpu: Gpu,
}

/// Sums over the ranks.
#[collective("cuda_tests.nccl_all_reduce", kind = "all_reduce", stream = rank.stream, count = ALL, dtype = f32, group = rank.group, op = "sum", err)]
fn all_reduce(rank: &Rank) -> Result<(), Error> {
    // SAFETY: the buffers have `ALL` elements, and live until the stream is synchronised. So it is for those below.
    unsafe { rank.comm.all_reduce(rank.from.0, rank.to.0, ALL, rank.raw()) }
}

/// Gathers from all ranks.
#[collective("cuda_tests.nccl_all_gather", kind = "all_gather", stream = rank.stream, count = COUNT, dtype = f32, group = rank.group, err)]
fn all_gather(rank: &Rank) -> Result<(), Error> {
    // SAFETY: as above.
    unsafe { rank.comm.all_gather(rank.from.0, rank.to.0, COUNT, rank.raw()) }
}

/// Sums over the ranks, to each its part.
#[collective("cuda_tests.nccl_reduce_scatter", kind = "reduce_scatter", stream = rank.stream, count = ALL, dtype = f32, group = rank.group, op = ReduceOp::Sum, err)]
fn reduce_scatter(rank: &Rank) -> Result<(), Error> {
    // SAFETY: as above.
    unsafe { rank.comm.reduce_scatter(rank.from.0, rank.to.0, COUNT, rank.raw()) }
}

/// From one rank to all.
#[collective("cuda_tests.nccl_broadcast", kind = "broadcast", stream = rank.stream, count = ALL, dtype = DataType::F32, group = rank.group, root = root, err)]
fn broadcast(rank: &Rank, root: u32) -> Result<(), Error> {
    // SAFETY: as above; NCCL refuses a root that it does not have.
    unsafe { rank.comm.broadcast(rank.from.0, rank.to.0, ALL, root, rank.raw()) }
}

/// Sums over the ranks, for one of them.
#[collective("cuda_tests.nccl_reduce", kind = "reduce", stream = rank.stream, count = ALL, dtype = f32, group = rank.group, root = ROOT, op = "sum", err)]
fn reduce(rank: &Rank) -> Result<(), Error> {
    // SAFETY: as above.
    unsafe { rank.comm.reduce(rank.from.0, rank.to.0, ALL, ROOT, rank.raw()) }
}

/// From each rank to each.
#[collective("cuda_tests.nccl_all_to_all", kind = "all_to_all", stream = rank.stream, count = ALL, dtype = f32, group = rank.group, err)]
fn all_to_all(rank: &Rank) -> Result<(), Error> {
    // SAFETY: as above.
    unsafe { rank.comm.all_to_all(rank.from.0, rank.to.0, COUNT, rank.raw()) }
}

/// From all ranks to one.
#[collective("cuda_tests.nccl_gather", kind = "gather", stream = rank.stream, count = COUNT, dtype = f32, group = rank.group, root = ROOT, err)]
fn gather(rank: &Rank) -> Result<(), Error> {
    // SAFETY: as above.
    unsafe { rank.comm.gather(rank.from.0, rank.to.0, COUNT, ROOT, rank.raw()) }
}

/// From one rank to each its part.
#[collective("cuda_tests.nccl_scatter", kind = "scatter", stream = rank.stream, count = ALL, dtype = f32, group = rank.group, root = ROOT, err)]
fn scatter(rank: &Rank) -> Result<(), Error> {
    // SAFETY: as above.
    unsafe { rank.comm.scatter(rank.from.0, rank.to.0, COUNT, ROOT, rank.raw()) }
}

/// To the other rank.
#[collective("cuda_tests.nccl_send", kind = "send", stream = rank.stream, count = ALL, dtype = f32, group = rank.group, peer = rank.other(), err)]
fn send(rank: &Rank) -> Result<(), Error> {
    // SAFETY: as above.
    unsafe { rank.comm.send(rank.from.0, ALL, rank.other(), rank.raw()) }
}

/// From the other rank.
#[collective("cuda_tests.nccl_recv", kind = "recv", stream = rank.stream, count = ALL, dtype = f32, group = rank.group, peer = rank.other(), err)]
fn recv(rank: &Rank) -> Result<(), Error> {
    // SAFETY: as above.
    unsafe { rank.comm.recv(rank.to.0, ALL, rank.other(), rank.raw()) }
}

/// To the other rank and from it.
#[collective("cuda_tests.nccl_send_recv", kind = "send_recv", stream = rank.stream, count = ALL, dtype = f32, group = rank.group, peer = rank.other(), is_async = true, err)]
fn send_recv(rank: &Rank) -> Result<(), Error> {
    rank.comm.library().group(|| {
        // SAFETY: as above.
        unsafe {
            rank.comm.send(rank.from.0, ALL, rank.other(), rank.raw())?;
            rank.comm.recv(rank.to.0, ALL, rank.other(), rank.raw())
        }
    })
}

/// What a rank puts in: whole numbers, whose sums are exact.
fn input(rank: u32, index: usize) -> f32 {
    (index % 1_000) as f32 + 1_000.0 * (rank + 1) as f32
}

fn sum(index: usize) -> f32 {
    (0..RANKS).map(|rank| input(rank, index)).sum()
}

/// What stands in a buffer that nothing was written to.
const UNTOUCHED: f32 = -1.0;

impl Rank {
    /// This rank's end of a group of two. It waits for the other.
    fn new(id: nccl::UniqueId, rank: u32) -> Rank {
        let gpu = Gpu::new(rank as usize).expect("this test needs two GPUs");
        gpu.context.bind_to_thread().expect("the context lives");
        let comm = Comm::new(library(), RANKS, id, rank).expect("NCCL connects the two");
        // SAFETY: the communicator lives, and is of the NCCL that is found as `libnccl.so.2`.
        let group = unsafe { warpline::nccl::process_group("pair", comm.as_ptr()) }.expect("NCCL answers");
        let stream = gpu.stream().expect("a stream");
        let buffer = || DeviceMemory::zeroed(ALL * size_of::<f32>()).expect("memory");
        let rank = Rank { from: buffer(), to: buffer(), comm, group, stream, gpu };
        rank.write(&rank.from, |index| input(rank.comm.rank(), index));
        rank
    }

    fn other(&self) -> u32 {
        1 - self.comm.rank()
    }

    pub(super) fn raw(&self) -> *mut std::ffi::c_void {
        self.stream.cu_stream().cast()
    }

    fn write(&self, buffer: &DeviceMemory, element: impl FnMut(usize) -> f32) {
        let elements: Vec<f32> = (0..ALL).map(element).collect();
        // SAFETY: the buffer has `ALL` elements, and no stream uses it now.
        unsafe { result::memcpy_htod_sync(buffer.0, &elements) }.expect("copied");
        // The stream does not wait for the default stream, on which this is written.
        self.gpu.context.synchronize().expect("no error");
    }

    fn received(&self) -> Vec<f32> {
        self.stream.synchronize().expect("no error");
        self.comm.async_error().expect("no error behind the calls' backs");
        let mut elements = vec![0.0; ALL];
        // SAFETY: the buffer has `ALL` elements.
        unsafe { result::memcpy_dtoh_sync(&mut elements, self.to.0) }.expect("copied");
        elements
    }

    /// Runs one collective, and compares what came of it with what should be at each index.
    fn check(&self, what: &str, call: impl FnOnce(&Rank) -> Result<(), Error>, wanted: impl Fn(usize) -> f32) {
        self.write(&self.to, |_| UNTOUCHED);
        call(self).expect(what);
        for (index, is) in self.received().into_iter().enumerate() {
            assert_eq!(is, wanted(index), "{what}, rank {}, element {index}", self.comm.rank());
        }
    }
}

fn library() -> &'static Library {
    Library::open().expect("this test needs NCCL")
}

/// Runs `work` as two ranks on two threads.
pub(super) fn on_two_gpus(work: impl Fn(&Rank) + Sync) {
    let id = library().unique_id().expect("NCCL gives ids");
    std::thread::scope(|scope| {
        for rank in 0..RANKS {
            let work = &work;
            scope.spawn(move || {
                if catch_unwind(AssertUnwindSafe(|| work(&Rank::new(id, rank)))).is_err() {
                    // The other rank may wait for this one on its GPU, and for ever.
                    std::process::exit(101);
                }
            });
        }
    });
}

/// One after the other, all kinds; each result checked.
fn all_kinds(rank: &Rank) {
    let me = rank.comm.rank();
    let only = |is_here: bool, part: usize, value: &dyn Fn(usize) -> f32| {
        let value: Vec<f32> = (0..part).map(value).collect();
        move |index: usize| if is_here { value.get(index).copied().unwrap_or(UNTOUCHED) } else { UNTOUCHED }
    };
    // The part of the sending rank `index / COUNT` that is meant for all, and the one that is meant for this rank.
    let gathered = |index: usize| input((index / COUNT) as u32, index % COUNT);
    let exchanged = |index: usize| input((index / COUNT) as u32, me as usize * COUNT + index % COUNT);
    rank.check("all_reduce", all_reduce, sum);
    rank.check("all_gather", all_gather, gathered);
    rank.check("reduce_scatter", reduce_scatter, only(true, COUNT, &|index| sum(me as usize * COUNT + index)));
    rank.check("broadcast", |rank| broadcast(rank, ROOT), |index| input(ROOT, index));
    rank.check("reduce", reduce, only(me == ROOT, ALL, &sum));
    rank.check("all_to_all", all_to_all, exchanged);
    rank.check("gather", gather, only(me == ROOT, ALL, &gathered));
    rank.check("scatter", scatter, only(true, COUNT, &|index| input(ROOT, me as usize * COUNT + index)));
    match me {
        0 => rank.check("send", send, |_| UNTOUCHED),
        _ => rank.check("recv", recv, |index| input(0, index)),
    }
    rank.check("send_recv", send_recv, |index| input(rank.other(), index));
}

/// What a record of a rank must say: kind, elements in and out, size in bytes, root, peer, operation.
type Said = (CollectiveKind, usize, usize, usize, Option<u32>, Option<u32>, Option<ReduceOp>);

fn said_by(me: u32) -> [(&'static str, Said); 10] {
    use CollectiveKind::*;
    let (root, peer, add, other) = (Some(ROOT), Some(1 - me), Some(ReduceOp::Sum), None);
    let at_root = if me == ROOT { ALL } else { 0 };
    let one_way = if me == 0 {
        ("nccl_send", (Send, ALL, 0, 4 * ALL, None, peer, None))
    } else {
        ("nccl_recv", (Recv, ALL, ALL, 4 * ALL, None, peer, None))
    };
    [
        ("nccl_all_reduce", (AllReduce, ALL, ALL, 4 * ALL, None, None, add)),
        ("nccl_all_gather", (AllGather, COUNT, ALL, 4 * ALL, None, None, other)),
        ("nccl_reduce_scatter", (ReduceScatter, ALL, COUNT, 4 * ALL, None, None, add)),
        ("nccl_broadcast", (Broadcast, ALL, ALL, 4 * ALL, root, None, other)),
        ("nccl_reduce", (Reduce, ALL, ALL, 4 * ALL, root, None, add)),
        ("nccl_all_to_all", (AllToAll, ALL, ALL, 4 * ALL, None, None, other)),
        ("nccl_gather", (Gather, COUNT, at_root, 4 * ALL, root, None, other)),
        ("nccl_scatter", (Scatter, ALL, COUNT, 4 * ALL, root, None, other)),
        one_way,
        ("nccl_send_recv", (SendRecv, ALL, ALL, 4 * ALL, None, peer, other)),
    ]
}

fn message(zone: &ZoneRecord) -> &Message {
    zone.message.as_deref().expect("a collective says what it moves")
}

fn rank_of(zone: &ZoneRecord) -> u32 {
    message(zone).group.as_ref().expect("the mark says the group").rank()
}

fn start() -> (Session, MemorySink) {
    let zones = MemorySink::new(10_000);
    (Session::builder().ends(EndMode::Eager).sink(zones.clone()).start().expect("no other session"), zones)
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn collectives_of_nccl_move_what_their_records_say() {
    let _turn = alone();
    let (session, zones) = start();
    on_two_gpus(all_kinds);
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.begun, report.recorded), (20, 20), "{report}");
    let zones = zones.take();
    for me in 0..RANKS {
        let mut of_rank: Vec<_> = zones.iter().filter(|zone| rank_of(zone) == me).collect();
        of_rank.sort_by_key(|zone| zone.sequence);
        assert_eq!(of_rank.len(), 10, "of rank {me}");
        for (seq, (zone, (name, said))) in of_rank.into_iter().zip(said_by(me)).enumerate() {
            let is = message(zone);
            assert_eq!(zone.range.name(), format!("cuda_tests.{name}"));
            assert_eq!((zone.range.kind(), zone.status), (Kind::Collective, Status::Complete), "{name}");
            let elements = |count: Option<u64>| count.expect("known") as usize;
            let is_said: Said = (
                is.kind,
                elements(is.count),
                elements(is.elements_out()),
                elements(is.bytes()),
                is.root,
                is.peer,
                is.op,
            );
            assert_eq!(is_said, said, "{name} of rank {me}");
            assert_eq!((is.dtype, is.seq), (Some(DataType::F32), Some(seq as u64)), "{name} of rank {me}");
            assert_eq!(is.is_async, (name == "nccl_send_recv").then_some(true));
            let group = is.group.as_ref().expect("the mark says it");
            assert_eq!((group.name(), group.ranks()), ("pair", &[0, 1][..]));
            let device = &zone.stream.as_ref().expect("on a stream").device;
            assert_eq!((device.kind, device.ordinal), (DeviceKind::Cuda, me), "{name}");
            let bandwidth = zone.bandwidth().expect("size and group are known");
            let wanted = said.3 as f64 / (zone.gpu_ns_corrected().expect("on a stream") as f64 * 1e-9);
            assert!((bandwidth.algorithm / wanted - 1.0).abs() < 1e-9, "{name}: {bandwidth:?}, not {wanted}");
            let bus = bandwidth.bus.expect("there are two ranks");
            assert!((bus / bandwidth.algorithm - is.kind.bus_factor(2)).abs() < 1e-9, "{name}");
        }
    }
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn the_other_rank_waits_for_a_late_one() {
    const LATE: Duration = Duration::from_millis(10);
    let _turn = alone();
    let (session, zones) = start();
    on_two_gpus(|rank| {
        // The first call connects the ranks, which takes its time.
        for seq in 0..4 {
            if (seq, rank.comm.rank()) == (2, 1) {
                rank.gpu.spin(&rank.stream, LATE.as_nanos() as u64, None).expect("launched");
            }
            all_reduce(rank).expect("NCCL takes it");
            rank.stream.synchronize().expect("no error");
        }
        rank.check("all_reduce", all_reduce, sum);
    });
    let report = session.finish();
    assert_eq!((report.begun, report.recorded), (10, 10), "{report}");
    let zones = zones.take();
    let ns = |rank: u32, seq: u64| {
        let zone = zones.iter().find(|zone| rank_of(zone) == rank && message(zone).seq == Some(seq));
        zone.and_then(ZoneRecord::gpu_ns).expect("recorded") as u64
    };
    // Rank 0 comes to it within a ms of when rank 1's stream is held up.
    assert!(ns(0, 2) >= 9 * MS && ns(1, 2) <= 2 * MS, "{} and {} ns", ns(0, 2), ns(1, 2));
    assert!(ns(0, 3) <= 2 * MS && ns(1, 3) <= 2 * MS, "{} and {} ns", ns(0, 3), ns(1, 3));
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn entries_of_a_group_of_calls_are_records_of_their_own() {
    const ENTRIES: usize = 64;
    /// Of an entry: they fill the buffer.
    const PART: usize = ALL / ENTRIES;
    let _turn = alone();
    let (session, zones) = start();
    on_two_gpus(|rank| {
        let batch = |rank: &Rank| {
            let mut batch = BATCH.batch(&rank.stream);
            let outcome = rank.comm.library().group(|| {
                for entry in 0..ENTRIES {
                    batch.add(&ENTRY, || {
                        let message = Message::new(CollectiveKind::AllReduce).count(PART).dtype(DataType::F32);
                        message.group(&rank.group).op(ReduceOp::Sum)
                    });
                    let at = (entry * PART * size_of::<f32>()) as u64;
                    // SAFETY: the entries lie one behind the other within the buffers, which live until the stream is
                    // synchronised.
                    unsafe { rank.comm.all_reduce(rank.from.0 + at, rank.to.0 + at, PART, rank.raw()) }?;
                }
                Ok(())
            });
            batch.end(&outcome);
            outcome
        };
        rank.check("batch", batch, |index| if index < ENTRIES * PART { sum(index) } else { UNTOUCHED });
    });
    let report = session.finish();
    let records = 2 * (ENTRIES as u64 + 1);
    assert_eq!((report.begun, report.recorded), (records, records), "{report}");
    let zones = zones.take();
    let batches: Vec<_> = zones.iter().filter(|zone| zone.entry.is_none()).collect();
    assert_eq!(batches.len(), 2);
    for rank in 0..RANKS {
        let of_rank: Vec<_> = zones.iter().filter(|zone| zone.entry.is_some() && rank_of(zone) == rank).collect();
        assert_eq!(of_rank.len(), ENTRIES);
        for (seq, zone) in of_rank.iter().enumerate() {
            let (entry, of_batch) = (zone.entry.expect("of a batch"), of_rank[0].gpu);
            assert_eq!((entry.index as usize, entry.of as usize, zone.gpu), (seq, ENTRIES, of_batch));
            assert_eq!((message(zone).count, message(zone).seq), (Some(PART as u64), Some(seq as u64)));
        }
        assert!(batches.iter().any(|batch| batch.gpu == of_rank[0].gpu));
    }
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn what_nccl_refuses_is_recorded_and_returned() {
    let _turn = alone();
    let (session, zones) = start();
    let refused = Mutex::new(Vec::new());
    on_two_gpus(|rank| {
        let error = broadcast(rank, RANKS + 5).expect_err("there is no such rank");
        refused.lock().unwrap_or_else(PoisonError::into_inner).push(error.to_string());
        // The communicator is as good as before.
        rank.check("all_reduce", all_reduce, sum);
    });
    let report = session.finish();
    assert_eq!((report.begun, report.recorded), (4, 4), "{report}");
    let zones = zones.take();
    let refused = refused.into_inner().unwrap_or_else(PoisonError::into_inner);
    let failed: Vec<_> = zones.iter().filter(|zone| zone.status == Status::Error).collect();
    assert_eq!((failed.len(), refused.len()), (2, 2), "{zones:?}");
    for zone in failed {
        assert_eq!((zone.range.name(), zone.error.as_deref()), ("cuda_tests.nccl_broadcast", Some(&*refused[0])));
        assert!(refused[0].starts_with("ncclBroadcast gave "), "{refused:?}");
    }
}

#[test]
#[ignore = "needs two NVIDIA GPUs"]
fn all_reduces_in_a_graph_keep_what_they_move_in_every_replay() {
    let test = "collectives::all_reduces_in_a_graph_keep_what_they_move_in_every_replay";
    super::alone_in_a_process(test, || {
        let ranks: Vec<_> = Rendezvous::threads(RANKS).into_iter().enumerate().collect();
        let (ready, replayed) = (Barrier::new(RANKS as usize + 1), Barrier::new(RANKS as usize + 1));
        let graphs = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for (rank, rendezvous) in ranks {
                let (ready, replayed, graphs) = (&ready, &replayed, &graphs);
                let work = move || {
                    let connect =
                        |device: &Device| Some(tensor::Comm::new("tp0", device, rendezvous).expect("connected"));
                    let (block, eager) = block::warm(rank, connect);
                    ready.wait(); // It has run without a graph.
                    ready.wait(); // The session is there.
                    let (captured, zones) = block::replayed(block, &eager);
                    let exec = captured.exec() as usize;
                    graphs.lock().unwrap_or_else(PoisonError::into_inner).push((rank as u32, zones, exec));
                    replayed.wait(); // It has been replayed.
                    replayed.wait(); // The test has asked for its nodes.
                };
                scope.spawn(move || {
                    if catch_unwind(AssertUnwindSafe(work)).is_err() {
                        std::process::exit(101); // The other rank may wait for this one, and for ever.
                    }
                });
            }
            ready.wait();
            let (session, sink) = super::start(Session::builder().kernels(true));
            ready.wait();
            replayed.wait();
            let checked = catch_unwind(AssertUnwindSafe(|| {
                let report = session.finish();
                assert_exact(&report);
                assert!(super::notes(&report).is_empty() && report.kernels.lost() == 0, "{report}");
                let (kernels, replays) = (sink.take_kernels(), sink.take_replays());
                let mut graphs = graphs.lock().unwrap_or_else(PoisonError::into_inner);
                graphs.sort_by_key(|(rank, ..)| *rank);
                for (rank, zones, exec) in graphs.iter() {
                    let own = block::check(zones, *exec as *mut _, RANKS as usize, &kernels, &replays);
                    own.into_iter().for_each(|replay| all_reduces_are_whole(replay, *rank));
                }
            }));
            if checked.is_err() {
                std::process::exit(101); // The ranks wait.
            }
            replayed.wait();
        });
    });
}

/// The two all-reduces of a replay say all that they said when they were captured.
fn all_reduces_are_whole(replay: &ReplayRecord, rank: u32) {
    let sums: Vec<_> = replay.zones.iter().filter(|of| of.zone.range.name() == "tensor.all_reduce").collect();
    let shape = transformer::Shape::TUTORIAL;
    let count = (shape.rows() * shape.width) as u64;
    assert_eq!(sums.len(), 2, "{replay:?}");
    for (number, sum) in sums.iter().enumerate() {
        let message = sum.zone.message.as_ref().expect("a collective says what it moves");
        let group = message.group.as_ref().expect("a group");
        assert_eq!((message.kind, message.dtype), (CollectiveKind::AllReduce, Some(DataType::F32)));
        assert_eq!((message.count, message.bytes()), (Some(count), Some(count * 4)));
        assert_eq!((group.name(), group.ranks(), group.rank()), ("tp0", &[0, 1][..], rank));
        assert_eq!((message.op, message.root, message.is_async), (Some(ReduceOp::Sum), None, None));
        // The same numbers in every replay, and on both ranks.
        assert_eq!(message.seq, Some(number as u64));
        assert_eq!((sum.lane.as_deref(), sum.kernels > 0), (Some(group.lane()), true));
        let (gpu, bytes) = (sum.zone.gpu.expect("it has kernels"), count as f64 * 4.0);
        let speed = message.bandwidth(gpu.duration_ns()).expect("a size and a time");
        assert!(
            (speed.bus.expect("there are two ranks") - bytes / gpu.duration_ns() as f64 * 1e9).abs() < 1.0,
            "two ranks: the bus is as fast: {speed:?}"
        );
    }
}
