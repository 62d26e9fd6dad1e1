//! Marked collectives: what a record says of what was moved, and what traces make of it.

use std::sync::mpsc;
use std::time::Duration;

use warpline::catalog::Kind;
use warpline::collective::{CollectiveKind, DataType, Element, Message, ProcessGroup, ReduceOp};
use warpline::record::{Status, ZoneRecord};
use warpline::sink::MemorySink;
use warpline::{HostStream, Session, block, collective, gpu_zone};
use warpline_tests::alone;

warpline::range! {
    COMPUTE = "api.collectives.long": "Compute beside a collective.";
    BATCH = "api.collectives.batch": "Several at once.", kind = collective;
    SYNC = "api.collectives.sync": "Sums the gradients of all ranks.", kind = collective;
}

/// Sums over all ranks.
#[collective("api.collectives.sum", kind = "all_reduce", count = buf.len(), dtype = f32, group = group, op = "sum")]
fn sum(stream: &HostStream, buf: &[f32], group: &ProcessGroup) {
    stream.launch(|| std::thread::sleep(Duration::from_millis(2)));
}

/// Gathers from all ranks.
#[collective("api.collectives.gather", kind = "all_gather", count = 1_000_i32, dtype = <T>, group = group, is_async = true, err)]
fn gather<T: Element>(stream: &HostStream, group: &ProcessGroup, fails: bool) -> Result<(), String> {
    stream.launch(|| ());
    if fails { Err("unhandled system error".to_owned()) } else { Ok(()) }
}

/// To each rank its part.
#[collective(
    "api.collectives.route",
    kind = "all_to_all",
    count = 6,
    dtype = dtype,
    group = group,
    in_split = sizes,
    out_split = [3, 3],
    lane = "experts"
)]
fn route(stream: &HostStream, dtype: u32, sizes: &[usize], group: &ProcessGroup) {
    stream.launch(|| ());
}

#[collective(SYNC, kind = "reduce", count = 8_u64, dtype = "bf16", group = group, root = 1, op = op)]
fn sync(stream: &HostStream, op: ReduceOp, group: &ProcessGroup) {
    stream.launch(|| ());
}

/// No collective.
#[gpu_zone("api.collectives.compute")]
fn compute(stream: &HostStream) {
    stream.launch(|| std::thread::sleep(Duration::from_millis(1)));
}

fn record(work: impl FnOnce(&HostStream)) -> Vec<ZoneRecord> {
    let _turn = alone();
    let zones = MemorySink::new(1_000);
    let session = Session::builder().sink(zones.clone()).start().expect("no other session");
    let stream = HostStream::new("comm");
    work(&stream);
    let report = session.finish();
    assert_eq!(report.recorded, report.begun, "{report}");
    zones.take()
}

fn message(zone: &ZoneRecord) -> &Message {
    zone.message.as_deref().expect("a collective says what it moves")
}

#[test]
fn a_record_says_what_was_moved() {
    let group = ProcessGroup::new("tp0", [4, 5], 1);
    let zones = record(|stream| {
        sum(stream, &[1.0; 256], &group);
        gather::<i8>(stream, &group, false).expect("told to");
        route(stream, 9, &[2, 4], &group);
        sync(stream, ReduceOp::Max, &group);
        compute(stream);
    });
    let [sum, gather, route, sync, compute] = &zones[..] else { panic!("five zones: {zones:?}") };
    let of_sum = message(sum);
    assert_eq!((of_sum.kind, of_sum.dtype, of_sum.count), (CollectiveKind::AllReduce, Some(DataType::F32), Some(256)));
    assert_eq!((of_sum.op, of_sum.bytes(), of_sum.elements_out()), (Some(ReduceOp::Sum), Some(1024), Some(256)));
    let of_group = of_sum.group.as_ref().expect("said");
    assert_eq!((of_group.name(), of_group.ranks(), of_group.rank()), ("tp0", &[4, 5][..], 1));
    let bandwidth = sum.bandwidth().expect("size and group are known");
    let seconds = sum.gpu_ns_corrected().expect("on a stream") as f64 * 1e-9;
    assert!(
        (bandwidth.algorithm * seconds - 1024.0).abs() < 1e-6 && bandwidth.bus == Some(bandwidth.algorithm),
        "{bandwidth:?}"
    );

    let of_gather = message(gather);
    assert_eq!(
        (of_gather.dtype, of_gather.elements_out(), of_gather.is_async),
        (Some(DataType::I8), Some(2_000), Some(true))
    );
    let of_route = message(route);
    assert_eq!(of_route.dtype, Some(DataType::Bf16), "number 9 of `ncclDataType_t`");
    assert_eq!((of_route.in_split.as_deref(), of_route.out_split.as_deref()), (Some(&[2, 4][..]), Some(&[3, 3][..])));
    let of_sync = message(sync);
    assert_eq!((of_sync.root, of_sync.op, of_sync.elements_out()), (Some(1), Some(ReduceOp::Max), Some(8)));
    assert_eq!(sync.range.kind(), Kind::Collective);
    assert!(compute.message.is_none() && compute.bandwidth().is_none());
    let numbers: Vec<_> = zones[..4].iter().map(|zone| message(zone).seq).collect();
    assert_eq!(numbers, [Some(0), Some(1), Some(2), Some(3)], "a group counts its collectives");
}

