//! Collectives, kernels, replays and waits, on timelines beside those of their streams.

use super::*;

use crate::tracy::sink::rows::SETTLE;
use warpline_core::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline_core::kernel::{KernelRecord, KernelWork, ZoneRef};
use warpline_core::record::{EndSource, Shares};
use warpline_core::replay::{ReplayRecord, ReplayTiming, ReplayedZone};
use warpline_core::wait::{SignalInfo, WaitOutcome, WaitRecord};
use warpline_report::fixture::{self, ATTENTION};

/// What a viewer shows: the timeline, the depth, name and text, begin, end.
type Row = (String, usize, String, i64, i64);

/// Gives the sink these batches, and what a viewer shows of them when the session has ended, in the order of begins.
fn shown(batches: &[Batch<'_>]) -> (Vec<Row>, Lost) {
    let (mut show, mut tracy, now) = (show(), Double::new(), Instant::now());
    for batch in batches {
        show.write(&mut tracy, *batch, now);
    }
    assert!(tracy.viewer.as_ref().expect("a viewer").zones.iter().all(|zone| zone.2.number() < FIRST_NAME), "held");
    show.finish(&mut tracy);
    (rows(&mut tracy), show.lost)
}

fn rows(tracy: &mut Double) -> Vec<Row> {
    let timelines: HashMap<u8, String> = tracy
        .log
        .iter()
        .filter_map(|call| call.strip_prefix("context ")?.split_once(' '))
        .map(|(id, name)| (id.parse().expect("a number"), name.to_owned()))
        .collect();
    let name = |location: Location| match location.number().checked_sub(FIRST_NAME) {
        None => format!("line {}", location.number()),
        Some(at) => {
            let (name, text, line) = &tracy.names[at as usize];
            if *line == 0 { format!("{name} ({text})") } else { format!("{name} ({text}) line {line}") }
        }
    };
    let zones = tracy.viewer.take().expect("a viewer").zones();
    let mut rows: Vec<_> = zones
        .into_iter()
        .map(|(context, depth, location, begin, end)| {
            (timelines[&context].clone(), depth, name(location), begin - BEGIN_NS, end - BEGIN_NS)
        })
        .collect();
    rows.sort_by_key(|(timeline, depth, _, begin, _)| (*begin, timeline.clone(), *depth));
    rows
}

fn row(timeline: &str, depth: usize, name: &str, begin: i64, end: i64) -> Row {
    (timeline.to_owned(), depth, name.to_owned(), begin, end)
}

fn message(count: u64) -> Message {
    let group = ProcessGroup::new("tp0", [0, 1], 1);
    Message::new(CollectiveKind::AllReduce).count(count).dtype(DataType::F32).group(&group).seq(count)
}

fn kernel(name: &str, on: &Arc<StreamInfo>, gpu: Span) -> KernelRecord {
    let work = KernelWork::Kernel {
        grid: [4, 2, 1],
        block: [256, 1, 1],
        registers_per_thread: 32,
        static_shared_bytes: 0,
        dynamic_shared_bytes: 0,
    };
    KernelRecord { work, ..fixture::kernel(name, on, gpu) }
}

#[test]
fn a_collective_has_a_zone_by_its_operation_and_group() {
    let comm = stream(1, "comm");
    let mut sum = record(&STEP, &comm, 0, span(10, 60));
    sum.message = Some(Box::new(message(8)));
    let (rows, lost) = shown(&[Batch::Zones(&[sum])]);
    let named = "all_reduce tp0 (all_reduce, 8 f32, 32 bytes, tp0: rank 1 of 2) line 10";
    assert_eq!(rows, [row("host: comm", 0, "line 10", 10, 60), row("host: comm, collectives", 0, named, 10, 60)]);
    assert_eq!(lost, Lost::default());
}

#[test]
fn the_entries_of_a_batch_share_its_time() {
    let comm = stream(1, "comm");
    let batch = record(&STEP, &comm, 0, span(100, 200));
    let entries = [(&ATTENTION, message(30)), (&ATTENTION, message(10))];
    let shares = Shares::new(&entries.clone().map(|(range, message)| (range as &'static RangeSpec, message)));
    let [first, second] = entries;
    let zones = [shares.entry(0, first.0, first.1, &batch), shares.entry(1, second.0, second.1, &batch), batch];
    let (rows, _) = shown(&[Batch::Zones(&zones)]);
    let named =
        |count: u64| format!("all_reduce tp0 (all_reduce, {count} f32, {} bytes, tp0: rank 1 of 2) line 20", 4 * count);
    let expected = [
        row("host: comm", 0, "line 10", 100, 200),
        row("host: comm, collectives", 0, &named(30), 100, 175),
        row("host: comm, collectives", 0, &named(10), 175, 200),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn kernels_come_in_the_order_of_time_and_show_their_work_and_zone() {
    let compute = stream(1, "compute");
    let mut launched = kernel("void add<float>(float*)", &compute, span(10, 20));
    launched.zone = Some(ZoneRef { range: &STEP, stream: Some(1), sequence: 0 });
    let mut copy = kernel("Memcpy HtoD (Pinned -> Device)", &compute, span(0, 5));
    copy.work = KernelWork::Memcpy { bytes: 4096, kind: "HtoD", from: "Pinned", to: "Device" };
    let beside = kernel("scale", &compute, span(15, 30));
    // A later batch has earlier work.
    let (rows, lost) = shown(&[Batch::Kernels(&[launched, beside]), Batch::Kernels(&[copy])]);
    let expected = [
        row("host: compute, kernels", 0, "Memcpy HtoD (Pinned -> Device) (4096 bytes)", 0, 5),
        row("host: compute, kernels", 0, "void add<float>(float*) (grid 4x2x1, block 256x1x1) line 10", 10, 20),
        row("host: compute, kernels (2)", 0, "scale (grid 4x2x1, block 256x1x1)", 15, 30),
    ];
    assert_eq!(rows, expected);
    assert_eq!(lost, Lost::default());
}

#[test]
fn a_replay_has_its_zones_in_it() {
    let compute = stream(1, "compute");
    let mut sum = record(&ATTENTION, &compute, 1, span(40, 80));
    sum.message = Some(Box::new(message(8)));
    let zones = [record(&STEP, &compute, 0, span(10, 90)), sum, record(&COPY, &compute, 2, span(80, 90))];
    let zones = zones.map(|zone| ReplayedZone { zone, lane: None, kernels: 1, captured_on: 1 });
    let replay =
        ReplayRecord { timed_by: ReplayTiming::Stamps, ..fixture::replay(&compute, span(10, 90), zones.into()) };
    let (rows, lost) = shown(&[Batch::Replays(&[replay])]);
    let timeline = "host: compute, replays";
    let named = "all_reduce tp0 (all_reduce, 8 f32, 32 bytes, tp0: rank 1 of 2) line 20";
    let expected = [
        row(timeline, 0, "graph 1 (decode) (stamps)", 10, 90),
        row(timeline, 1, "line 10", 10, 90),
        row(timeline, 2, named, 40, 80),
        row(timeline, 2, "line 30", 80, 90),
    ];
    assert_eq!(rows, expected);
    assert_eq!(lost, Lost::default());
}

#[test]
fn a_streams_wait_says_who_signalled_and_a_threads_wait_is_left_to_its_thread() {
    let (compute, copies) = (stream(1, "compute"), stream(2, "copies"));
    let signal = SignalInfo {
        value: Some(5),
        stream: Some(copies),
        thread: thread(1, None),
        queue: None,
        host_ns: BEGIN_NS,
        at_ns: BEGIN_NS + 20,
        early_by_ns: 0,
    };
    let on_stream = WaitRecord {
        semaphore: "weights".into(),
        value: Some(5),
        stream: Some(compute),
        thread: thread(1, None),
        queue: None,
        sequence: 0,
        host: span(0, 1),
        gpu: Some(span(5, 20)),
        end: EndSource::Event,
        end_early_by_ns: 0,
        outcome: WaitOutcome::Reached,
        signal: Some(signal),
    };
    let on_thread = WaitRecord { stream: None, gpu: None, ..on_stream.clone() };
    let failed = WaitRecord { outcome: WaitOutcome::Failed, gpu: Some(span(30, 40)), ..on_stream.clone() };
    let (rows, lost) = shown(&[Batch::Waits(&[on_stream, on_thread, failed])]);
    let timeline = "host: compute, waits";
    let expected = [
        row(timeline, 0, "wait weights (signalled by copies)", 5, 20),
        row(timeline, 0, "wait weights (failed)", 30, 40),
    ];
    assert_eq!(rows, expected);
    assert_eq!(lost, Lost::default());
}

#[test]
fn what_no_event_ends_says_so_in_its_name() {
    let (compute, side) = (stream(1, "compute"), stream(2, "side"));
    let late = |sequence, gpu, early_by_ns| {
        let zone = record(&STEP, &compute, sequence, gpu);
        ZoneRecord { end: EndSource::Boundary, end_early_by_ns: early_by_ns, ..zone }
    };
    let (known, bound) = (late(0, span(0, 100), 5), late(1, span(100, 200), 60));
    let mut sum = late(2, span(200, 300), 60);
    sum.message = Some(Box::new(message(8)));
    let wait = fixture::waits().into_iter().find(|wait| wait.gpu.is_some()).expect("a wait of a stream");
    let wait = |gpu, end_early_by_ns| WaitRecord {
        semaphore: "weights".into(),
        stream: Some(side.clone()),
        gpu: Some(gpu),
        end_early_by_ns,
        signal: None,
        ..wait.clone()
    };
    let waits = [wait(span(0, 100), 5), wait(span(100, 200), 60)];
    let (rows, lost) = shown(&[Batch::Waits(&waits)]);
    let names = |rows: &[Row]| -> Vec<String> { rows.iter().map(|row| row.2.clone()).collect() };
    assert_eq!(names(&rows), ["wait weights ()", "wait weights (end not timed) ()"]);
    assert_eq!(lost, Lost::default());

    let (mut show, mut tracy, now) = (show(), Double::new(), Instant::now());
    show.write(&mut tracy, Batch::Zones(&[known.clone(), bound.clone(), sum]), now);
    show.finish(&mut tracy);
    let line = STEP.line();
    let (step, numbers) = (STEP.name(), "all_reduce, 8 f32, 32 bytes, tp0: rank 1 of 2");
    let of_zones: Vec<_> = self::rows(&mut tracy).into_iter().map(|row| row.2).collect();
    let expected = [
        format!("line {line}"),
        format!("{step} (end not timed) () line {line}"),
        format!("{step} (end not timed) () line {line}"),
        format!("all_reduce tp0 (end not timed) ({numbers}) line {line}"),
    ];
    assert_eq!(of_zones, expected);
    assert_eq!(show.lost, Lost::default());

    // Without room for one more name, a zone has that of its range.
    let (mut show, mut tracy) = (super::show(), Double::new());
    tracy.most_names = 0;
    show.write(&mut tracy, Batch::Zones(&[known, bound]), now);
    show.finish(&mut tracy);
    let of_zones: Vec<_> = self::rows(&mut tracy).into_iter().map(|row| row.2).collect();
    assert_eq!((of_zones, show.lost), (vec![format!("line {line}"); 2], Lost::default()));
}

#[test]
fn what_came_is_held_until_earlier_work_had_its_time() {
    let (mut show, mut tracy, now) = (show(), Double::new(), Instant::now());
    let compute = stream(1, "compute");
    let (first, later) = (kernel("first", &compute, span(10, 20)), kernel("later", &compute, span(30, 40)));
    show.write(&mut tracy, Batch::Kernels(&[first, later]), now);
    show.progress(&mut tracy, now + SETTLE - Duration::from_nanos(1));
    assert!(tracy.log.is_empty());
    let earlier = kernel("earlier", &compute, span(0, 5));
    let after = kernel("after", &compute, span(50, 60));
    show.write(&mut tracy, Batch::Kernels(&[after, earlier]), now + SETTLE);
    show.progress(&mut tracy, now + SETTLE);
    let names: Vec<_> = rows(&mut tracy).into_iter().map(|row| row.2).collect();
    assert_eq!(names.len(), 3, "the one after them is held: {names:?}");
    assert!(names[0].starts_with("earlier") && names[2].starts_with("later"), "{names:?}");
}

#[test]
fn kernels_that_tracy_cannot_show_are_counted_and_parts_of_records_are_not() {
    let compute = stream(1, "compute");
    // Five kernels at once need five contexts, and such a timeline has four.
    let at_once: Vec<_> = (0..5).map(|n| kernel("wide", &compute, span(n, 100 + n))).collect();
    let (rows, lost) = shown(&[Batch::Kernels(&at_once)]);
    assert_eq!((rows.len(), lost), (4, Lost { no_context: 1, ..Lost::default() }));

    let (mut show, mut tracy, now) = (show(), Double::new(), Instant::now());
    tracy.most_names = 0;
    let mut sum = record(&STEP, &compute, 0, span(10, 60));
    sum.message = Some(Box::new(message(8)));
    show.write(&mut tracy, Batch::Zones(&[sum]), now);
    assert_eq!(show.lost, Lost::default(), "the zone itself is shown");
    show.write(&mut tracy, Batch::Kernels(&at_once), now);
    assert_eq!(show.lost, Lost { no_location: 5, ..Lost::default() });

    let (mut show, mut tracy) = (super::show(), Double::new());
    tracy.viewer = None;
    show.write(&mut tracy, Batch::Kernels(&at_once[..2]), now);
    show.finish(&mut tracy);
    assert_eq!(show.lost, Lost { no_viewer: 2, ..Lost::default() });
}

#[test]
fn timelines_beside_streams_leave_contexts_to_zones() {
    let (mut show, mut tracy, now) = (show(), Double::new(), Instant::now());
    for id in 1..=200 {
        let on = stream(id, &format!("stream {id}"));
        show.write(&mut tracy, Batch::Kernels(&[kernel("wide", &on, span(0, 10))]), now);
    }
    show.finish(&mut tracy);
    assert_eq!((tracy.made.len(), show.lost.no_context), (128, 72));
    for id in 1..=64 {
        let on = stream(id, &format!("stream {id}"));
        show.records(&mut tracy, &[record(&STEP, &on, 0, span(0, 10))], now);
    }
    assert_eq!((tracy.made.len(), show.lost.no_context), (192, 72));
}

proptest! {
    /// However kernels overlap, whenever they come, and whenever the collector looks: each one is shown with its times, or counted.
    #[test]
    fn every_kernel_is_shown_or_counted(
        kernels in prop::collection::vec((0_i64..300, 0_i64..60, 0_u64..400), 0..120),
        cut in 1_usize..40,
    ) {
        let (mut show, mut tracy, mut now) = (show(), Double::new(), Instant::now());
        let compute = stream(1, "compute");
        let of_records: Vec<_> = kernels.iter().map(|(begin, length, _)| span(*begin, begin + length)).collect();
        for (batch, spans) in kernels.chunks(cut).zip(of_records.chunks(cut)) {
            let records: Vec<_> = spans.iter().map(|span| kernel("k", &compute, *span)).collect();
            show.write(&mut tracy, Batch::Kernels(&records), now);
            now += Duration::from_millis(batch[0].2);
            show.progress(&mut tracy, now);
        }
        show.finish(&mut tracy);
        let shown = tracy.viewer.take().expect("a viewer").zones();
        prop_assert_eq!(shown.len() as u64 + show.lost.total(), of_records.len() as u64);
        let mut left = of_records;
        for (.., begin_ns, end_ns) in shown {
            let at = left.iter().position(|span| (span.begin_ns, span.end_ns) == (begin_ns, end_ns));
            prop_assert!(at.is_some(), "no kernel has these times");
            left.swap_remove(at.unwrap_or_default());
        }
    }
}
