//! Traces that are cut, and disks that are full: what was written before stays readable, and what is lost is counted.

use super::*;

#[test]
fn a_trace_cut_anywhere_keeps_what_was_before() {
    let memory = Memory::default();
    let mut sink = PerfettoSink::new(memory.clone());
    sink.start(&fixture::session()).expect("memory takes everything");
    let mut flushed = Vec::new();
    for batch in records() {
        sink.write(Batch::Zones(&batch)).expect("memory takes everything");
        sink.flush().expect("memory takes everything");
        flushed.push((memory.bytes().len(), slices(&memory.bytes()).len()));
    }
    assert_eq!(flushed.iter().map(|(_, slices)| *slices).collect::<Vec<_>>(), [12, 14, 16]);
    let whole = memory.bytes();
    for cut in flushed[0].0..flushed[1].0 {
        // Between its begin and its end, a slice is open, which a reader shows; all earlier slices must be complete.
        let read = std::panic::catch_unwind(|| slices(&whole[..cut]).len());
        assert!(read.is_err() || read.is_ok_and(|slices| slices >= 12), "cut at {cut}");
    }
}

#[test]
fn a_full_disk_tears_no_packet() {
    let memory = Memory::default();
    let mut sink = PerfettoSink::new(memory.clone());
    sink.start(&fixture::session()).expect("room for the start");
    let all: usize = records().iter().map(Vec::len).sum();
    for batch in records() {
        memory.disk().room = Some(11);
        sink.write(Batch::Zones(&batch)).expect("waits in the buffer");
        let error = sink.flush().expect_err("the disk is full").to_string();
        assert_eq!(error, "disk full");
    }
    memory.disk().room = None;
    sink.finish(&fixture::report()).expect("room again");
    let host_zones = 2;
    assert_eq!(slices(&memory.bytes()).len(), (all - host_zones) * 2 + host_zones);
}

#[test]
fn a_disk_that_stays_full_leaves_a_prefix_and_every_other_record_is_counted() {
    let (main, compute) = (thread(1, None), stream(1, "compute"));
    let numbered = |n: i64| {
        let mut record =
            zone(&STEP, Some(&compute), &main, span(n * 10, n * 10 + 5), Some(span(n * 10 + 1, n * 10 + 9)));
        record.fields.push("n", n as u64);
        record
    };
    let batches: Vec<Vec<ZoneRecord>> =
        (0..4).map(|batch| (batch * 3..batch * 3 + 3).map(numbered).collect()).collect();
    let all: u64 = batches.iter().map(|batch| batch.len() as u64).sum();
    let whole = trace(&batches).len();
    let mut seen = std::collections::HashSet::new();
    for room in 0..whole {
        let memory = Memory::default();
        memory.disk().room = Some(room);
        let mut sink = PerfettoSink::new(memory.clone());
        let _ = sink.start(&fixture::session());
        for batch in &batches {
            sink.write(Batch::Zones(batch)).expect("waits in the buffer");
            let _ = sink.flush();
        }
        let is_whole = sink.finish(&fixture::report()).is_ok();
        let (slices, _) = slices_of_killed(&memory.bytes());
        let on = |compute: bool| slices.iter().filter(|slice| (slice.track == "compute") == compute).count() as u64;
        let in_file = on(true).min(on(false));
        assert_eq!(sink.lost(), all - in_file, "with room for {room} of {whole} bytes");
        // One trace may be a few bytes shorter than another.
        assert!(!is_whole || (in_file == all && room + 64 > whole), "with room for {room} of {whole} bytes");
        seen.insert(in_file);
    }
    assert_eq!(seen.len() as u64, all + 1, "from none to all");
}
