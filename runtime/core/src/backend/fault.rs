//! Fault injection, so that tests can check a session's behavior when a stream fails.
//!
//! Faults belong to one [`HostStream`](super::host::HostStream) and imitate those of a GPU: events that cannot be created or
//! recorded, a sticky error after which nothing completes, and work that takes long.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::lock::lock;

/// The faults of one stream. All of them can be set at any time, from any thread.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Faults {
    creates: AtomicU32,
    records: AtomicU32,
    delay_ns: AtomicU64,
    /// Whether `stream` holds an error; every operation checks it.
    failed: AtomicBool,
    stream: Mutex<Option<String>>,
}

impl Faults {
    /// Makes the creation of the next `n` events fail.
    pub fn fail_creates(&self, n: u32) {
        self.creates.store(n, Ordering::Relaxed);
    }

    /// Makes the recording of the next `n` events fail.
    pub fn fail_records(&self, n: u32) {
        self.records.store(n, Ordering::Relaxed);
    }

    /// Makes the stream fail permanently, like a GPU with a sticky error: neither queued nor later work is executed.
    pub fn fail_stream(&self, error: &str) {
        *lock(&self.stream) = Some(error.to_owned());
        self.failed.store(true, Ordering::Release);
    }

    /// Makes the worker wait this long before each operation; zero turns it off.
    pub fn delay(&self, delay: Duration) {
        self.delay_ns.store(delay.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn before_create(&self) -> Result<(), String> {
        take_one(&self.creates).map_or(Ok(()), |()| Err("the test lets this event fail to be made".to_owned()))
    }

    pub(super) fn before_record(&self) -> Result<(), String> {
        self.stream()?;
        take_one(&self.records).map_or(Ok(()), |()| Err("the test lets this event fail to be recorded".to_owned()))
    }

    /// Returns the stream's sticky error.
    #[inline]
    pub(super) fn stream(&self) -> Result<(), String> {
        if self.failed.load(Ordering::Acquire) { self.error() } else { Ok(()) }
    }

    #[cold]
    fn error(&self) -> Result<(), String> {
        lock(&self.stream).clone().map_or(Ok(()), Err)
    }

    pub(super) fn wait(&self) {
        let delay = self.delay_ns.load(Ordering::Relaxed);
        if delay > 0 {
            std::thread::sleep(Duration::from_nanos(delay));
        }
    }
}

fn take_one(count: &AtomicU32) -> Option<()> {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).ok().map(|_| ())
}
