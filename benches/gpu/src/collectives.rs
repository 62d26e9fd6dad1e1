//! Collectives of NCCL on two GPUs: the bus bandwidth that records say, beside loops of the same calls that plain events
//! time.
//!
//! Three take turns, round by round: a loop of calls between two events, as NCCL's own tests time it; the calls one by one,
//! each between two events; and the calls as zones. A call takes as long as on the rank where it takes longest. All three
//! are queued behind a kernel that holds both streams, so that no launch is in any time.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use gpu::{DeviceMemory, Event, Gpu, Result, require_driver};
use nccl::{Comm, Library};
use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::record::ZoneRecord;
use warpline::sink::MemorySink;
use warpline::timing::EndMode;
use warpline::{RangeSpec, Session};

use crate::clock::let_session_settle;
use crate::figures::{Table, median};
use crate::options::Options;

warpline::range! {
    CALL = "gpu_bench.nccl": "A collective of NCCL.", kind = collective;
}

const RANKS: usize = 2;
const MIB: usize = 1 << 20;
const SIZES: [usize; 6] = [MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB];

/// Both streams are held for so long, and for so long a call, while calls are queued: a group of NCCL's on two devices takes
/// some ten µs of the launching thread.
const HOLD_NS: u64 = 500_000;
const HOLD_NS_A_CALL: u64 = 60_000;

/// In percent.
const GOAL: f64 = 3.0;

/// All that are measured. `send` is rank 0's and `recv` rank 1's half of one call; `send_recv` goes both ways.
const KINDS: [CollectiveKind; 10] = [
    CollectiveKind::AllReduce,
    CollectiveKind::AllGather,
    CollectiveKind::ReduceScatter,
    CollectiveKind::Broadcast,
    CollectiveKind::Reduce,
    CollectiveKind::AllToAll,
    CollectiveKind::Gather,
    CollectiveKind::Scatter,
    CollectiveKind::Send,
    CollectiveKind::SendRecv,
];

pub fn run(options: &Options) -> Result {
    let rounds = options.size("rounds", 7) as usize;
    require_driver()?;
    if CudaContext::device_count()? < RANKS as i32 {
        println!("\nnccl: nothing to measure with one GPU; run it where there are two");
        return Ok(());
    }
    let pair = Pair::new()?;
    let library = Library::open()?;
    let made_of = if library.has_all_to_all() { "its own" } else { "made of sends and receives" };
    let title = format!(
        "nccl: bus bandwidth in GB/s on 2 GPUs (NCCL {}; all-to-all, gather and scatter: {made_of}), medians of {rounds} rounds",
        library.version()?
    );
    let columns = [
        "collective",
        "MiB",
        "calls",
        "loop between two events",
        "each between two events",
        "records",
        "length, off each",
        "records, off loop",
        "goal 3 %",
    ];
    let mut table = Table::new(&title, &columns);
    let zones = MemorySink::new(1 << 20);
    // What two points add to a kernel is measured once in a context's life.
    for gpu in &pair.gpus {
        gpu.context.bind_to_thread()?;
        Session::builder().calibrate().start()?.finish();
    }
    let session = Session::builder().ends(EndMode::Eager).sink(zones.clone()).start()?;
    let mut missed = 0;
    for kind in KINDS {
        for bytes in SIZES {
            let figures = measure(&pair, &zones, kind, bytes, rounds)?;
            let off = figures.records_off_loop();
            let verdict = if off.abs() <= GOAL { "met" } else { "NOT MET" };
            missed += usize::from(off.abs() > GOAL);
            table.row(&[
                kind.to_string(),
                (bytes / MIB).to_string(),
                calls(bytes).to_string(),
                format!("{:.1}", median(&figures.in_loop)),
                format!("{:.1}", median(&figures.each)),
                format!("{:.1}", median(&figures.records)),
                format!("{:+.2}%", figures.length_off_each()),
                format!("{off:+.2}%"),
                verdict.to_owned(),
            ]);
        }
    }
    pair.check()?;
    let report = session.finish();
    table.print();
    let rows = KINDS.len() * SIZES.len();
    println!(
        "\n`length` is a record's time before it is corrected by what its two points add; records' bandwidths are corrected.\n\
         {} of {rows} rows within {GOAL} %; {} zones begun, {} recorded",
        rows - missed,
        report.begun,
        report.recorded
    );
    if report.begun != report.recorded {
        return Err(format!("{} zones were dropped: {report}", report.dropped.total()).into());
    }
    Ok(())
}

