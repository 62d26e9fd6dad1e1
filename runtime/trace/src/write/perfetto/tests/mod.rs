//! Tests that read the encoder's output back with a decoder that knows only the wire format.

mod catalog;
mod collectives;
mod decode;
mod disks;
mod killed;
mod sampled;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use proptest::prelude::*;

use super::pieces::{Holds, Medium};
use super::proto::{Buffer, PACKET};
use super::{PerfettoSink, PieceSink};
use decode::{Message, Slice, Wire, fields, slices, slices_of_killed};
use warpline_core::catalog::RangeSpec;
use warpline_core::collective::{CollectiveKind, DataType, Message as Collective, ProcessGroup};
use warpline_core::record::{EndSource, Shares, Span, ZoneRecord};
use warpline_core::replay::{ReplayRecord, ReplayedZone};
use warpline_report::Retention;
use warpline_report::fixture;
use warpline_report::fixture::{ATTENTION, BEGIN_NS, COPY, LOAD, STEP, records, run, span, stream, thread, zone};
use warpline_report::sink::{Batch, Sink};

/// A file in memory that can be set to refuse bytes.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Disk>>);

#[derive(Default)]
struct Disk {
    bytes: Vec<u8>,
    /// The number of bytes that it still takes; none for no limit.
    room: Option<usize>,
}

impl Memory {
    fn disk(&self) -> std::sync::MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes(&self) -> Vec<u8> {
        self.disk().bytes.clone()
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.disk();
        let taken = disk.room.map_or(bytes.len(), |room| room.min(bytes.len()));
        if taken == 0 && !bytes.is_empty() {
            return Err(io::Error::other("disk full"));
        }
        disk.room = disk.room.map(|room| room - taken);
        disk.bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Pieces of a trace in memory.
#[derive(Clone, Default)]
struct InPieces(Arc<Mutex<Vec<Vec<u8>>>>);

impl Medium for InPieces {
    fn size(&self) -> usize {
        16 << 10
    }

    fn room(&self) -> usize {
        self.size() - self.0.lock().unwrap_or_else(PoisonError::into_inner).last().map_or(0, Vec::len)
    }

    fn append(&mut self, bytes: &[u8], _: Holds) -> (usize, io::Result<()>) {
        let mut pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pieces.is_empty() {
            pieces.push(Vec::new());
        }
        pieces.last_mut().expect("one at least").extend_from_slice(bytes);
        (bytes.len(), Ok(()))
    }

    fn next(&mut self, _: u64) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Vec::new());
        Ok(())
    }

    fn holds(&mut self, _: Holds) {}

    fn kept(&self) -> Retention {
        Retention::default()
    }
}

fn trace(batches: &[Vec<ZoneRecord>]) -> Vec<u8> {
    let memory = Memory::default();
    run(&mut PerfettoSink::new(memory.clone()), batches).expect("memory takes everything");
    memory.bytes()
}

/// Returns the spans of the slices on tracks whose names match, in order.
fn spans(slices: &[Slice], named: impl Fn(&str) -> bool) -> Vec<(i64, i64)> {
    let mut spans: Vec<_> =
        slices.iter().filter(|slice| named(&slice.track)).map(|slice| (slice.begin_ns, slice.end_ns)).collect();
    spans.sort_unstable();
    spans
}

fn sorted(spans: impl IntoIterator<Item = Span>) -> Vec<(i64, i64)> {
    let mut spans: Vec<_> = spans.into_iter().map(|span| (span.begin_ns, span.end_ns)).collect();
    spans.sort_unstable();
    spans
}

