//! Timelines on the streams of a GPU: the cases of IREE's conformance tests by their names, random graphs of work whose edges
//! are checked by what the device wrote, and what only a device can show.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use cudarc::driver::{CudaStream, sys};
use gpu::{DeviceMemory, Pinned};
use warpline::RawStream;
use warpline::timeline::{Error, Queue, Semaphore, WhenFull, wait_all};
use warpline_tests::alone;

use super::{CHILD, US, child, device};
use crate::timelines::device::{Code, Device, LONG, block_on, check_value, code_of, is_timeout};
use crate::timelines::graph;

/// Streams of the device, and words of its memory.
pub struct Cuda;

/// A word's place on the device.
#[derive(Clone, Copy)]
pub struct Word(sys::CUdeviceptr);

impl Device for Cuda {
    type Stream = Arc<CudaStream>;
    type Word = Word;

    fn stream(&self) -> Arc<CudaStream> {
        device().stream().expect("a stream")
    }

    fn word(&self) -> Word {
        const WORDS: usize = 4 << 20;
        static MEMORY: OnceLock<DeviceMemory> = OnceLock::new();
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let memory = MEMORY.get_or_init(|| DeviceMemory::zeroed(4 * WORDS).expect("16 MiB"));
        let at = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(at < WORDS, "the tests need more words");
        Word(memory.0 + 4 * at as u64)
    }

    /// Takes a moment, so that a wait that is missing shows.
    fn write(stream: &Arc<CudaStream>, word: &Word, value: u32) {
        device().spin(stream, 2 * US, None).expect("launched");
        // SAFETY: the word is in memory that is never freed.
        unsafe { sys::cuMemsetD32Async(word.0, value, 1, stream.cu_stream()) }.result().expect("queued");
    }

    fn copy(stream: &Arc<CudaStream>, from: &Word, to: &Word) {
        // SAFETY: both words are in memory that is never freed.
        unsafe { sys::cuMemcpyDtoDAsync_v2(to.0, from.0, 4, stream.cu_stream()) }.result().expect("queued");
    }

    fn read(&self, word: &Word) -> Option<u32> {
        let mut value = 0_u32;
        device();
        // SAFETY: one word each.
        unsafe { sys::cuMemcpyDtoH_v2((&raw mut value).cast(), word.0, 4) }.result().expect("copied");
        Some(value)
    }
}

macro_rules! tests {
    ($($suite:ident: $($case:ident)*;)*) => {
        $(
            #[allow(non_snake_case, reason = "the names are those of the other suite")]
            mod $suite {
                $(
                    #[test]
                    #[ignore = "needs an NVIDIA GPU"]
                    fn $case() {
                        let _turn = warpline_tests::alone();
                        crate::timelines::cases::$suite::$case(&super::Cuda);
                    }
                )*
            }
        )*
    };
}

with_timeline_cases!(tests);

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn random_graphs_of_work_end_and_every_edge_holds() {
    let _turn = alone();
    graph::random_graphs(&Cuda, 32, 120);
}

/// A stream that is held until the host lets it go.
struct Held {
    flag: Pinned,
}

impl Held {
    fn new(stream: &Arc<CudaStream>) -> Held {
        let flag = Pinned::new(1).expect("pinned memory");
        device().hang(stream, flag.as_ptr()).expect("launched");
        Held { flag }
    }

