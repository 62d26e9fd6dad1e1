//! How fast zones become a Perfetto trace, and how large it is: our encoder beside `prost`, which encodes the same packets.
//!
//! One zone is two slices: the launch on its thread, and the zone on its stream with two fields, the range's description
//! and the flow that ties the two. `warpline` is everything that the sink does with a batch of records; `prost from records`
//! fills the messages of the same packets and encodes them, but finds no lanes and looks nothing up; `prost encodes` is the
//! encoding alone, of messages that are there already.

mod messages;

use std::hint::black_box;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use messages::{DebugAnnotation, Trace, TracePacket, TrackEvent};
use prost::Message;
use warpline::record::{Span, ZoneRecord};
use warpline::sink::{Batch, MemorySink, PerfettoSink, SessionInfo, Sink};
use warpline::{HostStream, Session};
use warpline_benches::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

warpline::namespace!("bench", "zones for the encoders");

warpline::range! {
    ZONE = "bench.zone": "A zone with two fields.";
}

/// Zones in a batch, as the collector hands them over when a program is busy.
const ZONES: usize = 1_024;

const SLICES: usize = ZONES * 2;

/// From one zone's begin to the next one's, in ns.
const STEP_NS: i64 = 10_000;

/// Counts bytes and throws them away.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicUsize>);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.fetch_add(bytes.len(), Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps the bytes.
#[derive(Clone)]
struct Forward(Sender<Vec<u8>>);

impl Write for Forward {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hands out what a sink is told at the start.
struct Told(Sender<SessionInfo>);

impl Sink for Told {
    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        self.0.send(session.clone()).map_err(io::Error::other)
    }

