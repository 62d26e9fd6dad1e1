//! Memory that the driver hands out for a while: pages of its own, so that whoever reads them too late ends with a signal.

use crate::table::Handle;

/// Handles in pages of their own, which are unmapped with this.
pub struct Page {
    at: *mut Handle,
    bytes: usize,
}

// SAFETY: it owns its pages, and only the address is handed out.
unsafe impl Send for Page {}

impl Page {
    pub fn new(handles: &[Handle]) -> Option<Page> {
        let bytes = size_of_val(handles).max(1).next_multiple_of(4096);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return None;
        }
        let at = at.cast::<Handle>();
        // SAFETY: the pages have room for as many, and nobody else knows them.
        unsafe { at.copy_from_nonoverlapping(handles.as_ptr(), handles.len()) };
        Some(Page { at, bytes })
    }

    pub fn as_ptr(&self) -> *const Handle {
        self.at
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is its own.
        unsafe { libc::munmap(self.at.cast(), self.bytes) };
    }
}
