//! A HIP runtime without a GPU, which a test loads in place of `libamdhip64.so`, and the marker library in place of `libroctx64.so`.
//!
//! It has two devices, and keeps streams, events and captures as the real runtime does, as far as warpline can tell. It counts every call,
//! keeps time, and fails on demand. Work on a stream is a length: it begins when the work before it has ended. The tests' own exports,
//! `stub_hip_…` and `stub_roctx_…`, are in `control` and `roctx`.
//!
//! What it leaves out: kernels, memory, and that the null stream waits for others.
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the names of the libraries")]

mod control;
mod roctx;
mod state;

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint};

use state::{Event, now_ns, with};

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const INVALID_DEVICE: c_int = 101;
const INVALID_HANDLE: c_int = 400;
const NOT_READY: c_int = 600;
const CAPTURE_UNSUPPORTED: c_int = 900;

/// `hipStreamCaptureModeGlobal` and `hipStreamCaptureModeRelaxed`.
const GLOBAL: c_int = 0;
const RELAXED: c_int = 2;

const DEVICES: c_int = 2;

thread_local! {
    static DEVICE: Cell<c_int> = const { Cell::new(0) };
    static MODE: Cell<c_int> = const { Cell::new(GLOBAL) };
}

/// Counts a call, and returns the error that a test has ordered for it.
macro_rules! call {
    ($name:literal) => {
        if let Some(code) = with(|state| state.call($name)) {
            return code;
        }
    };
}

