//! What the stub keeps.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::record;

pub type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);
pub type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

static STATE: Mutex<State> = Mutex::new(State {
    version: 130_001,
    calls: BTreeMap::new(),
    faults: BTreeMap::new(),
    asks: None,
    set_back_ns: 0,
    kinds: BTreeSet::new(),
    other_driver_calls: BTreeSet::new(),
    other_runtime_calls: BTreeSet::new(),
    subscribers: 0,
    is_attached: false,
    attachment: 0,
    subscriber: None,
    told: BTreeSet::new(),
    thread_ids: 0,
    all_syncs: true,
    by_thread: None,
    request: None,
    completed: None,
    current: BTreeMap::new(),
    incomplete: Vec::new(),
    lent: 0,
    most_lent: 0,
    dropped: 0,
    correlation: 0,
    runtime: 0,
    launch_calls: (307, 211),
});

thread_local! {
    /// The external correlation ids of a thread, by kind, and what CUPTI was attached as when they were pushed.
    static STACK: RefCell<(u64, Vec<(u32, u64)>)> = const { RefCell::new((0, Vec::new())) };
    /// This thread is in a callback at the end of a call of the driver's.
    pub static IS_AT_EXIT: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread's stack of external ids.
pub fn with_stack<T>(attachment: u64, work: impl FnOnce(&mut Vec<(u32, u64)>) -> T) -> T {
    STACK.with_borrow_mut(|(of, stack)| {
        if *of != attachment {
            stack.clear();
            *of = attachment;
        }
        work(stack)
    })
}

pub struct State {
    pub version: u32,
    pub calls: BTreeMap<&'static str, u64>,
    /// What a call answers instead of succeeding.
    pub faults: BTreeMap<String, i32>,
    /// What CUPTI itself asks the driver when something is turned on or off, or flushed.
    pub asks: Option<extern "C" fn()>,
    /// How far somebody has set CUPTI's clock back.
    pub set_back_ns: u64,
    pub kinds: BTreeSet<u32>,
    /// The calls that are not recorded although their kind is.
    pub other_driver_calls: BTreeSet<u32>,
    pub other_runtime_calls: BTreeSet<u32>,
    pub subscribers: u64,
    /// CUPTI is part of the process: any call but the harmless ones makes it that, `cuptiFinalize` ends it.
    pub is_attached: bool,
    /// Counts how often it was ended: stacks of external ids go with it.
    pub attachment: u64,
    /// The subscriber's callback and what it is given.
    pub subscriber: Option<(Callback, usize)>,
    /// The callbacks that are enabled: domain and number.
    pub told: BTreeSet<(u32, u32)>,
    /// What stands for a thread in records; 0 for what CUPTI itself would take.
    pub thread_ids: i32,
    /// Whether queries of what has not happened have records.
    pub all_syncs: bool,
    /// `CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER`, if the program has set it.
    pub by_thread: Option<bool>,
    pub request: Option<Request>,
    pub completed: Option<Completed>,
    /// The buffers that are being filled, by thread; 0 stands for all threads.
    current: BTreeMap<i32, Buffer>,
    /// What has been launched and is not complete: its record is written without times if it is forced.
    pub incomplete: Vec<Vec<u8>>,
    /// Buffers that the program has lent and not got back.
    pub lent: u64,
    pub most_lent: u64,
    pub dropped: u64,
    pub correlation: u32,
    /// Launches are calls of the driver (0), of the runtime (1), or of the driver within the runtime's (2).
    pub runtime: u32,
    /// cuLaunchKernel and cudaLaunchKernel, or others.
    pub launch_calls: (u32, u32),
}

struct Buffer {
    memory: *mut u8,
    bytes: usize,
    used: usize,
}

// SAFETY: the buffer is the stub's until it is handed over.
unsafe impl Send for Buffer {}

pub fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Whether each thread has a buffer of its own: the default from CUDA 13.0 on.
    fn has_buffers_by_thread(&self) -> bool {
        self.by_thread.unwrap_or(self.version >= 130_000)
    }

    /// Writes a record into the current buffer, and gets another one where it is full.
    pub fn write(&mut self, bytes: &[u8]) {
        // SAFETY: the call takes nothing.
        let thread = if self.has_buffers_by_thread() { unsafe { libc::gettid() } } else { 0 };
        if self.current.get(&thread).is_some_and(|buffer| buffer.used + bytes.len() > buffer.bytes) {
            self.hand_over(thread);
        }
        if !self.current.contains_key(&thread)
            && let Some(buffer) = self.ask()
        {
            self.current.insert(thread, buffer);
        }
        let Some(buffer) = self.current.get_mut(&thread) else {
            if record_kind(bytes) != record::EXTERNAL_CORRELATION && record_kind(bytes) != record::DRIVER {
                self.dropped += 1;
            }
            return;
        };
        // SAFETY: the program lent so many bytes, and there is room.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.memory.add(buffer.used), bytes.len()) };
        buffer.used += bytes.len();
    }

    fn ask(&mut self) -> Option<Buffer> {
        let (mut memory, mut bytes, mut records) = (std::ptr::null_mut(), 0, 1);
        // SAFETY: the places outlive the call.
        unsafe { self.request?(&raw mut memory, &raw mut bytes, &raw mut records) };
        if memory.is_null() {
            return None;
        }
        assert!((memory as usize).is_multiple_of(8) && bytes > 1_000 && records == 0);
        self.lent += 1;
        self.most_lent = self.most_lent.max(self.lent);
        Some(Buffer { memory, bytes, used: 0 })
    }

    /// Gives all buffers to the program.
    pub fn hand_over_all(&mut self) {
        let threads: Vec<_> = self.current.keys().copied().collect();
        threads.into_iter().for_each(|thread| self.hand_over(thread));
    }

    /// Gives the buffer of a thread to the program, on a thread of its own, as CUPTI does.
    fn hand_over(&mut self, thread: i32) {
        let (Some(buffer), Some(completed)) = (self.current.remove(&thread), self.completed) else { return };
        self.lent -= 1;
        let give = move || {
            let Buffer { memory, bytes, used } = { buffer };
            // SAFETY: the buffer is one that the program lent.
            unsafe { completed(std::ptr::null_mut(), 0, memory, bytes, used) };
        };
        std::thread::spawn(give).join().expect("the program's callback does not panic");
    }
}

pub fn record_kind(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
