//! cudarc's streams as streams of a device: `Arc<CudaStream>`, and with feature `cublas` `Arc<CudaBlas>`.
//!
//! Each version of cudarc has its own types, so a macro writes the implementations for every version whose feature is enabled. A
//! newer cudarc needs a dependency, a feature and a line here, and the feature `cuda` of `warpline` moves to it.
//!
//! A recording zone owns a handle to its stream until it ends, because the application may drop the stream earlier. A bare
//! `CudaStream` has no implementation: it could be destroyed under an open zone. Nothing here calls the driver.

use std::ffi::c_void;

use super::device::device;

/// The memory of a device that a collective moves.
macro_rules! buffers {
    ($($buffer:ty),*) => {
        $(
            impl<T> Buffer for $buffer {
                type Item = T;

                fn count(&self) -> usize {
                    self.len()
                }
            }
        )*
    };
}

/// Writes the implementations for one version of cudarc.
macro_rules! streams_of {
    ($cudarc:ident) => {
        mod $cudarc {
            use std::sync::{Arc, Weak};

            use $cudarc::driver::{CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut};

            use super::destroy;
            use crate::backend::device::{DeviceStream, KeepAlive, RawParts};
            use crate::backend::{AsStream, StreamRef};
            use crate::collective::infer::Buffer;

            buffers!(CudaSlice<T>, CudaView<'_, T>, CudaViewMut<'_, T>);

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

                /// cudarc never changes a stream's handle.
                #[inline]
                fn address(&self) -> Option<usize> {
                    Some(Arc::as_ptr(self).addr())
                }

                fn hold_address(&self) -> Option<Weak<dyn KeepAlive>> {
                    Some(Arc::downgrade(self) as Weak<dyn KeepAlive>)
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

            #[cfg(feature = "cublas")]
            mod blas {
                //! cudarc's `CudaBlas` as a stream. It owns its stream and keeps it private, so the stream's handle comes from
                //! cuBLAS (`cublasGetStream`). A recording zone owns the `CudaBlas` until it ends.
                //!
                //! The call goes through cudarc, which made the handle, however cuBLAS is linked. It reads a field of the handle
                //! and does not call the driver.
                #![allow(unsafe_code)]

                use std::ffi::c_void;
                use std::sync::Arc;

                use $cudarc::cublas::CudaBlas;
                use $cudarc::cublas::sys::{cublasGetStream_v2, cublasStatus_t};

                use super::super::destroy;
                use crate::backend::device::{DeviceStream, KeepAlive, RawParts};
                use crate::backend::{AsStream, StreamRef};

                /// The stream that the handle works on. A default stream belongs to the context that is current when the zone
                /// begins. A recording zone owns a handle to the `CudaBlas` until it ends.
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

                    /// Keeps the handle alive, which keeps its context alive.
                    fn keep_context_alive(&self) -> Option<Arc<dyn KeepAlive>> {
                        self.keep_alive()
                    }
                }

                impl KeepAlive for CudaBlas {
                    /// Drops the handle in its own context, because cudarc destroys it in the current one.
                    fn release_owner(self: Arc<Self>) {
                        if let Some(last) = Arc::into_inner(self) {
                            destroy(stream_of(&last).ok(), last);
                        }
                    }
                }

                /// Returns the stream that a handle works on; null for the default stream.
                fn stream_of(blas: &CudaBlas) -> Result<*mut c_void, cublasStatus_t> {
                    let mut stream = std::ptr::null_mut();
                    // SAFETY: the handle lives as long as `blas`; the other argument is a valid out-pointer.
                    match unsafe { cublasGetStream_v2(*blas.handle(), &raw mut stream) } {
                        cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(stream.cast()),
                        status => Err(status),
                    }
                }
            }
        }
    };
}

#[cfg(feature = "cudarc-0_18")]
streams_of!(cudarc_0_18);
#[cfg(feature = "cudarc-0_19")]
streams_of!(cudarc_0_19);

/// Drops an object of cudarc whose destructor calls the driver.
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
