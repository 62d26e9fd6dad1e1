//! The driver of feature `free`, in place of all else: every call works, is done at once and costs nearly nothing.
//!
//! A benchmark loads it to measure warpline alone. It keeps one context, counts no call, and needs no `cuInit`. An event is a number:
//! how many had been recorded before it, each a microsecond later than the last.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// What an event is: when it was recorded last, in µs.
type Event = AtomicI64;

static NOW: AtomicI64 = AtomicI64::new(0);
static STREAMS: AtomicUsize = AtomicUsize::new(0x2000);
static CONTEXT: u8 = 0;

macro_rules! calls {
    ($(fn $symbol:ident($($argument:ident: $type:ty),*) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $symbol($($argument: $type),*) -> u32 {
                $body
                0
            }
        )*
    };
}

/// Writes a result to where the caller wants it.
fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller of a driver function gives NULL or a pointer to which a `T` may be written, as CUDA demands.
        unsafe { place.write(value) };
    }
}

fn context() -> *mut c_void {
    (&raw const CONTEXT).cast_mut().cast()
}

fn recorded_us(event: *const Event) -> i64 {
    // SAFETY: an event is what `cuEventCreate` has leaked.
    unsafe { &*event }.load(Ordering::Relaxed)
}

fn elapsed(ms: *mut f32, start: *const Event, end: *const Event) {
    put(ms, (recorded_us(end) - recorded_us(start)) as f32 / 1e3);
}

calls! {
    fn cuDriverGetVersion(version: *mut i32) { put(version, 13_000) }
    fn cuDeviceGetCount(count: *mut i32) { put(count, 1) }
    fn cuDeviceGetName(name: *mut c_char, _len: i32, _device: i32) { put(name, 0) }
    fn cuDevicePrimaryCtxGetState(_device: i32, _flags: *mut u32, active: *mut i32) { put(active, 1) }
    fn cuDevicePrimaryCtxRetain(place: *mut *mut c_void, _device: i32) { put(place, context()) }
    fn cuDevicePrimaryCtxRelease_v2(_device: i32) {}
    fn cuCtxGetCurrent(place: *mut *mut c_void) { put(place, context()) }
    fn cuCtxSetCurrent(_context: *mut c_void) {}
    fn cuCtxPushCurrent_v2(_context: *mut c_void) {}
    fn cuCtxPopCurrent_v2(place: *mut *mut c_void) { put(place, context()) }
    fn cuCtxGetDevice(device: *mut i32) { put(device, 0) }
    fn cuCtxGetId(_context: *mut c_void, id: *mut u64) { put(id, 1) }
    fn cuStreamCreate(stream: *mut usize, _flags: u32) { put(stream, STREAMS.fetch_add(64, Ordering::Relaxed)) }
    fn cuStreamDestroy_v2(_stream: usize) {}
    fn cuStreamGetCtx(_stream: usize, place: *mut *mut c_void) { put(place, context()) }
    fn cuStreamGetId(stream: usize, id: *mut u64) { put(id, stream as u64) }
    fn cuStreamIsCapturing(_stream: usize, status: *mut i32) { put(status, 0) }
    fn cuThreadExchangeStreamCaptureMode(_mode: *mut i32) {}
    fn cuEventCreate(event: *mut *const Event, _flags: u32) { put(event, Box::leak(Box::new(Event::new(0)))) }
    fn cuEventDestroy_v2(_event: *const Event) {}
    fn cuEventRecord(event: *const Event, _stream: usize) {
        // SAFETY: as in `recorded_us`.
        unsafe { &*event }.store(NOW.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }
    fn cuEventQuery(_event: *const Event) {}
    fn cuEventElapsedTime(ms: *mut f32, start: *const Event, end: *const Event) { elapsed(ms, start, end) }
    fn cuEventElapsedTime_v2(ms: *mut f32, start: *const Event, end: *const Event) { elapsed(ms, start, end) }
    fn cuGetErrorName(_code: u32, name: *mut *const c_char) { put(name, c"CUDA_ERROR".as_ptr()) }
}
