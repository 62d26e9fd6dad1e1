//! Handwritten records for the tests of warpline's crates. Only tests enable the feature `fixture`.
//!
//! The trace gate reads the traces that `warpline-trace` makes from these records, and compares the rows with those in
//! `tests/gate`. A change of a record here changes the rows there.

use std::sync::Arc;

use crate::catalog::spec::RangeMeta;
use crate::catalog::{Kind, RangeSpec};
use crate::fields::{Fields, Value};
use crate::kernel::{KernelRecord, KernelWork};
use crate::memory::{MemoryChange, MemoryRecord, MemoryTiming};
use crate::record::{
    DeviceInfo, DeviceKind, EndSource, Span, SpanRecord, SpanRef, SpanSite, Status, StreamInfo, ThreadInfo, ZoneRecord,
};
use crate::replay::{ReplayRecord, ReplayTiming, ReplayedZone};
use crate::wait::{QueueDepth, SignalInfo, WaitOutcome, WaitRecord};

pub const fn range(label: &'static str, kind: Kind, lane: Option<&'static str>, line: u32) -> RangeSpec {
    RangeSpec::new(RangeMeta {
        namespace: "demo",
        label,
        description: "What the gate looks at.",
        kind,
        lane,
        module: "demo::model",
        version: "1.0.0",
        file: "demo/src/model.rs",
        line,
        ..RangeMeta::EMPTY
    })
}

pub static STEP: RangeSpec = range("demo.step\0", Kind::Gpu, None, 10);
pub static ATTENTION: RangeSpec = range("demo.attention\0", Kind::Gpu, None, 20);
pub static COPY: RangeSpec = range("demo.copy\0", Kind::Gpu, Some("copies"), 30);
pub static LOAD: RangeSpec = range("demo.load\0", Kind::Host, None, 40);

/// The catalog of the tests' sessions.
pub static RANGES: [&RangeSpec; 4] = [&STEP, &ATTENTION, &COPY, &LOAD];

/// The begin of the tests' sessions.
pub const BEGIN_NS: i64 = 5_000_000_000_000;

pub fn stream(id: u32, name: &str) -> Arc<StreamInfo> {
    let device = DeviceInfo { ordinal: 0, name: "host".to_owned(), kind: DeviceKind::Host };
    Arc::new(StreamInfo { id, name: name.to_owned(), device })
}

pub fn thread(id: u64, name: Option<&str>) -> Arc<ThreadInfo> {
    Arc::new(ThreadInfo { id, name: name.map(str::to_owned) })
}

pub fn main_thread() -> Arc<ThreadInfo> {
    thread(4242, Some("main"))
}

/// Returns a span in ns after [`BEGIN_NS`].
pub fn span(begin: i64, end: i64) -> Span {
    Span { begin_ns: BEGIN_NS + begin, end_ns: BEGIN_NS + end }
}

pub fn zone(
    range: &'static RangeSpec,
    stream: Option<&Arc<StreamInfo>>,
    thread: &Arc<ThreadInfo>,
    host: Span,
    gpu: Option<Span>,
) -> ZoneRecord {
    ZoneRecord {
        range,
        stream: stream.cloned(),
        thread: Arc::clone(thread),
        depth: 0,
        parent: None,
        sequence: 0,
        host,
        gpu,
        sample_share: 1.0,
        window: 0,
        end: EndSource::Event,
        end_early_by_ns: 0,
        begin_late_by_ns: 0,
        bracket_ns: 0,
        status: Status::Complete,
        error: None,
        fields: Fields::default(),
        message: None,
        entry: None,
    }
}

/// Returns a kernel outside of zones.
pub fn kernel(name: &str, stream: &Arc<StreamInfo>, gpu: Span) -> KernelRecord {
    KernelRecord {
        name: name.into(),
        work: KernelWork::Kernel {
            grid: [8, 1, 1],
            block: [128, 1, 1],
            registers_per_thread: 32,
            static_shared_bytes: 0,
            dynamic_shared_bytes: 0,
        },
        stream: Arc::clone(stream),
        gpu,
        correlation: 1,
        context: 1,
        cuda_stream: 7,
        graph: None,
        zone: None,
        launch: None,
    }
}

/// Returns a replay of the graph `decode` outside of zones, timed by its kernels, of which each zone has one.
pub fn replay(stream: &Arc<StreamInfo>, gpu: Span, zones: Vec<ReplayedZone>) -> ReplayRecord {
    ReplayRecord {
        graph: 1,
        name: Some("decode".into()),
        exec: 2,
        correlation: 3,
        stream: Arc::clone(stream),
        gpu,
        kernels: zones.len() as u32,
        unplaced: 0,
        zone: None,
        launch: None,
        timed_by: ReplayTiming::Kernels,
        zones,
    }
}

