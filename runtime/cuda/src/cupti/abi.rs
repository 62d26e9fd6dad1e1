//! CUPTI's activity API as its headers declare it: functions, constants, and the first fields of records.
//!
//! Records grow with every version and are never reordered. The fields below have the same offsets from CUPTI 12.0
//! (`CUpti_ActivityKernel9`) to 13.5 (`CUpti_ActivityKernel13`), compared header by header. The fields after them are not read, and CUPTI
//! itself finds the next record.
#![allow(non_camel_case_types, reason = "the names of NVIDIA's headers")]

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

use warpline_core::synchronization::SyncKind;

/// A `CUptiResult`.
pub(super) type Code = c_int;

pub(super) const SUCCESS: Code = 0;
pub(super) const NOT_INITIALIZED: Code = 15;
pub(super) const INSUFFICIENT_PRIVILEGES: Code = 35;
pub(super) const MULTIPLE_SUBSCRIBERS: Code = 39;
pub(super) const VIRTUALIZED: Code = 40;

/// `CUPTI_API_VERSION` of CUDA 12.0's first release. From 13.0 on it is the toolkit's version, as in 130001.
pub(super) const OLDEST: u32 = 18;
/// The newest version whose headers were compared.
pub(super) const NEWEST: u32 = 130_599;

/// `CUpti_ActivityKind`.
pub(super) mod kind {
    pub(in crate::cupti) const MEMCPY: u32 = 1;
    pub(in crate::cupti) const MEMSET: u32 = 2;
    pub(in crate::cupti) const DRIVER: u32 = 4;
    pub(in crate::cupti) const RUNTIME: u32 = 5;
    pub(in crate::cupti) const CONCURRENT_KERNEL: u32 = 10;
    /// Names that the program gives through NVTX.
    pub(in crate::cupti) const NAME: u32 = 11;
    /// Copies from one device to another.
    pub(in crate::cupti) const MEMCPY2: u32 = 22;
    pub(in crate::cupti) const SYNCHRONIZATION: u32 = 38;
    pub(in crate::cupti) const EXTERNAL_CORRELATION: u32 = 39;
    /// Allocations and frees of memory.
    pub(in crate::cupti) const MEMORY2: u32 = 49;
}

/// `CUPTI_ACTIVITY_OBJECT_STREAM`.
pub(super) const OBJECT_STREAM: u32 = 5;

/// `CUPTI_SYNCHRONIZATION_INVALID_VALUE`: the record has no stream, or no event.
pub(super) const NOT_APPLICABLE: u32 = u32::MAX;

/// `CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2`: the last of the three that are free for tools.
pub(super) const OURS: u32 = 5;

