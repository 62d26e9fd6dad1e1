//! A trace with the parts that PyTorch's profiler writes, and hostile ones, encoded by a library that shares nothing with the reader.

mod proto;

use std::io::Read;
use std::rc::Rc;

use prost::Message;
use serde_json::{Value, json};

use self::proto::*;
use super::{Layout, Translated};
use crate::read::is_perfetto;

/// The tag of `Trace.packet`.
const PACKET: u8 = 0x0A;

fn trace(packets: &[Packet]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for packet in packets {
        let packet = packet.encode_to_vec();
        bytes.push(PACKET);
        prost::encoding::encode_varint(packet.len() as u64, &mut bytes);
        bytes.extend(packet);
    }
    bytes
}

fn translated(bytes: &[u8]) -> std::io::Result<Vec<Value>> {
    assert!(is_perfetto(bytes));
    let layout = Rc::new(Layout::read(bytes, 100, "raise the limit with `--limit`")?);
    let mut text = String::new();
    Translated::new(bytes, layout).read_to_string(&mut text)?;
    let document: Value = serde_json::from_str(&text).expect("JSON");
    Ok(document["traceEvents"].as_array().expect("events").clone())
}

fn slice(kind: u32, track: u64, ns: u64) -> Packet {
    Packet { timestamp: ns, event: Some(TrackEvent { kind, track, ..TrackEvent::default() }), ..Packet::default() }
}

fn named(track: u64, ns: u64, name: &str) -> Packet {
    let mut packet = slice(SLICE_BEGIN, track, ns);
    if let Some(event) = &mut packet.event {
        event.name = Some(name.to_owned());
    }
    packet
}

/// The slices by name, with begin and length as they are written.
fn slices(packets: &[Packet]) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let us = |value: &Value| value.as_f64().map_or_else(|| "-".to_owned(), |us| format!("{us:.3}"));
    let events = translated(&trace(packets)).expect("a trace");
    events.iter().map(|event| (text(&event["name"]), us(&event["ts"]), us(&event["dur"]))).collect()
}

#[test]
fn ends_that_follow_a_group_of_begins_are_in_the_order_of_the_begins() {
    let group = [
        named(1, 1_000, "outer"),
        named(1, 1_100, "inner"),
        named(1, 2_000, "next"),
        named(2, 1_500, "elsewhere"),
        slice(SLICE_END, 1, 2_000),
        slice(SLICE_END, 1, 1_200),
        slice(SLICE_END, 1, 2_001),
        slice(SLICE_END, 2, 1_600),
    ];
    let expected = [
        ("outer", "0.000", "1.000"),
        ("inner", "0.100", "0.100"),
        ("next", "1.000", "0.001"),
        ("elsewhere", "0.500", "0.100"),
    ];
    assert_eq!(slices(&group), expected.map(|(name, ts, dur)| (name.to_owned(), ts.to_owned(), dur.to_owned())));
}

#[test]
fn an_end_in_the_order_of_time_closes_the_innermost_slice() {
    let nested = [
        named(1, 1_000, "outer"),
        named(1, 1_100, "inner"),
        slice(SLICE_END, 1, 1_200),
        slice(SLICE_END, 1, 1_300),
        slice(SLICE_END, 1, 1_400),
        named(1, 1_500, "open"),
    ];
    let found = slices(&nested);
    let expected =
        [("outer", "0.000", "0.300"), ("inner", "0.100", "0.100"), ("", "0.400", "-"), ("open", "0.500", "-")];
    assert_eq!(found, expected.map(|(name, ts, dur)| (name.to_owned(), ts.to_owned(), dur.to_owned())));
}

