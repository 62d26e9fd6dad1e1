//! What tests ask of the stub.
#![allow(clippy::missing_safety_doc, reason = "the harness is the only caller")]

use std::ffi::{CStr, c_char};

use crate::launch::{Launch, Memory, Sync};
use crate::record::{
    self, CONCURRENT_KERNEL, DRIVER, EXTERNAL_CORRELATION, MEMCPY, MEMCPY2, MEMORY2, MEMSET, RUNTIME, SYNCHRONIZATION,
};
use crate::state::{IS_AT_EXIT, lock, with_stack};

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
    if launch.is_more == 0 {
        state.correlation += 1;
        let correlation = state.correlation;
        // cuGraphLaunch, cudaGraphLaunch.
        let (driver, runtime) = if launch.graph > 0 { (514, 311) } else { state.launch_calls };
        let is_of_driver =
            state.runtime != 1 && state.kinds.contains(&DRIVER) && !state.other_driver_calls.contains(&driver);
        let is_of_runtime =
            state.runtime != 0 && state.kinds.contains(&RUNTIME) && !state.other_runtime_calls.contains(&runtime);
        let api = is_of_driver || is_of_runtime;
        let top = with_stack(state.attachment, |stack| stack.last().copied());
        // Only before the record of a call, as NVIDIA's header says.
        if let Some((kind, id)) = top.filter(|_| api && state.kinds.contains(&EXTERNAL_CORRELATION)) {
            state.write(&record::external(kind, id, correlation));
        }
        if api {
            // SAFETY: the call takes nothing.
            let thread = unsafe { libc::gettid() }.cast_unsigned();
            let begin_ns = launch.begin_ns.saturating_sub(5_000);
            if is_of_driver {
                // Within the runtime's call, if there is one.
                let later_ns = if state.runtime == 0 { 0 } else { 1_000 };
                let times = (begin_ns + later_ns, begin_ns + 3_000 - later_ns);
                state.write(&record::call(DRIVER, driver, thread, times, correlation));
            }
            if is_of_runtime {
                state.write(&record::call(RUNTIME, runtime, thread, (begin_ns, begin_ns + 3_000), correlation));
            }
        }
    }
    let kind = match launch.kind {
        kind @ (MEMCPY | MEMCPY2 | MEMSET) => kind,
        _ => CONCURRENT_KERNEL,
    };
    let (version, correlation) = (state.version, if launch.is_more == 2 { 0 } else { state.correlation });
    if state.kinds.contains(&kind) && launch.is_unreported == 0 {
        let bytes = record::work(version, &launch, correlation);
        if launch.is_pending == 0 {
            state.write(&bytes);
        } else {
            state.incomplete.push(bytes);
        }
    }
    correlation
}

/// The program names a stream through NVTX, whose tool is CUPTI.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stub_cupti_name(context: u32, stream: u32, name: *const c_char) {
    let mut state = lock();
    if state.kinds.contains(&record::NAME) {
        state.write(&record::name(context, stream, name as u64));
    }
}

/// This thread synchronises; gives the call's correlation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stub_cupti_sync(sync: *const Sync) -> u32 {
    // SAFETY: the harness gives one.
    let sync = unsafe { *sync };
    let mut state = lock();
    let cupti_ns = |ns: u64, state: &crate::state::State| if ns > 0 { ns + AHEAD_NS - state.set_back_ns } else { 0 };
    let (begin_ns, end_ns) = (cupti_ns(sync.begin_ns, &state), cupti_ns(sync.end_ns, &state));
    state.correlation += 1;
    let correlation = state.correlation;
    let (kind, others) = match sync.is_of_runtime {
        0 => (DRIVER, &state.other_driver_calls),
        _ => (RUNTIME, &state.other_runtime_calls),
    };
    let api = state.kinds.contains(&kind) && !others.contains(&sync.call);
    let top = with_stack(state.attachment, |stack| stack.last().copied());
    if let Some((kind, id)) = top.filter(|_| api && state.kinds.contains(&EXTERNAL_CORRELATION)) {
        state.write(&record::external(kind, id, correlation));
    }
    if state.kinds.contains(&SYNCHRONIZATION) && (state.all_syncs || sync.is_incomplete == 0) {
        let version = state.version;
        state.write(&record::sync(version, &sync, begin_ns, end_ns, correlation));
    }
    if api {
        // SAFETY: the call takes nothing.
        let thread = unsafe { libc::gettid() }.cast_unsigned();
        state.write(&record::call(kind, sync.call, thread, (begin_ns.saturating_sub(100), end_ns + 100), correlation));
    }
    correlation
}

