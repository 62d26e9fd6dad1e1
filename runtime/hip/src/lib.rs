//! AMD GPUs: zones on HIP streams, timed by HIP events, and ranges for tools that read roctx.
//!
//! It implements the backend traits of `warpline-core` as a crate outside of warpline would. `driver` calls the HIP runtime through a table
//! of its symbols, `device` is what the streams of a device share in a session, `stream` records and reads a zone's two events, `clock`
//! relates the device's time to the host's, and `roctx` calls the marker library. `probe` describes a host for `warpline doctor`.
//!
//! It was tested with a stub of the runtime, and **not run on hardware**. Unsafe code is only in `driver` and `roctx`, apart from
//! implementations of `Send` and `Sync` and an unsafe function for callers.
#![deny(unsafe_code)]
#![allow(missing_docs, reason = "what users see is documented; the rest serves warpline's other crates")]

mod clock;
mod device;
mod driver;
pub mod probe;
pub mod roctx;
mod stream;

use std::ffi::c_void;
use std::sync::{Arc, LazyLock};

use warpline_core::backend::{
    AsStream, Backend, BackendError, BackendStream, NoKey, Scope, Space, StreamKey, StreamRef, new_space,
};
use warpline_core::stream::thread::{self, Thread};

use device::DeviceState;
use driver::{Driver, HipError, PER_THREAD, StreamPtr, is_default};
use stream::{HipBackend, StreamHandle};

/// A HIP stream of any binding, by its raw handle (`hipStream_t`).
///
/// The handles of the default streams (null, `hipStreamLegacy`, `hipStreamPerThread`) mean those of the device that is current where a
/// zone begins.
///
/// It was tested with a stub of the HIP runtime, and not run on hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HipStream(StreamPtr);

// SAFETY: this type only stores the handle; the caller of `from_ptr` guarantees that the stream is valid.
#[allow(unsafe_code)]
unsafe impl Send for HipStream {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for HipStream {}

/// The key spaces of streams that the application created, and of default streams.
static CREATED: LazyLock<Space> = LazyLock::new(new_space);
static DEFAULT: LazyLock<Space> = LazyLock::new(new_space);

impl HipStream {
    /// Returns the stream of a raw handle.
    ///
    /// # Safety
    /// The stream must live as long as this value, its copies, and the zones that begin on it. It may be destroyed while zones that have
    /// ended on the host wait for the device. `hipDeviceReset` must not be called while a session records the device.
    #[allow(unsafe_code)]
    pub unsafe fn from_ptr(stream: *mut c_void) -> HipStream {
        HipStream(stream)
    }

    /// Returns the raw handle.
    pub fn as_ptr(self) -> *mut c_void {
        self.0
    }

    /// Returns the key. The capture status is queried first, because other calls could break a capture.
    fn key(self) -> Result<StreamKey, NoKey> {
        let driver = Driver::get().map_err(|_| NoKey::Unknown)?;
        match driver.is_capturing(self.0) {
            Ok(false) => {}
            Ok(true) => return Err(NoKey::Captured),
            Err(_) => return Err(NoKey::Unknown),
        }
        if is_default(self.0) {
            let device = driver.current_device().map_err(|_| NoKey::Unknown)?;
            let thread = if self.0 as usize == PER_THREAD { thread::with(Thread::id) } else { 0 };
            // Linux has fewer than 2^32 threads, and no host has 2^31 devices.
            let stream = u64::from(device.unsigned_abs()) << 32 | thread;
            return Ok(DEFAULT.key(stream));
        }
        let stream = driver.stream_id(self.0).map_err(|_| NoKey::Unknown)?;
        Ok(CREATED.key(stream))
    }

    fn open(self, scope: &Scope) -> Result<HipBackend, BackendError> {
        let driver = Driver::get()?;
        let told = |error: HipError| driver.describe(error);
        // Returns the error if the runtime does not know the stream.
        driver.is_capturing(self.0).map_err(told)?;
        let ordinal = driver.stream_device(self.0).map_err(told)?;
        let device = scope.shared(device::space(ordinal), || DeviceState::new(driver, ordinal, scope))?;
        Ok(HipBackend(Arc::new(StreamHandle::new(device, self.0))))
    }
}

impl AsStream for HipStream {
    #[inline]
    fn as_stream(&self) -> StreamRef<'_> {
        StreamRef::of_backend(self.key(), self)
    }
}

impl BackendStream for HipStream {
    fn backend(&self, scope: &Scope) -> Result<Arc<dyn Backend>, BackendError> {
        Ok(Arc::new(self.open(scope)?))
    }
}
