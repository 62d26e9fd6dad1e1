//! The interface between a binding's stream types and the backend of a device.
//!
//! A binding's type is a [`DeviceStream`]: a handle and what keeps it alive. The backend, which [`register`]s itself once, is the
//! [`Device`] that uses it. Until a backend is registered, these streams have no key.

use std::any::Any;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock, Weak};

use super::Refusal;
use super::{Backend, BackendError, EventPair};
use crate::backend::Scope;
use crate::backend::{NoKey, StreamKey};

static DEVICE: OnceLock<&'static dyn Device> = OnceLock::new();

/// Registers the backend for all streams of bindings. Only the first call has an effect.
pub fn register(device: &'static dyn Device) {
    let _ = DEVICE.get_or_init(|| device);
}

/// Returns the registered backend.
#[inline]
pub fn device() -> Option<&'static dyn Device> {
    DEVICE.get().copied()
}

/// A stream's handle, and its context if the binding's type knows it.
#[derive(Clone, Copy)]
pub struct RawParts {
    pub stream: *mut c_void,
    pub context: Option<*mut c_void>,
}

/// A stream as a binding's type holds it.
pub trait DeviceStream {
    /// Returns the handles. An error gives the reason if there are none.
    fn parts(&self) -> Result<RawParts, String>;

    /// Returns the address of the value that owns the stream, which identifies the stream in caches; none if the value's handle
    /// can come to mean another stream.
    fn address(&self) -> Option<usize> {
        None
    }

    /// Keeps the address from being reused, without keeping the stream alive; none if [`address`](Self::address) is none.
    fn hold_address(&self) -> Option<Weak<dyn KeepAlive>> {
        None
    }

    /// Keeps the stream alive while a zone is open on it; none if nothing can destroy it, or if the application guarantees its
    /// lifetime.
    fn keep_alive(&self) -> Option<Arc<dyn KeepAlive>> {
        None
    }

    /// Keeps the stream's context alive; none in the same cases.
    fn keep_context_alive(&self) -> Option<Arc<dyn KeepAlive>> {
        None
    }
}

/// An object that owns a stream or what the stream needs. A zone keeps a handle to it while it is open.
pub trait KeepAlive: Send + Sync {
    /// Drops this handle, on the thread that ends the zone. The last handle destroys the object. If that changes state of the
    /// calling thread, such as its current device, this restores it.
    fn release_owner(self: Arc<Self>) {}
}

/// The operations of a backend on its device's streams. No method waits for the device.
pub trait Device: Send + Sync {
    /// Returns a key that distinguishes the stream from every other. The capture status is queried first, because only that query
    /// does not break a capture.
    fn key(&self, stream: &dyn DeviceStream) -> Result<StreamKey, NoKey>;

    /// Returns the stream's backend in the session of `scope`. An error is shown to the user only once.
    fn backend(&self, stream: &dyn DeviceStream, scope: &Scope) -> Result<Arc<dyn Backend>, BackendError>;

    /// Passes a name of the application for this stream to tools that see the device's streams.
    fn name_in_tools(&self, stream: &dyn DeviceStream, name: &str);

    /// Returns the begin and end of a zone on a stream that is being captured into a graph.
    fn capture_points(&self, stream: &dyn DeviceStream) -> Option<EventPair>;

    /// Calls `destroy`, which drops a binding's object and may change the current context, and then restores the current context.
    /// If `of_stream` is given, its context is current during the call.
    fn destroy(&self, of_stream: Option<*mut c_void>, destroy: &mut dyn FnMut());

    /// Records a point after the work that is on the stream now.
    fn put_point(
        &self,
        stream: &dyn DeviceStream,
        key: Result<StreamKey, NoKey>,
    ) -> Result<Arc<dyn DevicePoint>, Refusal>;

    /// Makes later work on the stream wait for a point.
    fn wait_for(
        &self,
        stream: &dyn DeviceStream,
        key: Result<StreamKey, NoKey>,
        point: &dyn DevicePoint,
    ) -> Result<(), Refusal>;

    /// Allocates memory of the stream's device, for work that is put on the stream from now on.
    fn allocate(
        &self,
        _stream: &dyn DeviceStream,
        _key: Result<StreamKey, NoKey>,
        _bytes: u64,
    ) -> Result<DeviceMemory, Refusal> {
        Err(no_memory())
    }

    /// Frees memory that [`allocate`](Self::allocate) returned, behind the work that is on the stream now.
    fn free(
        &self,
        _stream: &dyn DeviceStream,
        _key: Result<StreamKey, NoKey>,
        _memory: DeviceMemory,
    ) -> Result<(), Refusal> {
        Err(no_memory())
    }

    /// Calls `work` with the stream's context current, and restores the current context.
    fn with_context(
        &self,
        stream: &dyn DeviceStream,
        key: Result<StreamKey, NoKey>,
        work: &mut dyn FnMut(),
    ) -> Result<(), Refusal>;
}

fn no_memory() -> Refusal {
    let error = "the backend of the stream's device does not allocate in the order of a stream".to_owned();
    Refusal::Failed { what: "memory of a device", error }
}

/// Memory of a device that was allocated in the order of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    pub address: u64,
    /// The device's ordinal.
    pub device: u32,
}

/// A position on a stream, for a timeline.
pub trait DevicePoint: Any + Send + Sync {
    /// Returns the stream's id.
    fn stream(&self) -> u64;

    /// Returns whether the stream is known to have reached the point. It is queried up to `in_a_row` times, and never breaks a
    /// capture.
    ///
    /// # Errors
    /// The driver's error: a kernel failed, or the context no longer exists.
    fn is_reached_soon(&self, in_a_row: u32) -> Result<bool, String>;
}
