//! The driver's call for the time between two events, in the better of its two versions.
//!
//! The call is loaded and made by `driver`. This module calls nothing itself.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::symbols::missing;
use warpline_core::backend::BackendError;

/// The driver's call for the time between two events. Both versions return `NOT_READY` while an event is incomplete.
pub(super) struct ElapsedTime {
    pub(super) name: &'static str,
    pub(super) call: unsafe extern "C" fn(*mut f32, *mut c_void, *mut c_void) -> c_int,
    /// Whether the call is `cuEventElapsedTime_v2`, which does not wait for threads that launch. The older call does.
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