    fn release(&self) {
        // SAFETY: it is inside the allocation, and the device reads it.
        unsafe { self.flag.as_ptr().write_volatile(1) };
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_stream_waits_on_the_device_and_the_thread_that_says_so_goes_on() {
    let _turn = alone();
    let (copy, compute) = (Cuda.stream(), Cuda.stream());
    let (copied, computed) = (Semaphore::named("copied", 0), Semaphore::new(0));
    let (from, to) = (Cuda.word(), Cuda.word());
    let held = Held::new(&copy);
    Cuda::write(&copy, &from, 7);
    copied.signal_on(&copy, 1).expect("recorded");
    copied.wait_on(&compute, 1).expect("queued");
    Cuda::copy(&compute, &from, &to);
    computed.signal_on(&compute, 1).expect("recorded");
    check_value(&copied, 0);
    assert!(is_timeout(computed.wait(1, Duration::from_millis(20))), "it waits for a stream that is held");
    held.release();
    computed.wait(1, LONG).expect("it goes on");
    check_value(&copied, 1);
    assert_eq!(Cuda.read(&to), Some(7));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn raw_and_default_streams_signal_and_wait_too() {
    let _turn = alone();
    let own = Cuda.stream();
    // SAFETY: the default streams live as long as the context, and `own` until the end.
    let raw = |handle: usize| unsafe { RawStream::from_ptr(handle as *mut _) };
    let streams = [raw(own.cu_stream() as usize), raw(0), raw(1), raw(2), raw(own.cu_stream() as usize)];
    let semaphore = Semaphore::new(0);
    for (value, pair) in (1..).zip(streams.windows(2)) {
        semaphore.signal_on(&pair[0], value).expect("recorded");
        semaphore.wait_on(&pair[1], value).expect("queued");
    }
    semaphore.wait(4, LONG).expect("all get there");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn futures_and_failures_end_waits_for_a_stream_that_is_held() {
    let _turn = alone();
    let stream = Cuda.stream();
    let (semaphore, called) = (Semaphore::new(0), Semaphore::new(0));
    let queue = Cuda.queue("calls");
    let held = Held::new(&stream);
    semaphore.signal_on(&stream, 1).expect("recorded");
    queue.submit_host(&[(&semaphore, 1)], &[(&called, 1)], |_| Ok(())).expect("there is room");
    thread::scope(|scope| {
        let future = scope.spawn(|| block_on(semaphore.wait_async(1)));
        assert!(is_timeout(called.wait(1, Duration::from_millis(30))));
        assert!(!future.is_finished(), "the stream is held");
        held.release();
        future.join().expect("no panic").expect("it goes on");
    });
    called.wait(1, LONG).expect("it was called");
    let held = Held::new(&stream);
    semaphore.signal_on(&stream, 2).expect("recorded");
    thread::scope(|scope| {
        let thread = scope.spawn(|| semaphore.wait(2, LONG));
        let future = scope.spawn(|| block_on(semaphore.wait_async(2)));
        semaphore.fail(Code(5));
        assert_eq!(code_of(thread.join().expect("no panic")), Code(5));
        assert_eq!(code_of(future.join().expect("no panic")), Code(5));
    });
    held.release();
    stream.synchronize().expect("it goes on");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_capture_is_left_as_it_is_and_the_error_says_so() {
    let _turn = alone();
    let (stream, other) = (Cuda.stream(), Cuda.stream());
    let semaphore = Semaphore::new(0);
    semaphore.signal_on(&other, 1).expect("recorded");
    semaphore.wait(1, LONG).expect("it gets there");
    let held = Held::new(&other);
    semaphore.signal_on(&other, 2).expect("recorded");
    let watcher = thread::spawn({
        let semaphore = semaphore.clone();
        move || block_on(semaphore.wait_async(2))
    });
    let nodes = super::capture(&stream, || {
        for refused in [semaphore.signal_on(&stream, 3), semaphore.wait_on(&stream, 2)] {
            assert!(matches!(refused, Err(Error::Captured { .. })), "{refused:?}");
        }
        // Here and on the thread of the future the other stream is asked for meanwhile.
        check_value(&semaphore, 1);
        device().null(&stream).expect("captured");
    });
    assert!(nodes > 0, "the capture has what the application launched");
    held.release();
    watcher.join().expect("no panic").expect("it goes on");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_bad_kernel_fails_what_it_was_to_signal_and_all_that_depends_on_it() {
    const TEST: &str = "timeline::a_bad_kernel_fails_what_it_was_to_signal_and_all_that_depends_on_it";
    if std::env::var(CHILD).is_err() {
        let _turn = alone();
        let said = child(TEST, "bad");
        assert!(said.contains("ILLEGAL_ADDRESS") && said.contains("`first`"), "{said}");
        return;
    }
    let (stream, queue) = (Cuda.stream(), Cuda.queue("calls"));
    let (first, second) = (Semaphore::named("first", 0), Semaphore::named("second", 0));
    queue.submit_host(&[(&first, 1)], &[(&second, 1)], |_| Ok(())).expect("there is room");
    device().poke(&stream, 0x10).expect("launched");
    first.signal_on(&stream, 1).expect("recorded");
    println!("child: {}", second.wait(1, LONG).expect_err("the kernel is bad"));
    // What is left belongs to a context that is lost.
    std::mem::forget((stream, queue));
    std::process::exit(0);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn eight_queues_of_ten_thousand_submissions_end() {
    const EACH: u64 = 10_000;
    let _turn = alone();
    let done: Vec<Semaphore> = (0..8).map(|_| Semaphore::new(0)).collect();
    let build = |_| {
        let builder = Queue::<Arc<CudaStream>>::builder("one of eight").when_full(WhenFull::Wait);
        builder.build(vec![Cuda.stream()]).expect("a thread")
    };
    let queues: Vec<_> = (0..8).map(build).collect();
    let words: Vec<Word> = (0..8).map(|_| Cuda.word()).collect();
    thread::scope(|scope| {
        for (at, queue) in queues.iter().enumerate() {
            let (before, done, word) = (&done[(at + 7) % 8], &done[at], words[at]);
            scope.spawn(move || {
                for value in 1..=EACH {
                    // The first one leads: it waits for the round before.
                    let waits = [(before, value - u64::from(at == 0))];
                    let work = move |stream: &Arc<CudaStream>| {
                        // SAFETY: the word is in memory that is never freed.
                        Ok(unsafe { sys::cuMemsetD32Async(word.0, value as u32, 1, stream.cu_stream()) }.result()?)
                    };
                    queue.submit(&waits, &[(done, value)], work).expect("there is room");
                }
            });
        }
    });
    let all: Vec<_> = done.iter().map(|done| (done, EACH)).collect();
    wait_all(&all, LONG).expect("all end");
    assert!(words.iter().all(|word| Cuda.read(word) == Some(EACH as u32)));
}