#[test]
fn what_a_zone_carries_is_on_its_slice() {
    let slices = slices(&trace(&records()));
    let on_stream = |range: &RangeSpec, begin| {
        let begin_ns = BEGIN_NS + begin;
        slices.iter().find(|slice| slice.name == range.name() && slice.begin_ns == begin_ns).expect("the slice")
    };
    let attention = on_stream(&ATTENTION, 3_000);
    assert_eq!((attention.track.as_str(), attention.depth, attention.end_ns), ("compute", 1, BEGIN_NS + 5_000));
    let annotations: Vec<_> =
        attention.annotations.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        annotations,
        [
            ("rows", "uint 128"),
            ("offset", "int -7"),
            ("scale", "double 0.125"),
            ("causal", "bool true"),
            ("dtype", "bf16"),
            ("file", "größe \"a\"\n"),
            ("label", "layer 12"),
            ("description", "What the gate looks at."),
        ]
    );
    let failed = on_stream(&ATTENTION, 5_000);
    assert!(failed.annotations.contains(&("error".to_owned(), "out of memory".to_owned())), "{failed:?}");
    assert!(failed.annotations.contains(&("status".to_owned(), "error".to_owned())), "{failed:?}");
    let copy = on_stream(&COPY, 7_000);
    assert_eq!(copy.track, "copies");
    let annotations: Vec<_> = copy.annotations.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        annotations,
        [
            ("shape", "uint 4, uint 128, uint 64"),
            ("scales", "double -0.5, double 2"),
            ("none", "[]"),
            ("options", "tile: uint 64, mode.fast: größe \"a\""),
            ("options.len", "uint 3"),
            ("description", "What the gate looks at."),
        ]
    );
    assert_eq!(on_stream(&LOAD, 500).track, "thread 4242");
    assert_eq!(on_stream(&LOAD, 850).track, "overlapping zones");
    let empty = on_stream(&ATTENTION, 7_000);
    assert_eq!(empty.begin_ns, empty.end_ns);
}

proptest! {
    /// Uses far more streams, threads and lanes of their own than a trace knows at once, in any order. Every zone must read back
    /// unchanged, on the row of its stream.
    #[test]
    fn zones_of_streams_that_come_and_go_read_back_as_written(
        zones in prop::collection::vec((0_u32..40, 0_u64..20, 0_i64..200, 0_i64..60, any::<bool>()), 0..300),
        is_in_pieces in any::<bool>(),
    ) {
        let (mut expected, mut batches) = (BTreeMap::<String, Vec<Span>>::new(), Vec::new());
        for (index, (on, of, begin, length, is_on_lane)) in zones.into_iter().enumerate() {
            // Zones drift forwards, and overlap on their streams and threads.
            let begin = index as i64 * 8 + begin;
            let (stream, thread) = (stream(on, &format!("stream {on}")), thread(100 + of, None));
            let range = if is_on_lane { &COPY } else { &STEP };
            let gpu = span(begin, begin + length);
            batches.push(vec![zone(range, Some(&stream), &thread, span(begin, begin + 5), Some(gpu))]);
            let row = if is_on_lane { "copies".to_owned() } else { stream.name.clone() };
            expected.entry(row).or_default().push(gpu);
        }
        let slices = if is_in_pieces {
            let pieces = InPieces::default();
            let mut sink = PieceSink::to(pieces.clone(), String::new(), "".into());
            run(&mut sink, &batches).expect("memory takes everything");
            let pieces = pieces.0.lock().unwrap_or_else(PoisonError::into_inner);
            pieces.iter().flat_map(|piece| slices(piece)).collect()
        } else {
            slices(&trace(&batches))
        };
        for (row, written) in expected {
            prop_assert_eq!(spans(&slices, |name| name == row), sorted(written), "{}", row);
        }
    }
}

#[test]
fn a_track_that_was_forgotten_comes_back_under_its_id() {
    let main = thread(1, None);
    let on = |id: u32, at: i64| {
        let stream = stream(id, &format!("stream {id}"));
        vec![zone(&STEP, Some(&stream), &main, span(at, at + 1), Some(span(at, at + 10)))]
    };
    let first_and_last =
        [on(1, 0)].into_iter().chain((2..100).map(|id| on(id, 20 * i64::from(id)))).chain([on(1, 9_000)]);
    let slices = slices(&trace(&first_and_last.collect::<Vec<_>>()));
    let tracks: Vec<_> =
        slices.iter().filter(|slice| slice.track == "stream 1").map(|slice| slice.track_uuid).collect();
    assert!(tracks.len() == 2 && tracks[0] == tracks[1], "{tracks:?}");
    let of_thread: std::collections::BTreeSet<_> =
        slices.iter().filter(|slice| slice.track == "thread 1").map(|slice| slice.track_uuid).collect();
    assert_eq!(of_thread.len(), 1, "the thread is used all the time");
}

