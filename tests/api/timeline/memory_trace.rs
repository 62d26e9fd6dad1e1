//! Device memory in a session: records with sums, the peak and who held it, counters, and memory that the application tells of.

use std::sync::Arc;

use warpline::record::{MemoryChange, MemoryTiming};
use warpline::sink::MemorySink;
use warpline::timeline::{Queue, Semaphore};
use warpline::{HostStream, Session, block, memory};
use warpline_tests::alone;

use crate::timelines::device::LONG;

const KIB: u64 = 1 << 10;

#[test]
fn each_allocation_and_free_is_a_record_and_the_report_says_who_held_the_peak() {
    let _turn = alone();
    let sink = MemorySink::new(1000);
    let session = Session::builder().sink(sink.clone()).start().expect("no other session");
    let (queue, step) = (Queue::new("steps", HostStream::new("compute")).unwrap(), Semaphore::named("step", 0));
    let cache = queue.alloca_named("kv cache", &[], &[(&step, 1)], 64 * KIB).unwrap();
    let scratch = block::host_zone!("api.memory.step", description = "Allocates.", {
        queue.alloca(&[(&step, 1)], &[(&step, 2)], 16 * KIB).unwrap()
    });
    step.wait(2, LONG).unwrap();
    let address = scratch.address();
    queue.dealloca(&[(&step, 2)], &[(&step, 3)], scratch).unwrap();
    step.wait(3, LONG).unwrap();
    let outside = queue.alloca(&[], &[(&step, 4)], KIB).unwrap();
    step.wait(4, LONG).unwrap();
    let report = session.finish();
    let records = sink.take_memory();
    let seen: Vec<_> = records
        .iter()
        .map(|record| {
            (record.change, record.owner(), record.bytes / KIB, record.device_bytes / KIB, record.owner_bytes / KIB)
        })
        .collect();
    let step = Some("api.memory.step");
    assert_eq!(
        seen,
        [
            (MemoryChange::Allocated, Some("kv cache"), 64, 64, 64),
            (MemoryChange::Allocated, step, 16, 80, 16),
            (MemoryChange::Freed, step, 16, 64, 0),
            (MemoryChange::Allocated, None, 1, 65, 1),
        ]
    );
    assert!(records.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
    assert!(
        records.iter().all(|record| record.timing == MemoryTiming::Stream && record.queue.as_deref() == Some("steps"))
    );
    assert_eq!((Some(records[1].address), Some(records[2].address)), (address, address));
    let counts = report.memory_counts;
    assert_eq!((counts.begun, counts.recorded, counts.dropped, counts.unknown), (4, 4, 0, 0));
    let [device] = &report.memory[..] else { panic!("one device: {:?}", report.memory) };
    assert_eq!((device.peak_bytes, device.bytes, device.allocated, device.freed), (80 * KIB, 65 * KIB, 3, 1));
    assert_eq!(device.peak_ns, records[1].at_ns);
    let names = |holders: &[warpline::report::MemoryHolder]| {
        holders.iter().map(|holder| (holder.name.clone(), holder.bytes / KIB)).collect::<Vec<_>>()
    };
    assert_eq!(names(&device.at_peak), [("kv cache".to_owned(), 64), ("api.memory.step".to_owned(), 16)]);
    assert_eq!(names(&device.not_freed), [("kv cache".to_owned(), 64), (String::new(), 1)]);
    let text = report.to_string();
    for line in [
        "memory           allocations     peak  not freed  not freed by",
        "host (device 0)            3  81.9 kB    66.6 kB  kv cache, (no zone)",
        "4 allocations and frees of device memory, 4 recorded, 0 dropped",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(text.contains("at the peak of host (device 0)") && text.contains("80.0 %"), "{text}");
    drop((cache, outside));
}

#[test]
fn memory_from_before_the_session_is_in_no_figure_and_what_is_freed_while_it_is_stopped_is() {
    let _turn = alone();
    let (queue, step) = (Queue::new("steps", HostStream::new("compute")).unwrap(), Semaphore::new(0));
    let before = queue.alloca(&[], &[(&step, 1)], KIB).unwrap();
    step.wait(1, LONG).unwrap();
    let session = Session::builder().sink(MemorySink::new(100)).start().expect("no other session");
    queue.dealloca(&[], &[(&step, 2)], before).unwrap();
    let buffer = queue.alloca(&[(&step, 2)], &[(&step, 3)], 2 * KIB).unwrap();
    step.wait(3, LONG).unwrap();
    session.stop();
    queue.dealloca(&[], &[(&step, 4)], buffer).unwrap();
    let unseen = queue.alloca(&[(&step, 4)], &[(&step, 5)], 4 * KIB).unwrap();
    step.wait(5, LONG).unwrap();
    let report = session.finish();
    let [device] = &report.memory[..] else { panic!("one device: {:?}", report.memory) };
    assert_eq!((device.peak_bytes, device.bytes, device.allocated, device.freed), (2 * KIB, 0, 1, 1));
    assert_eq!((report.memory_counts.begun, report.memory_counts.unknown), (2, 0));
    drop(unseen);
}

#[test]
fn the_application_tells_of_its_own_memory() {
    let _turn = alone();
    let stream = Arc::new(HostStream::new("compute"));
    // No session: nothing is known, and nothing is counted.
    memory::allocated(&stream, 0x10, KIB);
    memory::freed(0x10);
    let sink = MemorySink::new(100);
    let session = Session::builder().sink(sink.clone()).start().expect("no other session");
    block::host_zone!("api.memory.load", description = "Loads.", { memory::allocated(&stream, 0x1000, 8 * KIB) });
    memory::allocated_named("weights", &stream, 0x2000, KIB);
    memory::freed(0x1000);
    memory::freed(0x3000);
    memory::allocated(&None::<HostStream>, 0x4000, KIB);
    let report = session.finish();
    let seen: Vec<_> = sink
        .take_memory()
        .iter()
        .map(|record| (record.address, record.owner().map(str::to_owned), record.timing))
        .collect();
    let of = |address, name: &str| (address, Some(name.to_owned()), MemoryTiming::Call);
    assert_eq!(seen, [of(0x1000, "api.memory.load"), of(0x2000, "weights"), of(0x1000, "api.memory.load")]);
    let counts = report.memory_counts;
    assert_eq!((counts.begun, counts.recorded, counts.untracked, counts.unknown), (3, 3, 1, 1));
    assert_eq!((report.memory[0].peak_bytes, report.memory[0].bytes), (9 * KIB, KIB));
}