/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`.
pub(super) const FLUSH_FORCED: u32 = 1;

/// `CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER`, which CUPTI knows since CUDA 12.3.
pub(super) const PER_THREAD_BUFFERS: c_int = 9;

/// `CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM`: `gettid`, as in warpline's own records.
pub(super) const THREAD_ID_SYSTEM: c_int = 1;

pub(super) type Subscriber = *mut c_void;
/// A callback. Its parameters are the user's pointer, its domain and number, and its data.
pub(super) type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);
pub(super) type BufferRequestedCallback = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub(super) type BufferCompletedCallback = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// The first fields of a kernel's record.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(super) struct CUpti_ActivityKernel {
    pub(super) kind: u32,
    cache_config: u8,
    shared_memory_config: u8,
    pub(super) registers_per_thread: u16,
    partitioned_requested: u32,
    partitioned_executed: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    completed: u64,
    pub(super) device: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
    pub(super) grid: [i32; 3],
    pub(super) block: [i32; 3],
    pub(super) static_shared: i32,
    pub(super) dynamic_shared: i32,
    local_per_thread: u32,
    local_total: u32,
    pub(super) correlation: u32,
    grid_id: i64,
    pub(super) name: *const c_char,
    reserved: *const c_void,
    queued: u64,
    submitted: u64,
    launch_type: [u8; 4],
    shared_executed: u32,
    pub(super) graph_node: u64,
    shared_limit: u32,
    pub(super) graph: u32,
}

/// The first fields of a copy's record.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(super) struct CUpti_ActivityMemcpy {
    pub(super) kind: u32,
    pub(super) copy_kind: u8,
    pub(super) from: u8,
    pub(super) to: u8,
    flags: u8,
    pub(super) bytes: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) device: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
    pub(super) correlation: u32,
    runtime_correlation: u32,
    pad: u32,
    reserved: *const c_void,
    pub(super) graph_node: u64,
    pub(super) graph: u32,
}

/// The first fields of the record of a copy between devices.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(super) struct CUpti_ActivityMemcpyPtoP {
    pub(super) kind: u32,
    pub(super) copy_kind: u8,
    pub(super) from: u8,
    pub(super) to: u8,
    flags: u8,
    pub(super) bytes: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) device: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
    from_device: [u32; 2],
    to_device: [u32; 2],
    pub(super) correlation: u32,
    reserved: *const c_void,
    pub(super) graph_node: u64,
    pub(super) graph: u32,
}

/// The first fields of a memory set's record.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(super) struct CUpti_ActivityMemset {
    pub(super) kind: u32,
    pub(super) value: u32,
    pub(super) bytes: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) device: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
    pub(super) correlation: u32,
    flags: u16,
    pub(super) memory: u16,
    pad: u32,
    reserved: *const c_void,
    pub(super) graph_node: u64,
    pub(super) graph: u32,
}

/// The record of a call of the driver or the runtime.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(super) struct CUpti_ActivityAPI {
    pub(super) kind: u32,
    pub(super) callback: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    process: u32,
    pub(super) thread: u32,
    pub(super) correlation: u32,
    pub(super) returned: u32,
}

/// The external id under which a call was made. It precedes the record of the call.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(super) struct CUpti_ActivityExternalCorrelation {
    pub(super) kind: u32,
    pub(super) external_kind: u32,
    pub(super) external_id: u64,
    pub(super) correlation: u32,
    reserved: u32,
}

/// The first fields of a synchronisation's record, which are those of CUDA 12.0 (`CUpti_ActivitySynchronization`).
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(super) struct CUpti_ActivitySynchronization {
    pub(super) kind: u32,
    pub(super) sync_type: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) correlation: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
    pub(super) event: u32,
}

/// The first fields of the record of an allocation or a free, which are those of CUDA 12.0 (`CUpti_ActivityMemory3`).
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(super) struct CUpti_ActivityMemory {
    pub(super) kind: u32,
    pub(super) operation: u32,
    pub(super) memory: u32,
    pub(super) correlation: u32,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) timestamp: u64,
    pc: u64,
    process: u32,
    pub(super) device: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
}

/// The record of a name.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
pub(super) struct CUpti_ActivityName {
    pub(super) kind: u32,
    pub(super) object_kind: u32,
    /// Of a stream.
    device: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
    pad: u32,
    pub(super) name: *const c_char,
}

// The layout by gcc of the headers of 12.0, 12.1, 12.2, 12.4, 12.6, 12.8, 12.9 and 13.0 to 13.5.
const _: () = {
    assert!(offset_of!(CUpti_ActivityKernel, registers_per_thread) == 6);
    assert!(offset_of!(CUpti_ActivityKernel, start) == 16 && offset_of!(CUpti_ActivityKernel, end) == 24);
    assert!(offset_of!(CUpti_ActivityKernel, device) == 40 && offset_of!(CUpti_ActivityKernel, stream) == 48);
    assert!(offset_of!(CUpti_ActivityKernel, grid) == 52 && offset_of!(CUpti_ActivityKernel, block) == 64);
    assert!(offset_of!(CUpti_ActivityKernel, static_shared) == 76);
    assert!(offset_of!(CUpti_ActivityKernel, correlation) == 92 && offset_of!(CUpti_ActivityKernel, name) == 104);
    assert!(offset_of!(CUpti_ActivityKernel, submitted) == 128);
    assert!(offset_of!(CUpti_ActivityKernel, graph_node) == 144 && offset_of!(CUpti_ActivityKernel, graph) == 156);
    assert!(size_of::<CUpti_ActivityKernel>() == 160);
    assert!(offset_of!(CUpti_ActivityMemcpy, bytes) == 8 && offset_of!(CUpti_ActivityMemcpy, device) == 32);
    assert!(offset_of!(CUpti_ActivityMemcpy, correlation) == 44);
    assert!(offset_of!(CUpti_ActivityMemcpy, graph_node) == 64 && offset_of!(CUpti_ActivityMemcpy, graph) == 72);
    assert!(offset_of!(CUpti_ActivityMemcpyPtoP, correlation) == 60);
    assert!(
        offset_of!(CUpti_ActivityMemcpyPtoP, graph_node) == 72 && offset_of!(CUpti_ActivityMemcpyPtoP, graph) == 80
    );
    assert!(offset_of!(CUpti_ActivityMemset, correlation) == 44 && offset_of!(CUpti_ActivityMemset, memory) == 50);
    assert!(offset_of!(CUpti_ActivityMemset, graph_node) == 64 && offset_of!(CUpti_ActivityMemset, graph) == 72);
    assert!(offset_of!(CUpti_ActivityAPI, thread) == 28 && size_of::<CUpti_ActivityAPI>() == 40);
    assert!(offset_of!(CUpti_ActivityExternalCorrelation, external_id) == 8);
    assert!(size_of::<CUpti_ActivityExternalCorrelation>() == 24);
    assert!(offset_of!(CUpti_ActivitySynchronization, start) == 8);
    assert!(offset_of!(CUpti_ActivitySynchronization, correlation) == 24);
    assert!(size_of::<CUpti_ActivitySynchronization>() == 40);
    assert!(offset_of!(CUpti_ActivityMemory, correlation) == 12 && offset_of!(CUpti_ActivityMemory, address) == 16);
    assert!(offset_of!(CUpti_ActivityMemory, timestamp) == 32 && offset_of!(CUpti_ActivityMemory, device) == 52);
    assert!(size_of::<CUpti_ActivityMemory>() == 64);
    assert!(offset_of!(CUpti_ActivityName, context) == 12 && offset_of!(CUpti_ActivityName, name) == 24);
};

/// The driver's calls that launch, copy and set (`cupti_driver_cbid.h` of 12.0 to 13.5). Numbers are never reused, and a library rejects those
/// that it does not know. Copies and sets of 32-bit programs are left out (43 to 82, `cuda44`), and so are calls that lead to no record of work:
/// cuMemPrefetch…, cuMemBatchDecompressAsync, cuLaunchHostFunc, cuStreamBatchMemOp.
pub(super) const DRIVER_CALLS: &[std::ops::RangeInclusive<u32>] = &[
    // cuLaunch, cuLaunchGrid, cuLaunchGridAsync; cuLaunchKernel, Ex, cooperative; cuGraphLaunch; each also for per-thread default streams.
    115..=117,
    307..=307,
    442..=442,
    477..=478,
    480..=480,
    514..=515,
    652..=653,
    // cuMemcpy…
    276..=293,
    305..=306,
    318..=321,
    397..=410,
    418..=427,
    776..=779,
    796..=799,
    837..=840,
    // cuMemset…
    216..=216,
    218..=218,
    220..=220,
    222..=222,
    224..=224,
    226..=226,
    249..=254,
    411..=416,
    428..=433,
];

/// The runtime's calls that launch, copy and set (`cupti_runtime_cbid.h` of 12.0 to 13.5).
pub(super) const RUNTIME_CALLS: &[std::ops::RangeInclusive<u32>] = &[
    // cudaLaunch, of programs of CUDA 9 or older; cudaLaunchKernel, ExC, cooperative; cudaGraphLaunch; `__cudaLaunchKernel`, which is `<<<>>>`
    // of nvcc from CUDA 13.0 on.
    13..=13,
    211..=211,
    213..=214,
    269..=270,
    272..=272,
    311..=312,
    430..=431,
    505..=506,
    // cudaMemcpy…, cudaMemset…
    31..=52,
    142..=145,
    160..=163,
    215..=236,
    243..=246,
    249..=250,
    482..=485,
    509..=512,
    554..=557,
];

/// The driver's calls that wait, or make streams wait: cuCtxSynchronize, cuEventSynchronize, cuStreamSynchronize, cuStreamWaitEvent,
/// cuGreenCtxWaitEvent, cuCtxWaitEvent.
/// Queries of events and streams have records of synchronisations, too, but do not wait.
pub(super) const DRIVER_SYNCS: &[std::ops::RangeInclusive<u32>] =
    &[17..=17, 121..=121, 126..=126, 295..=295, 436..=436, 440..=440, 750..=750, 756..=756, 800..=800];

/// The runtime's calls of the same kind: cudaThreadSynchronize, cudaStreamSynchronize, cudaEventSynchronize, cudaStreamWaitEvent,
/// cudaDeviceSynchronize, cudaExecutionCtxSynchronize, cudaExecutionCtxWaitEvent.
pub(super) const RUNTIME_SYNCS: &[std::ops::RangeInclusive<u32>] =
    &[126..=126, 131..=131, 137..=137, 147..=147, 165..=165, 239..=239, 247..=247, 534..=534, 544..=544];

/// The driver's calls that allocate and free memory of a device, with their names: of the zone that allocates, and of a call that fails.
pub(super) const DRIVER_ALLOCATIONS: &[(u32, &str)] = &[
    (89, "cuArrayDestroy"),
    (243, "cuMemAlloc"),
    (244, "cuMemAllocPitch"),
    (245, "cuMemFree"),
    (272, "cuArrayCreate"),
    (274, "cuArray3DCreate"),
    (347, "cuMipmappedArrayCreate"),
    (349, "cuMipmappedArrayDestroy"),
    (598, "cuMemAllocAsync"),
    (599, "cuMemAllocAsync"),
    (600, "cuMemFreeAsync"),
    (601, "cuMemFreeAsync"),
    (611, "cuMemAllocFromPoolAsync"),
    (612, "cuMemAllocFromPoolAsync"),
];

/// The runtime's calls of the same kind.
pub(super) const RUNTIME_ALLOCATIONS: &[(u32, &str)] = &[
    (20, "cudaMalloc"),
    (21, "cudaMallocPitch"),
    (22, "cudaFree"),
    (23, "cudaMallocArray"),
    (24, "cudaFreeArray"),
    (140, "cudaMalloc3D"),
    (141, "cudaMalloc3DArray"),
    (192, "cudaMallocMipmappedArray"),
    (194, "cudaFreeMipmappedArray"),
    (373, "cudaMallocAsync"),
    (374, "cudaMallocAsync"),
    (375, "cudaFreeAsync"),
    (376, "cudaFreeAsync"),
    (391, "cudaMallocFromPoolAsync"),
    (392, "cudaMallocFromPoolAsync"),
];

/// `CUDA_ERROR_OUT_OF_MEMORY` and `cudaErrorMemoryAllocation`, as a call returns them.
pub(super) const OUT_OF_MEMORY: u32 = 2;

/// `CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION` and `…_RELEASE`.
pub(super) const ALLOCATION: u32 = 1;
pub(super) const RELEASE: u32 = 2;

/// Returns whether memory of a `CUpti_ActivityMemoryKind` is on a device alone: plain, arrays, and variables of modules. Managed memory moves.
pub(super) fn is_of_device(memory: u32) -> bool {
    matches!(memory, 3 | 4 | 6)
}

/// cuGraphLaunch and cudaGraphLaunch, each also for per-thread default streams.
pub(super) const DRIVER_GRAPH_LAUNCHES: std::ops::RangeInclusive<u32> = 514..=515;
pub(super) const RUNTIME_GRAPH_LAUNCHES: std::ops::RangeInclusive<u32> = 311..=312;

/// A number that is higher than that of any call in any version.
pub(super) const CALLS_END: u32 = 1024;

/// Returns the call of a `CUpti_ActivitySynchronizationType`.
pub(super) fn sync_kind(sync_type: u32) -> Option<SyncKind> {
    match sync_type {
        1 => Some(SyncKind::EventSynchronize),
        2 => Some(SyncKind::StreamWaitEvent),
        3 => Some(SyncKind::StreamSynchronize),
        4 => Some(SyncKind::ContextSynchronize),
        _ => None,
    }
}

/// Returns the name of a `CUpti_ActivityMemcpyKind` in PyTorch's profiler.
pub(super) fn copy_kind(kind: u8) -> &'static str {
    const KINDS: [&str; 11] =
        ["Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"];
    KINDS.get(usize::from(kind)).copied().unwrap_or("Unknown")
}

/// Returns the name of a `CUpti_ActivityMemoryKind` in PyTorch's profiler.
pub(super) fn memory_kind(kind: u16) -> &'static str {
    const KINDS: [&str; 8] =
        ["Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"];
    KINDS.get(usize::from(kind)).copied().unwrap_or("Unknown")
}
