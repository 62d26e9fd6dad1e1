//! Memory that queues allocate and free in the order of CUDA streams, on a driver that counts every call and fails on demand.

use std::thread;
use std::time::{Duration, Instant};

use warpline::Session;
use warpline::record::{MemoryChange, MemoryTiming};
use warpline::sink::MemorySink;
use warpline::timeline::{Error, Queue, Semaphore};
use warpline_tests::this_test;

use crate::harness::driver::*;
use crate::harness::zones::raw;
use crate::timelines::device::LONG;

const MIB: u64 = 1 << 20;

/// Waits until so much is allocated.
fn until_held(driver: &Stub, bytes: u64) {
    let begin = Instant::now();
    while driver.stub_memory() != bytes {
        assert!(begin.elapsed() < Duration::from_secs(20), "{} bytes, not {bytes}", driver.stub_memory());
        thread::sleep(Duration::from_millis(1));
    }
}

/// The error that a semaphore failed with.
fn failure_of(semaphore: &Semaphore) -> Error {
    match semaphore.wait(u64::MAX, LONG) {
        Err(Error::Failed { failure, .. }) => {
            failure.error().downcast_ref::<Error>().expect("an error of a queue").clone()
        }
        other => panic!("it failed: {other:?}"),
    }
}

fn assert_sound(driver: &Stub) {
    for symbol in ["cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize"] {
        assert_eq!(driver.calls(symbol), 0, "{symbol}");
    }
    assert_eq!((driver.stub_misuse(), driver.stub_orphan_uses(), driver.stub_captured_records()), (0, 0, 0));
}

#[test]
fn one_call_allocates_and_one_frees_and_work_between_them_has_the_address() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let (queue, step) = (Queue::new("steps", raw(stream)).unwrap(), Semaphore::new(0));
        let hold = driver.stub_hold(stream);
        let buffer = queue.alloca(&[], &[(&step, 1)], MIB).unwrap();
        let memory = buffer.reference();
        let (sent, address) = std::sync::mpsc::channel();
        let work = move |_: &_| {
            sent.send(memory.address()).unwrap();
            Ok(())
        };
        queue.submit(&[(&step, 1)], &[(&step, 2)], work).unwrap();
        // The work is called while the stream is held: the address is known.
        assert!(address.recv().unwrap().is_some_and(|address| address % 512 == 0));
        assert_eq!(driver.stub_memory(), MIB);
        queue.dealloca(&[(&step, 2)], &[(&step, 3)], buffer).unwrap();
        queue.flush();
        assert_eq!((driver.stub_memory(), step.value().unwrap()), (0, 0), "it is freed behind the work that is held");
        driver.stub_release(hold);
        step.wait(3, LONG).unwrap();
        assert_eq!((driver.calls("cuMemAllocAsync"), driver.calls("cuMemFreeAsync")), (1, 1));
        assert_eq!(driver.calls_on("cuMemAllocAsync", tid()), 0, "the queue's thread calls it");
        assert_sound(driver);
    });
}

#[test]
fn no_memory_is_an_error_of_the_signals_and_the_context_goes_on() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (queue, step) = (Queue::new("greedy", raw(driver.stream())).unwrap(), Semaphore::new(0));
        let small = queue.alloca(&[], &[(&step, 1)], MIB).unwrap();
        step.wait(1, LONG).unwrap();
        let large = Semaphore::new(0);
        let _large = queue.alloca(&[(&step, 1)], &[(&large, 1)], 1 << 40).unwrap();
        let error = failure_of(&large);
        assert!(
            matches!(error, Error::OutOfMemory { bytes, current: MIB, peak: MIB, .. } if bytes == 1 << 40),
            "{error}"
        );
        assert!(error.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY"), "{error}");
        // An error of another kind, of the same call.
        driver.fail("cuMemAllocAsync", 0, 1, ILLEGAL_ADDRESS);
        let bad = Semaphore::new(0);
        let _bad = queue.alloca(&[], &[(&bad, 1)], MIB).unwrap();
        assert!(failure_of(&bad).to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS"));
        queue.dealloca(&[], &[(&step, 2)], small).unwrap();
        step.wait(2, LONG).unwrap();
        assert_eq!(driver.stub_memory(), 0);
        assert_sound(driver);
    });
}

#[test]
fn dropped_buffers_are_freed_by_the_queue_behind_its_streams_also_after_the_queue() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let streams = [driver.stream(), driver.stream()].map(raw);
        let queue = Queue::<warpline::RawStream>::builder("two").build(streams.to_vec()).unwrap();
        let step = Semaphore::new(0);
        let (first, second) = (queue.alloca(&[], &[(&step, 1)], MIB).unwrap(), queue.alloca(&[], &[], MIB).unwrap());
        step.wait(1, LONG).unwrap();
        queue.flush();
        assert_eq!(driver.stub_memory(), 2 * MIB);
        driver.mark("dropped");
        drop(first);
        until_held(driver, MIB);
        assert!(
            driver.since("dropped", tid()).iter().all(|call| !call.starts_with("cuMem")),
            "the queue's thread frees it"
        );
        let log = driver.log();
        let frees = log.iter().position(|line| line.starts_with("cuMemFreeAsync")).unwrap();
        let waits = log.iter().rposition(|line| line.starts_with("cuStreamWaitEvent")).unwrap();
        assert!(waits < frees, "its stream waits for the other one before");
        let begin = Instant::now();
        drop(queue);
        assert!(begin.elapsed() < Duration::from_secs(5), "it does not wait for buffers");
        assert_eq!(driver.stub_memory(), MIB);
        drop(second);
        until_held(driver, 0);
        assert_sound(driver);
    });
}

