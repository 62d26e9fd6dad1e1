//! NVIDIA GPUs: zones on CUDA streams, timed by CUDA events.
//!
//! `driver` calls the CUDA driver through a table of its `symbols`, `order` contains timelines, `memory` and `allocator` their allocations, `copy` reads the driver's memory, `pool`
//! has the events of a context, and `context` the state that a context's streams share, `queues` decides how zones end. `stream` records and reads a zone's two points,
//! `clock` relates the device's time to the host's, and `calibrate` measures what a pair of events adds to a kernel; `kernels` loads and launches the kernels that are warpline's own. `graphs` has the
//! driver's functions for graphs, `capture` marks zones on streams that are being captured, `stamps` times such zones in each replay, and
//! `owner` keeps a zone's stream alive, and `green` finds the context in which warpline works for a stream. `probe` describes a host for the command `warpline doctor`, and `peak` measures its devices for it; no other
//! module uses them.
//! Unsafe code is only in `allocator`, `copy`, `cupti`, `driver`, `graphs`, `green`, `kernels`, `nccl`, `peak`, `probe`, `stamps` and `timeline`, apart from the implementations of `Send` and
//! `Sync` and unsafe functions for callers.
#![deny(unsafe_code)]
#![allow(missing_docs, reason = "what users see is documented; the rest serves warpline's other crates")]

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

pub use event::RawEvent;
use timeline::Lane;
pub use timeline::{event_pool, set_event_pool_capacity};
use warpline_core::backend::device;
use warpline_core::backend::device::{Device, DeviceMemory, DevicePoint, DeviceStream, RawParts};
use warpline_core::backend::{AsStream, StreamRef};
use warpline_core::backend::{Refusal, names};

use context::Context;
use driver::{Driver, PER_THREAD};
use key::Key;
use owner::Keeper;
use stream::{CapturedEventPair, CudaBackend, CudaStream};
pub use stream::{DefaultStream, ask_tool_numbers};
use warpline_core::backend::{Backend, BackendError, EventPair, Scope};

#[macro_use]
mod symbols;
mod allocator;
pub mod driver;
mod event;
mod green;
mod owner;
mod timeline;

pub mod calibrate;
pub mod capture;
mod clock;
mod context;
#[cfg(target_os = "linux")]
mod copy;
pub mod demangle;
pub mod graph_api;
mod kernels;
mod key;
mod memory;
pub mod peak;
mod pool;
pub mod probe;
mod queues;
pub mod stamps;
mod stream;

/// The replacement of `copy` on systems other than Linux.
#[cfg(not(target_os = "linux"))]
mod copy {
    use std::ffi::c_void;

    /// Returns none, because no copy is safe here: the position of a zone in its graph remains unknown.
    pub(super) fn copy<const N: usize>(_from: *const c_void, _count: usize) -> Option<Box<[[u8; N]]>> {
        None
    }
}

/// A CUDA stream of any binding, by its raw handle (`CUstream`, `cudaStream_t`).
///
/// The handles of the default streams (null, `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`) mean those of the context that is
/// current where a zone begins. A zone that is captured in a session with `graph_timing` is timed where the stream's own
/// context is current.
///
/// A null handle means the legacy default stream in [`from_ptr`](Self::from_ptr). Code that is compiled with
/// `nvcc --default-stream per-thread` or `CUDA_API_PER_THREAD_DEFAULT_STREAM` means the per-thread default stream by it: pass its handles
/// to [`from_ptr_per_thread`](Self::from_ptr_per_thread).
///
/// Zones on a stream of a green context (`cuGreenCtxStreamCreate`) are timed in the primary context of the device, so a session makes the
/// green context current to no thread. A default stream of a green context is not timed, and the report says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawStream(*mut c_void);

// SAFETY: this type only stores the handle; the caller of `from_ptr` guarantees that the stream is valid.
#[allow(unsafe_code)]
unsafe impl Send for RawStream {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for RawStream {}

impl RawStream {
    /// Returns the stream of a raw handle. A null handle is the legacy default stream.
    ///
    /// # Safety
    /// The stream must live as long as this value, its copies, and the zones that begin on it. It may be destroyed while zones that have
    /// ended on the host wait for the device. Its context must live until the session is finished, unless it is a device's primary context.
    /// Any context must live until each semaphore that the stream has signalled has observed the value, or is dropped.
    #[allow(unsafe_code)]
    pub unsafe fn from_ptr(stream: *mut c_void) -> RawStream {
        RawStream(stream)
    }