    fn write(&mut self, _: Batch<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// A session's facts, and a batch of zones: a real one, many times, at times of its own.
fn batch() -> (SessionInfo, Vec<ZoneRecord>) {
    let (tell, told) = mpsc::channel();
    let zones = MemorySink::new(1);
    let builder = Session::builder().sink(zones.clone()).sink(Told(tell));
    let session = builder.start().expect("no other session");
    let stream = HostStream::new("compute");
    drop(ZONE.zone(&stream).field("rows", 4_096_u32).field("layer", 12_u32));
    session.finish();
    let info = told.recv().expect("the session was started");
    let zone = zones.take().pop().expect("one zone");
    let zones = (0..ZONES as i64).map(|index| {
        let mut zone = zone.clone();
        let begin_ns = info.begin_ns + index * STEP_NS;
        zone.sequence = index as u64;
        zone.host = Span { begin_ns, end_ns: begin_ns + 3_000 };
        zone.gpu = Some(Span { begin_ns: begin_ns + 5_000, end_ns: begin_ns + 5_000 + 8_000 });
        zone
    });
    (info.clone(), zones.collect())
}

/// Moves a batch behind its end, so that time goes on.
fn move_on(batch: &mut [ZoneRecord]) {
    let by = batch.len() as i64 * STEP_NS;
    for zone in batch {
        for span in [Some(&mut zone.host), zone.gpu.as_mut()].into_iter().flatten() {
            span.begin_ns += by;
            span.end_ns += by;
        }
    }
}

/// The packets of one batch, as our encoder writes them when it has met everything before.
fn our_packets(info: &SessionInfo, batch: &mut [ZoneRecord]) -> Vec<u8> {
    let (keep, kept) = mpsc::channel();
    let mut sink = PerfettoSink::new(Forward(keep));
    sink.start(info).expect("memory");
    sink.write(Batch::Zones(batch)).expect("memory");
    sink.flush().expect("memory");
    let before: usize = kept.try_iter().map(|bytes| bytes.len()).sum();
    assert!(before > 0);
    move_on(batch);
    sink.write(Batch::Zones(batch)).expect("memory");
    sink.flush().expect("memory");
    kept.try_iter().flatten().collect()
}

fn with_prost(zone: &ZoneRecord, begin_ns: i64, flow: u64, out: &mut Vec<u8>) {
    let gpu = zone.gpu.unwrap_or_default();
    let packet = |ns: i64, sequence, track_event| TracePacket {
        timestamp: Some((ns - begin_ns) as u64),
        trusted_packet_sequence_id: Some(sequence),
        track_event: Some(track_event),
        sequence_flags: Some(2),
    };
    let end = TrackEvent { r#type: Some(2), ..TrackEvent::default() };
    let mut debug_annotations: Vec<_> = (zone.fields.iter())
        .enumerate()
        .map(|(index, (_, value))| DebugAnnotation {
            name_iid: Some(5 + index as u64),
            uint_value: if let warpline::Value::U64(value) = value { Some(*value) } else { None },
            string_value_iid: None,
        })
        .collect();
    debug_annotations.push(DebugAnnotation { name_iid: Some(1), string_value_iid: Some(2), uint_value: None });
    let launch = TrackEvent {
        r#type: Some(1),
        name_iid: Some(1),
        category_iids: vec![1],
        source_location_iid: Some(1),
        flow_ids: vec![flow],
        correlation_id: Some(2),
        ..TrackEvent::default()
    };
    let work = TrackEvent {
        r#type: Some(1),
        name_iid: Some(1),
        category_iids: vec![2],
        debug_annotations,
        terminating_flow_ids: vec![flow],
        correlation_id: Some(2),
        ..TrackEvent::default()
    };
    let packets = [
        packet(zone.host.begin_ns, 1 << 20, launch),
        packet(zone.host.end_ns, 1 << 20, end.clone()),
        packet(gpu.begin_ns, (1 << 20) + 1, work),
        packet(gpu.end_ns, (1 << 20) + 1, end),
    ];
    for packet in packets {
        prost::encoding::message::encode(1, &packet, out);
    }
}

fn encoders(c: &mut Criterion) {
    let (info, mut zones) = batch();
    let ours = our_packets(&info, &mut zones);
    let trace = Trace::decode(ours.as_slice()).expect("our packets are protobuf");
    assert_eq!(trace.packet.len(), SLICES * 2, "a begin and an end each");
    assert_eq!(trace.encode_to_vec().len(), ours.len(), "prost knows every field that we write");
    println!("{} B a slice over launches and zones", ours.len() as f64 / SLICES as f64);

    let mut group = c.benchmark_group("perfetto");
    group.throughput(Throughput::Elements(SLICES as u64));

    let counted = Counted::default();
    let mut sink = PerfettoSink::new(counted.clone());
    sink.start(&info).expect("nothing fails");
    let mut allocated = 0;
    group.bench_function("warpline", |bencher| {
        bencher.iter_custom(|count| {
            let mut time = Duration::ZERO;
            for _ in 0..count {
                move_on(&mut zones);
                let (before, begin) = (allocations(), Instant::now());
                let result = sink.write(Batch::Zones(black_box(&zones)));
                time += begin.elapsed();
                allocated = allocations() - before;
                result.expect("nothing fails");
            }
            time
        });
    });
    println!("warpline allocates {allocated} times for the last {ZONES} zones");

    let mut out = Vec::with_capacity(ours.len() * 2);
    let mut flow = 0_u64;
    group.bench_function("prost from records", |bencher| {
        bencher.iter(|| {
            out.clear();
            for zone in black_box(&zones) {
                flow = flow.wrapping_add(0x9E37_79B9_7F4A_7C15);
                with_prost(zone, info.begin_ns, flow, &mut out);
            }
            out.len()
        });
    });
    group.bench_function("prost encodes", |bencher| {
        bencher.iter(|| {
            out.clear();
            black_box(&trace).encode_raw(&mut out);
            out.len()
        });
    });
    group.finish();
}

criterion_group!(benches, encoders);
criterion_main!(benches);
