//! cudarc's `CudaBlas` as a stream: it owns its stream and keeps it private, so cuBLAS is asked for the handle
//! (`cublasGetStream`), and a zone that records owns the `CudaBlas` until it ends.
//!
//! The call goes through cudarc, whose library made the handle, however that is linked. It reads a field of the handle and
//! makes no call of the driver.
#![allow(unsafe_code)]

#[cfg(any(feature = "enable", feature = "timeline"))]
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;

#[cfg(any(feature = "enable", feature = "timeline"))]
use cudarc::cublas::sys::{cublasGetStream_v2, cublasStatus_t};

use crate::stream::{AsStream, StreamRef};

/// The stream that a handle works on; null for the default stream.
#[cfg(any(feature = "enable", feature = "timeline"))]
pub(super) fn stream_of(blas: &cudarc::cublas::CudaBlas) -> Result<*mut c_void, cublasStatus_t> {
    let mut stream = std::ptr::null_mut();
    // SAFETY: the handle lives as long as `blas`; the other is a valid out-pointer.
    match unsafe { cublasGetStream_v2(*blas.handle(), &raw mut stream) } {
        cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(stream.cast()),
        status => Err(status),
    }
}

/// The stream that the handle works on. A default stream is that of the context that is current where the zone begins. A zone
/// that records owns a handle on the `CudaBlas` until it ends.
impl AsStream for Arc<cudarc::cublas::CudaBlas> {
    fn as_stream(&self) -> StreamRef<'_> {
        #[cfg(any(feature = "enable", feature = "timeline"))]
        let stream = stream_of(self);
        StreamRef {
            #[cfg(any(feature = "enable", feature = "timeline"))]
            key: stream.map_or(Err(crate::stream::NoKey::Unknown), |stream| super::key::of(stream, None)),
            // A stream without a key is not touched.
            #[cfg(feature = "timeline")]
            lane: crate::stream::Lane::Cuda(super::order::Lane::of(
                stream.unwrap_or(std::ptr::null_mut()),
                None,
                Some(super::owner::Owned::Blas(self)),
            )),
            #[cfg(feature = "enable")]
            source: self,
            _stream: PhantomData,
        }
    }
}

#[cfg(feature = "enable")]
mod source {
    use std::sync::Arc;

    use super::stream_of;
    use crate::backend::cuda::owner::{Keeper, Owner};
    use crate::backend::cuda::stream::CapturePoints;
    use crate::backend::{Backend, BackendError, Points};
    use crate::stream::StreamSource;
    use crate::stream::recorder::Scope;

    impl StreamSource for Arc<cudarc::cublas::CudaBlas> {
        fn backend(&self, scope: &Scope) -> Result<Arc<dyn Backend>, BackendError> {
            let stream = stream_of(self)
                .map_err(|status| BackendError(format!("`cublasGetStream` gave {status:?}: is the handle alive?")))?;
            crate::backend::cuda::source::backend(stream, None, || self.owner(), scope)
        }

        fn captured(&self) -> Option<Points> {
            let stream = stream_of(self).ok()?;
            Some(Points::Device(Box::new(CapturePoints::new(stream, None, Some(Keeper::Blas(Arc::downgrade(self)))))))
        }

        fn owner(&self) -> Option<Owner> {
            Some(Owner::Blas(Arc::clone(self)))
        }
    }
}