    /// Returns the stream of a raw handle of a program in which a null handle means the calling thread's default stream, because it was
    /// compiled with `nvcc --default-stream per-thread` or `CUDA_API_PER_THREAD_DEFAULT_STREAM`. Other handles are as in
    /// [`from_ptr`](Self::from_ptr).
    ///
    /// The default stream is that of the thread on which a zone begins, and the zone must end on that thread.
    /// [`as_ptr`](Self::as_ptr) returns `CU_STREAM_PER_THREAD` for it, which has one meaning in all programs.
    ///
    /// # Safety
    /// As for [`from_ptr`](Self::from_ptr).
    #[allow(unsafe_code)]
    pub unsafe fn from_ptr_per_thread(stream: *mut c_void) -> RawStream {
        RawStream(if stream.is_null() { std::ptr::without_provenance_mut(PER_THREAD) } else { stream })
    }

    /// Names the stream as `warpline::name_stream` does, and returns it.
    ///
    /// It has no effect while the stream is being captured, and without the feature `enable`.
    #[must_use]
    pub fn named(self, name: &str) -> RawStream {
        if cfg!(feature = "runtime") {
            register();
            names::name(&self.as_stream(), name);
        }
        self
    }

    /// Returns the raw handle.
    pub fn as_ptr(self) -> *mut c_void {
        self.0
    }
}

impl AsStream for RawStream {
    #[inline]
    fn as_stream(&self) -> StreamRef<'_> {
        StreamRef::on_device(self)
    }
}

impl DeviceStream for RawStream {
    #[inline]
    fn parts(&self) -> Result<RawParts, String> {
        Ok(RawParts { stream: self.0, context: None })
    }
}

/// Registers CUDA as the backend of the bindings' streams.
pub fn register() {
    device::register(&Cuda);
}

/// The backend of streams of CUDA devices.
struct Cuda;

impl Device for Cuda {
    #[inline]
    fn key(&self, stream: &dyn DeviceStream) -> Key {
        key::of_stream(stream)
    }

    fn backend(&self, stream: &dyn DeviceStream, scope: &Scope) -> Result<Arc<dyn Backend>, BackendError> {
        let RawParts { stream: ptr, context } = stream.parts().map_err(BackendError)?;
        let driver = Driver::get()?;
        let told = |error| driver.describe(error);
        // Returns the error if the driver cannot identify the stream.
        let id = key::id(driver, stream, RawParts { stream: ptr, context }).map_err(told)?;
        let context = driver.home(ptr, context)?;
        let context = Context::get_or_create(driver, context, || stream.keep_context_alive(), scope)?;
        Ok(Arc::new(CudaBackend(Arc::new(CudaStream::new(context, ptr, id.unwrap_or(ptr as u64))))))
    }

    fn name_in_tools(&self, stream: &dyn DeviceStream, name: &str) {
        if let Ok(RawParts { stream, .. }) = stream.parts() {
            stream::name_in_tools(stream, name);
        }
    }

    fn capture_points(&self, stream: &dyn DeviceStream) -> Option<EventPair> {
        let RawParts { stream: ptr, context } = stream.parts().ok()?;
        // In the meantime, the stream's own handle keeps the context alive.
        let keeper = stream.keep_context_alive().map(|owner| Keeper::Owner(Arc::downgrade(&owner)));
        Some(EventPair::Captured(Box::new(CapturedEventPair::new(ptr, context, keeper))))
    }

    fn destroy(&self, of_stream: Option<*mut c_void>, destroy: &mut dyn FnMut()) {
        owner::destroy(of_stream, destroy);
    }

    fn put_point(&self, stream: &dyn DeviceStream, key: Key) -> Result<Arc<dyn DevicePoint>, Refusal> {
        Lane::new(stream).record(key).map(|point| point as Arc<dyn DevicePoint>)
    }

    fn wait_for(&self, stream: &dyn DeviceStream, key: Key, point: &dyn DevicePoint) -> Result<(), Refusal> {
        let foreign =
            || Refusal::Failed { what: "a wait on a CUDA stream", error: "a point of another device".to_owned() };
        Lane::new(stream).wait(key, (point as &dyn Any).downcast_ref().ok_or_else(foreign)?)
    }

    fn allocate(&self, stream: &dyn DeviceStream, key: Key, bytes: u64) -> Result<DeviceMemory, Refusal> {
        memory::allocate(Lane::new(stream), key, bytes)
    }

    fn free(&self, stream: &dyn DeviceStream, key: Key, memory: DeviceMemory) -> Result<(), Refusal> {
        memory::free(Lane::new(stream), key, memory)
    }

    fn with_context(&self, stream: &dyn DeviceStream, key: Key, work: &mut dyn FnMut()) -> Result<(), Refusal> {
        Lane::new(stream).with_context(key, work)
    }
}

#[cfg(feature = "cupti")]
pub mod cupti;
pub mod graph;
pub mod nccl;