/// How many calls a round has: enough of the small ones.
fn calls(bytes: usize) -> usize {
    (256 * MIB / bytes).clamp(4, 32)
}

/// One sample a round.
#[derive(Default)]
struct Figures {
    /// Bus bandwidths, in GB/s.
    in_loop: Vec<f64>,
    each: Vec<f64>,
    records: Vec<f64>,
    /// Lengths of one call, in ns, before any correction.
    each_ns: Vec<f64>,
    length_ns: Vec<f64>,
}

impl Figures {
    /// In percent, the median over the rounds.
    fn records_off_loop(&self) -> f64 {
        percent_off(&self.records, &self.in_loop)
    }

    fn length_off_each(&self) -> f64 {
        percent_off(&self.length_ns, &self.each_ns)
    }
}

fn percent_off(is: &[f64], wanted: &[f64]) -> f64 {
    median(&is.iter().zip(wanted).map(|(is, wanted)| 100.0 * (is / wanted - 1.0)).collect::<Vec<_>>())
}

fn measure(pair: &Pair, zones: &MemorySink, kind: CollectiveKind, bytes: usize, rounds: usize) -> Result<Figures> {
    let calls = calls(bytes);
    // The first call of a kind connects the ranks; the session meets the streams.
    pair.zones(kind, bytes, 2)?;
    let_session_settle();
    zones.take();
    let mut figures = Figures::default();
    let bus = |ns: f64| {
        message(kind, bytes, &pair.groups[0])
            .bandwidth(ns as i64)
            .and_then(|b| b.bus)
            .map_or(f64::NAN, |bus| bus * 1e-9)
    };
    for round in 0..rounds {
        // Each is first, second and third in turns.
        for turn in 0..3 {
            match (round + turn) % 3 {
                0 => figures.in_loop.push(bus(pair.in_loop(kind, bytes, calls)?)),
                1 => {
                    let ns = median(&pair.each(kind, bytes, calls)?);
                    figures.each.push(bus(ns));
                    figures.each_ns.push(ns);
                }
                _ => {
                    pair.zones(kind, bytes, calls)?;
                    let records = wait_for(zones, calls * RANKS)?;
                    let (length_ns, bus) = of_records(&records, calls)?;
                    figures.records.push(bus);
                    figures.length_ns.push(length_ns);
                }
            }
        }
    }
    Ok(figures)
}