/// Returns a zone of every shape that a trace must hold: nesting, overlap, a separate lane, ties, zero length, each type of
/// field, lists, also one without items, a map that was cut, a label, an error, a panic, host zones, and a zone that the clocks put before its launch.
pub fn records() -> Vec<Vec<ZoneRecord>> {
    let (main, worker) = (main_thread(), thread(4243, None));
    let (compute, side) = (stream(1, "compute"), stream(2, "side"));

    let mut attention = zone(&ATTENTION, Some(&compute), &main, span(1_100, 1_200), Some(span(3_000, 5_000)));
    attention.fields.push("rows", 128_u32);
    attention.fields.push("offset", -7_i64);
    attention.fields.push("scale", 0.125_f64);
    attention.fields.push("causal", true);
    attention.fields.push("dtype", "bf16");
    attention.fields.push("file", "größe \"a\"\n".to_owned());
    attention.fields.set_label("layer 12");
    let mut failed = zone(&ATTENTION, Some(&compute), &main, span(1_300, 1_400), Some(span(5_000, 6_000)));
    failed.status = Status::Error;
    failed.error = Some("out of memory".into());
    let mut step = zone(&STEP, Some(&compute), &main, span(1_000, 1_500), Some(span(2_000, 6_000)));
    step.parent = Some(TRAIN);
    // This zone begins in the middle of `step` and outlives it.
    let overlapping = zone(&ATTENTION, Some(&compute), &worker, span(1_600, 1_700), Some(span(5_500, 7_000)));
    let empty = zone(&ATTENTION, Some(&compute), &main, span(1_800, 1_900), Some(span(7_000, 7_000)));
    let mut copy = zone(&COPY, Some(&compute), &main, span(1_950, 1_960), Some(span(7_000, 8_000)));
    copy.fields.push("shape", [4_usize, 128, 64]);
    copy.fields.push("scales", [-0.5_f32, 2.0]);
    copy.fields.push("none", [0_u8; 0]);
    // The second entry of one name is cut.
    let text = Value::from("größe \"a\"");
    copy.fields.push("options", [("tile", Value::from(64_u32)), ("mode.fast", text), ("tile", Value::from(0_u32))]);

    let mut early = zone(&STEP, Some(&side), &worker, span(9_000, 9_100), Some(span(8_990, 9_500)));
    early.status = Status::Panicked;

    let mut load = zone(&LOAD, None, &main, span(500, 900), None);
    load.fields.push("bytes", u64::from(u32::MAX) + 1);
    load.fields.push("parent", "a field of a taken name");
    load.parent = Some(TRAIN);
    let load_in_async = zone(&LOAD, None, &main, span(850, 950), None);
    vec![vec![attention, failed, step, overlapping, empty, copy], vec![load, load_in_async], vec![early]]
}

/// The span that contains the records.
pub const TRAIN: SpanRef = SpanRef { name: "train \"epoch\"", id: 7 };

pub const fn site(name: &'static str, level: &'static str, line: u32) -> SpanSite {
    SpanSite { name, target: "demo::train", level, file: Some("demo/src/train.rs"), line: Some(line) }
}

/// Returns a span of `tracing` that the thread was in.
pub fn thread_span(thread: &Arc<ThreadInfo>, host: Span) -> SpanRecord {
    let fields = Arc::default();
    SpanRecord {
        site: site("any", "INFO", 1),
        id: Some(1),
        parent: None,
        thread: Arc::clone(thread),
        sequence: 0,
        host,
        fields,
    }
}

