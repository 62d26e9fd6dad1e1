//! The buffers that CUPTI fills: a bounded pool, and the two callbacks that lend buffers and take them back.
//!
//! CUPTI requests a buffer on the thread that launches, and returns full ones on a thread of its own or during a flush. All threads fill the
//! same buffer (`activity`). Both callbacks hold a lock only briefly, and a request may allocate. CUPTI drops and counts the records that it
//! has no buffer for.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpline_core::clock::now_ns;

/// The size of a buffer: some thousand records.
const BYTES: usize = 1 << 20;

/// The layout of a buffer. CUPTI requires that records are aligned to eight bytes.
const LAYOUT: Layout = match Layout::from_size_align(BYTES, 8) {
    Ok(layout) => layout,
    Err(_) => Layout::new::<u64>(),
};

/// The maximum number of buffers that CUPTI has or that wait for the collector.
const MOST: usize = 64;

/// The number of buffers that are kept ready.
const READY: usize = 4;

static POOL: Mutex<Pool> =
    Mutex::new(Pool { is_open: false, ready: Vec::new(), lent: Vec::new(), full: VecDeque::new(), refused: 0 });

struct Pool {
    is_open: bool,
    ready: Vec<Buffer>,
    /// The buffers that CUPTI has, and since when.
    lent: Vec<(Buffer, i64)>,
    full: VecDeque<Full>,
    /// The number of requests for which there was no buffer.
    refused: u64,
}

/// The memory of one buffer.
pub(super) struct Buffer(NonNull<u8>);

// SAFETY: the owner has exclusive access to the memory.
unsafe impl Send for Buffer {}

/// A buffer with records in it.
pub(super) struct Full {
    buffer: Buffer,
    valid: usize,
}

impl Buffer {
    fn new() -> Option<Buffer> {
        // SAFETY: the layout has a size.
        NonNull::new(unsafe { alloc(LAYOUT) }).map(Buffer)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.0.as_ptr(), LAYOUT) }
    }
}

impl Full {
    /// Returns the address of the records, and their size in bytes.
    pub(super) fn records(&self) -> (*mut u8, usize) {
        (self.buffer.0.as_ptr(), self.valid)
    }
}

/// Starts lending buffers.
pub(super) fn open() {
    let mut pool = lock();
    pool.is_open = true;
    pool.refused = 0;
    while pool.ready.len() < READY {
        let Some(buffer) = Buffer::new() else { break };
        pool.ready.push(buffer);
    }
}

/// Stops lending buffers, and frees those that are here. Those that CUPTI has are freed when they come back.
pub(super) fn close() {
    lock().close();
}

/// Takes back the buffers of an ended CUPTI, which does not return them. They are kept for the next session.
pub(super) fn take_back() {
    lock().take_back();
}

/// Takes the oldest buffer that CUPTI has returned.
pub(super) fn take() -> Option<Full> {
    lock().full.pop_front()
}

/// Returns whether a buffer waits to be read.
pub(super) fn is_waiting() -> bool {
    !lock().full.is_empty()
}

/// Takes back a buffer that has been read.
pub(super) fn give_back(full: Full) {
    let mut pool = lock();
    if pool.is_open && pool.ready.len() < READY {
        pool.ready.push(full.buffer);
    }
}

/// Returns the time before which every call has been read: CUPTI writes a call's record before the call returns, into a buffer that it has
/// by then. None while a buffer waits to be read.
pub(super) fn delivered_ns() -> Option<i64> {
    let pool = lock();
    let oldest_ns = pool.lent.iter().map(|(_, since_ns)| *since_ns).min();
    pool.full.is_empty().then(|| oldest_ns.unwrap_or_else(now_ns))
}

/// Returns the number of requests for which there was no buffer.
pub(super) fn refused() -> u64 {
    lock().refused
}

impl Pool {
    fn close(&mut self) {
        self.is_open = false;
        self.ready = Vec::new();
        self.full = VecDeque::new();
    }

    fn take_back(&mut self) {
        self.ready.extend(self.lent.drain(..).map(|(buffer, _)| buffer));
    }

    fn lend(&mut self) -> Option<NonNull<u8>> {
        if !self.is_open {
            return None;
        }
        let buffer = match self.ready.pop() {
            Some(buffer) => Some(buffer),
            None if self.lent.len() + self.full.len() < MOST => Buffer::new(),
            None => None,
        };
        let Some(buffer) = buffer else {
            self.refused += 1;
            return None;
        };
        let memory = buffer.0;
        self.lent.push((buffer, now_ns()));
        Some(memory)
    }

    fn receive(&mut self, memory: *mut u8, valid: usize) {
        // A buffer from before these callbacks were registered belongs to another tool.
        let Some(at) = self.lent.iter().position(|(lent, _)| lent.0.as_ptr() == memory) else { return };
        let (buffer, _) = self.lent.swap_remove(at);
        if self.is_open && valid > 0 {
            self.full.push_back(Full { buffer, valid: valid.min(BYTES) });
        } else if self.is_open && self.ready.len() < READY {
            self.ready.push(buffer);
        }
    }
}

/// Gives CUPTI an empty buffer.
pub(super) unsafe extern "C" fn request(buffer: *mut *mut u8, bytes: *mut usize, records: *mut usize) {
    let memory = lock().lend();
    // SAFETY: CUPTI passes three valid out-pointers.
    unsafe {
        *buffer = memory.map_or(std::ptr::null_mut(), NonNull::as_ptr);
        *bytes = if memory.is_some() { BYTES } else { 0 };
        // Zero means as many records as there is room for.
        *records = 0;
    }
}

/// Takes a buffer back from CUPTI.
pub(super) unsafe extern "C" fn completed(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _bytes: usize,
    valid: usize,
) {
    lock().receive(buffer, valid);
}

/// Takes the lock. Nothing under it can panic, so a poisoned lock holds a sound state.
fn lock() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_an_ended_cupti_keeps_are_lent_again() {
        let mut pool = Pool { is_open: true, ready: Vec::new(), lent: Vec::new(), full: VecDeque::new(), refused: 0 };
        for time in 0..=MOST {
            pool.is_open = true;
            let memory = pool.lend();
            assert!(memory.is_some(), "none is left at time {time}");
            pool.close();
            pool.take_back();
        }
        assert_eq!((pool.ready.len(), pool.lent.len(), pool.refused), (1, 0, 0));
    }
}