/// This thread allocates or frees; gives the call's correlation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stub_cupti_memory(memory: *const Memory) -> u32 {
    // SAFETY: the harness gives one.
    let memory = unsafe { *memory };
    let mut state = lock();
    let begin_ns = memory.begin_ns + AHEAD_NS - state.set_back_ns;
    state.correlation += 1;
    let correlation = state.correlation;
    let api = state.kinds.contains(&DRIVER) && !state.other_driver_calls.contains(&memory.call);
    let top = with_stack(state.attachment, |stack| stack.last().copied());
    if let Some((kind, id)) = top.filter(|_| api && state.kinds.contains(&EXTERNAL_CORRELATION)) {
        state.write(&record::external(kind, id, correlation));
    }
    if state.kinds.contains(&MEMORY2) && memory.returned == 0 {
        let version = state.version;
        state.write(&record::memory(version, &memory, begin_ns, correlation));
    }
    if api {
        // SAFETY: the call takes nothing.
        let thread = unsafe { libc::gettid() }.cast_unsigned();
        let times = (begin_ns, begin_ns + 1_000);
        let call = record::call_that_returned(memory.returned, DRIVER, memory.call, thread, times, correlation);
        state.write(&call);
    }
    correlation
}

/// Launches are calls of the driver (0), of the runtime (1), or of the driver within the runtime's (2) from now on.
#[unsafe(no_mangle)]
pub extern "C" fn stub_cupti_runtime(runtime: u32) {
    lock().runtime = runtime;
}

/// The numbers of the driver's and the runtime's calls that launch kernels from now on.
#[unsafe(no_mangle)]
pub extern "C" fn stub_cupti_launch_calls(driver: u32, runtime: u32) {
    lock().launch_calls = (driver, runtime);
}

/// CUPTI drops so many records.
#[unsafe(no_mangle)]
pub extern "C" fn stub_cupti_drop(records: u64) {
    lock().dropped += records;
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

/// How many kinds and subscribers are on, and calls left out; one more where threads are not told as CUPTI itself would,
/// and one more where incomplete queries are left out.
#[unsafe(no_mangle)]
pub extern "C" fn stub_cupti_on() -> u64 {
    let state = lock();
    (state.kinds.len() + state.other_driver_calls.len() + state.other_runtime_calls.len()) as u64
        + state.subscribers
        + u64::from(state.thread_ids != 0)
        + u64::from(!state.all_syncs)
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
    let attachment = lock().attachment;
    with_stack(attachment, |stack| stack.len()) as u64
}

/// Whether CUPTI is part of the process: it was called, and not ended since.
#[unsafe(no_mangle)]
pub extern "C" fn stub_cupti_is_attached() -> bool {
    lock().is_attached
}

/// `CUpti_CallbackData`, as far as anybody looks at it.
#[repr(C)]
struct CallbackData {
    site: i32,
    rest: [u64; 8],
}

/// The driver tells of a call where it begins (0) and where it ends (1).
#[unsafe(no_mangle)]
pub extern "C" fn stub_cupti_driver_call(number: u32, site: i32) {
    /// `CUPTI_CB_DOMAIN_DRIVER_API`.
    const DRIVER_API: u32 = 1;
    let subscriber = {
        let state = lock();
        state.subscriber.filter(|_| state.told.contains(&(DRIVER_API, number)))
    };
    let Some((callback, data)) = subscriber else { return };
    let about = CallbackData { site, rest: [0; 8] };
    IS_AT_EXIT.set(site == 1);
    // SAFETY: the program gave the callback, and what it is given, when it subscribed.
    unsafe {
        callback(std::ptr::with_exposed_provenance_mut(data), DRIVER_API, number, (&raw const about).cast());
    }
    IS_AT_EXIT.set(false);
}
