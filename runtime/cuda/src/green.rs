//! The context in which warpline works for a stream, which is never a green context.
//!
//! A green context is a part of a device's primary context, and may be current to only one thread at a time: nothing synchronises calls that
//! use it from several threads (`cuGreenCtxCreate`). The application decides which thread that is, so warpline makes none current. It creates
//! the events and stamps for a stream of a green context in the primary context, with which such a stream is associated
//! (`cuStreamGetCtx_v2`). The driver records and launches them there (seen on driver 580.159.04, also during a capture).
//!
//! The handle of a default stream means that of a green context only where that is current, so these streams are refused.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::OnceLock;

use super::driver::{Code, ContextPtr, CudaError, Driver, StreamPtr, is_default};
use warpline_core::backend::BackendError;

/// A `CUgreenCtx`. Only the driver interprets it.
type GreenPtr = *mut c_void;

// Drivers before 12.4 have no green contexts and neither symbol; drivers for 12.4 lack the first.
table! {
    optional
    stream_get_contexts: b"cuStreamGetCtx_v2\0" fn(StreamPtr, *mut ContextPtr, *mut GreenPtr);
    stream_get_green: b"cuStreamGetGreenCtx\0" fn(StreamPtr, *mut GreenPtr);
}

/// The contexts of a stream.
struct Contexts {
    /// The primary context if the stream is of a green context.
    regular: ContextPtr,
    is_green: bool,
}

/// Why warpline can work in no context for a stream.
const DEFAULT_STREAM: &str = "a default stream of a green context is not timed, because its handle means that stream only where the context \
                              is current: create a stream with `cuGreenCtxStreamCreate`";
const OLD_DRIVER: &str = "a stream of a green context is not timed, because the CUDA driver has no `cuStreamGetCtx_v2`: install a driver for \
                          CUDA 12.5 or newer";

fn symbols(driver: &Driver) -> &'static Symbols {
    static SYMBOLS: OnceLock<Symbols> = OnceLock::new();
    SYMBOLS.get_or_init(|| Symbols::load(&driver.library))
}

impl Driver {
    /// Returns the context in which warpline works for a stream that is not being captured: its own one, or the primary context if that is a
    /// green context. `context` is its own one if that is known. The context of a default stream is otherwise the current one.
    ///
    /// # Errors
    /// The driver fails, or the stream is a default stream of a green context, or of a green context that the driver cannot resolve.
    pub(super) fn home(&self, stream: StreamPtr, context: Option<ContextPtr>) -> Result<ContextPtr, BackendError> {
        let told = |error| self.describe(error);
        let meant = context.filter(|_| is_default(stream));
        let contexts = self.in_context(meant, || self.contexts_of(stream));
        let Contexts { regular, is_green } = contexts.map_err(told)?;
        match (is_green, regular.is_null()) {
            (false, _) => Ok(context.unwrap_or(regular)),
            (true, _) if is_default(stream) => Err(BackendError(DEFAULT_STREAM.to_owned())),
            (true, true) => Err(BackendError(OLD_DRIVER.to_owned())),
            (true, false) => Ok(regular),
        }
    }

    /// Returns the context of a stream that is not a default stream and may be in a capture: the primary context if its own is a green one;
    /// none if the driver has no green contexts.
    ///
    /// # Errors
    /// The driver fails, or does not tell the primary context.
    pub(super) fn regular_context(&self, stream: StreamPtr) -> Result<Option<ContextPtr>, CudaError> {
        let Symbols { stream_get_contexts, stream_get_green } = symbols(self);
        if stream_get_contexts.is_none() && stream_get_green.is_none() {
            return Ok(None);
        }
        match self.contexts_of(stream)?.regular {
            regular if regular.is_null() => Err(CudaError::CONTEXT_IS_GREEN),
            regular => Ok(Some(regular)),
        }
    }

    /// Returns a stream's contexts; the regular one is null if the driver has green contexts and does not tell what they are part of.
    fn contexts_of(&self, stream: StreamPtr) -> Result<Contexts, CudaError> {
        let (mut regular, mut green) = (null_mut(), null_mut());
        let symbols = symbols(self);
        if let Some(get) = symbols.stream_get_contexts {
            // SAFETY: valid out-pointers, and a stream whose owner vouches for it.
            let code = unsafe { get(stream, &raw mut regular, &raw mut green) };
            self.check("cuStreamGetCtx", code)?;
            return Ok(Contexts { regular, is_green: !green.is_null() });
        }
        if let Some(get) = symbols.stream_get_green {
            // SAFETY: as above.
            let code = unsafe { get(stream, &raw mut green) };
            self.check("cuStreamGetGreenCtx", code)?;
            if !green.is_null() {
                return Ok(Contexts { regular, is_green: true });
            }
        }
        Ok(Contexts { regular: self.stream_context(stream)?, is_green: false })
    }
}