#[test]
fn an_error_of_the_library_is_recorded_and_returned() {
    let group = ProcessGroup::new("dp", [0, 1], 0);
    let zones = record(|stream| assert!(gather::<u64>(stream, &group, true).is_err()));
    assert_eq!((zones[0].status, zones[0].error.as_deref()), (Status::Error, Some("unhandled system error")));
}

#[test]
fn a_block_and_a_zone_by_hand() {
    let group = ProcessGroup::new("pp", [0, 1], 0);
    let zones = record(|stream| {
        block::collective!(
            "api.collectives.to_next",
            stream,
            kind = "send",
            count = 3,
            dtype = f64,
            group = group,
            peer = 1,
            description = "To the next stage.",
            { stream.launch(|| ()) }
        );
        let _zone = SYNC.zone(stream).message(Message::new(CollectiveKind::Signal).group(&group).peer(1).seq(40_u32));
    });
    let [send, signal] = &zones[..] else { panic!("two zones: {zones:?}") };
    assert_eq!(
        (message(send).kind, message(send).peer, message(send).bytes()),
        (CollectiveKind::Send, Some(1), Some(24))
    );
    assert_eq!((message(signal).seq, message(signal).bytes()), (Some(40), None));
}

#[test]
fn the_report_says_how_fast_a_group_was_and_what_compute_hid() {
    let _turn = alone();
    let session = Session::builder().start().expect("no other session");
    let (comm, main) = (HostStream::new("comm"), HostStream::new("main"));
    let (tp, dp) = (ProcessGroup::new("tp0", [0, 1], 0), ProcessGroup::new("dp", [0, 2], 0));
    // Alone.
    (0..3).for_each(|_| sum(&comm, &[0.0; 1_000], &dp));
    comm.synchronize().expect("no closure panics");
    // All of it beside a zone that is there before and after.
    let (release, wait) = mpsc::channel::<()>();
    let (reached, started) = mpsc::channel();
    {
        let _zone = COMPUTE.zone(&main);
        main.launch(move || {
            let _ = reached.send(());
            let _ = wait.recv();
        });
    }
    started.recv().expect("the stream comes to it");
    sum(&comm, &[0.0; 500], &tp);
    comm.synchronize().expect("no closure panics");
    drop(release);
    let report = session.finish();
    let of = |group: &str| report.collectives.iter().find(|c| c.group == group).expect(group);
    let (tp, dp) = (of("tp0 [0,1]"), of("dp [0,2]"));
    assert_eq!((tp.kind, tp.count, tp.bytes), (CollectiveKind::AllReduce, 1, 2_000));
    assert_eq!((dp.count, dp.bytes), (3, 12_000));
    assert!((tp.hidden - 1.0).abs() < 1e-9 && dp.hidden == 0.0, "{report}");
    // 4,000 bytes in 2 ms or a little more are 2 MB a second.
    let bus = dp.bus_p50.expect("size and group are known");
    assert!(bus > 1e4 && bus <= 2.1e6, "{report}");
    let text = report.to_string();
    assert!(text.contains("busbw p50") && text.contains("all_reduce tp0 [0,1]") && text.contains("100.0 %"), "{text}");
}

