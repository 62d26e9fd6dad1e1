//! What keeps a CUDA stream alive while a zone is open on it, and a context while a session uses it.
//!
//! A zone that records owns a handle on its stream from its begin until its end is on the stream, so that safe code can drop the
//! stream in between. The thread that ends the zone lets go of the handle, never the collector's: the last handle destroys the
//! stream. A session owns a handle on each context that is not a device's primary one, which it retains, until it ends: its
//! collector asks for events of the context. What times replays holds the contexts of captures and launches (`Hold`); the
//! collector lets go of those. A point of a timeline is an event, and owns a handle on its context, too.

use std::sync::{Arc, Weak};

use super::driver::{ContextPtr, Driver, StreamPtr};
use warpline_core::backend::device::KeepAlive;

/// What owns a context, as long as something does. It keeps nothing alive itself.
#[derive(Clone)]
pub enum Keeper {
    /// The caller of [`RawStream::from_ptr`](super::RawStream::from_ptr), until this session is finished.
    Caller {
        session: u64,
    },
    Owner(Weak<dyn KeepAlive>),
}

/// Keeps a context alive for the collector while it works there.
pub(crate) enum Hold {
    /// The context is the primary one of its device, and retained.
    Primary {
        driver: &'static Driver,
        device: i32,
        context: usize,
        id: u64,
    },
    Owner(Arc<dyn KeepAlive>),
    /// The caller of [`RawStream::from_ptr`](super::RawStream::from_ptr) keeps it.
    Caller,
}

impl Keeper {
    /// Whether the context may still be alive, and is anybody's to keep in this session.
    pub(super) fn is_alive(&self, session: u64) -> bool {
        match self {
            Keeper::Caller { session: of } => *of == session,
            Keeper::Owner(owner) => owner.strong_count() > 0,
        }
    }

    fn hold(self, session: u64) -> Option<Hold> {
        match self {
            Keeper::Caller { session: of } => (of == session).then_some(Hold::Caller),
            Keeper::Owner(owner) => owner.upgrade().map(Hold::Owner),
        }
    }
}

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
        hold.release_owner();
        None
    }

    pub(super) fn release_owner(self) {
        match self {
            // One that was reset meanwhile is not what was retained.
            Hold::Primary { driver, device, context, id } if driver.context_id(context as ContextPtr) == Ok(id) => {
                driver.release_primary(device);
            }
            Hold::Primary { .. } => {}
            Hold::Owner(owner) => owner.release_owner(),
            Hold::Caller => {}
        }
    }
}

/// Calls `destroy`, which drops an object of a binding's and may make another context current, and makes current again what was
/// before. `destroy` is called where the context of `of_stream` is current, if one is given.
#[cold]
pub(super) fn destroy(of_stream: Option<StreamPtr>, destroy: &mut dyn FnMut()) {
    let Ok(driver) = Driver::get() else { return destroy() };
    let before = driver.current_context();
    let id = before.map(|before| driver.context_id(before));
    if let Some(context) = of_stream.and_then(|stream| driver.stream_context(stream).ok()) {
        driver.make_current(context);
    }
    destroy();
    // A context that was destroyed with the object must not be made current: the driver would use freed memory.
    if let (Ok(before), Ok(id)) = (before, id)
        && driver.current_context() != Ok(before)
        && (before.is_null() || driver.context_id(before) == id)
    {
        driver.make_current(before);
    }
}
