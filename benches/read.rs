//! How fast a trace is read: `warpline` passes on each slice with its row, its name and its arguments, as every command reads a trace;
//! `packets` splits the file and looks into no packet; `prost` decodes the same packets into messages, and looks nothing up.
//!
//! One zone is two slices: the launch on its thread, and the zone on its stream with a field, the range's description and the flow that ties
//! the two.

#[allow(dead_code, reason = "the encoders use the whole trace")]
#[path = "perfetto/messages.rs"]
mod messages;

use std::fs;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use messages::TracePacket;
use prost::Message;
use warpline::{HostStream, Session};
use warpline_trace::read::{Names, Packets, Rows, Slice, Visitor, read};

warpline::namespace!("bench", "zones for the readers");

warpline::range! {
    ZONE = "bench.zone": "A zone with a field.";
}

/// Zones in the trace, as many as fit into the ring while the collector is busy.
const ZONES: u64 = 200_000;

/// Counts slices.
#[derive(Default)]
struct Count(u64);

impl Visitor for Count {
    fn slice(&mut self, slice: &Slice<'_>, _: &Rows, _: &mut Names) {
        self.0 += u64::from(slice.span.end_ns >= slice.span.begin_ns);
    }
}

fn readers(c: &mut Criterion) {
    let path = std::env::temp_dir().join(format!("warpline-bench-read-{}.pftrace", std::process::id()));
    let session =
        Session::builder().perfetto(&path).budget(1.0).ring(1 << 18).quiet().start().expect("no other session");
    let stream = HostStream::new("compute");
    for n in 0..ZONES {
        drop(ZONE.zone(&stream).field("n", n));
    }
    session.finish();
    let trace = fs::read(&path).expect("the session wrote it");
    println!("{} MiB", trace.len() >> 20);

    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Bytes(trace.len() as u64));
    group.bench_function("warpline", |bencher| {
        bencher.iter(|| {
            let mut count = Count::default();
            let skipped = read(black_box(&path), &mut Names::default(), &mut count).expect("a trace");
            assert!(count.0 > ZONES && skipped.warnings().is_empty());
        });
    });
    group.bench_function("packets", |bencher| {
        bencher.iter(|| {
            let (mut packets, mut bytes) = (Packets::new(black_box(&trace[..])), 0);
            while let Some(packet) = packets.next_packet().expect("memory") {
                bytes += packet.len();
            }
            bytes
        });
    });
    group.bench_function("prost", |bencher| {
        bencher.iter(|| {
            let (mut packets, mut events) = (Packets::new(black_box(&trace[..])), 0_u64);
            while let Some(packet) = packets.next_packet().expect("memory") {
                let packet = TracePacket::decode(packet).expect("our packets are protobuf");
                events += u64::from(packet.track_event.is_some());
            }
            events
        });
    });
    group.finish();
    let _ = fs::remove_file(&path);
}

criterion_group!(benches, readers);
criterion_main!(benches);