#[test]
fn names_arguments_arrows_and_counters_are_those_of_the_chrome_form() {
    let name = |iid, name: &str| Name { iid, name: name.to_owned() };
    let text =
        |name: &str, value| Annotation { name: Some(name.to_owned()), value: Some(value), ..Annotation::default() };
    let number = |value| Annotation { value: Some(AnnotationValue::Int(value)), ..Annotation::default() };
    let annotations = vec![
        text("External id", AnnotationValue::Int(7)),
        Annotation { name: Some("dims".to_owned()), values: vec![number(2), number(-3)], ..Annotation::default() },
        Annotation {
            name_iid: 4,
            entries: vec![text("a", AnnotationValue::TextIid(5)), text("b", AnnotationValue::Bool(true))],
            ..Annotation::default()
        },
        text("parsed", AnnotationValue::Json("{\"x\":1}".to_owned())),
    ];
    let process = TrackDescriptor {
        uuid: 1,
        process: Some(Process { pid: 42, name: "python".to_owned() }),
        ..TrackDescriptor::default()
    };
    let thread = TrackDescriptor {
        uuid: 2,
        parent: 1,
        thread: Some(Thread { pid: 42, tid: 43, name: "main".to_owned() }),
        ..TrackDescriptor::default()
    };
    let specs = vec![CounterSpec { id: 3, name: "Power (W)".to_owned() }];
    let interned = Interned {
        event_names: vec![name(1, "cudaLaunchKernel"), name(2, "gemm")],
        annotation_names: vec![name(4, "map")],
        texts: vec![name(5, "text")],
        specifications: vec![name(1, "Kernel"), name(107, "stream 0007")],
        arguments: vec![name(1, "registers_per_thread"), name(3, "thread_count")],
        counters: vec![Counters { iid: 1, gpu: 1, descriptor: Some(CounterDescriptor { specs }) }],
        ..Interned::default()
    };
    let call = TrackEvent {
        kind: SLICE_BEGIN,
        track: 2,
        name_iid: 1,
        annotations,
        flows: vec![9],
        correlation: Some(GpuCorrelation { submitted: vec![17] }),
        ..TrackEvent::default()
    };
    let kernel = RenderStage {
        event_id: 17,
        duration: 2_500,
        gpu: 1,
        queue_iid: 107,
        stage_iid: 1,
        name_iid: 2,
        extra: vec![
            Extra { name: "correlation".to_owned(), value: "412".to_owned() },
            Extra { name: "graph node id".to_owned(), value: "30064771073".to_owned() },
            Extra { name: "arch".to_owned(), value: "sm_90".to_owned() },
        ],
        launch: Some(Launch {
            grid: Some(Dim3 { x: 1, y: 2, z: 3 }),
            block: None,
            arguments: vec![Argument { name_iid: 1, value: 40 }, Argument { name_iid: 3, value: 256 }],
        }),
        ..RenderStage::default()
    };
    let sample = CounterEvent { counters: vec![Counter { id: 3, int: None, double: Some(412.5) }], descriptor_iid: 1 };
    let at = |timestamp| Packet { timestamp, sequence: 1, ..Packet::default() };
    let events = translated(&trace(&[
        Packet { track: Some(process), ..Packet::default() },
        Packet { track: Some(thread), ..Packet::default() },
        Packet { flags: STATE_CLEARED, interned: Some(interned), ..at(0) },
        Packet { event: Some(call), ..at(1_234) },
        Packet { event: Some(TrackEvent { kind: SLICE_END, track: 2, ..TrackEvent::default() }), ..at(2_000) },
        Packet { stage: Some(kernel), ..at(5_000) },
        Packet { counters: Some(sample), ..at(6_000) },
    ]))
    .expect("a trace");
    let args = json!({"External id": 7, "dims": [2, -3], "map": {"a": "text", "b": true}, "parsed": {"x": 1}});
    assert_eq!(
        events,
        [
            json!({"ph": "M", "name": "process_name", "pid": 42, "tid": 0, "ts": 0.0, "args": {"name": "python"}}),
            json!({"ph": "M", "name": "thread_name", "pid": 42, "tid": 43, "ts": 0.0, "args": {"name": "main"}}),
            json!({"ph": "X", "name": "cudaLaunchKernel", "pid": 42, "tid": 43, "ts": 0.0, "dur": 0.766, "args": args}),
            json!({"ph": "t", "bp": "e", "cat": "flow", "name": "flow", "id": "9", "pid": 42, "tid": 43, "ts": 0.0}),
            json!({"ph": "s", "bp": "e", "cat": "ac2g", "name": "ac2g", "id": "17", "pid": 42, "tid": 43, "ts": 0.0}),
            json!({"ph": "M", "name": "thread_name", "pid": "GPU 1", "tid": 7, "ts": 0.0, "args": {"name": "stream 7"}}),
            json!({"ph": "X", "cat": "kernel", "name": "gemm", "pid": "GPU 1", "tid": 7, "ts": 3.766, "dur": 2.500,
                   "args": {"graph node id": 30_064_771_073_u64, "arch": "sm_90", "correlation": 412, "grid": [1, 2, 3],
                            "registers per thread": 40, "thread count": 256}}),
            json!({"ph": "f", "bp": "e", "cat": "ac2g", "name": "ac2g", "id": "17", "pid": "GPU 1", "tid": 7, "ts": 3.766}),
            json!({"ph": "C", "name": "Power (W)", "pid": "GPU 1", "ts": 4.766, "args": {"value": 412.5}}),
        ]
    );
}

#[test]
fn waits_of_a_devices_streams_are_on_its_rows() {
    let process = TrackDescriptor {
        uuid: 1,
        process: Some(Process { pid: 0, name: "GPU 0".to_owned() }),
        ..TrackDescriptor::default()
    };
    let thread = Thread { pid: 0, tid: 7, name: "stream 7 ".to_owned() };
    let stream = TrackDescriptor { uuid: 2, parent: 1, thread: Some(thread), ..TrackDescriptor::default() };
    let descriptors = [process, stream].map(|track| Packet { track: Some(track), ..Packet::default() });
    let events =
        translated(&trace(&[&descriptors[..], &[named(2, 1, "Stream Wait Event"), slice(SLICE_END, 2, 3)]].concat()));
    let events = events.expect("a trace");
    let row =
        json!({"ph": "M", "name": "thread_name", "pid": "GPU 0", "tid": 7, "ts": 0.0, "args": {"name": "stream 7"}});
    assert_eq!((events.len(), &events[1]), (3, &row), "{events:?}");
    assert_eq!((&events[2]["pid"], &events[2]["tid"]), (&json!("GPU 0"), &json!(7)));
}

