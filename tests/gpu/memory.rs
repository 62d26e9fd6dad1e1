//! Memory that queues allocate and free in the order of a GPU's streams.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc;

use cudarc::driver::{CudaStream, sys};
use warpline::Session;
use warpline::record::MemoryChange;
use warpline::sink::MemorySink;
use warpline::timeline::{BufferRef, Error, Queue, Semaphore};
use warpline_tests::alone;

use super::device;
use crate::timelines::device::LONG;

const MIB: u64 = 1 << 20;

fn queue(name: &str) -> Queue<Arc<CudaStream>> {
    Queue::new(name, device().stream().expect("a stream")).expect("a thread")
}

/// Fills all words of the memory with `value` on the stream.
fn fill(stream: &Arc<CudaStream>, memory: &BufferRef, value: u32) {
    let address = memory.address().expect("work that waits for the signal has the address");
    let words = memory.bytes() as usize / 4;
    // SAFETY: the memory has so many words, and the stream has allocated it.
    unsafe { sys::cuMemsetD32Async(address, value, words, stream.cu_stream()) }.result().expect("queued");
}

/// Copies all words to the host, on the stream, and waits for them.
fn read(stream: &Arc<CudaStream>, memory: &BufferRef) -> Vec<u32> {
    let mut words = vec![0_u32; memory.bytes() as usize / 4];
    let address = memory.address().expect("work that waits for the signal has the address");
    // SAFETY: both have so many bytes, and the vector stays until the copy is done.
    unsafe {
        sys::cuMemcpyDtoHAsync_v2(words.as_mut_ptr().cast(), address, memory.bytes() as usize, stream.cu_stream())
    }
    .result()
    .expect("queued");
    stream.synchronize().expect("copied");
    words
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn memory_of_a_queue_is_filled_read_and_freed_and_the_session_has_it() {
    let _turn = alone();
    let (queue, step) = (queue("steps"), Semaphore::named("step", 0));
    let sink = MemorySink::new(1000);
    let session = Session::builder().sink(sink.clone()).start().expect("no other session");
    let (first, second) = (
        queue.alloca_named("first", &[], &[(&step, 1)], 4 * MIB).expect("room"),
        queue.alloca_named("second", &[(&step, 1)], &[(&step, 2)], MIB).expect("room"),
    );
    let (sent, words) = mpsc::channel();
    for (memory, value, at) in [(first.reference(), 7, 2), (second.reference(), 9, 3)] {
        let sent = sent.clone();
        let work = move |stream: &Arc<CudaStream>| {
            fill(stream, &memory, value);
            sent.send((value, read(stream, &memory)))?;
            Ok(())
        };
        queue.submit(&[(&step, at)], &[(&step, at + 1)], work).expect("room");
    }
    queue.dealloca(&[(&step, 4)], &[(&step, 5)], first).expect("it is here");
    drop(sent);
    step.wait(5, LONG).expect("it gets there");
    let read: Vec<_> = words.iter().collect();
    assert_eq!(read.len(), 2);
    for (value, words) in read {
        assert!(words.len() as u64 >= MIB / 4 && words.iter().all(|word| *word == value), "{value}");
    }
    queue.dealloca(&[(&step, 5)], &[(&step, 6)], second).expect("it is here");
    step.wait(6, LONG).expect("it gets there");
    let report = session.finish();
    let changes: Vec<_> = sink
        .take_memory()
        .iter()
        .map(|record| (record.change, record.bytes / MIB, record.device_bytes / MIB))
        .collect();
    use MemoryChange::{Allocated, Freed};
    assert_eq!(changes, [(Allocated, 4, 4), (Allocated, 1, 5), (Freed, 4, 1), (Freed, 1, 0)]);
    assert_eq!((report.memory[0].peak_bytes, report.memory[0].bytes), (5 * MIB, 0), "{report}");
    assert_eq!(report.memory[0].at_peak[0].name, "first");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn no_memory_leaves_the_context_usable() {
    let _turn = alone();
    let (queue, step) = (queue("greedy"), Semaphore::new(0));
    let small = queue.alloca(&[], &[(&step, 1)], MIB).expect("room");
    step.wait(1, LONG).expect("it gets there");
    let large = Semaphore::new(0);
    // 16 TiB.
    let _large = queue.alloca(&[(&step, 1)], &[(&large, 1)], 1 << 44).expect("room in the queue");
    let Err(Error::Failed { failure, .. }) = large.wait(1, LONG) else { panic!("no GPU has so much") };
    let error = failure.error().downcast_ref::<Error>().expect("an error of the queue");
    println!("{error}");
    assert!(
        matches!(error, Error::OutOfMemory { bytes, current, peak, .. } if *bytes == 1 << 44 && *current >= MIB && peak >= current)
    );
    let memory = small.reference();
    let (sent, words) = mpsc::channel();
    let work = move |stream: &Arc<CudaStream>| {
        fill(stream, &memory, 3);
        sent.send(read(stream, &memory))?;
        Ok(())
    };
    queue.submit(&[(&step, 1)], &[(&step, 2)], work).expect("room");
    step.wait(2, LONG).expect("the context works");
    assert!(words.recv().expect("read").iter().all(|word| *word == 3));
    queue.dealloca(&[(&step, 2)], &[(&step, 3)], small).expect("it is here");
    step.wait(3, LONG).expect("it gets there");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_capture_of_a_queues_stream_is_left_alone_and_dropped_memory_is_freed_after_it() {
    let _turn = alone();
    let stream = device().stream().expect("a stream");
    let (queue, step) = (Queue::new("captured", Arc::clone(&stream)).expect("a thread"), Semaphore::new(0));
    let dropped = Cell::new(Some(queue.alloca(&[], &[(&step, 1)], MIB).expect("room")));
    step.wait(1, LONG).expect("it gets there");
    let nodes = super::capture(&stream, || {
        let refused = Semaphore::new(0);
        let never = queue.alloca(&[], &[(&refused, 1)], MIB).expect("room");
        let Err(Error::Failed { failure, .. }) = refused.wait(1, LONG) else { panic!("it is captured") };
        assert!(matches!(failure.error().downcast_ref(), Some(Error::Captured { .. })), "{failure}");
        drop((never, dropped.take()));
        queue.flush();
        device().null(&stream).expect("captured");
    });
    assert!(nodes > 0, "the capture has what the application launched");
    // The queue works on, and ends when the memory is freed.
    queue.barrier(&[], &[(&step, 2)]).expect("room");
    step.wait(2, LONG).expect("it gets there");
}
