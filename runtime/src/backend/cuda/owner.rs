//! What keeps a CUDA stream alive while a zone is open on it, and a context while a session uses it.
//!
//! A zone that records owns a handle on its stream from its begin until its end is on the stream, so that safe code can drop the
//! stream in between. The thread that ends the zone lets go of the handle, never the collector's: the last handle destroys the
//! stream. A session owns a handle on each context that is not a device's primary one, which it retains, until it ends: its
//! collector asks for events of the context. A point of a timeline is an event, and owns a handle on its context, too.

use std::sync::Arc;

use super::driver::Driver;

/// A handle on an object of cudarc's.
pub(crate) enum Owner {
    #[cfg(feature = "enable")]
    Stream(Arc<cudarc::driver::CudaStream>),
    /// The handle keeps its stream.
    #[cfg(feature = "cublas")]
    Blas(Arc<cudarc::cublas::CudaBlas>),
    Context(Arc<cudarc::driver::CudaContext>),
}

/// What an [`Owner`] can be made of that keeps a context alive.
#[cfg(feature = "timeline")]
#[derive(Clone, Copy)]
pub(crate) enum Owned<'a> {
    #[cfg(feature = "cublas")]
    Blas(&'a Arc<cudarc::cublas::CudaBlas>),
    Context(&'a Arc<cudarc::driver::CudaContext>),
}

#[cfg(feature = "timeline")]
impl Owned<'_> {
    pub(super) fn owner(self) -> Owner {
        match self {
            #[cfg(feature = "cublas")]
            Owned::Blas(blas) => Owner::Blas(Arc::clone(blas)),
            Owned::Context(context) => Owner::Context(Arc::clone(context)),
        }
    }
}

impl Owner {
    /// Lets go of the object. If this is the last handle, the object is destroyed, and the calling thread's current context
    /// stays what it was.
    #[inline]
    pub(crate) fn let_go(self) {
        match self {
            #[cfg(feature = "enable")]
            Owner::Stream(stream) => Arc::into_inner(stream).map_or((), drop_last),
            #[cfg(feature = "cublas")]
            Owner::Blas(blas) => Arc::into_inner(blas).map_or((), drop_blas),
            Owner::Context(context) => Arc::into_inner(context).map_or((), drop_last),
        }
    }
}

/// Drops an object of cudarc's, which makes its own context current, and makes current again what was before.
#[cold]
#[inline(never)]
fn drop_last<T>(object: T) {
    let Ok(driver) = Driver::get() else { return drop(object) };
    let Ok(before) = driver.current_context() else { return drop(object) };
    let id = driver.context_id(before);
    drop(object);
    // A context that was destroyed with the object must not be made current: the driver would use freed memory.
    if driver.current_context() != Ok(before) && (before.is_null() || driver.context_id(before) == id) {
        driver.make_current(before);
    }
}

/// The same of a cuBLAS handle, which cudarc destroys in whatever context is current: it has to be the handle's own.
#[cfg(feature = "cublas")]
#[cold]
#[inline(never)]
fn drop_blas(blas: cudarc::cublas::CudaBlas) {
    struct InItsContext(cudarc::cublas::CudaBlas);

    impl Drop for InItsContext {
        /// Called before the handle's own.
        fn drop(&mut self) {
            if let Ok(driver) = Driver::get()
                && let Ok(stream) = super::blas::stream_of(&self.0)
                && let Ok(context) = driver.stream_context(stream)
            {
                driver.make_current(context);
            }
        }
    }

    drop_last(InItsContext(blas));
}
