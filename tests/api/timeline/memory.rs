//! Memory that queues allocate and free in the order of their streams, on in-process streams.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use warpline::HostStream;
use warpline::timeline::{BufferRef, Error, Queue, Semaphore};
use warpline_tests::{Pace, alone};

use crate::timelines::device::*;

const MIB: u64 = 1 << 20;

/// More than a process has addresses.
const TOO_MUCH: u64 = 1 << 48;

fn host_queue(name: &str) -> Queue<Arc<HostStream>> {
    Queue::new(name, Arc::new(HostStream::new(name))).expect("a thread")
}

/// Holds a stream until it is told to go on.
fn hold(stream: &HostStream) -> mpsc::Sender<()> {
    let (go, wait) = mpsc::channel();
    stream.launch(move || wait.recv().unwrap_or_default());
    go
}

/// The bytes that the queues of this process hold, and the most that they held: an allocation that cannot be says so.
fn held() -> (u64, u64) {
    let (queue, done) = (host_queue("too much"), Semaphore::new(0));
    let _buffer = queue.alloca(&[], &[(&done, 1)], TOO_MUCH).expect("there is room in the queue");
    match failure_of(&done) {
        Error::OutOfMemory { current, peak, .. } => (current, peak),
        error => panic!("{error}"),
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

/// Waits until the memory of dropped buffers is freed.
fn until_held(bytes: u64) {
    let begin = Instant::now();
    while held().0 != bytes {
        assert!(begin.elapsed() < LONG, "{} bytes, not {bytes}", held().0);
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until what other tests have dropped is freed, and returns the bytes that are held: none.
fn settled() -> u64 {
    until_held(0);
    0
}

/// Writes a word into the buffer and reads it back, on the stream.
fn write_and_read(stream: &HostStream, memory: BufferRef, value: u64) -> mpsc::Receiver<u64> {
    let (read, is_read) = mpsc::channel();
    stream.launch(move || {
        let address = memory.address().expect("the stream has allocated it") as usize;
        assert_eq!(address % 256, 0);
        let word = std::ptr::with_exposed_provenance_mut::<u64>(address + memory.bytes() as usize - 8);
        // SAFETY: the buffer has these eight bytes, aligned as they are, and this stream alone uses them.
        let value = unsafe {
            word.write(value);
            word.read()
        };
        read.send(value).unwrap_or_default();
    });
    is_read
}

#[test]
fn memory_is_there_between_the_two_points_of_its_stream() {
    let _turn = alone();
    let (queue, step) = (host_queue("steps"), Semaphore::named("step", 0));
    let buffer = queue.alloca(&[(&step, 1)], &[(&step, 2)], MIB).expect("room");
    let memory = buffer.reference();
    assert_eq!((buffer.bytes(), buffer.address()), (MIB, None), "the queue holds it back");
    let (sent, value) = mpsc::channel();
    queue
        .submit(&[(&step, 2)], &[(&step, 3)], {
            let memory = memory.clone();
            move |stream| {
                sent.send(write_and_read(stream, memory, 7)).unwrap_or_default();
                Ok(())
            }
        })
        .expect("room");
    queue.dealloca(&[(&step, 3)], &[(&step, 4)], buffer).expect("it is here");
    let before = settled();
    step.signal(1).unwrap();
    step.wait(4, LONG).unwrap();
    assert_eq!(value.recv().unwrap().recv().unwrap(), 7);
    assert_eq!((memory.address(), held().0), (None, before), "it is freed, though a reference is left");
    assert!(held().1 >= before + MIB, "the peak has it");
}

#[test]
fn the_stream_allocates_and_frees_when_it_gets_there() {
    let _turn = alone();
    let stream = Arc::new(HostStream::new("held"));
    let (queue, step) = (Queue::new("held", Arc::clone(&stream)).unwrap(), Semaphore::new(0));
    let before = settled();
    let go = hold(&stream);
    let buffer = queue.alloca(&[], &[(&step, 1)], MIB).unwrap();
    queue.flush();
    assert_eq!((buffer.address(), held().0), (None, before), "the stream is held");
    drop(go);
    step.wait(1, LONG).unwrap();
    assert!(buffer.address().is_some() && held().0 == before + MIB);
    let go = hold(&stream);
    queue.dealloca(&[], &[(&step, 2)], buffer).unwrap();
    queue.flush();
    assert_eq!(held().0, before + MIB, "work before it may still use the memory");
    drop(go);
    step.wait(2, LONG).unwrap();
    assert_eq!(held().0, before);
}

#[test]
fn a_buffer_that_is_dropped_is_freed_behind_the_work_of_all_streams_when_its_references_are_gone() {
    let _turn = alone();
    let streams = [Arc::new(HostStream::new("other")), Arc::new(HostStream::new("one"))];
    let queue = Queue::<Arc<HostStream>>::builder("two").build(streams.to_vec()).unwrap();
    let (step, before) = (Semaphore::new(0), settled());
    let ready = Semaphore::new(0);
    // Nobody has a reference to it.
    let alone = queue.alloca(&[], &[(&ready, 1)], MIB).unwrap();
    let buffer = queue.alloca(&[], &[(&step, 1)], MIB).unwrap();
    step.wait(1, LONG).unwrap();
    ready.wait(1, LONG).unwrap();
    let memory = buffer.reference();
    let go = hold(&streams[0]);
    // It goes to the other stream, and the reference lives until then.
    let (sent, value) = mpsc::channel();
    queue
        .submit(&[(&step, 1)], &[(&step, 2)], move |stream| {
            assert_eq!(stream.name(), "other");
            sent.send(write_and_read(stream, memory, 9)).unwrap_or_default();
            Ok(())
        })
        .unwrap();
    let pace = Pace::start();
    drop((buffer, alone));
    assert!(pace.elapsed() < Duration::from_secs(1), "it waits for nothing");
    queue.flush();
    thread::sleep(Duration::from_millis(20));
    assert_eq!(held().0, before + 2 * MIB, "the other stream is held");
    drop(go);
    assert_eq!(value.recv().unwrap().recv().unwrap(), 9);
    until_held(before);
}

#[test]
fn no_memory_fails_the_signals_and_says_how_much_was_asked_for_and_is_held() {
    let _turn = alone();
    let (queue, step) = (host_queue("greedy"), Semaphore::named("greedy", 0));
    let (small, ready) = (queue.alloca(&[], &[(&step, 1)], 5 * MIB).unwrap(), Semaphore::new(0));
    step.wait(1, LONG).unwrap();
    let ran = Arc::new(AtomicU64::new(0));
    let large = queue.alloca(&[(&step, 1)], &[(&ready, 1)], TOO_MUCH).unwrap();
    let counted = Arc::clone(&ran);
    queue
        .submit_host(&[(&ready, 1)], &[(&step, 2)], move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
    let Error::OutOfMemory { bytes, current, peak, .. } = failure_of(&ready) else { panic!("out of memory") };
    assert!(bytes == TOO_MUCH && current >= 5 * MIB && peak >= current, "{bytes} {current} {peak}");
    let text = failure_of(&ready).to_string();
    for part in ["`greedy`", "281474976710656 bytes", "hold", "free buffers"] {
        assert!(text.contains(part), "{text}");
    }
    // It is what depends on it that fails, and nothing else.
    assert!(matches!(failure_of(&step), Error::OutOfMemory { .. }));
    assert_eq!((ran.load(Ordering::Relaxed), large.address()), (0, None));
    assert!(small.address().is_some());
    let again = Semaphore::new(0);
    let more = queue.alloca(&[], &[(&again, 1)], 1).unwrap();
    again.wait(1, LONG).unwrap();
    // What was never allocated cannot be freed.
    queue.dealloca(&[], &[(&again, 2)], large).unwrap();
    assert!(failure_of(&again).to_string().contains("was not allocated"));
    drop((small, more));
}

#[test]
fn waits_that_fail_allocate_nothing_and_free_once() {
    let _turn = alone();
    let (queue, before) = (host_queue("failing"), settled());
    let [bad, ready, freed] = [const { 0 }; 3].map(Semaphore::new);
    let never = queue.alloca(&[(&bad, 1)], &[(&ready, 1)], MIB).unwrap();
    let there = Semaphore::new(0);
    let buffer = queue.alloca(&[], &[(&there, 1)], MIB).unwrap();
    there.wait(1, LONG).unwrap();
    queue.dealloca(&[(&bad, 1)], &[(&freed, 1)], buffer).unwrap();
    queue.flush();
    assert_eq!(held().0, before + MIB, "its waits are not over");
    bad.fail(Code(4));
    assert_eq!(code_of(ready.wait(1, LONG)), Code(4));
    assert_eq!(code_of(freed.wait(1, LONG)), Code(4));
    assert_eq!(never.address(), None);
    until_held(before);
    drop(never);
    queue.flush();
    assert_eq!(held().0, before);
}

#[test]
fn an_allocation_of_nothing_is_refused_and_a_buffer_that_nobody_holds_is_not_allocated() {
    let _turn = alone();
    let (queue, step) = (host_queue("nothing"), Semaphore::new(0));
    let error = queue.alloca(&[], &[(&step, 1)], 0).expect_err("it has no bytes").to_string();
    assert!(error.contains("`nothing`") && error.contains("0 bytes"), "{error}");
    let before = settled();
    let peak = held().1;
    assert!(peak < 1 << 40, "{peak}");
    // So large that it would be a new peak.
    drop(queue.alloca(&[(&step, 1)], &[(&step, 2)], 1 << 40).unwrap());
    step.signal(1).unwrap();
    step.wait(2, LONG).expect("work may go on that waits for others as well");
    assert_eq!(held(), (before, peak));
}

#[test]
fn buffers_outlive_their_queue_and_its_streams_stay_for_them() {
    let _turn = alone();
    let before = settled();
    let (queue, step) = (host_queue("short-lived"), Semaphore::new(0));
    let buffer = queue.alloca(&[], &[(&step, 1)], MIB).unwrap();
    let late = queue.alloca(&[(&step, 9)], &[(&Semaphore::new(0), 1)], MIB).unwrap();
    step.wait(1, LONG).unwrap();
    drop(queue);
    assert!(buffer.address().is_some() && late.address().is_none());
    // Any queue takes it, and frees it where it was allocated.
    let other = host_queue("other");
    other.dealloca(&[(&step, 2)], &[(&step, 3)], buffer).unwrap();
    assert_eq!(held().0, before + MIB);
    step.signal(2).unwrap();
    step.wait(3, LONG).unwrap();
    assert_eq!(held().0, before);
    // Its own queue has gone, and it was never allocated.
    let gone = Semaphore::named("gone", 0);
    other.dealloca(&[], &[(&gone, 1)], late).unwrap();
    assert!(gone.wait(1, LONG).is_err());
}

#[test]
fn a_stream_that_fails_leaves_no_memory_behind() {
    let _turn = alone();
    let before = settled();
    let stream = Arc::new(HostStream::new("failing"));
    let (queue, step) = (Queue::new("failing", Arc::clone(&stream)).unwrap(), Semaphore::new(0));
    let buffer = queue.alloca(&[], &[(&step, 1)], MIB).unwrap();
    step.wait(1, LONG).unwrap();
    let go = hold(&stream);
    let late = queue.alloca(&[], &[], MIB).unwrap();
    let freed = Semaphore::new(0);
    queue.dealloca(&[], &[(&freed, 1)], buffer).unwrap();
    queue.flush();
    stream.faults().fail_stream("a bad access");
    drop(go);
    assert!(freed.wait(1, LONG).is_err());
    until_held(before);
    assert_eq!(late.address(), None);
    let error = Semaphore::new(0);
    let _never = queue.alloca(&[], &[(&error, 1)], MIB).unwrap();
    let text = error.wait(1, LONG).expect_err("the stream takes nothing").to_string();
    assert!(text.contains("a bad access"), "{text}");
}

#[test]
fn dealloca_needs_no_place_in_a_full_queue() {
    let _turn = alone();
    let queue = Queue::<HostStream>::builder("full").capacity(1).build(vec![HostStream::new("full")]).unwrap();
    let (step, later) = (Semaphore::new(0), Semaphore::new(0));
    let buffer = queue.alloca(&[], &[(&step, 1)], MIB).unwrap();
    step.wait(1, LONG).unwrap();
    queue.flush();
    queue.barrier(&[(&later, 1)], &[]).unwrap();
    assert!(matches!(queue.alloca(&[], &[], MIB), Err(Error::QueueFull { .. })));
    queue.dealloca(&[], &[(&step, 2)], buffer).unwrap();
    step.wait(2, LONG).unwrap();
    later.signal(1).unwrap();
}
