//! cuBLAS, as far as a handle and its stream go. A handle is a number; nothing is multiplied.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::table::Handle;

const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 1;

/// The streams of the handles that there are.
static STREAMS: LazyLock<Mutex<HashMap<Handle, Handle>>> = LazyLock::new(Mutex::default);

fn streams() -> MutexGuard<'static, HashMap<Handle, Handle>> {
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasCreate_v2(handle: *mut Handle) -> c_int {
    let mut streams = streams();
    let made = streams.keys().max().map_or(0x8000_0000, |last| last + 64);
    streams.insert(made, 0);
    // SAFETY: the caller passes a valid out-pointer.
    unsafe { *handle = made };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasDestroy_v2(handle: Handle) -> c_int {
    streams().remove(&handle).map_or(NOT_INITIALIZED, |_| SUCCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasSetStream_v2(handle: Handle, stream: Handle) -> c_int {
    streams().get_mut(&handle).map_or(NOT_INITIALIZED, |of| {
        *of = stream;
        SUCCESS
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStream_v2(handle: Handle, stream: *mut Handle) -> c_int {
    streams().get(&handle).map_or(NOT_INITIALIZED, |of| {
        // SAFETY: the caller passes a valid out-pointer.
        unsafe { *stream = *of };
        SUCCESS
    })
}
