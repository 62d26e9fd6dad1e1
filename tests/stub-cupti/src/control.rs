//! What tests ask of the stub.
#![allow(clippy::missing_safety_doc, reason = "the harness is the only caller")]

use std::ffi::{CStr, c_char};

use crate::launch::Launch;
use crate::record::{self, CONCURRENT_KERNEL, EXTERNAL_CORRELATION, MEMCPY, MEMCPY2, MEMSET};
use crate::state::{STACK, lock};

/// CUPTI's clock is this much before `CLOCK_BOOTTIME`.
pub const AHEAD_NS: u64 = 1_000_000_000_000_000;

/// This thread launches; gives the launch's correlation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stub_cupti_launch(launch: *const Launch) -> u32 {
    // SAFETY: the harness gives one.
    let mut launch = unsafe { *launch };
    let mut state = lock();
    if launch.begin_ns > 0 {
        launch.begin_ns += AHEAD_NS - state.set_back_ns;
        launch.end_ns += AHEAD_NS - state.set_back_ns;
    }
    let api = state.kinds.contains(&4) && !state.other_driver_calls.contains(&307);
    if launch.is_more == 0 {
        state.correlation += 1;
        let correlation = state.correlation;
        let top = STACK.with_borrow(|stack| stack.last().copied());
        // Only before the record of a call, as NVIDIA's header says.
        if let Some((kind, id)) = top.filter(|_| api && state.kinds.contains(&EXTERNAL_CORRELATION)) {
            state.write(&record::external(kind, id, correlation));
        }
        if api {
            // SAFETY: the call takes nothing.
            let thread = unsafe { libc::gettid() }.cast_unsigned();
            state.write(&record::call(thread, launch.begin_ns.saturating_sub(5_000), correlation));
        }
    }
    let kind = match launch.kind {
        kind @ (MEMCPY | MEMCPY2 | MEMSET) => kind,
        _ => CONCURRENT_KERNEL,
    };
    let (version, correlation) = (state.version, state.correlation);
    if state.kinds.contains(&kind) {
        let bytes = record::work(version, &launch, correlation);
        if launch.is_pending == 0 {
            state.write(&bytes);
        } else {
            state.incomplete.push(bytes);
        }
    }
    correlation
}

/// The device has done all that was launched.
#[unsafe(no_mangle)]
pub extern "C" fn stub_cupti_complete() {
    let mut state = lock();
    for record in std::mem::take(&mut state.incomplete) {
        state.write(&record);
    }
}

/// A call answers this from now on; 0 lets it succeed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stub_cupti_fail(symbol: *const c_char, code: i32) {
    // SAFETY: the harness gives a text.
    let symbol = unsafe { CStr::from_ptr(symbol) }.to_string_lossy().into_owned();
    lock().faults.insert(symbol, code);
}

/// From now on CUPTI asks the driver when something is turned on or off, or flushed: on the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn stub_cupti_asks(ask: extern "C" fn()) {
    lock().asks = Some(ask);
}

/// Somebody sets CUPTI's clock back by so much.
#[unsafe(no_mangle)]
pub extern "C" fn stub_cupti_set_back(ns: u64) {
    lock().set_back_ns += ns;
}

/// How often a function was called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stub_cupti_calls(symbol: *const c_char) -> u64 {
    // SAFETY: the harness gives a text.
    let symbol = unsafe { CStr::from_ptr(symbol) }.to_string_lossy();
    lock().calls.get(&*symbol).copied().unwrap_or(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn stub_cupti_version(version: u32) {
    lock().version = version;
}

/// How many kinds and subscribers are on, and calls left out; one more where threads are not told as CUPTI itself would.
#[unsafe(no_mangle)]
pub extern "C" fn stub_cupti_on() -> u64 {
    let state = lock();
    (state.kinds.len() + state.other_driver_calls.len() + state.other_runtime_calls.len()) as u64
        + state.subscribers
        + u64::from(state.thread_ids != 0)
}

/// Whether a kind is on.
#[unsafe(no_mangle)]
pub extern "C" fn stub_cupti_is_on(kind: u32) -> bool {
    lock().kinds.contains(&kind)
}

/// The most buffers that were lent at once.
#[unsafe(no_mangle)]
pub extern "C" fn stub_cupti_most_lent() -> u64 {
    lock().most_lent
}

/// Buffers that are lent now.
#[unsafe(no_mangle)]
pub extern "C" fn stub_cupti_lent() -> u64 {
    lock().lent
}

/// How many external ids this thread has open.
#[unsafe(no_mangle)]
pub extern "C" fn stub_cupti_depth() -> u64 {
    STACK.with_borrow(Vec::len) as u64
}