#[test]
fn a_stream_that_is_being_captured_allocates_and_frees_nothing_and_the_capture_goes_on() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let stream = driver.stream();
        let (queue, step) = (Queue::new("captured", raw(stream)).unwrap(), Semaphore::new(0));
        let buffer = queue.alloca(&[], &[(&step, 1)], MIB).unwrap();
        let dropped = queue.alloca(&[], &[], MIB).unwrap();
        step.wait(1, LONG).unwrap();
        queue.flush();
        assert_eq!(driver.cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
        let [refused, freed] = [const { 0 }; 2].map(Semaphore::new);
        let _never = queue.alloca(&[], &[(&refused, 1)], MIB).unwrap();
        assert!(matches!(failure_of(&refused), Error::Captured { .. }));
        queue.dealloca(&[], &[(&freed, 1)], buffer).unwrap();
        assert!(matches!(failure_of(&freed), Error::Captured { .. }));
        drop(dropped);
        queue.flush();
        thread::sleep(Duration::from_millis(30));
        assert_eq!(driver.stub_memory(), 2 * MIB, "it is freed after the capture");
        let mut graph = 0;
        assert_eq!(driver.cuStreamEndCapture(stream, &mut graph), SUCCESS);
        assert_eq!(driver.stub_graph_nodes(graph), 0);
        until_held(driver, 0);
        assert_sound(driver);
    });
}

#[test]
fn a_free_that_fails_is_an_error_of_the_signals_and_is_tried_again() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (queue, step) = (Queue::new("failing", raw(driver.stream())).unwrap(), Semaphore::new(0));
        let session_memory = MemorySink::new(100);
        let session = Session::builder().sink(session_memory.clone()).start().unwrap();
        let buffer = queue.alloca(&[], &[(&step, 1)], MIB).unwrap();
        step.wait(1, LONG).unwrap();
        driver.fail("cuMemFreeAsync", 0, 1, INVALID_HANDLE);
        let freed = Semaphore::new(0);
        queue.dealloca(&[], &[(&freed, 1)], buffer).unwrap();
        assert!(failure_of(&freed).to_string().contains("CUDA_ERROR_INVALID_HANDLE"));
        until_held(driver, 0);
        queue.flush();
        let report = session.finish();
        assert_eq!((report.memory[0].bytes, report.memory[0].peak_bytes), (0, MIB), "{report}");
        assert_sound(driver);
    });
}

#[test]
fn a_device_without_memory_pools_says_so() {
    on_stub(this_test!(), |driver| {
        driver.start();
        driver.stub_memory_pools(false);
        let (queue, step) = (Queue::new("old", raw(driver.stream())).unwrap(), Semaphore::new(0));
        let _buffer = queue.alloca(&[], &[(&step, 1)], MIB).unwrap();
        let error = failure_of(&step).to_string();
        assert!(error.contains("has no memory pools") && error.contains("cuMemAlloc"), "{error}");
        assert_eq!(driver.calls("cuMemAllocAsync"), 0);
    });
}

#[test]
fn a_session_has_the_memory_of_a_device_in_the_order_of_the_drivers_calls() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (queue, step) = (Queue::new("steps", raw(driver.stream())).unwrap(), Semaphore::new(0));
        let sink = MemorySink::new(1000);
        let session = Session::builder().sink(sink.clone()).start().unwrap();
        for value in 0..50 {
            let buffer = queue.alloca(&[(&step, 2 * value)], &[(&step, 2 * value + 1)], MIB).unwrap();
            queue.dealloca(&[(&step, 2 * value + 1)], &[(&step, 2 * value + 2)], buffer).unwrap();
        }
        step.wait(100, LONG).unwrap();
        let report = session.finish();
        let records = sink.take_memory();
        assert_eq!((records.len(), report.memory_counts.recorded, report.memory_counts.unknown), (100, 100, 0));
        assert!(records.iter().all(|record| record.timing == MemoryTiming::Call));
        assert_eq!(records[0].stream.device.label(), "Stub GPU 0 (device 0)");
        for (record, is_free) in records.iter().zip([false, true].into_iter().cycle()) {
            let (change, bytes) = if is_free { (MemoryChange::Freed, 0) } else { (MemoryChange::Allocated, MIB) };
            assert_eq!((record.change, record.device_bytes, record.address), (change, bytes, records[0].address));
        }
        assert_eq!((report.memory[0].peak_bytes, report.memory[0].bytes), (MIB, 0));
        assert_sound(driver);
    });
}
