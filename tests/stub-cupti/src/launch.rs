//! A launch as a test tells the stub of it: the one layout that the library and its harness share.

use std::ffi::c_char;

/// A call that synchronises, as a test tells the stub of it. Times are `CLOCK_BOOTTIME`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sync {
    /// `CUpti_ActivitySynchronizationType`.
    pub sync_type: u32,
    /// The driver's or the runtime's call.
    pub call: u32,
    pub is_of_runtime: u32,
    pub context: u32,
    pub stream: u32,
    pub event: u32,
    /// What a query finds: 1 for an event that has not happened.
    pub is_incomplete: u32,
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// A call that allocates or frees, as a test tells the stub of it. The time is `CLOCK_BOOTTIME`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Memory {
    /// The driver's call.
    pub call: u32,
    /// What it returned; there is a record of memory only if that is 0.
    pub returned: u32,
    /// `CUpti_ActivityMemoryOperationType`, `CUpti_ActivityMemoryKind`.
    pub operation: u32,
    pub memory: u32,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub address: u64,
    pub bytes: u64,
    pub begin_ns: u64,
}

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
    /// 1: part of the last launch, another node of a graph. 2: of no launch that its record names, as in the body of a conditional node.
    pub is_more: u32,
    /// The call is reported, and what it launched never is.
    pub is_unreported: u32,
    pub node: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub bytes: u64,
    pub name: *const c_char,
}
