//! The seam to the backend of a device, for streams that a binding's types make.
//!
//! A binding's type is a [`DeviceStream`]: a handle and what keeps it alive. The backend, which [`register`]s itself once, is the
//! [`Device`] that knows what to do with it. Before that no such stream has a key.

use std::any::Any;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use super::Refusal;
use super::{Backend, BackendError, EventPair};
use crate::backend::Scope;
use crate::backend::{NoKey, StreamKey};

static DEVICE: OnceLock<&'static dyn Device> = OnceLock::new();

/// The backend for every stream of a binding. The first call counts.
pub fn register(device: &'static dyn Device) {
    let _ = DEVICE.get_or_init(|| device);
}

/// The backend that is registered.
#[inline]
pub fn device() -> Option<&'static dyn Device> {
    DEVICE.get().copied()
}

/// A stream by its handle, and its context where the binding's type knows that.
#[derive(Clone, Copy)]
pub struct RawParts {
    pub stream: *mut c_void,
    pub context: Option<*mut c_void>,
}

/// A stream as a binding's type holds it.
pub trait DeviceStream {
    /// The handles; an error says why there are none.
    fn parts(&self) -> Result<RawParts, String>;

    /// Keeps the stream alive while a zone is open on it; none where nobody can destroy it, or the application vouches for it.
    fn keep_alive(&self) -> Option<Arc<dyn KeepAlive>> {
        None
    }

    /// Keeps the stream's context alive; none as above.
    fn keep_context_alive(&self) -> Option<Arc<dyn KeepAlive>> {
        None
    }
}

/// An object of a binding's that owns a stream or a context.
pub trait KeepAlive: Send + Sync {
    /// Gives up this handle. If it is the last one, the object is destroyed, and the calling thread's current context stays what it
    /// was.
    fn release_owner(self: Arc<Self>);
}

/// What a backend does with streams of its device. No method waits for the device.
pub trait Device: Send + Sync {
    /// What tells a stream from every other. Whether it is being captured is asked first: that question alone does not break
    /// the capture.
    fn key(&self, stream: RawParts) -> Result<StreamKey, NoKey>;

    /// The stream's backend in the session of `scope`; the user sees an error once.
    fn backend(&self, stream: &dyn DeviceStream, scope: &Scope) -> Result<Arc<dyn Backend>, BackendError>;

    /// Where a zone begins and ends that is captured with the stream into a graph.
    fn capture_points(&self, stream: &dyn DeviceStream) -> Option<EventPair>;

    /// Calls `destroy`, which drops an object of the binding's and may make another context current, and restores the current
    /// context. `destroy` is called where the context of `of_stream` is current, if one is given.
    fn destroy(&self, of_stream: Option<*mut c_void>, destroy: &mut dyn FnMut());

    /// Puts a point behind what is on the stream now.
    fn put_point(
        &self,
        stream: &dyn DeviceStream,
        key: Result<StreamKey, NoKey>,
    ) -> Result<Arc<dyn DevicePoint>, Refusal>;

    /// Lets what comes on the stream from now on wait for a point.
    fn wait_for(
        &self,
        stream: &dyn DeviceStream,
        key: Result<StreamKey, NoKey>,
        point: &dyn DevicePoint,
    ) -> Result<(), Refusal>;

    /// Calls `work` with the stream's context current, and restores the current context.
    fn with_context(
        &self,
        stream: &dyn DeviceStream,
        key: Result<StreamKey, NoKey>,
        work: &mut dyn FnMut(),
    ) -> Result<(), Refusal>;
}

/// A place on a stream, for a timeline.
pub trait DevicePoint: Any + Send + Sync {
    /// The stream's id.
    fn stream(&self) -> u64;

    /// Whether the stream is known to have got there; it is asked until it is, so many times in a row. It breaks nobody's
    /// capture.
    ///
    /// # Errors
    /// What the driver says: a kernel that failed, a context that is gone.
    fn is_reached_soon(&self, in_a_row: u32) -> Result<bool, String>;
}
