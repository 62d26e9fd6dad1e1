//! What tests call: work on a stream, captures, errors, counts.

use std::ffi::{CStr, c_char, c_int};

use crate::DEVICE;
use crate::state::{now_ns, with};

/// Puts work of this length on a stream, behind what is there.
#[unsafe(no_mangle)]
extern "C" fn stub_hip_launch(stream: usize, length_ns: i64) {
    with(|state| {
        if let Some(stream) = state.stream(stream, DEVICE.get()) {
            stream.free_ns = stream.free_ns.max(now_ns()) + length_ns;
        }
    });
}

/// Begins or ends a capture of a stream. Returns how many calls put something on the stream meanwhile.
#[unsafe(no_mangle)]
extern "C" fn stub_hip_capture(stream: usize, on: bool) -> u64 {
    with(|state| {
        let Some(stream) = state.stream(stream, DEVICE.get()) else { return u64::MAX };
        stream.is_captured = on;
        std::mem::take(&mut stream.nodes)
    })
}

/// Lets the next calls of a function fail with this code; with `here`, those of this thread only.
#[unsafe(no_mangle)]
unsafe extern "C" fn stub_hip_fail(name: *const c_char, calls: u64, code: c_int, here: bool) {
    // SAFETY: the test passes text that ends in NUL.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    with(|state| state.faults.insert(name, (calls, code, here.then(|| std::thread::current().id()))));
}

/// How often a function was called.
#[unsafe(no_mangle)]
unsafe extern "C" fn stub_hip_calls(name: *const c_char) -> u64 {
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    with(|state| state.calls.get(&*name).copied().unwrap_or(0))
}

/// The number of events that were created and not destroyed.
#[unsafe(no_mangle)]
extern "C" fn stub_hip_live_events() -> u64 {
    with(|state| state.events.len() as u64)
}

/// The number of streams that were created and not destroyed.
#[unsafe(no_mangle)]
extern "C" fn stub_hip_live_streams() -> u64 {
    with(|state| state.streams.len() as u64)
}

/// The number of calls with a handle that does not exist.
#[unsafe(no_mangle)]
extern "C" fn stub_hip_misuses() -> u64 {
    with(|state| state.misuses)
}

/// The number of calls that would have invalidated a capture.
#[unsafe(no_mangle)]
extern "C" fn stub_hip_broken_captures() -> u64 {
    with(|state| state.broken)
}
