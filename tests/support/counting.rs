//! The allocator of the test binaries: the system's, with counts of what the process and the calling thread have taken.
//!
//! A count of the process says something only in a process of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes that are allocated now.
pub static LIVE: AtomicU64 = AtomicU64::new(0);

/// The most bytes that were allocated at once since a test reset it.
pub static PEAK: AtomicU64 = AtomicU64::new(0);

/// The allocations of the process.
pub static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local!(static OF_THREAD: Cell<u64> = const { Cell::new(0) });

/// The allocations of this thread.
pub fn allocations_of_thread() -> u64 {
    OF_THREAD.with(Cell::get)
}

/// The system's allocator, counted.
pub struct Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size() as u64, Ordering::Relaxed) + layout.size() as u64;
        PEAK.fetch_max(live, Ordering::Relaxed);
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        let _ = OF_THREAD.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: it came from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}