#[test]
fn a_group_of_one_has_no_bus_bandwidth() {
    let _turn = alone();
    let zones = MemorySink::new(10);
    let session = Session::builder().sink(zones.clone()).start().expect("no other session");
    let (stream, alone) = (HostStream::new("comm"), ProcessGroup::new("solo", [0], 0));
    sum(&stream, &[0.0; 1_000], &alone);
    stream.synchronize().expect("no closure panics");
    let report = session.finish();
    assert_eq!((report.collectives[0].bus_p50, report.collectives[0].bus_p99), (None, None));
    let text = report.to_string();
    let row = text.lines().find(|line| line.contains("solo [0]")).expect("a row");
    assert!(row.contains('–') && !row.contains("0.00"), "{text}");
}

#[test]
fn a_batch_is_one_zone_and_each_entry_a_record() {
    let (tp, dp) = (ProcessGroup::new("tp0", [0, 1], 0), ProcessGroup::new("dp", [0, 2], 0));
    let entry =
        |kind, count: u64, group: &ProcessGroup| Message::new(kind).count(count).dtype(DataType::F32).group(group);
    let zones = record(|stream| {
        let mut batch = BATCH.batch(stream);
        assert!(batch.is_active());
        batch.add(&SYNC, || entry(CollectiveKind::AllReduce, 100, &tp));
        batch.add(&SYNC, || entry(CollectiveKind::AllReduce, 300, &tp));
        batch.add(&COMPUTE, || entry(CollectiveKind::Broadcast, 600, &dp));
        stream.launch(|| std::thread::sleep(Duration::from_millis(2)));
        batch.end(&Err::<(), _>("remote process exited"));
        // One that fails before it has an entry, and one that an error leaves early.
        drop(BATCH.batch(stream));
    });
    let [batch, first, second, third, empty] = &zones[..] else { panic!("five records: {zones:?}") };
    assert_eq!((batch.status, batch.error.as_deref()), (Status::Error, Some("remote process exited")));
    assert!(batch.entry.is_none() && batch.message.is_none() && empty.entry.is_none());
    for (index, entry) in [first, second, third].into_iter().enumerate() {
        assert_eq!((entry.gpu, entry.sequence, entry.status), (batch.gpu, batch.sequence, Status::Error));
        let place = entry.entry.expect("of a batch");
        assert_eq!((place.index as usize, place.of, entry.depth as usize), (index, 3, index + 1));
    }
    let shares = [first, second, third].map(|entry| entry.entry.expect("of a batch").share);
    assert_eq!(shares, [0.1, 0.3, 0.6]);
    assert_eq!((message(first).seq, message(second).seq, message(third).seq), (Some(0), Some(1), Some(0)));
    assert_eq!((first.range.name(), third.range.name()), ("api.collectives.sync", "api.collectives.long"));
    // The batch's bytes by the batch's time, whichever entry is asked.
    let speeds = [first, second, third].map(|entry| entry.bandwidth().expect("all is known").algorithm);
    let wanted = 4_000.0 / (batch.gpu_ns_corrected().expect("on a stream") as f64 * 1e-9);
    assert!(speeds.iter().all(|speed| (speed / wanted - 1.0).abs() < 1e-3), "{speeds:?}, not {wanted}");
}

#[test]
fn an_entry_whose_range_is_left_out_is_left_out_and_takes_no_number() {
    let _turn = alone();
    let zones = MemorySink::new(10);
    let builder = Session::builder().sink(zones.clone()).filter("!api.collectives.sync").budget(1.0);
    let session = builder.start().expect("no other session");
    let (stream, group) = (HostStream::new("comm"), ProcessGroup::new("tp0", [0, 1], 0));
    let mut batch = BATCH.batch(&stream);
    for range in [&SYNC, &BATCH] {
        batch.add(range, || Message::new(CollectiveKind::AllReduce).group(&group));
    }
    drop(batch);
    let report = session.finish();
    assert_eq!(
        (report.begun, report.recorded, report.not_sampled),
        (2, 2, 0),
        "a budget samples no collective: {report}"
    );
    let entry = zones.take().pop().expect("the entry");
    assert_eq!((entry.range.name(), message(&entry).seq), ("api.collectives.batch", Some(0)));
}