/// Returns a span around zones that were written before, a span inside it with each type of field, a span that outlives it, the
/// same span on another thread, a span whose place is unknown, and events with and without a message.
pub fn spans() -> Vec<SpanRecord> {
    let main = main_thread();
    let record = |site, id, host, parent, fields: &[(&'static str, Value)]| SpanRecord {
        site,
        id,
        parent,
        thread: Arc::clone(&main),
        sequence: 0,
        host,
        fields: fields.into(),
    };
    let text = |text: &str| Value::Text(text.into());
    let types = [
        ("rows", Value::U64(128)),
        ("offset", Value::I64(-7)),
        ("scale", Value::F64(0.125)),
        ("causal", Value::Bool(true)),
        ("path", text("größe \"a\"\n")),
        ("span_id", text("a field of a taken name")),
        ("message", text("no event")),
    ];
    let batch = site("batch", "DEBUG", 20);
    let elsewhere =
        SpanRecord { thread: thread(4243, None), ..record(batch, Some(9), span(1_550, 1_750), Some(TRAIN), &[]) };
    let nowhere = SpanSite { file: None, line: None, ..site("nowhere", "TRACE", 0) };
    let said = site("event demo/src/train.rs:30", "WARN", 30);
    vec![
        record(
            said,
            None,
            span(1_050, 1_050),
            Some(TRAIN),
            &[("message", text("slow \"disk\"")), ("ms", Value::U64(12))],
        ),
        record(batch, Some(9), span(990, 1_990), Some(TRAIN), &types),
        record(said, None, span(2_010, 2_010), None, &[("ms", Value::U64(13))]),
        record(site(TRAIN.name, "INFO", 10), Some(TRAIN.id), span(400, 2_000), None, &[]),
        record(batch, Some(9), span(1_995, 2_100), None, &[]),
        record(nowhere, Some(11), span(2_200, 2_200), None, &[]),
        elsewhere,
    ]
}

/// Returns a stream's wait for another stream inside a zone, whose end was found late; a wait for a thread that signalled before
/// the wait began; a thread's wait for a queue; a wait that timed out; and a declared wait.
pub fn waits() -> Vec<WaitRecord> {
    let (main, compute, side) = (main_thread(), stream(1, "compute"), stream(2, "side"));
    let signal = |value, stream: Option<&Arc<StreamInfo>>, at: i64| SignalInfo {
        value,
        stream: stream.cloned(),
        thread: main_thread(),
        queue: None,
        host_ns: BEGIN_NS + 1_000,
        at_ns: BEGIN_NS + at,
        early_by_ns: 0,
    };
    let wait = |semaphore: &str, value, stream: Option<&Arc<StreamInfo>>, host, gpu, signal| WaitRecord {
        semaphore: semaphore.into(),
        value,
        stream: stream.cloned(),
        thread: Arc::clone(&main),
        queue: None,
        sequence: 0,
        host,
        gpu,
        end: EndSource::Event,
        end_early_by_ns: 0,
        outcome: WaitOutcome::Reached,
        signal,
    };
    let late = SignalInfo { early_by_ns: 40, ..signal(Some(3), Some(&side), 2_900) };
    let inside =
        wait("weights \"loaded\"", Some(2), Some(&compute), span(1_010, 1_020), Some(span(2_100, 2_950)), Some(late));
    let inside = WaitRecord { end: EndSource::Boundary, end_early_by_ns: 50, ..inside };
    let passed = wait(
        "go",
        Some(1),
        Some(&side),
        span(1_400, 1_410),
        Some(span(8_000, 8_000)),
        Some(signal(Some(1), None, 1_450)),
    );
    let by_queue = SignalInfo { queue: Some("steps".into()), ..signal(Some(9), Some(&compute), 9_800) };
    let of_thread = wait("step done", Some(9), None, span(9_700, 9_900), None, Some(by_queue));
    let in_vain = wait("never", Some(1), None, span(9_950, 9_990), None, None);
    let in_vain = WaitRecord { outcome: WaitOutcome::TimedOut, ..in_vain };
    let of_queue = wait(
        "event",
        None,
        Some(&side),
        span(1_420, 1_430),
        Some(span(8_100, 8_200)),
        Some(signal(None, Some(&compute), 8_150)),
    );
    let of_queue = WaitRecord { queue: Some("steps".into()), ..of_queue };
    vec![inside, passed, of_thread, in_vain, of_queue]
}

pub fn depths() -> Vec<QueueDepth> {
    let depth = |at, depth| QueueDepth { queue: "steps".into(), at_ns: BEGIN_NS + at, depth };
    vec![depth(1_600, 1), depth(1_700, 2), depth(9_600, 0)]
}

pub fn memory() -> Vec<MemoryRecord> {
    let (compute, main) = (stream(1, "compute"), thread(4242, Some("main")));
    let record =
        |change, at, (range, name): (Option<&'static RangeSpec>, Option<&str>), bytes, sums: (u64, u64)| MemoryRecord {
            change,
            stream: Arc::clone(&compute),
            thread: Arc::clone(&main),
            queue: Some("steps".into()),
            range,
            name: name.map(Into::into),
            bytes,
            address: 0x7000_0000,
            at_ns: BEGIN_NS + at,
            timing: MemoryTiming::Call,
            device_bytes: sums.0,
            owner_bytes: sums.1,
        };
    vec![
        record(MemoryChange::Allocated, 1_000, (Some(&STEP), None), 4096, (4096, 4096)),
        record(MemoryChange::Allocated, 1_500, (None, Some("kv \"cache\"")), 1024, (5120, 1024)),
        record(MemoryChange::Freed, 9_000, (Some(&STEP), None), 4096, (1024, 0)),
    ]
}
