//! CUPTI's functions, as its headers declare them.
#![allow(non_snake_case, reason = "the names of NVIDIA's headers")]
#![allow(clippy::missing_safety_doc, reason = "the headers say what the functions may be given")]

use std::ffi::{c_char, c_int, c_void};

use crate::control::AHEAD_NS;
use crate::record;
use crate::state::{Callback, Completed, IS_AT_EXIT, Request, State, lock, with_stack};

const SUCCESS: c_int = 0;
const INVALID_PARAMETER: c_int = 1;
const INVALID_OPERATION: c_int = 7;
const SIZE_NOT_SUFFICIENT: c_int = 10;
const MAX_LIMIT_REACHED: c_int = 12;
const QUEUE_EMPTY: c_int = 18;
const INVALID_KIND: c_int = 21;
const MULTIPLE_SUBSCRIBERS: c_int = 39;

/// The functions that ask the driver themselves, if a test wants that.
const ASKING: [&str; 5] =
    ["cuptiSubscribe", "cuptiUnsubscribe", "cuptiActivityEnable", "cuptiActivityDisable", "cuptiActivityFlushAll"];

/// `CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER`.
const PER_THREAD_ACTIVITY_BUFFER: u32 = 9;

/// What does not make CUPTI a part of the process.
const HARMLESS: [&str; 3] = ["cuptiGetVersion", "cuptiGetResultString", "cuptiFinalize"];

/// Counts the call, fails if a test wants that, and does what it is for.
fn call(symbol: &'static str, work: impl FnOnce(&mut State) -> c_int) -> c_int {
    // The lock is free meanwhile: what is asked may launch.
    let ask = lock().asks.filter(|_| ASKING.contains(&symbol));
    if let Some(ask) = ask {
        ask();
    }
    let mut state = lock();
    *state.calls.entry(symbol).or_default() += 1;
    state.is_attached |= !HARMLESS.contains(&symbol);
    match state.faults.get(symbol) {
        Some(&code) if code != SUCCESS => code,
        _ => work(&mut state),
    }
}

fn done(work: impl FnOnce(&mut State)) -> impl FnOnce(&mut State) -> c_int {
    |state| {
        work(state);
        SUCCESS
    }
}

