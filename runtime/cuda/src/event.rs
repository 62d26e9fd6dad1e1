//! Events of the application, which warpline records behind zones and otherwise leaves alone.

use std::ffi::c_void;
use std::sync::Arc;

use crate::driver::{ContextPtr, Driver, StreamPtr, is_default};
use warpline_core::backend::device::RawParts;
use warpline_core::backend::{Source, StreamRef, source_of};
use warpline_core::profile::requests::EndSignal;

/// A CUDA event of any binding, by its raw handle (`CUevent`, `cudaEvent_t`), for `profile::next_with_event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEvent(*mut c_void);

// SAFETY: this type only stores the handle; the caller of `from_ptr` guarantees that the event is valid.
#[allow(unsafe_code)]
unsafe impl Send for RawEvent {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for RawEvent {}

impl RawEvent {
    /// Returns the event of a raw handle.
    ///
    /// # Safety
    /// The event must live until the zone behind which it is recorded has ended on its thread, or the handle on the
    /// request was dropped. The drop waits for a call that records the event on another thread.
    #[allow(unsafe_code)]
    pub unsafe fn from_ptr(event: *mut c_void) -> RawEvent {
        RawEvent(event)
    }

    /// Returns the raw handle.
    pub fn as_ptr(self) -> *mut c_void {
        self.0
    }

    /// Returns what records the event on the stream, as the stream's handle means it on this thread now. The zone that
    /// ends keeps the stream alive.
    ///
    /// # Errors
    /// The reason if the stream is none of CUDA.
    #[doc(hidden)]
    pub fn behind(self, stream: &StreamRef<'_>) -> Result<Arc<dyn EndSignal>, String> {
        let Source::Device(stream) = source_of(stream) else {
            return Err("the stream is not a CUDA stream".to_owned());
        };
        let RawParts { stream, context } = stream.parts()?;
        let driver = Driver::get().map_err(|error| error.to_string())?;
        let context = match context {
            // The handle of a default stream denotes a different stream in each context.
            None if is_default(stream) => {
                Some(driver.current_context().map_err(|error| driver.describe(error).to_string())?)
            }
            Some(context) if is_default(stream) => Some(context),
            _ => None,
        };
        Ok(Arc::new(EventBehind { driver, event: self, stream, context }))
    }
}

struct EventBehind {
    driver: &'static Driver,
    event: RawEvent,
    stream: StreamPtr,
    /// The context in which the handle of a default stream is meant.
    context: Option<ContextPtr>,
}

// SAFETY: the driver takes events, streams and contexts from any thread.
#[allow(unsafe_code)]
unsafe impl Send for EventBehind {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for EventBehind {}

impl EndSignal for EventBehind {
    fn signal(&self) -> Result<(), String> {
        let EventBehind { driver, event, stream, context } = *self;
        let record = || {
            // In a capture, the event would become a part of the graph.
            if driver.is_capturing(stream)? {
                return Ok(false);
            }
            driver.record(event.0, stream).map(|()| true)
        };
        match driver.in_context(context, record) {
            Ok(true) => Ok(()),
            Ok(false) => Err("the stream is being captured into a graph".to_owned()),
            Err(error) => Err(driver.describe(error).to_string()),
        }
    }
}
