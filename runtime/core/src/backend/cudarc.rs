//! The streams of cudarc as streams of a device: `Arc<CudaStream>`, and with feature `cublas` `Arc<CudaBlas>`.
//!
//! A zone that records owns a handle on its stream until it ends: the stream may be dropped before. So there is no implementation
//! for a bare `CudaStream`, which could be destroyed under an open zone. Nothing here calls the driver.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

use super::device::{DeviceStream, KeepAlive, RawParts, device};
use crate::backend::{AsStream, StreamRef};

/// A zone that records owns a handle on the stream until it ends: the stream may be dropped before. So there is no such
/// implementation for a bare `CudaStream`, which could be destroyed under an open zone.
impl AsStream for Arc<CudaStream> {
    #[inline]
    fn as_stream(&self) -> StreamRef<'_> {
        StreamRef::on_device(self)
    }
}

impl DeviceStream for Arc<CudaStream> {
    #[inline]
    fn parts(&self) -> Result<RawParts, String> {
        Ok(RawParts { stream: self.cu_stream().cast(), context: Some(self.context().cu_ctx().cast()) })
    }

    #[inline]
    fn keep_alive(&self) -> Option<Arc<dyn KeepAlive>> {
        Some(Arc::clone(self) as Arc<dyn KeepAlive>)
    }

    fn keep_context_alive(&self) -> Option<Arc<dyn KeepAlive>> {
        Some(Arc::clone(self.context()) as Arc<dyn KeepAlive>)
    }
}

impl KeepAlive for CudaStream {
    fn release_owner(self: Arc<Self>) {
        if let Some(last) = Arc::into_inner(self) {
            destroy(None, last);
        }
    }
}

impl KeepAlive for CudaContext {
    fn release_owner(self: Arc<Self>) {
        if let Some(last) = Arc::into_inner(self) {
            destroy(None, last);
        }
    }
}

#[cold]
#[inline(never)]
fn destroy<T>(of_stream: Option<*mut c_void>, object: T) {
    match device() {
        Some(device) => {
            let mut object = Some(object);
            device.destroy(of_stream, &mut || drop(object.take()));
        }
        None => drop(object),
    }
}

#[cfg(feature = "cublas")]
mod blas {
    //! cudarc's `CudaBlas` as a stream: it owns its stream and keeps it private, so cuBLAS is asked for the handle
    //! (`cublasGetStream`), and a zone that records owns the `CudaBlas` until it ends.
    //!
    //! The call goes through cudarc, whose library made the handle, however that is linked. It reads a field of the handle and
    //! makes no call of the driver.
    #![allow(unsafe_code)]

    use std::ffi::c_void;
    use std::sync::Arc;

    use cudarc::cublas::CudaBlas;
    use cudarc::cublas::sys::{cublasGetStream_v2, cublasStatus_t};

    use super::destroy;
    use crate::backend::device::{DeviceStream, KeepAlive, RawParts};
    use crate::backend::{AsStream, StreamRef};

    /// The stream that the handle works on. A default stream is that of the context that is current where the zone begins. A
    /// zone that records owns a handle on the `CudaBlas` until it ends.
    impl AsStream for Arc<CudaBlas> {
        fn as_stream(&self) -> StreamRef<'_> {
            StreamRef::on_device(self)
        }
    }

    impl DeviceStream for Arc<CudaBlas> {
        fn parts(&self) -> Result<RawParts, String> {
            match stream_of(self) {
                Ok(stream) => Ok(RawParts { stream, context: None }),
                Err(status) => Err(format!("`cublasGetStream` gave {status:?}: is the handle alive?")),
            }
        }

        fn keep_alive(&self) -> Option<Arc<dyn KeepAlive>> {
            Some(Arc::clone(self) as Arc<dyn KeepAlive>)
        }

        /// The handle keeps its context.
        fn keep_context_alive(&self) -> Option<Arc<dyn KeepAlive>> {
            self.keep_alive()
        }
    }

    impl KeepAlive for CudaBlas {
        /// cudarc destroys the handle in whatever context is current: it has to be the handle's own.
        fn release_owner(self: Arc<Self>) {
            if let Some(last) = Arc::into_inner(self) {
                destroy(stream_of(&last).ok(), last);
            }
        }
    }

    /// The stream that a handle works on; null for the default stream.
    fn stream_of(blas: &CudaBlas) -> Result<*mut c_void, cublasStatus_t> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: the handle lives as long as `blas`; the other is a valid out-pointer.
        match unsafe { cublasGetStream_v2(*blas.handle(), &raw mut stream) } {
            cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(stream.cast()),
            status => Err(status),
        }
    }
}