#[test]
fn compute_on_its_own_stream_hides_no_collective() {
    let _turn = alone();
    let session = Session::builder().start().expect("no other session");
    let (stream, group) = (HostStream::new("comm"), ProcessGroup::new("tp0", [0, 1], 0));
    let around = COMPUTE.zone(&stream);
    sum(&stream, &[0.0; 8], &group);
    drop(around);
    let report = session.finish();
    assert_eq!((report.collectives.len(), report.collectives[0].hidden), (1, 0.0), "{report}");
}

#[test]
fn entries_of_a_lost_batch_are_counted() {
    let _turn = alone();
    let stream = HostStream::new("failing");
    let session = Session::builder().start().expect("no other session");
    let group = ProcessGroup::new("tp0", [0, 1], 0);
    for fails in [true, false] {
        let mut batch = BATCH.batch(&stream);
        for _ in 0..5 {
            batch.add(&SYNC, || Message::new(CollectiveKind::AllReduce).group(&group));
        }
        if fails {
            stream.faults().fail_records(1);
        }
    }
    let report = session.finish();
    assert_eq!((report.begun, report.recorded, report.dropped.event_failed), (12, 6, 6), "{report}");
}

#[test]
fn nothing_is_evaluated_while_nothing_records() {
    let _turn = alone();
    let stream = HostStream::new("comm");
    let group = ProcessGroup::new("tp0", [0, 1], 0);
    fn never(_: &HostStream) -> usize {
        panic!("evaluated with no session")
    }
    block::collective!(
        "api.collectives.never",
        &stream,
        kind = "all_reduce",
        count = never(&stream),
        dtype = f32,
        group = group,
        description = "Nobody looks.",
        { stream.launch(|| ()) }
    );
}

/// Sums over all ranks.
#[collective(kind = "all_reduce")]
fn bare(stream: &HostStream) {
    stream.launch(|| ());
}

#[test]
fn what_a_mark_leaves_out_is_absent() {
    let _turn = alone();
    let zones = MemorySink::new(1_000);
    let chrome = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("bare_collective.json");
    let session = Session::builder().sink(zones.clone()).chrome(&chrome).start().expect("no other session");
    let stream = HostStream::new("comm");
    bare(&stream);
    {
        let message = Message::new(CollectiveKind::AllReduce).count(8).dtype(DataType::F32);
        let _sized = SYNC.zone(&stream).message(message);
        stream.launch(|| ());
    }
    let report = session.finish();
    let zones = zones.take();
    let of_bare = message(&zones[0]);
    assert_eq!(of_bare.kind, CollectiveKind::AllReduce);
    assert_eq!((of_bare.count, of_bare.dtype, of_bare.seq, of_bare.bytes()), (None, None, None, None));
    assert!(of_bare.group.is_none() && zones[0].bandwidth().is_none());
    assert_eq!(zones[0].range.undescribed(), ["count", "dtype", "group"]);

    let [stats] = &report.collectives[..] else { panic!("one kind of no group: {report}") };
    assert_eq!((stats.count, stats.sized, stats.bytes, stats.bus_p50), (2, 1, 32, None));
    let text = report.to_string();
    let row = text.lines().find(|line| line.starts_with("all_reduce")).expect("a row");
    let words: Vec<_> = row.split_whitespace().collect();
    assert_eq!(words[..5], ["all_reduce", "–", "2", "≥32", "B"], "{text}");
    assert_eq!(words[7..9], ["–", "–"], "no bandwidth: {text}");

    let trace = std::fs::read(&chrome).expect("it was written");
    let trace: serde_json::Value = serde_json::from_slice(&trace).expect("JSON");
    let is_bare = |event: &&serde_json::Value| {
        event["name"].as_str().is_some_and(|name| name == "ncclDevKernel_AllReduce api.bare")
    };
    let slice = trace["traceEvents"].as_array().expect("events").iter().find(|event| is_bare(event)).expect("the zone");
    assert_eq!(slice["args"]["Collective name"], "allreduce", "{slice}");
    let slice = slice.to_string();
    for absent in
        ["dtype", "nelems", "Process Group", "Group size", "\"Rank\"", "Seq", "asynchronized", "busbw", "algbw"]
    {
        assert!(!slice.contains(absent), "{absent}: {slice}");
    }
}
