//! Device memory as CUPTI reports it: who allocates, the peak and its holders, what the program tells of the same memory, and allocations that fail.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use warpline::record::{MemoryChange, MemoryTiming};
use warpline::report::{MemoryHolder, MemoryStats};
use warpline::sink::MemorySink;
use warpline::timeline::{Queue, Semaphore};
use warpline::{Session, memory};
use warpline_tests::{empty_folder, this_test};

use super::{INNER, OUTER, start};
use crate::harness::cupti::*;
use crate::harness::zones::{self, raw};

const KIB: u64 = 1 << 10;

fn held(holders: &[MemoryHolder]) -> Vec<(&str, u64, u64)> {
    holders.iter().map(|holder| (holder.name.as_str(), holder.bytes / KIB, holder.allocations)).collect()
}

/// Waits until a trace is written.
fn appears(trace: &Path) {
    let since = Instant::now();
    while !trace.exists() {
        assert!(since.elapsed() < Duration::from_secs(20), "no {}", trace.display());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn each_allocation_counts_for_the_zone_that_makes_it() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let stream = driver.stream();
        // Its end is in no figure, because its begin is not.
        cupti.memory(allocation(0x9000, KIB));
        let (session, sink) = start();
        {
            let _outer = OUTER.zone(&raw(stream));
            cupti.memory(allocation(0x1000, 64 * KIB));
            let _inner = INNER.zone(&raw(stream));
            let on_stream = Memory { call: 598, stream: number(stream), ..allocation(0x20000, 16 * KIB) };
            cupti.memory(on_stream);
            // Pinned and managed memory is not on the device alone.
            cupti.memory(Memory { memory: 2, ..allocation(0x30000, 256 * KIB) });
            cupti.memory(Memory { memory: 5, ..allocation(0x40000, 256 * KIB) });
        }
        cupti.memory(release(0x20000));
        cupti.memory(allocation(0x20000, 8 * KIB));
        cupti.memory(release(0x9000));
        driver.cuStreamSynchronize(stream);
        let report = session.finish();
        let [MemoryStats { device, allocated, freed, bytes, peak_bytes, at_peak, not_freed, .. }] = &report.memory[..]
        else {
            panic!("one device: {report}")
        };
        assert_eq!((device.as_str(), *allocated, *freed), ("Stub GPU 0 (device 0)", 3, 1));
        assert_eq!((*bytes, *peak_bytes), (72 * KIB, 80 * KIB));
        let [outer, inner] = [OUTER.name(), INNER.name()];
        assert_eq!(held(at_peak), [(outer, 64, 1), (inner, 16, 1)]);
        assert_eq!(held(not_freed), [(outer, 64, 1), ("", 8, 1)]);
        let counts = report.memory_counts;
        assert_eq!((counts.begun, counts.recorded, counts.unknown, counts.refused), (4, 4, 1, 0), "{report}");
        let records = sink.take_memory();
        let seen: Vec<_> =
            records.iter().map(|record| (record.change, record.bytes / KIB, record.device_bytes / KIB)).collect();
        let (new, gone) = (MemoryChange::Allocated, MemoryChange::Freed);
        assert_eq!(seen, [(new, 64, 64), (new, 16, 80), (gone, 16, 64), (new, 8, 72)]);
        assert!(records.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
        // A call that no stream orders has no stream; the other has its own.
        let streams: Vec<_> = records.iter().map(|record| record.stream.id > 0).collect();
        assert_eq!(streams, [false, true, true, false]);
        assert!(records.iter().all(|record| record.timing == MemoryTiming::Call && record.thread.id > 0));
    });
}

#[test]
fn what_the_program_tells_of_the_same_memory_names_it_and_counts_once() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let stream = driver.stream();
        let (session, _) = start();
        {
            let _outer = OUTER.zone(&raw(stream));
            cupti.memory(Memory { call: 598, stream: number(stream), ..allocation(0x1000, 64 * KIB) });
            memory::allocated_named("kv cache", &raw(stream), 0x1000, 64 * KIB);
            // A pool, of which the program hands out a part.
            cupti.memory(allocation(0x100000, 128 * KIB));
            memory::allocated(&raw(stream), 0x100200, KIB);
            memory::freed(0x100200);
        }
        memory::freed(0x1000);
        cupti.memory(release(0x1000));
        driver.cuStreamSynchronize(stream);
        let report = session.finish();
        let [device] = &report.memory[..] else { panic!("one device: {report}") };
        assert_eq!(held(&device.at_peak), [(OUTER.name(), 128, 1), ("kv cache", 64, 1)]);
        assert_eq!(held(&device.not_freed), [(OUTER.name(), 128, 1)]);
        let counts = report.memory_counts;
        assert_eq!((counts.begun, counts.within, counts.unknown), (3, 1, 0), "{report}");
        assert!(
            report.to_string().contains("1 allocation is not counted, as parts of others that CUPTI reported"),
            "{report}"
        );
    });
}