/// # Safety
/// The place is one for a `T`.
unsafe fn put<T>(place: *mut T, value: T) {
    // SAFETY: the caller says so.
    unsafe { place.write(value) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetVersion(version: *mut u32) -> c_int {
    // SAFETY: the program gives a place.
    call("cuptiGetVersion", done(|state| unsafe { put(version, state.version) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiSubscribe(place: *mut *mut c_void, callback: Callback, data: *mut c_void) -> c_int {
    call("cuptiSubscribe", |state| {
        if state.subscribers > 0 {
            return MULTIPLE_SUBSCRIBERS;
        }
        state.subscribers += 1;
        state.subscriber = Some((callback, data.addr()));
        // SAFETY: the program gives a place.
        unsafe { put(place, std::ptr::without_provenance_mut(0x5ca1e)) };
        SUCCESS
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiUnsubscribe(subscriber: *mut c_void) -> c_int {
    assert_eq!(subscriber.addr(), 0x5ca1e);
    call(
        "cuptiUnsubscribe",
        done(|state| {
            state.subscribers -= 1;
            state.subscriber = None;
            state.told.clear();
        }),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableCallback(on: u32, subscriber: *mut c_void, domain: u32, number: u32) -> c_int {
    assert_eq!(subscriber.addr(), 0x5ca1e);
    call(
        "cuptiEnableCallback",
        done(|state| {
            _ = if on == 0 { state.told.remove(&(domain, number)) } else { state.told.insert((domain, number)) }
        }),
    )
}

/// Only at the end of a call of the driver's, as NVIDIA wants it.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiFinalize() -> c_int {
    call("cuptiFinalize", |state| {
        if !IS_AT_EXIT.get() {
            return INVALID_OPERATION;
        }
        state.hand_over_all();
        state.kinds.clear();
        state.other_driver_calls.clear();
        state.other_runtime_calls.clear();
        state.told.clear();
        (state.subscribers, state.subscriber) = (0, None);
        (state.request, state.completed) = (None, None);
        state.thread_ids = 0;
        state.all_syncs = true;
        state.by_thread = None;
        state.is_attached = false;
        state.attachment += 1;
        SUCCESS
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityRegisterCallbacks(request: Request, completed: Completed) -> c_int {
    call(
        "cuptiActivityRegisterCallbacks",
        done(|state| (state.request, state.completed) = (Some(request), Some(completed))),
    )
}

/// Knows the one attribute that says whether each thread has a buffer of its own, from CUDA 12.3 on, and only while nothing is recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivitySetAttribute(attribute: u32, size: *mut usize, value: *mut c_void) -> c_int {
    call("cuptiActivitySetAttribute", |state| {
        if attribute != PER_THREAD_ACTIVITY_BUFFER || state.version < 21 {
            return INVALID_PARAMETER;
        }
        if !state.kinds.is_empty() {
            return INVALID_OPERATION;
        }
        // SAFETY: the program gives a size, and a value that is as long.
        unsafe {
            if *size < 1 {
                return SIZE_NOT_SUFFICIENT;
            }
            state.by_thread = Some(value.cast::<u8>().read() != 0);
        }
        SUCCESS
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnable(kind: u32) -> c_int {
    call("cuptiActivityEnable", done(|state| _ = state.kinds.insert(kind)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisable(kind: u32) -> c_int {
    call("cuptiActivityDisable", done(|state| _ = state.kinds.remove(&kind)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableDriverApi(id: u32, on: u8) -> c_int {
    call(
        "cuptiActivityEnableDriverApi",
        done(|state| {
            _ = if on == 0 { state.other_driver_calls.insert(id) } else { state.other_driver_calls.remove(&id) }
        }),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableRuntimeApi(id: u32, on: u8) -> c_int {
    call(
        "cuptiActivityEnableRuntimeApi",
        done(|state| {
            _ = if on == 0 { state.other_runtime_calls.insert(id) } else { state.other_runtime_calls.remove(&id) }
        }),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableAllSyncRecords(on: u8) -> c_int {
    call("cuptiActivityEnableAllSyncRecords", done(|state| state.all_syncs = on != 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiSetThreadIdType(kind: c_int) -> c_int {
    call("cuptiSetThreadIdType", done(|state| state.thread_ids = kind))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetThreadIdType(place: *mut c_int) -> c_int {
    // SAFETY: the program gives a place.
    call("cuptiGetThreadIdType", done(|state| unsafe { put(place, state.thread_ids) }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushAll(flag: u32) -> c_int {
    call(
        if flag == 1 { "cuptiActivityFlushAll(forced)" } else { "cuptiActivityFlushAll" },
        done(|state| {
            if flag == 1 {
                for mut record in std::mem::take(&mut state.incomplete) {
                    // Of all kinds but memory sets and copies, which no test leaves open, the times stand here.
                    record[16..32].fill(0);
                    state.write(&record);
                }
            }
            state.hand_over_all();
        }),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, place: *mut *mut u8) -> c_int {
    call("cuptiActivityGetNextRecord", |state| {
        let version = state.version;
        // SAFETY: the program gives a buffer that the stub has filled so far, and a record in it or none.
        unsafe {
            let last = *place;
            let next = if last.is_null() {
                buffer
            } else {
                let Some(len) = record::len(version, last.cast::<u32>().read_unaligned()) else { return INVALID_KIND };
                last.add(len)
            };
            if next.addr() >= buffer.addr() + valid {
                return MAX_LIMIT_REACHED;
            }
            put(place, next);
        }
        SUCCESS
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNumDroppedRecords(
    _context: *mut c_void,
    _stream: u32,
    place: *mut usize,
) -> c_int {
    call(
        "cuptiActivityGetNumDroppedRecords",
        // SAFETY: the program gives a place.
        done(|state| unsafe { put(place, std::mem::take(&mut state.dropped) as usize) }),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetTimestamp(place: *mut u64) -> c_int {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    call("cuptiGetTimestamp", |state| {
        // SAFETY: the places are valid.
        unsafe {
            libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now);
            put(place, (now.tv_sec * 1_000_000_000 + now.tv_nsec).cast_unsigned() + AHEAD_NS - state.set_back_ns);
        }
        SUCCESS
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityPushExternalCorrelationId(kind: u32, id: u64) -> c_int {
    call(
        "cuptiActivityPushExternalCorrelationId",
        done(|state| with_stack(state.attachment, |stack| stack.push((kind, id)))),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityPopExternalCorrelationId(_kind: u32, place: *mut u64) -> c_int {
    call("cuptiActivityPopExternalCorrelationId", |state| match with_stack(state.attachment, Vec::pop) {
        Some((_, id)) => {
            // SAFETY: the program gives a place.
            unsafe { put(place, id) };
            SUCCESS
        }
        None => QUEUE_EMPTY,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetContextId(_context: *mut c_void, place: *mut u32) -> c_int {
    // SAFETY: the program gives a place.
    call("cuptiGetContextId", done(|_| unsafe { put(place, 1) }))
}

/// A stream's number is its handle's lower half.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetStreamIdEx(
    _context: *mut c_void,
    stream: *mut c_void,
    _per_thread: u8,
    place: *mut u32,
) -> c_int {
    // SAFETY: the program gives a place.
    call("cuptiGetStreamIdEx", done(|_| unsafe { put(place, stream.addr() as u32) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetResultString(code: c_int, place: *mut *const c_char) -> c_int {
    let text = match code {
        MULTIPLE_SUBSCRIBERS => c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
        15 => c"CUPTI_ERROR_NOT_INITIALIZED",
        _ => c"CUPTI_ERROR_UNKNOWN",
    };
    // SAFETY: the program gives a place.
    call("cuptiGetResultString", done(|_| unsafe { put(place, text.as_ptr()) }))
}

/// A node's number is its handle's lower half, in a graph of its own number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetGraphNodeId(node: *mut c_void, place: *mut u64) -> c_int {
    // SAFETY: the program gives a place.
    call("cuptiGetGraphNodeId", done(|_| unsafe { put(place, 77 << 32 | u64::from(node.addr() as u32)) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetGraphId(_graph: *mut c_void, place: *mut u32) -> c_int {
    // SAFETY: the program gives a place.
    call("cuptiGetGraphId", done(|_| unsafe { put(place, 77) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetGraphExecId(exec: *mut c_void, place: *mut u32) -> c_int {
    // SAFETY: the program gives a place.
    call("cuptiGetGraphExecId", done(|_| unsafe { put(place, exec.addr() as u32) }))
}
