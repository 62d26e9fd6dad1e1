//! NVIDIA GPUs: zones on CUDA streams, timed by CUDA events.
//!
//! `driver` is the driver, through a table of its `symbols`, `blas` the stream of a cuBLAS handle, `order` what a timeline does on a stream, `copy` how memory of the driver's is read, `pool` the events of
//! a context, `context` what a context's streams share, `stream` a zone's two points and how they are read, `clock` where the device's
//! time stands against the host's, `calibrate` what a pair of events adds to a kernel, `graphs` what the driver tells of
//! graphs, `capture` a zone on a stream that is being captured into one, `stamps` what times such a zone in each replay, and
//! `owner` what keeps a zone's stream alive.
//! Unsafe code is in `blas`, `copy`, `driver`, `graphs` and `stamps` alone, but for saying that the driver's handles may go from thread to
//! thread.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

#[cfg(feature = "timeline")]
use crate::stream::Lane;
use crate::stream::{AsStream, StreamRef};

#[cfg(feature = "enable")]
pub(crate) use owner::Owner;
#[cfg(feature = "enable")]
pub(crate) use stream::tell_stream_names;
#[cfg(feature = "cupti")]
pub(crate) use stream::{DefaultStream, ask_tool_numbers};

#[cfg(any(feature = "enable", feature = "timeline"))]
#[macro_use]
mod symbols;

#[cfg(feature = "cublas")]
mod blas;
#[cfg(feature = "enable")]
mod bracket;
#[cfg(feature = "enable")]
pub(crate) mod calibrate;
#[cfg(feature = "enable")]
pub(crate) mod capture;
#[cfg(feature = "enable")]
mod clock;
#[cfg(feature = "enable")]
mod context;
#[cfg(feature = "enable")]
mod copy;
#[cfg(any(feature = "enable", feature = "timeline"))]
pub(crate) mod driver;
#[cfg(feature = "enable")]
pub(crate) mod graphs;
#[cfg(feature = "timeline")]
pub(crate) mod order;
#[cfg(any(feature = "enable", feature = "timeline"))]
mod owner;
#[cfg(feature = "enable")]
mod pool;
#[cfg(feature = "enable")]
pub(crate) mod stamps;
#[cfg(feature = "enable")]
mod stream;

/// A CUDA stream of any binding, by its raw handle (`CUstream`, `cudaStream_t`).
///
/// The handles of the default streams (null, `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`) mean those of the context that is
/// current where a zone begins. A zone that is captured in a session with `graph_timing` is timed where the stream's own
/// context is current.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RawStream(*mut c_void);

// SAFETY: a handle is a number to this type; whoever made it vouches for the stream.
#[allow(unsafe_code)]
unsafe impl Send for RawStream {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for RawStream {}

impl RawStream {
    /// The stream of this handle.
    ///
    /// # Safety
    /// The stream lives as long as this value, its copies, and the zones that are begun on it. It may be destroyed while
    /// zones that have ended on the host wait for the device. Its context, unless it is a device's primary one, lives until the
    /// session is finished; and any context lives until semaphores that the stream has signalled know that the value is reached, or
    /// are dropped.
    #[allow(unsafe_code)]
    pub unsafe fn from_ptr(stream: *mut c_void) -> RawStream {
        RawStream(stream)
    }

    /// The handle.
    pub fn as_ptr(self) -> *mut c_void {
        self.0
    }
}

impl fmt::Debug for RawStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawStream").field(&self.0).finish()
    }
}

impl AsStream for RawStream {
    #[inline]
    fn as_stream(&self) -> StreamRef<'_> {
        StreamRef {
            #[cfg(any(feature = "enable", feature = "timeline"))]
            key: key::of(self.0, None),
            #[cfg(feature = "timeline")]
            lane: Lane::Cuda(order::Lane::of(self.0, None, None)),
            #[cfg(feature = "enable")]
            source: self,
            _stream: PhantomData,
        }
    }
}

/// A zone that records owns a handle on the stream until it ends: the stream may be dropped before. So there is no such
/// implementation for a bare `CudaStream`, which could be destroyed under an open zone.
impl AsStream for Arc<cudarc::driver::CudaStream> {
    #[inline]
    fn as_stream(&self) -> StreamRef<'_> {
        StreamRef {
            #[cfg(any(feature = "enable", feature = "timeline"))]
            key: key::of(self.cu_stream().cast(), Some(self.context().cu_ctx().cast())),
            #[cfg(feature = "timeline")]
            lane: {
                let (context, owned) = (self.context().cu_ctx().cast(), owner::Owned::Context(self.context()));
                Lane::Cuda(order::Lane::of(self.cu_stream().cast(), Some(context), Some(owned)))
            },
            #[cfg(feature = "enable")]
            source: self,
            _stream: PhantomData,
        }
    }
}

