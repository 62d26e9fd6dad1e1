//! Keeps CUDA streams alive while zones are open on them, and contexts while a session uses them.
//!
//! A recorded zone owns a handle on its stream until its end is on the stream, so safe code can drop the stream in between. The thread that
//! ends the zone releases the handle, never the collector's thread, because the last handle destroys the stream. A session retains the
//! primary context of a device. It owns a handle on each other context until the session ends, because its collector queries events of the
//! context. The timing of replays holds the contexts of captures and launches (`Hold`), and the collector releases these. A timeline point
//! is an event, and owns a handle on its context as well.

use std::sync::{Arc, Weak};

use super::driver::{ContextPtr, Driver, StreamPtr};
use warpline_core::backend::device::KeepAlive;

/// The owner of a context. A `Keeper` does not keep the context alive itself.
#[derive(Clone)]
pub enum Keeper {
    /// The caller of [`RawStream::from_ptr`](super::RawStream::from_ptr) owns the context until this session is finished.
    Caller {
        session: u64,
    },
    Owner(Weak<dyn KeepAlive>),
}

/// A hold on a context, which keeps it alive while the collector uses it.
pub(crate) enum Hold {
    /// The context is the primary context of its device, and is retained.
    Primary {
        driver: &'static Driver,
        device: i32,
    },
    Owner(Arc<dyn KeepAlive>),
    /// The caller of [`RawStream::from_ptr`](super::RawStream::from_ptr) keeps the context alive.
    Caller,
}

impl Keeper {
    /// Returns whether the context may still be alive and can be kept alive in this session.
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
    /// Keeps the context with this id alive; none if it was destroyed or cannot be kept alive. The driver crashes on a call in a context
    /// that another thread destroys, so the context is retained first and checked afterwards.
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
                return Some(Hold::Primary { driver, device });
            }
            // Another context has the same address.
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
            // Also if the context was reset in the meantime.
            Hold::Primary { driver, device } => driver.release_primary(device),
            Hold::Owner(owner) => owner.release_owner(),
            Hold::Caller => {}
        }
    }
}

/// Calls `destroy`, which drops an object of a binding and may change the current context, and restores the context that was current
/// before. If `of_stream` is given, `destroy` is called with its context current.
#[cold]
pub(super) fn destroy(of_stream: Option<StreamPtr>, destroy: &mut dyn FnMut()) {
    let Ok(driver) = Driver::get() else { return destroy() };
    let before = driver.current_context();
    let id = before.map(|before| driver.context_id(before));
    if let Some(context) = of_stream.and_then(|stream| driver.stream_context(stream).ok()) {
        driver.make_current(context);
    }
    destroy();
    // A context that was destroyed with the object must not be made current, because the driver would use freed memory.
    if let (Ok(before), Ok(id)) = (before, id)
        && driver.current_context() != Ok(before)
        && (before.is_null() || driver.context_id(before) == id)
    {
        driver.make_current(before);
    }
}