#[test]
fn an_allocation_that_fails_leaves_a_trace_that_says_who_holds_the_memory() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let folder = empty_folder("out-of-memory");
        let ring = folder.join("run.flight");
        // With a sink, every zone is recorded; a flight recorder alone has a budget.
        let session = Session::builder().kernels(true).flight_at(1 << 20, &ring).sink(MemorySink::new(100));
        let session = session.start().expect("no other session");
        let stream = driver.stream();
        {
            let _outer = OUTER.zone(&raw(stream));
            cupti.memory(allocation(0x1000, 64 * KIB));
            cupti.memory(Memory { returned: 2, ..allocation(0, KIB << 30) });
            // Another error is not for lack of memory.
            cupti.memory(Memory { returned: 1, ..allocation(0, KIB) });
        }
        let trace = folder.join("run.flight.out_of_memory.pftrace");
        appears(&trace);
        driver.cuStreamSynchronize(stream);
        let report = session.finish();
        assert_eq!(report.memory_counts.refused, 1, "{report}");
        let said = format!(
            "out of memory: cuMemAlloc in `{0}` failed; Stub GPU 0 (device 0): 65536 bytes, at most 65536; {0} 65536",
            OUTER.name()
        );
        assert!(report.notes.contains(&said), "{:?}", report.notes);
        assert!(report.to_string().contains("1 allocation failed for lack of device memory"), "{report}");
        let trace = fs::read(&trace).expect("it is there");
        assert!(trace.windows(said.len()).any(|bytes| bytes == said.as_bytes()), "the trace says the same");
    });
}

#[test]
fn a_queue_that_finds_no_memory_says_so_too() {
    with_cupti(this_test!(), |driver, _| {
        driver.start();
        let folder = empty_folder("queue-out-of-memory");
        let ring = folder.join("run.flight");
        // With a sink, every zone is recorded; a flight recorder alone has a budget.
        let session = Session::builder().kernels(true).flight_at(1 << 20, &ring).sink(MemorySink::new(100));
        let session = session.start().expect("no other session");
        let (stream, done) = (driver.stream(), Semaphore::new(0));
        let queue = Queue::new("steps", raw(stream)).expect("a queue");
        // More than the stub's device has.
        let _buffer = queue.alloca(&[], &[(&done, 1)], 200 << 30).expect("it is issued");
        let trace = folder.join("run.flight.out_of_memory.pftrace");
        appears(&trace);
        let report = session.finish();
        let note = report.notes.iter().find(|note| note.starts_with("out of memory: ")).expect("a note");
        assert!(
            note.starts_with("out of memory: an allocation on queue `steps` of 214748364800 bytes failed"),
            "{note}"
        );
    });
}

#[test]
fn allocations_that_have_no_room_are_counted_in_the_report() {
    const ROOM: u64 = 1 << 16;
    const MORE: u64 = 1_000;
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, _) = zones::start(|builder| builder.kernels(true).finish_timeout(zones::MUCH_TO_READ));
        // The collector reads all of it at once.
        let hold = cupti.hold_collector(false);
        hold.wait();
        for at in 1..=ROOM + MORE {
            cupti.memory(allocation(at << 12, KIB));
        }
        drop(hold);
        let report = session.finish();
        assert_eq!((report.memory_counts.begun, report.kernels.lost()), (ROOM, 0), "{report}");
        let note = report.notes.iter().find(|note| note.contains("missing from the figures of device memory"));
        let note = note.unwrap_or_else(|| panic!("{report}"));
        assert!(note.starts_with("1000 allocations and frees are missing"), "{note}");
        assert!(note.contains("reuse memory or take it from a pool"), "{note}");
    });
}

#[test]
fn failed_allocations_that_have_no_room_are_counted_in_the_report() {
    with_cupti(this_test!(), |driver, cupti| {
        driver.start();
        let (session, _) = start();
        let hold = cupti.hold_collector(false);
        hold.wait();
        (0..100).for_each(|_| cupti.memory(Memory { returned: 2, ..allocation(0, KIB << 30) }));
        drop(hold);
        let report = session.finish();
        assert_eq!(report.memory_counts.refused, 64, "{report}");
        let said = "36 allocations more failed for lack of memory than the report counts";
        assert!(report.notes.iter().any(|note| note.starts_with(said)), "{report}");
    });
}
