//! Counts the memory that is allocated, and refuses more than a worker may have.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// No try needs so much: what asks for more is told that there is none, and aborts.
const MOST: usize = 2 << 30;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, which counts.
pub struct Counting;

// SAFETY: all calls go to the system's allocator; what is counted changes nothing of them, and no memory is a valid answer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_granted(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's layout, as it came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_granted(size.saturating_sub(layout.size())) {
            return std::ptr::null_mut();
        }
        NOW.fetch_sub(layout.size().saturating_sub(size), Relaxed);
        // SAFETY: the caller's memory, layout and size, as they came.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the memory was allocated above with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn is_granted(size: usize) -> bool {
    let now = NOW.fetch_add(size, Relaxed) + size;
    if now > MOST {
        NOW.fetch_sub(size, Relaxed);
        return false;
    }
    PEAK.fetch_max(now, Relaxed);
    true
}

/// Runs `work`, and says how many bytes more than before were allocated at its peak, by all threads.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let done = work();
    (done, PEAK.load(Relaxed).saturating_sub(before))
}