/// The records of so many zones; the collector reads them a moment after the streams are done.
fn wait_for(zones: &MemorySink, count: usize) -> Result<Vec<ZoneRecord>> {
    let mut records = Vec::new();
    for _ in 0..500 {
        records.extend(zones.take());
        if records.len() >= count {
            return Ok(records);
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    Err(format!("{} of {count} records came within a second", records.len()).into())
}

/// The median over the calls of what the slower rank's record says: its length in ns, and its bus bandwidth in GB/s.
fn of_records(records: &[ZoneRecord], calls: usize) -> Result<(f64, f64)> {
    let of_rank = |rank: u32| -> Vec<&ZoneRecord> {
        let is_its = |zone: &&ZoneRecord| {
            zone.message.as_ref().and_then(|message| message.group.as_ref()).is_some_and(|group| group.rank() == rank)
        };
        records.iter().filter(is_its).collect()
    };
    let (first, second) = (of_rank(0), of_rank(1));
    if (first.len(), second.len()) != (calls, calls) {
        return Err(format!("{} and {} records of {calls} calls", first.len(), second.len()).into());
    }
    let (mut lengths, mut speeds) = (Vec::new(), Vec::new());
    for (a, b) in first.iter().zip(&second) {
        let length = |zone: &ZoneRecord| zone.gpu_ns().ok_or("a record has no time on its stream");
        let speed =
            |zone: &ZoneRecord| zone.bandwidth().and_then(|b| b.bus).map(|bus| bus * 1e-9).ok_or("no bandwidth");
        lengths.push(length(a)?.max(length(b)?) as f64);
        speeds.push(speed(a)?.min(speed(b)?));
    }
    Ok((median(&lengths), median(&speeds)))
}

/// What one call of so many bytes moves, as NCCL's tests count them.
fn message(kind: CollectiveKind, bytes: usize, group: &ProcessGroup) -> Message {
    let elements = elements(kind, bytes);
    let message = Message::new(kind).count(elements.said).dtype(DataType::F32).group(group);
    match kind {
        CollectiveKind::Broadcast | CollectiveKind::Reduce | CollectiveKind::Gather | CollectiveKind::Scatter => {
            message.root(0)
        }
        CollectiveKind::Send | CollectiveKind::Recv | CollectiveKind::SendRecv => message.peer(1 - group.rank()),
        _ => message,
    }
}

struct Elements {
    /// As a mark says it: those that a rank puts in.
    said: usize,
    /// As NCCL's function takes it.
    passed: usize,
}

fn elements(kind: CollectiveKind, bytes: usize) -> Elements {
    let all = bytes / size_of::<f32>();
    let part = all / RANKS;
    match kind {
        // The size is what all ranks gather.
        CollectiveKind::AllGather | CollectiveKind::Gather => Elements { said: part, passed: part },
        CollectiveKind::ReduceScatter | CollectiveKind::AllToAll | CollectiveKind::Scatter => {
            Elements { said: all, passed: part }
        }
        _ => Elements { said: all, passed: all },
    }
}

/// Two GPUs of one host, both driven by this thread.
struct Pair {
    comms: Vec<Comm>,
    groups: Vec<ProcessGroup>,
    /// What is sent, and what is received.
    buffers: [[DeviceMemory; 2]; RANKS],
    /// For the calls one by one: two a call and rank.
    events: [Vec<Event>; RANKS],
    streams: [Arc<CudaStream>; RANKS],
    /// Last, as the last of them takes the device's context with it.
    gpus: [Gpu; RANKS],
}

impl Pair {
    fn new() -> Result<Pair> {
        let gpus = [Gpu::new(0)?, Gpu::new(1)?];
        let comms = Comm::all(Library::open()?, &[0, 1])?;
        let mut groups = Vec::new();
        for comm in &comms {
            // SAFETY: the communicator lives, and was made by the NCCL that is found as `libnccl.so.2`.
            groups.push(unsafe { warpline::nccl::process_group("bench", comm.as_ptr()) }?);
        }
        let largest = SIZES[SIZES.len() - 1];
        let on = |gpu: &Gpu| -> Result<(Arc<CudaStream>, [DeviceMemory; 2], Vec<Event>)> {
            gpu.context.bind_to_thread()?;
            let buffers = [DeviceMemory::zeroed(largest)?, DeviceMemory::zeroed(largest)?];
            let events = Event::many(2 * calls(SIZES[0]))?;
            // The streams do not wait for the default stream, on which the zeros are written.
            gpu.context.synchronize()?;
            Ok((gpu.stream()?, buffers, events))
        };
        let ((stream0, buffers0, events0), (stream1, buffers1, events1)) = (on(&gpus[0])?, on(&gpus[1])?);
        Ok(Pair {
            streams: [stream0, stream1],
            buffers: [buffers0, buffers1],
            events: [events0, events1],
            gpus,
            comms,
            groups,
        })
    }

    /// One call on both ranks.
    fn call(&self, kind: CollectiveKind, bytes: usize) -> Result {
        let count = elements(kind, bytes).passed;
        self.comms[0].library().group(|| {
            for (comm, (stream, [from, to])) in self.comms.iter().zip(self.streams.iter().zip(&self.buffers)) {
                let (from, to, stream) = (from.0, to.0, stream.cu_stream().cast());
                let peer = 1 - comm.rank();
                // SAFETY: both buffers have the bytes of the largest size, which no call exceeds; they, the streams and the
                // communicators live until the streams are synchronised. One thread calls.
                unsafe {
                    match kind {
                        CollectiveKind::AllReduce => comm.all_reduce(from, to, count, stream),
                        CollectiveKind::AllGather => comm.all_gather(from, to, count, stream),
                        CollectiveKind::ReduceScatter => comm.reduce_scatter(from, to, count, stream),
                        CollectiveKind::Broadcast => comm.broadcast(from, to, count, 0, stream),
                        CollectiveKind::Reduce => comm.reduce(from, to, count, 0, stream),
                        CollectiveKind::AllToAll => comm.all_to_all(from, to, count, stream),
                        CollectiveKind::Gather => comm.gather(from, to, count, 0, stream),
                        CollectiveKind::Scatter => comm.scatter(from, to, count, 0, stream),
                        CollectiveKind::Send if comm.rank() == 0 => comm.send(from, count, peer, stream),
                        CollectiveKind::Send => comm.recv(to, count, peer, stream),
                        CollectiveKind::SendRecv => {
                            comm.send(from, count, peer, stream)?;
                            comm.recv(to, count, peer, stream)
                        }
                        _ => unreachable!("not one of KINDS"),
                    }
                }?;
            }
            Ok(())
        })
    }

    /// Both streams wait while so many calls are queued behind; then one call that nobody times lets both begin at once.
    fn hold(&self, kind: CollectiveKind, bytes: usize, calls: usize) -> Result {
        for (gpu, stream) in self.gpus.iter().zip(&self.streams) {
            gpu.context.bind_to_thread()?;
            gpu.spin(stream, HOLD_NS + HOLD_NS_A_CALL * calls as u64, None)?;
        }
        self.call(kind, bytes)
    }

    fn record(&self, index: usize) -> Result {
        for ((gpu, stream), events) in self.gpus.iter().zip(&self.streams).zip(&self.events) {
            gpu.context.bind_to_thread()?;
            events[index].record(stream)?;
        }
        Ok(())
    }

    fn synchronize(&self) -> Result {
        self.streams.iter().try_for_each(|stream| stream.synchronize())?;
        Ok(())
    }

    /// From one event to another on the rank where it takes longer, in ns.
    fn between(&self, begin: usize, end: usize) -> Result<f64> {
        let mut longest = 0.0_f64;
        for (gpu, events) in self.gpus.iter().zip(&self.events) {
            gpu.context.bind_to_thread()?;
            longest = longest.max(f64::from(events[begin].elapsed_ms(&events[end])?) * 1e6);
        }
        Ok(longest)
    }

    /// The time of one call of a loop, in ns.
    fn in_loop(&self, kind: CollectiveKind, bytes: usize, calls: usize) -> Result<f64> {
        self.hold(kind, bytes, calls)?;
        self.record(0)?;
        for _ in 0..calls {
            self.call(kind, bytes)?;
        }
        self.record(1)?;
        self.synchronize()?;
        Ok(self.between(0, 1)? / calls as f64)
    }

    /// The times of single calls, in ns.
    fn each(&self, kind: CollectiveKind, bytes: usize, calls: usize) -> Result<Vec<f64>> {
        self.hold(kind, bytes, calls)?;
        for call in 0..calls {
            self.record(2 * call)?;
            self.call(kind, bytes)?;
            self.record(2 * call + 1)?;
        }
        self.synchronize()?;
        (0..calls).map(|call| self.between(2 * call, 2 * call + 1)).collect()
    }

    /// The calls as zones on both streams.
    fn zones(&self, kind: CollectiveKind, bytes: usize, calls: usize) -> Result {
        self.hold(kind, bytes, calls)?;
        for _ in 0..calls {
            let zone = |rank: usize, range: &'static RangeSpec| -> Result<warpline::Zone> {
                self.gpus[rank].context.bind_to_thread()?;
                let kind = if (kind, rank) == (CollectiveKind::Send, 1) { CollectiveKind::Recv } else { kind };
                Ok(range.zone(&self.streams[rank]).message(message(kind, bytes, &self.groups[rank])))
            };
            let _first = zone(0, &CALL)?;
            let _second = zone(1, &CALL)?;
            self.call(kind, bytes)?;
        }
        self.synchronize()
    }

    /// What has failed behind the calls' backs.
    fn check(&self) -> Result {
        self.comms.iter().try_for_each(Comm::async_error)?;
        Ok(())
    }
}