/// Lets what this thread calls from now on leave the captures of other threads alone.
#[cfg(all(feature = "enable", feature = "cupti"))]
pub(crate) fn relax_capture_mode() {
    if let Ok(driver) = driver::Driver::get() {
        driver.relax_capture_mode();
    }
}

/// Calls `work` so that it leaves the captures of other threads alone, and what this thread calls later is as before.
#[cfg(all(feature = "enable", feature = "cupti"))]
pub(crate) fn outside_captures<T>(work: impl FnOnce() -> T) -> T {
    match driver::Driver::get() {
        Ok(driver) => driver.outside_captures(work),
        Err(_) => work(),
    }
}

/// The name of the device with this ordinal.
#[cfg(all(feature = "enable", feature = "cupti"))]
pub(crate) fn device_name(ordinal: u32) -> Option<String> {
    driver::Driver::get().ok()?.device_name(ordinal.cast_signed()).ok()
}

#[cfg(any(feature = "enable", feature = "timeline"))]
mod key {
    //! What tells CUDA streams apart.

    use super::driver::{ContextPtr, CudaError, Driver, StreamPtr, is_default};
    use crate::stream::{NoKey, StreamKey};

    /// Streams of the driver, whose ids are unique in a process.
    const SPACE: u64 = 1;

    /// What tells a stream from every other. Whether it is being captured is asked first: that question alone does not
    /// break the capture.
    #[inline]
    pub(super) fn of(stream: StreamPtr, context: Option<ContextPtr>) -> Result<StreamKey, NoKey> {
        let driver = Driver::get().map_err(|_| NoKey::Unknown)?;
        match id(driver, stream, context) {
            Ok(Some(stream)) => Ok(StreamKey { space: SPACE, stream }),
            Ok(None) => Err(NoKey::Captured),
            Err(_) => Err(NoKey::Unknown),
        }
    }

    /// The stream's id; none while it is being captured.
    #[inline]
    pub(super) fn id(
        driver: &Driver,
        stream: StreamPtr,
        context: Option<ContextPtr>,
    ) -> Result<Option<u64>, CudaError> {
        let ask = || if driver.is_capturing(stream)? { Ok(None) } else { driver.stream_id(stream).map(Some) };
        match context {
            Some(context) if is_default(stream) && driver.current_context()? != context => {
                driver.with_context(context, ask)
            }
            _ => ask(),
        }
    }
}

#[cfg(feature = "enable")]
mod source {
    //! How a session meets a CUDA stream.

    use std::sync::Arc;

    use super::RawStream;
    use super::context::Context;
    use super::driver::{ContextPtr, Driver, StreamPtr, is_default};
    use super::key::id;
    use super::owner::{Keeper, Owner};
    use super::stream::{CapturePoints, CudaBackend, CudaStream};
    use crate::backend::{Backend, BackendError, Points};
    use crate::stream::StreamSource;
    use crate::stream::recorder::Scope;

    pub(super) fn backend(
        stream: StreamPtr,
        context: Option<ContextPtr>,
        owner: impl FnOnce() -> Option<Owner>,
        scope: &Scope,
    ) -> Result<Arc<dyn Backend>, BackendError> {
        let driver = Driver::get()?;
        let told = |error| driver.told(error);
        // Says why there is no key, if there is none.
        id(driver, stream, context).map_err(told)?;
        let context = match context {
            Some(context) => context,
            None if is_default(stream) => driver.current_context().map_err(told)?,
            None => driver.stream_context(stream).map_err(told)?,
        };
        let context = Context::of(driver, context, owner, scope)?;
        Ok(Arc::new(CudaBackend(Arc::new(CudaStream::new(context, stream)))))
    }

    impl StreamSource for RawStream {
        fn backend(&self, scope: &Scope) -> Result<Arc<dyn Backend>, BackendError> {
            backend(self.0, None, || None, scope)
        }

        fn captured(&self) -> Option<Points> {
            Some(Points::Device(Box::new(CapturePoints::new(self.0, None, None))))
        }
    }

    impl StreamSource for Arc<cudarc::driver::CudaStream> {
        fn backend(&self, scope: &Scope) -> Result<Arc<dyn Backend>, BackendError> {
            let owner = || Some(Owner::Context(Arc::clone(self.context())));
            backend(self.cu_stream().cast(), Some(self.context().cu_ctx().cast()), owner, scope)
        }

        fn captured(&self) -> Option<Points> {
            let context = self.context().cu_ctx().cast();
            let keeper = Keeper::Context(Arc::downgrade(self.context()));
            Some(Points::Device(Box::new(CapturePoints::new(self.cu_stream().cast(), Some(context), Some(keeper)))))
        }

        fn owner(&self) -> Option<Owner> {
            Some(Owner::Stream(Arc::clone(self)))
        }
    }
}
