//! Which of the driver's two calls gives the time between two events.
//!
//! The driver's table loads the call when it opens the library, and makes it. This module calls nothing itself.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::symbols::missing;
use warpline_core::backend::BackendError;

/// The driver's call for the time between two events. Both versions answer `NOT_READY` while an event is not complete.
pub(super) struct ElapsedTime {
    pub(super) name: &'static str,
    pub(super) call: unsafe extern "C" fn(*mut f32, *mut c_void, *mut c_void) -> c_int,
    /// `cuEventElapsedTime_v2`, which does not wait for threads that launch. The plain symbol is the older call, which does.
    pub(super) is_v2: bool,
}

impl ElapsedTime {
    pub(super) fn load(library: &libloading::Library) -> Result<ElapsedTime, BackendError> {
        // SAFETY: the type is the one that CUDA's headers declare for this symbol since CUDA 12.8.
        if let Ok(call) = unsafe { library.get(b"cuEventElapsedTime_v2\0") } {
            return Ok(ElapsedTime { name: "cuEventElapsedTime_v2", call: *call, is_v2: true });
        }
        let symbol = b"cuEventElapsedTime\0";
        // SAFETY: the type is the one that CUDA's headers declare for this symbol since CUDA 2.0.
        let call = unsafe { library.get(symbol) };
        Ok(ElapsedTime { name: "cuEventElapsedTime", call: *call.map_err(|_| missing(symbol))?, is_v2: false })
    }
}
