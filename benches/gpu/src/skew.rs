//! How far apart the ends of one collective are on its ranks. Clocks of hosts are compared by these ends (`docs/collectives.md`), and a judge of
//! many ranks trusts that no rank leaves a synchronising collective before the last one has come.
//!
//! Ends are read twice: as warpline's records say them on the host's clock, and from %globaltimer in a kernel right behind the collective,
//! which is put on the host's clock by asking running kernels for the time. In every other call one rank is late, in turns. All calls of a
//! batch are queued behind a kernel that holds the streams.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use gpu::{DeviceMemory, Gpu, Pinned, Result, require_driver};
use nccl::{Comm, Library};
use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::record::ZoneRecord;
use warpline::sink::MemorySink;
use warpline::timing::EndMode;
use warpline::{Session, Zone};

use crate::clock::let_session_settle;
use crate::figures::{Table, median, percentile};
use crate::options::Options;
use crate::position::{Tie, ask, on_host};

warpline::range! {
    CALL = "gpu_bench.skew": "A collective of NCCL whose ends are compared.", kind = collective;
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const SIZES: [usize; 7] = [8, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB];

/// The first four synchronise all ranks; a root of a broadcast may leave before the others have come.
const KINDS: [CollectiveKind; 5] = [
    CollectiveKind::AllReduce,
    CollectiveKind::AllGather,
    CollectiveKind::ReduceScatter,
    CollectiveKind::AllToAll,
    CollectiveKind::Broadcast,
];

/// Calls that are queued at once: a stream takes about a thousand launches.
const BATCH: usize = 50;

/// The streams are held for so long, and for so long a call and rank, while calls are queued.
const HOLD_NS: u64 = 500_000;
const HOLD_NS_A_CALL: u64 = 50_000;

/// A late rank comes so much later.
const LATE_NS: u64 = 100_000;

pub fn run(options: &Options) -> Result {
    require_driver()?;
    let ranks = CudaContext::device_count()?.max(0) as usize;
    if ranks < 2 {
        println!("\nskew: nothing to measure with one GPU; run it where there are two");
        return Ok(());
    }
    let calls = options.size("zones", 300) as usize;
    let mut job = Job::new(ranks)?;
    let title = format!(
        "skew: how far apart the ends of a collective are on {ranks} GPUs (NCCL {}), in us; a rank is {} us late in every other call",
        Library::open()?.version()?,
        LATE_NS / 1000
    );
    let columns = [
        "collective",
        "bytes",
        "calls",
        "length",
        "records: median",
        "p99",
        "%globaltimer: median",
        "p99",
        "rank 0 is last",
        "a late rank is last",
        "least from the last begin to the first end",
    ];
    let mut table = Table::new(&title, &columns);
    let sink = MemorySink::new(1 << 16);
    let session = Session::builder().ends(EndMode::Eager).sink(sink.clone()).start()?;
    let mut all = Vec::new();
    for kind in KINDS {
        for bytes in SIZES {
            let calls = if bytes > MIB { calls.div_ceil(3) } else { calls };
            let row = job.measure(&sink, kind, bytes, calls)?;
            table.row(&row.cells(kind, bytes));
            if kind != CollectiveKind::Broadcast {
                all.extend(row.calls);
            }
        }
    }
    for comm in &job.comms {
        comm.async_error()?;
    }
    let report = session.finish();
    table.print();
    // Of both ranks of a pair.
    let uncertain_ns = report.clocks.iter().map(|clock| clock.uncertainty_ns).max().unwrap_or(0) * 2;
    let broken = all.iter().filter(|call| call.margin_ns < -uncertain_ns).count();
    let apart: Vec<f64> = all.iter().map(|call| call.records_ns as f64 / 1e3).collect();
    let within = job.ties.iter().flatten().map(|tie| tie.within_ns as f64 / 1e3).collect::<Vec<_>>();
    println!(
        "\nall that synchronise: {} calls, ends apart by {:.2} us in the median, {:.2} p99, {:.2} at most\n\
         no rank leaves before the last one has come: {broken} of {} calls contradict it by more than {:.2} us, twice what a clock may be off\n\
         the yardstick of %globaltimer is within {:.2} us (median of {} ties)",
        all.len(),
        median(&apart),
        percentile(&apart, 99.0),
        percentile(&apart, 100.0),
        all.len(),
        uncertain_ns as f64 / 1e3,
        median(&within),
        within.len()
    );
    for clock in &report.clocks {
        println!("the report says of {}: positions within {:.2} us", clock.device, clock.uncertainty_ns as f64 / 1e3);
    }
    match report.dropped.total() {
        0 => Ok(()),
        dropped => Err(format!("{dropped} zones were dropped: {report}").into()),
    }
}

/// What one call says.
struct Call {
    length_ns: i64,
    /// From the first end to the last.
    records_ns: i64,
    stamps_ns: i64,
    last: usize,
    /// Who was made late.
    late: Option<usize>,
    /// From the last begin to the first end.
    margin_ns: i64,
}

/// All calls of one kind and size.
struct Row {
    calls: Vec<Call>,
}

impl Row {
    fn cells(&self, kind: CollectiveKind, bytes: usize) -> Vec<String> {
        let us = |of: &dyn Fn(&Call) -> i64| self.calls.iter().map(|call| of(call) as f64 / 1e3).collect::<Vec<_>>();
        let (records, stamps) = (us(&|call| call.records_ns), us(&|call| call.stamps_ns));
        let share = |part: usize, of: usize| format!("{:.0} %", 100.0 * part as f64 / of.max(1) as f64);
        let with_late = self.calls.iter().filter(|call| call.late.is_some());
        let late_is_last = with_late.clone().filter(|call| call.late == Some(call.last)).count();
        vec![
            kind.to_string(),
            bytes.to_string(),
            self.calls.len().to_string(),
            format!("{:.1}", median(&us(&|call| call.length_ns))),
            format!("{:.2}", median(&records)),
            format!("{:.2}", percentile(&records, 99.0)),
            format!("{:.2}", median(&stamps)),
            format!("{:.2}", percentile(&stamps, 99.0)),
            share(self.calls.iter().filter(|call| call.last == 0).count(), self.calls.len()),
            share(late_is_last, with_late.count()),
            format!("{:.2}", percentile(&us(&|call| call.margin_ns), 0.0)),
        ]
    }
}

/// All GPUs of this host, driven by one thread.
struct Job {
    comms: Vec<Comm>,
    groups: Vec<ProcessGroup>,
    /// What is sent, and what is received.
    buffers: Vec<[DeviceMemory; 2]>,
    streams: Vec<Arc<CudaStream>>,
    /// Where each rank's kernels write the device's time.
    times: Vec<Pinned>,
    mailboxes: Vec<Pinned>,
    ties: Vec<Vec<Tie>>,
    /// Last, as they take the devices' contexts with them.
    gpus: Vec<Gpu>,
}

impl Job {
    fn new(ranks: usize) -> Result<Job> {
        let gpus = (0..ranks).map(Gpu::new).collect::<Result<Vec<_>>>()?;
        let comms = Comm::all(Library::open()?, &(0..ranks as i32).collect::<Vec<_>>())?;
        let mut job = Job {
            comms,
            groups: (0..ranks).map(|rank| ProcessGroup::new("skew", 0..ranks as u32, rank as u32)).collect(),
            buffers: Vec::new(),
            streams: Vec::new(),
            times: Vec::new(),
            mailboxes: Vec::new(),
            ties: (0..ranks).map(|_| Vec::new()).collect(),
            gpus,
        };
        let largest = SIZES[SIZES.len() - 1];
        for gpu in &job.gpus {
            gpu.context.bind_to_thread()?;
            job.buffers.push([DeviceMemory::zeroed(largest)?, DeviceMemory::zeroed(largest)?]);
            job.times.push(Pinned::new(2 * BATCH)?);
            job.mailboxes.push(Pinned::new(3)?);
            // The streams do not wait for the default stream, on which the zeros are written.
            gpu.context.synchronize()?;
            job.streams.push(gpu.stream()?);
        }
        job.tie()?; // warms up
        job.ties.iter_mut().for_each(Vec::clear);
        Ok(job)
    }

    /// Asks each device for its time.
    fn tie(&mut self) -> Result {
        for (rank, gpu) in self.gpus.iter().enumerate() {
            gpu.context.bind_to_thread()?;
            self.ties[rank].push(ask(gpu, &self.streams[rank], &self.mailboxes[rank])?);
        }
        Ok(())
    }

    fn measure(&mut self, sink: &MemorySink, kind: CollectiveKind, bytes: usize, calls: usize) -> Result<Row> {
        // The first call of a kind connects the ranks; the session meets the streams.
        self.batch(kind, bytes, 2)?;
        let_session_settle();
        sink.take();
        let mut row = Row { calls: Vec::with_capacity(calls) };
        while row.calls.len() < calls {
            let count = BATCH.min(calls - row.calls.len());
            self.tie()?;
            self.batch(kind, bytes, count)?;
            self.tie()?;
            let mut records = wait_for(sink, count * self.gpus.len())?;
            records.sort_by_key(|zone| zone.sequence);
            self.read(&records, count, &mut row)?;
        }
        Ok(row)
    }

    /// Which rank is late in a call of a batch.
    fn late(&self, call: usize) -> Option<usize> {
        (!call.is_multiple_of(2)).then_some(call / 2 % self.gpus.len())
    }

    /// So many calls, one behind the other, and a kernel behind each that writes the time.
    fn batch(&self, kind: CollectiveKind, bytes: usize, calls: usize) -> Result {
        let hold_ns = HOLD_NS + HOLD_NS_A_CALL * (calls * self.gpus.len()) as u64;
        for (gpu, stream) in self.gpus.iter().zip(&self.streams) {
            gpu.context.bind_to_thread()?;
            gpu.spin(stream, hold_ns, None)?;
        }
        // A collective that is not timed lets all ranks begin at once.
        self.call(kind, bytes)?;
        for call in 0..calls {
            let mut zones: Vec<Zone> = Vec::with_capacity(self.gpus.len());
            for (rank, gpu) in self.gpus.iter().enumerate() {
                gpu.context.bind_to_thread()?;
                if self.late(call) == Some(rank) {
                    gpu.spin(&self.streams[rank], LATE_NS, None)?;
                }
                let message = Message::new(kind).count(bytes / size_of::<f32>()).dtype(DataType::F32);
                zones.push(CALL.zone(&self.streams[rank]).message(message.group(&self.groups[rank])));
            }
            self.call(kind, bytes)?;
            while let Some(zone) = zones.pop() {
                self.gpus[zones.len()].context.bind_to_thread()?;
                drop(zone);
            }
            for (rank, gpu) in self.gpus.iter().enumerate() {
                gpu.context.bind_to_thread()?;
                gpu.spin(&self.streams[rank], 0, Some(self.times[rank].times(call)))?;
            }
        }
        self.streams.iter().try_for_each(|stream| stream.synchronize())?;
        Ok(())
    }

    /// One call on all ranks.
    fn call(&self, kind: CollectiveKind, bytes: usize) -> Result {
        let ranks = self.comms.len();
        let all = bytes / size_of::<f32>();
        let part = (all / ranks).max(1);
        self.comms[0].library().group(|| {
            for (comm, (stream, [from, to])) in self.comms.iter().zip(self.streams.iter().zip(&self.buffers)) {
                let (from, to, stream) = (from.0, to.0, stream.cu_stream().cast());
                // SAFETY: both buffers have the bytes of the largest size, which no call exceeds: eight bytes hold a part for each of two
                // ranks, and with more ranks a part is one element. They, the streams and the communicators live until the streams are
                // synchronised. One thread calls.
                unsafe {
                    match kind {
                        CollectiveKind::AllReduce => comm.all_reduce(from, to, all, stream),
                        CollectiveKind::AllGather => comm.all_gather(from, to, part, stream),
                        CollectiveKind::ReduceScatter => comm.reduce_scatter(from, to, part, stream),
                        CollectiveKind::AllToAll => comm.all_to_all(from, to, part, stream),
                        _ => comm.broadcast(from, to, all, 0, stream),
                    }
                }?;
            }
            Ok(())
        })
    }

    /// Adds what the records and the kernels of a batch say.
    fn read(&self, records: &[ZoneRecord], calls: usize, row: &mut Row) -> Result {
        let ranks = self.gpus.len();
        let of_rank = |rank: usize| -> Vec<&ZoneRecord> {
            let group = |zone: &ZoneRecord| zone.message.as_ref()?.group.as_ref().map(ProcessGroup::rank);
            records.iter().filter(|zone| group(zone) == Some(rank as u32)).collect()
        };
        let by_rank: Vec<Vec<&ZoneRecord>> = (0..ranks).map(of_rank).collect();
        if by_rank.iter().any(|of| of.len() != calls) {
            return Err(format!("{} records of {calls} calls on {ranks} ranks", records.len()).into());
        }
        for call in 0..calls {
            let spans = by_rank.iter().map(|of| of[call].gpu.ok_or("a record has no time on its stream"));
            let spans = spans.collect::<std::result::Result<Vec<_>, _>>()?;
            let ends: Vec<i64> = spans.iter().map(|span| span.end_ns).collect();
            let stamped = |rank: usize| on_host(&self.ties[rank], self.times[rank].read_times(call)[0] as i64);
            let stamps: Vec<i64> = (0..ranks).map(stamped).collect();
            let last_begin = spans.iter().map(|span| span.begin_ns).max().unwrap_or(0);
            let (first_end, last_end) = bounds(&ends);
            row.calls.push(Call {
                length_ns: last_end - last_begin,
                records_ns: last_end - first_end,
                stamps_ns: bounds(&stamps).1 - bounds(&stamps).0,
                last: ends.iter().position(|end| *end == last_end).unwrap_or(0),
                late: self.late(call),
                margin_ns: first_end - last_begin,
            });
        }
        Ok(())
    }
}

fn bounds(times: &[i64]) -> (i64, i64) {
    (times.iter().copied().min().unwrap_or(0), times.iter().copied().max().unwrap_or(0))
}

/// The records of so many zones; the collector reads them a moment after the streams are done.
fn wait_for(sink: &MemorySink, count: usize) -> Result<Vec<ZoneRecord>> {
    let mut records = Vec::new();
    for _ in 0..500 {
        records.extend(sink.take());
        if records.len() >= count {
            return Ok(records);
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    Err(format!("{} of {count} records came within a second", records.len()).into())
}