#[test]
fn each_launch_flows_to_its_zone() {
    let mut flows: BTreeMap<u64, Vec<Slice>> = BTreeMap::new();
    for slice in slices(&trace(&records())) {
        for flow in slice.flows.clone() {
            flows.entry(flow).or_default().push(slice.clone());
        }
    }
    assert_eq!(flows.len(), 7);
    for ends in flows.values() {
        assert_eq!(ends.len(), 2);
        assert_eq!(ends[0].name, ends[1].name);
    }
}

#[test]
fn spans_stand_around_the_zones_that_came_before_them() {
    let memory = Memory::default();
    let mut sink = PerfettoSink::new(memory.clone());
    sink.start(&fixture::session()).expect("memory takes everything");
    for batch in records() {
        sink.write(Batch::Zones(&batch)).expect("memory takes everything");
    }
    sink.write(Batch::Spans(&fixture::spans())).expect("memory takes everything");
    sink.finish(&fixture::report()).expect("memory takes everything");
    let slices = slices(&memory.bytes());
    let at = |name: &str, begin| {
        let begin_ns = BEGIN_NS + begin;
        slices.iter().find(|slice| slice.name == name && slice.begin_ns == begin_ns).expect("the slice")
    };
    let (train, batch, launch) = (at("train \"epoch\"", 400), at("batch", 990), at("demo.step", 1_000));
    assert_eq!([train.depth, batch.depth, launch.depth], [0, 1, 2]);
    assert!([batch, launch].iter().all(|slice| slice.track_uuid == train.track_uuid));
    let parent = [("parent", "train \"epoch\""), ("parent_id", "uint 7")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert!(batch.annotations.ends_with(&parent), "{batch:?}");
    let zone = at("demo.step", 2_000);
    assert!(parent.iter().all(|said| zone.annotations.contains(said)), "{zone:?}");
    assert_eq!(at("batch", 1_995).track, "overlapping zones", "it outlives what it began in");
}

#[test]
fn a_sink_that_was_not_started_says_so() {
    let error = PerfettoSink::new(io::sink()).write(Batch::Zones(&[])).expect_err("not started").to_string();
    assert_eq!(error, "the sink has not been started; call `start` first");
    let error = PerfettoSink::create("/nowhere/trace.pftrace").expect_err("no such folder").to_string();
    assert!(error.starts_with("cannot create the trace file `/nowhere/trace.pftrace`: "), "{error}");
}

#[test]
fn a_long_message_gets_a_longer_length() {
    for len in [0, 1, 125, 126, 127, 128, 129, 16_382, 16_383, 16_384, 70_000] {
        let text = "x".repeat(len);
        let mut buffer = Buffer::default();
        buffer.packet(|packet| packet.message(3, |inner| inner.text(2, &text)));
        buffer.packet(|packet| packet.uint(1, u64::MAX));
        let packets = fields(buffer.as_bytes()).expect("two packets");
        assert_eq!(packets.len(), 2);
        let message = Message(packets);
        let first = message.message(PACKET).and_then(|packet| packet.message(3)).and_then(|inner| inner.text(2));
        assert_eq!(first, Some(text));
    }
}

#[test]
fn varints_of_every_width_come_back() {
    let mut buffer = Buffer::default();
    let values: Vec<u64> = (0..64).flat_map(|bit| [1 << bit, (1 << bit) - 1, !0 >> bit]).collect();
    for value in &values {
        buffer.uint(1, *value);
    }
    let read = Message(fields(buffer.as_bytes()).expect("fields"));
    assert_eq!(read.0, values.iter().map(|value| (1, Wire::Int(*value))).collect::<Vec<_>>());
    // The encoding must take no more bytes than needed.
    let needed = values.iter().map(|value| 1 + (64 - (value | 1).leading_zeros() as usize).div_ceil(7));
    assert_eq!(buffer.len(), needed.sum::<usize>());
}

#[test]
fn times_before_the_session_are_kept() {
    let record = zone(&STEP, Some(&stream(1, "a")), &thread(1, None), span(-300, -200), Some(span(-100, 50)));
    let read = slices(&trace(&[vec![record]]));
    assert_eq!(spans(&read, |track| track == "a"), sorted([span(-100, 50)]));
    assert_eq!(spans(&read, |track| track == "thread 1"), sorted([span(-300, -200)]));
}

#[test]
fn two_traces_of_one_process_share_its_track_and_no_other_id() {
    let mut both = trace(&records());
    both.extend(trace(&records()));
    // The decoder panics if a sequence, or a track other than the process's, occurs twice.
    assert_eq!(slices(&both).len(), 32);
}

proptest! {
    /// For any spans in any order, the spans that are read back must equal the written ones.
    #[test]
    fn any_spans_come_back(
        spans_in in spans_strategy(),
        per_batch in 1_usize..20,
        of_tracing in any::<bool>(),
        early_by_ns in 0_i64..15,
    ) {
        let (main, compute) = (thread(7, None), stream(1, "compute"));
        let zones: Vec<ZoneRecord> = spans_in
            .iter()
            .enumerate()
            .map(|(index, (host, gpu))| {
                let mut record = zone(&STEP, Some(&compute), &main, *host, Some(*gpu));
                record.sequence = index as u64;
                // Ends of some are not timed, by more or less than their length.
                record.end_early_by_ns = if index % 3 > 0 { early_by_ns } else { 0 };
                record
            })
            .collect();
        let memory = Memory::default();
        let mut sink = PerfettoSink::new(memory.clone());
        sink.start(&fixture::session()).expect("memory takes everything");
        let on_thread = |(_, gpu): &(Span, Span)| fixture::thread_span(&main, *gpu);
        for (zones, spans_in) in zones.chunks(per_batch).zip(spans_in.chunks(per_batch)) {
            sink.write(Batch::Zones(zones)).expect("memory takes everything");
            if of_tracing {
                sink.write(Batch::Spans(&spans_in.iter().map(on_thread).collect::<Vec<_>>())).expect("memory takes everything");
            }
        }
        sink.finish(&fixture::report()).expect("memory takes everything");
        let (tails, read): (Vec<_>, Vec<_>) =
            slices(&memory.bytes()).into_iter().partition(|slice| slice.name == "end not timed");
        let mut possible = sorted(zones.iter().filter_map(ZoneRecord::uncertain_tail));
        for tail in &tails {
            let at = possible.iter().position(|(begin, end)| (*begin, *end) == (tail.begin_ns, tail.end_ns));
            prop_assert!(at.map(|at| possible.remove(at)).is_some() && tail.track == "compute", "{:?}", tail);
        }
        let launches = spans_in.iter().map(|(host, _)| *host);
        let spans_of_tracing = spans_in.iter().map(|(_, gpu)| *gpu).filter(|_| of_tracing);
        prop_assert_eq!(spans(&read, |track| track == "compute"), sorted(spans_in.iter().map(|(_, gpu)| *gpu)));
        prop_assert_eq!(spans(&read, |track| track != "compute"), sorted(launches.chain(spans_of_tracing)));
    }
}

#[test]
fn the_time_in_which_a_zone_may_have_ended_is_a_slice_at_its_end() {
    let (main, compute) = (thread(7, None), stream(1, "compute"));
    let zone_at = |begin, end, early_by_ns| {
        let mut record = zone(&STEP, Some(&compute), &main, span(0, 1), Some(span(begin, end)));
        (record.end, record.end_early_by_ns) = (EndSource::Boundary, early_by_ns);
        record.sequence = begin as u64;
        record
    };
    let zones = [
        // The next one begins where it ends.
        zone_at(100, 200, 60),
        zone_at(200, 300, 0),
        // A zone within it reaches into that time, and the zone around it is timed.
        zone_at(450, 550, 0),
        zone_at(400, 600, 100),
        zone_at(390, 650, 0),
        // A zone within it ends before, and has such a time, too.
        zone_at(710, 720, 4),
        zone_at(700, 800, 50),
        // Known within 5 %, and not known at all.
        zone_at(900, 1_000, 5),
        zone_at(1_100, 1_150, 90),
        // A zone within it begins in that time.
        zone_at(1_280, 1_290, 0),
        zone_at(1_200, 1_300, 90),
        // A zone within it ends where it ends.
        zone_at(1_410, 1_500, 0),
        zone_at(1_400, 1_500, 50),
    ];
    for batches in [zones.chunks(zones.len()), zones.chunks(2)] {
        let read = slices(&trace(&batches.map(<[ZoneRecord]>::to_vec).collect::<Vec<_>>()));
        let (tails, others): (Vec<_>, Vec<_>) = read.into_iter().partition(|slice| slice.name == "end not timed");
        let mut found: Vec<_> =
            tails.iter().map(|tail| (tail.begin_ns - BEGIN_NS, tail.end_ns - BEGIN_NS, tail.depth)).collect();
        found.sort_unstable();
        let expected = [(140, 200, 1), (716, 720, 2), (750, 800, 1), (1_100, 1_150, 1)];
        assert_eq!(found, expected, "a time, and the number of slices around it");
        assert!(tails.iter().all(|tail| tail.track == "compute" && tail.flows.is_empty()), "{tails:?}");
        assert_eq!(tails[0].annotations, [("end_early_by_ns".to_owned(), "int 60".to_owned())]);
        let on_stream = spans(&others, |track| track == "compute");
        assert_eq!(on_stream, sorted(zones.iter().filter_map(|zone| zone.gpu)));
    }
}

/// Has few distinct times, so that ties, empty spans and overlaps are frequent.
fn spans_strategy() -> impl Strategy<Value = Vec<(Span, Span)>> {
    let one = || (0_i64..40, 0_i64..12).prop_map(|(begin, length)| span(begin, begin + length));
    prop::collection::vec((one(), one()), 0..60)
}

#[test]
fn a_span_that_comes_before_the_one_around_it_is_drawn_inside_it_in_a_trace_of_pieces_too() {
    let main = thread(7, None);
    let (outer, inner) = (span(0, 100), span(0, 40));
    let pieces = InPieces::default();
    let mut sink = PieceSink::to(pieces.clone(), String::new(), "".into());
    sink.start(&fixture::session()).expect("memory takes everything");
    let spans = [inner, outer].map(|span| fixture::thread_span(&main, span));
    sink.write(Batch::Spans(&spans)).expect("memory takes everything");
    sink.finish(&fixture::report()).expect("memory takes everything");
    let pieces = pieces.0.lock().unwrap_or_else(PoisonError::into_inner);
    let slices: Vec<_> = pieces.iter().flat_map(|piece| slices(piece)).collect();
    let drawn = [outer, inner].map(|span| {
        let slice = slices.iter().find(|slice| slice.end_ns == span.end_ns).expect("the slice");
        (slice.track.as_str(), slice.depth)
    });
    assert_eq!(drawn, [("thread 7", 0), ("thread 7", 1)]);
}

#[test]
fn all_slices_of_a_range_have_its_correlation() {
    let zones: Vec<Slice> = slices(&trace(&records()));
    for range in [&STEP, &ATTENTION, &COPY, &LOAD] {
        let of_range: Vec<_> = zones.iter().filter(|slice| slice.name == range.name()).collect();
        assert!(
            !of_range.is_empty() && of_range.iter().all(|slice| slice.correlation.as_deref() == Some(range.name()))
        );
    }
    assert!(
        zones.iter().any(|slice| slice.track.starts_with("thread "))
            && zones.iter().any(|slice| slice.track == "compute")
    );
}
