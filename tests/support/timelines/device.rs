//! What the cases of the timelines run on: in-process streams, CUDA streams of a stub driver, or those of a GPU.
#![allow(dead_code, reason = "not every program runs all of the cases")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use warpline::timeline::{Error, Queue, Semaphore};
use warpline::{AsStream, HostStream};

/// Nothing takes so long; what waits for ever fails then.
pub const LONG: Duration = Duration::from_secs(60);

/// Streams, and words that they write and copy.
pub trait Device: Sync {
    type Stream: AsStream + Clone + Send + Sync + 'static;
    type Word: Clone + Send + Sync + 'static;

    fn stream(&self) -> Self::Stream;

    /// A word that is zero.
    fn word(&self) -> Self::Word;

    fn write(stream: &Self::Stream, word: &Self::Word, value: u32);

    fn copy(stream: &Self::Stream, from: &Self::Word, to: &Self::Word);

    /// What the word is now; none if this device computes nothing.
    fn read(&self, word: &Self::Word) -> Option<u32>;

    fn queue(&self, name: &str) -> Queue<Self::Stream> {
        Queue::new(name, self.stream()).expect("a thread")
    }
}

/// In-process streams.
pub struct Host;

impl Device for Host {
    type Stream = Arc<HostStream>;
    type Word = Arc<AtomicU32>;

    fn stream(&self) -> Arc<HostStream> {
        Arc::new(HostStream::new("device"))
    }

    fn word(&self) -> Arc<AtomicU32> {
        Arc::default()
    }

    fn write(stream: &Arc<HostStream>, word: &Arc<AtomicU32>, value: u32) {
        let word = Arc::clone(word);
        // Relaxed: the order has to come from the timelines.
        stream.launch(move || word.store(value, Ordering::Relaxed));
    }

    fn copy(stream: &Arc<HostStream>, from: &Arc<AtomicU32>, to: &Arc<AtomicU32>) {
        let (from, to) = (Arc::clone(from), Arc::clone(to));
        stream.launch(move || to.store(from.load(Ordering::Relaxed), Ordering::Relaxed));
    }

    fn read(&self, word: &Arc<AtomicU32>) -> Option<u32> {
        Some(word.load(Ordering::Relaxed))
    }
}

/// An error that can be told from others after its journey.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Code(pub u32);

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "code {}", self.0)
    }
}

impl std::error::Error for Code {}

/// The code that a semaphore failed with.
pub fn code_of<T: std::fmt::Debug>(result: Result<T, Error>) -> Code {
    match result {
        Err(Error::Failed { failure, .. }) => {
            *failure.error().downcast_ref::<Code>().unwrap_or_else(|| panic!("it failed with a code: {failure}"))
        }
        other => panic!("it failed: {other:?}"),
    }
}

pub fn is_timeout(result: Result<impl std::fmt::Debug, Error>) -> bool {
    matches!(result, Err(Error::Timeout { .. }))
}

#[track_caller]
pub fn check_value(semaphore: &Semaphore, value: u64) {
    assert_eq!(semaphore.value().expect("it did not fail"), value, "{semaphore:?}");
}

/// Waits on this thread for a future.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
