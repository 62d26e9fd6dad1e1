//! What keeps a CUDA stream alive while a zone is open on it, and a context while a session uses it.
//!
//! A zone that records owns a handle on its stream from its begin until its end is on the stream, so that safe code can drop the
//! stream in between. The thread that ends the zone lets go of the handle, never the collector's: the last handle destroys the
//! stream. A session owns a handle on each context that is not a device's primary one, which it retains, until it ends: its
//! collector asks for events of the context. What times replays holds the contexts of captures and launches (`Hold`); the
//! collector lets go of those. A point of a timeline is an event, and owns a handle on its context, too.

use std::sync::Arc;
#[cfg(feature = "enable")]
use std::sync::Weak;

#[cfg(feature = "enable")]
use super::driver::ContextPtr;
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

/// What owns a context, as long as something does. It keeps nothing alive itself.
#[cfg(feature = "enable")]
#[derive(Clone)]
pub(crate) enum Keeper {
    /// The caller of [`RawStream::from_ptr`](super::RawStream::from_ptr), until this session is finished.
    Caller {
        session: u64,
    },
    Context(Weak<cudarc::driver::CudaContext>),
    #[cfg(feature = "cublas")]
    Blas(Weak<cudarc::cublas::CudaBlas>),
}

/// Keeps a context alive for the collector while it works there.
#[cfg(feature = "enable")]
pub(crate) enum Hold {
    /// The context is the primary one of its device, and retained.
    Primary {
        driver: &'static Driver,
        device: i32,
        context: usize,
        id: u64,
    },
    Owner(Owner),
    /// The caller of [`RawStream::from_ptr`](super::RawStream::from_ptr) keeps it.
    Caller,
}

#[cfg(feature = "enable")]
impl Keeper {
    /// Whether the context may still be alive, and is anybody's to keep in this session.
    pub(super) fn is_alive(&self, session: u64) -> bool {
        match self {
            Keeper::Caller { session: of } => *of == session,
            Keeper::Context(context) => context.strong_count() > 0,
            #[cfg(feature = "cublas")]
            Keeper::Blas(blas) => blas.strong_count() > 0,
        }
    }

    fn hold(self, session: u64) -> Option<Hold> {
        match self {
            Keeper::Caller { session: of } => (of == session).then_some(Hold::Caller),
            Keeper::Context(context) => context.upgrade().map(|context| Hold::Owner(Owner::Context(context))),
            #[cfg(feature = "cublas")]
            Keeper::Blas(blas) => blas.upgrade().map(|blas| Hold::Owner(Owner::Blas(blas))),
        }
    }
}

#[cfg(feature = "enable")]
impl Hold {
    /// Keeps the context with this id alive; none where it is gone, or where nobody can keep it. The driver does not survive a call
    /// in a context that another thread destroys, so the context is kept first and looked at afterwards.
    pub(super) fn on(
        driver: &'static Driver,
        context: ContextPtr,
        id: u64,
        keeper: Option<Keeper>,
        session: u64,
    ) -> Option<Hold> {
        let is_there = || driver.context_id(context) == Ok(id);
        if let Some(device) = driver.retain_if_primary(context) {
            if is_there() {
                return Some(Hold::Primary { driver, device, context: context as usize, id });
            }
            // It is another context, at the same address.
            driver.release_primary(device);
            return None;
        }
        let hold = keeper?.hold(session)?;
        if is_there() {
            return Some(hold);
        }
        hold.let_go();
        None
    }

    pub(super) fn let_go(self) {
        match self {
            // One that was reset meanwhile is not what was retained.
            Hold::Primary { driver, device, context, id } if driver.context_id(context as ContextPtr) == Ok(id) => {
                driver.release_primary(device);
            }
            Hold::Primary { .. } => {}
            Hold::Owner(owner) => owner.let_go(),
            Hold::Caller => {}
        }
    }
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
    /// What keeps the context of the object alive.
    #[cfg(feature = "enable")]
    pub(super) fn keeper(&self) -> Keeper {
        match self {
            Owner::Stream(stream) => Keeper::Context(Arc::downgrade(stream.context())),
            #[cfg(feature = "cublas")]
            Owner::Blas(blas) => Keeper::Blas(Arc::downgrade(blas)),
            Owner::Context(context) => Keeper::Context(Arc::downgrade(context)),
        }
    }

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