/// Work of a graph: its id, its queue, the real stream, and what it waits for.
fn node(event_id: u64, (queue_iid, stream): (u64, &str), waits_for: &[u64]) -> Packet {
    let extra = vec![Extra { name: "stream id".to_owned(), value: stream.to_owned() }];
    let stage = RenderStage {
        event_id,
        queue_iid,
        extra,
        waits_for: waits_for.to_vec(),
        duration: 10,
        ..RenderStage::default()
    };
    Packet { timestamp: 1_000 * event_id, sequence: 1, stage: Some(stage), ..Packet::default() }
}

#[test]
fn rows_have_no_numbers_to_sort_by_and_work_of_a_graph_says_its_stream_and_what_it_waits_for() {
    let name = |iid, name: &str| Name { iid, name: name.to_owned() };
    let specifications = vec![name(100, "[0007] stream 7"), name(101, "[0060] comm: dp")];
    let interned = Interned { specifications, ..Interned::default() };
    let events = translated(&trace(&[
        Packet { sequence: 1, flags: STATE_CLEARED, interned: Some(interned), ..Packet::default() },
        node(1, (100, "7"), &[]),
        node(2, (101, "13"), &[1]),
        node(3, (100, "7"), &[1, 2]),
    ]));
    let events = events.expect("a trace");
    let with = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    let names: Vec<_> = with("M").into_iter().map(|event| (&event["tid"], &event["args"]["name"])).collect();
    assert_eq!(names, [(&json!(7), &json!("stream 7")), (&json!(60), &json!("comm: dp"))]);
    let work: Vec<_> = with("X").into_iter().map(|event| (&event["tid"], &event["args"])).collect();
    let (own, moved) = (json!({"stream": 7}), json!({"stream": 60, "original_stream": 13}));
    assert_eq!(work, [(&json!(7), &own), (&json!(60), &moved), (&json!(7), &own)]);
    // No call submitted them, so no other arrow ends there.
    let ids = |phase: &str| with(phase).into_iter().map(|event| (&event["cat"], &event["id"])).collect::<Vec<_>>();
    let (wait, [one, two]) = (json!("wait"), [json!("1"), json!("2")]);
    assert_eq!(ids("s"), [(&wait, &one), (&wait, &two)]);
    assert_eq!(ids("f"), [(&wait, &one), (&wait, &one), (&wait, &two)]);
}

#[test]
fn times_are_exact_in_a_float_and_the_wall_clock_is_kept() {
    // Half a minute after a boundary of three months, which the profiler takes for the begin.
    let base = 1_763_243_493_000_000_000;
    let clocks = [(6, base), (1, base + 7)].map(|(id, timestamp)| Clock { id, timestamp });
    let clocks = Packet { timestamp: base, clocks: Some(ClockSnapshot { clocks: clocks.into() }), ..Packet::default() };
    let slice = [named(1, base + 30_000_000_001, "one"), slice(SLICE_END, 1, base + 30_000_000_004)];
    let bytes = trace(&[&[clocks][..], &slice].concat());
    let layout = Rc::new(Layout::read(&bytes[..], 100, "").expect("a trace"));
    let mut text = String::new();
    Translated::new(&bytes[..], layout).read_to_string(&mut text).expect("a trace");
    assert!(text.contains("\"ts\":30000000.001,\"dur\":0.003,"), "{text}");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(document["baseTimeNanoseconds"], base + 7);
}

#[test]
fn damaged_traces_are_refused_with_the_position() {
    let whole = trace(&[named(1, 1_000, "one"), slice(SLICE_END, 1, 2_000)]);
    let why = |bytes: &[u8]| translated(bytes).expect_err("refused").to_string();
    for end in [2, 5, whole.len() - 1] {
        assert!(why(&whole[..end]).contains("truncated in the packet at byte"), "{end}: {}", why(&whole[..end]));
    }
    assert!(why(&[&whole[..], b"x"].concat()).contains(&format!("damaged at byte {}: no packet", whole.len())));
    assert!(why(&[PACKET, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01]).contains("a packet of more than 16 MiB"));
    assert!(
        why(&trace(&[Packet { clock: 64, ..Packet::default() }]))
            .contains("a clock that PyTorch's profiler does not use")
    );
    assert!(why(&trace(&[Packet { compressed: Some(vec![1]), ..Packet::default() }])).contains("compressed packets"));
    let many: Vec<Packet> = (0..101).map(|ns| named(1, ns, "x")).collect();
    assert!(why(&trace(&many)).contains("more than 100 slices; raise the limit with `--limit`"));
}

#[test]
fn json_that_begins_with_a_line_feed_is_json() {
    for json in ["\n{\"traceEvents\": []}", "\n\n  [\n{\"ph\"", "\n{ }", "\n[]", "{}", "[", "", "\n \n"] {
        assert!(!is_perfetto(json.as_bytes()), "{json}");
    }
    // A packet whose length is the number of a bracket.
    assert!(is_perfetto(&[PACKET, b'{', 0x40, 1]) && is_perfetto(&[PACKET, b'[', 0xE2, 3]));
}
