//! A launch as a test tells the stub of it: the one layout that the library and its harness share.

use std::ffi::c_char;

/// Something that the device executes. Times are `CLOCK_BOOTTIME`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Launch {
    pub kind: u32,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub graph: u32,
    /// Not before `stub_cupti_complete`.
    pub is_pending: u32,
    /// Part of the last launch: another node of a graph.
    pub is_more: u32,
    /// The call is reported, and what it launched never is.
    pub is_unreported: u32,
    pub node: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub bytes: u64,
    pub name: *const c_char,
}