/// A query or a creation that breaks a capture of another thread, unless this thread's mode is relaxed.
fn may_break_captures() {
    if MODE.get() != RELAXED {
        with(|state| state.break_captures());
    }
}

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorString(code: c_int) -> *const c_char {
    let text: &CStr = match code {
        SUCCESS => c"no error",
        2 => c"out of memory",
        INVALID_HANDLE => c"invalid resource handle",
        NOT_READY => c"device not ready",
        700 => c"an illegal memory access was encountered",
        CAPTURE_UNSUPPORTED => c"operation not permitted when stream is capturing",
        _ => c"unrecognized error code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGetDevice(device: *mut c_int) -> c_int {
    call!("hipGetDevice");
    // SAFETY: the caller passes an out-pointer.
    unsafe { device.write(DEVICE.get()) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn hipSetDevice(device: c_int) -> c_int {
    call!("hipSetDevice");
    if !(0..DEVICES).contains(&device) {
        return INVALID_DEVICE;
    }
    DEVICE.set(device);
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipGetDeviceCount(count: *mut c_int) -> c_int {
    call!("hipGetDeviceCount");
    // SAFETY: the caller passes an out-pointer.
    unsafe { count.write(DEVICES) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> c_int {
    call!("hipDeviceGetName");
    let text = format!("AMD Instinct Stub {device}\0");
    if !(0..DEVICES).contains(&device) || text.len() > length as usize {
        return INVALID_DEVICE;
    }
    // SAFETY: the caller passes a buffer of this length.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len()) };
    SUCCESS
}

#[cfg(not(feature = "old"))]
#[unsafe(no_mangle)]
unsafe extern "C" fn hipRuntimeGetVersion(version: *mut c_int) -> c_int {
    call!("hipRuntimeGetVersion");
    // SAFETY: the caller passes an out-pointer.
    unsafe { version.write(70_000_000) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int {
    call!("hipThreadExchangeStreamCaptureMode");
    // SAFETY: the caller passes an in- and out-pointer.
    unsafe { mode.write(MODE.replace(mode.read())) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamCreateWithFlags(stream: *mut usize, _: c_uint) -> c_int {
    call!("hipStreamCreateWithFlags");
    may_break_captures();
    let made = with(|state| state.add_stream(DEVICE.get()));
    // SAFETY: the caller passes an out-pointer.
    unsafe { stream.write(made) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn hipStreamDestroy(stream: usize) -> c_int {
    call!("hipStreamDestroy");
    with(|state| if state.streams.remove(&stream).is_some() { SUCCESS } else { state.misuse() })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamIsCapturing(stream: usize, status: *mut c_int) -> c_int {
    call!("hipStreamIsCapturing");
    if cfg!(feature = "old") && stream == 0 {
        return INVALID_VALUE;
    }
    with(|state| {
        let Some(stream) = state.stream(stream, DEVICE.get()) else { return state.misuse() };
        // SAFETY: the caller passes an out-pointer.
        unsafe { status.write(c_int::from(stream.is_captured)) };
        SUCCESS
    })
}

#[cfg(not(feature = "old"))]
#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamGetId(stream: usize, id: *mut u64) -> c_int {
    call!("hipStreamGetId");
    with(|state| {
        let Some(known) = state.stream(stream, DEVICE.get()).map(|stream| stream.id) else { return state.misuse() };
        // SAFETY: the caller passes an out-pointer.
        unsafe { id.write(known) };
        SUCCESS
    })
}

#[cfg(not(feature = "old"))]
#[unsafe(no_mangle)]
unsafe extern "C" fn hipStreamGetDevice(stream: usize, device: *mut c_int) -> c_int {
    call!("hipStreamGetDevice");
    with(|state| {
        let Some(known) = state.stream(stream, DEVICE.get()).map(|stream| stream.device) else { return state.misuse() };
        // SAFETY: the caller passes an out-pointer.
        unsafe { device.write(known) };
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipEventCreateWithFlags(event: *mut usize, _: c_uint) -> c_int {
    call!("hipEventCreateWithFlags");
    may_break_captures();
    let made = with(|state| state.add_event(DEVICE.get()));
    // SAFETY: the caller passes an out-pointer.
    unsafe { event.write(made) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn hipEventDestroy(event: usize) -> c_int {
    call!("hipEventDestroy");
    with(|state| if state.events.remove(&event).is_some() { SUCCESS } else { state.misuse() })
}

#[unsafe(no_mangle)]
extern "C" fn hipEventRecord(event: usize, stream: usize) -> c_int {
    call!("hipEventRecord");
    with(|state| {
        let Some(Event { device, .. }) = state.events.get(&event).copied() else { return state.misuse() };
        let Some(stream) = state.stream(stream, DEVICE.get()) else { return state.misuse() };
        if stream.is_captured {
            // A node of the graph: what the application captures is not what it asked for.
            stream.nodes += 1;
            return CAPTURE_UNSUPPORTED;
        }
        if stream.device != device {
            return INVALID_HANDLE;
        }
        stream.free_ns = stream.free_ns.max(now_ns());
        let at_ns = stream.free_ns;
        state.events.insert(event, Event { device, at_ns: Some(at_ns) });
        SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipEventQuery(event: usize) -> c_int {
    call!("hipEventQuery");
    may_break_captures();
    with(|state| match state.events.get(&event) {
        None => state.misuse(),
        // As the real runtime: an event that was not recorded is complete.
        Some(Event { at_ns, .. }) if at_ns.is_none_or(|at_ns| at_ns <= now_ns()) => SUCCESS,
        Some(_) => NOT_READY,
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipEventElapsedTime(ms: *mut f32, since: usize, event: usize) -> c_int {
    call!("hipEventElapsedTime");
    with(|state| {
        let (Some(since), Some(event)) = (state.events.get(&since), state.events.get(&event)) else {
            return state.misuse();
        };
        let (Some(since_ns), Some(at_ns)) = (since.at_ns, event.at_ns) else { return INVALID_HANDLE };
        if since.device != event.device {
            return INVALID_HANDLE;
        }
        if since_ns.max(at_ns) > now_ns() {
            return NOT_READY;
        }
        // SAFETY: the caller passes an out-pointer.
        unsafe { ms.write(((at_ns - since_ns) as f64 * 1e-6) as f32) };
        SUCCESS
    })
}
