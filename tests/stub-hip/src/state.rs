//! What the runtime keeps: streams, events, counts of calls, and the errors that a test has ordered.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The handles of streams and events that were created begin here; smaller ones are the default streams.
const FIRST_HANDLE: usize = 0x1000;

#[derive(Default)]
pub struct State {
    pub streams: HashMap<usize, Stream>,
    /// The default streams, by handle and device.
    defaults: HashMap<(usize, c_int), Stream>,
    pub events: HashMap<usize, Event>,
    pub calls: HashMap<&'static str, u64>,
    /// Errors that calls return, with how many of them still do, and the only thread whose calls do.
    pub faults: HashMap<String, (u64, c_int, Option<ThreadId>)>,
    /// Calls with a handle that does not exist.
    pub misuses: u64,
    /// Calls that would have invalidated a capture.
    pub broken: u64,
    made: usize,
}

pub struct Stream {
    #[cfg_attr(feature = "old", expect(dead_code, reason = "the old runtime does not tell it"))]
    pub id: u64,
    pub device: c_int,
    /// When all work that is on the stream has ended.
    pub free_ns: i64,
    pub is_captured: bool,
    /// The calls that put something on the stream while it was captured.
    pub nodes: u64,
}

#[derive(Clone, Copy)]
pub struct Event {
    pub device: c_int,
    /// When its stream reaches it; none if it was never recorded.
    pub at_ns: Option<i64>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Calls `f` with the runtime's state.
pub fn with<T>(f: impl FnOnce(&mut State) -> T) -> T {
    f(STATE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// The devices' clock, which began an hour before the process.
pub fn now_ns() -> i64 {
    static BEGIN: Mutex<Option<Instant>> = Mutex::new(None);
    let begin = *BEGIN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
    (Duration::from_secs(3_600) + begin.elapsed()).as_nanos() as i64
}

impl State {
    /// Counts a call, and returns the error that was ordered for it.
    pub fn call(&mut self, name: &'static str) -> Option<c_int> {
        *self.calls.entry(name).or_default() += 1;
        let (left, code, only) = self.faults.get_mut(name)?;
        if only.is_some_and(|thread| thread != thread::current().id()) {
            return None;
        }
        *left = left.checked_sub(1)?;
        Some(*code)
    }

    pub fn misuse(&mut self) -> c_int {
        self.misuses += 1;
        crate::INVALID_HANDLE
    }

    pub fn break_captures(&mut self) {
        if self.streams.values().any(|stream| stream.is_captured) {
            self.broken += 1;
        }
    }

    fn handle(&mut self) -> usize {
        self.made += 1;
        FIRST_HANDLE + self.made * 0x100
    }

    pub fn add_stream(&mut self, device: c_int) -> usize {
        let handle = self.handle();
        let id = self.made as u64;
        self.streams.insert(handle, Stream { id, device, free_ns: 0, is_captured: false, nodes: 0 });
        handle
    }

    pub fn add_event(&mut self, device: c_int) -> usize {
        let handle = self.handle();
        self.events.insert(handle, Event { device, at_ns: None });
        handle
    }

    /// A stream; a default stream is that of this device.
    pub fn stream(&mut self, handle: usize, device: c_int) -> Option<&mut Stream> {
        if handle >= FIRST_HANDLE {
            return self.streams.get_mut(&handle);
        }
        let fresh = || Stream { id: 0, device, free_ns: 0, is_captured: false, nodes: 0 };
        Some(self.defaults.entry((handle, device)).or_insert_with(fresh))
    }
}
