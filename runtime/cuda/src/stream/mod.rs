//! Zones on one CUDA stream: how their points are put on the stream, and how they are read.
//!
//! A begin is always an event with a time. An end is either such an event (*eager*) or a *marker* without a time (*lazy*). A lazy zone
//! ended at the next begin on the stream or earlier, and the time at which the collector sees its marker complete is another upper bound.
//! `event_pair` puts the points on the stream, on the launching thread; `reader` reads them, on the collector's thread.

pub(super) mod by_kernels;
mod captured;
mod event_pair;
mod reader;
mod timed_ends;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::clock::CudaClock;
use super::context::Context;
use super::driver::{ContextPtr, CudaError, EventPtr, LEGACY, PER_THREAD, StreamPtr, is_default};
use warpline_core::backend::{Backend, BackendError, Clock, DevicePoints, EventPair, PointStream, Reader, Refused};
use warpline_core::observer;
use warpline_core::record::DeviceInfo;
use warpline_core::stream::ring::{Line, List};
use warpline_core::stream::thread;
use warpline_core::stream::thread::Thread;

use by_kernels::{KernelClock, KernelReader};
pub(super) use captured::CapturedEventPair;
use reader::CudaReader;

/// A default stream of a context.
#[derive(Clone, Copy, Debug)]
pub enum DefaultStream {
    Legacy,
    PerThread,
}

/// A function that returns a profiling tool's numbers for a context and a stream. The stream is a handle or a default stream of the
/// context, which may be that of the calling thread. It is not being captured.
pub type ToolNumbers = fn(ContextPtr, Result<StreamPtr, DefaultStream>) -> Option<(u32, u32)>;

static TOOL_NUMBERS: OnceLock<ToolNumbers> = OnceLock::new();

/// Sets the function from which streams get their tool numbers on a session's first use, or at their first zone while the tool records. Only the
/// first call has an effect, because only one tool has numbers.
pub fn ask_tool_numbers(numbers: ToolNumbers) {
    let _ = TOOL_NUMBERS.set(numbers);
}

/// A stream in one session.
pub(super) struct CudaStream {
    context: Arc<Context>,
    ptr: StreamPtr,
    name: Option<String>,
    /// The id by which the device's queues count it, until no more zones begin on it.
    counted: AtomicBool,
    id: u64,
    /// CUPTI's numbers of the context and of the stream; unset while CUPTI has not recorded.
    tool_numbers: OnceLock<(u32, u32)>,
    /// Counts the points, to give their order.
    order: Line<AtomicU64>,
    /// Whether the last point on the stream is a marker. The next begin is then the end of its zone, even if ends have become eager in the
    /// meantime.
    owes_end: Line<AtomicBool>,
    /// Begins that the collector has not taken.
    begins: Line<List>,
}

// SAFETY: the driver takes a stream from any thread; everything else is `Send` and `Sync`.
#[allow(unsafe_code)]
unsafe impl Send for CudaStream {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for CudaStream {}

impl CudaStream {
    /// Creates the stream with this id, which counts for the kind of ends from now on.
    pub(super) fn new(context: Arc<Context>, ptr: StreamPtr, id: u64) -> CudaStream {
        let name = match ptr as usize {
            0 | LEGACY => Some("default stream".to_owned()),
            // The thread that first uses a per-thread default stream is the stream's own.
            PER_THREAD => Some(format!("per-thread default stream of {}", thread::with(Thread::called))),
            _ => None,
        };
        context.queues.add(id);
        let stream = CudaStream {
            context,
            ptr,
            name,
            counted: AtomicBool::new(true),
            id,
            tool_numbers: OnceLock::new(),
            order: Line(AtomicU64::new(0)),
            owes_end: Line(AtomicBool::new(false)),
            begins: Line(List::new()),
        };
        stream.ask_tool_numbers();
        stream
    }

    /// Asks for the tool's numbers if they are unknown: a session may meet the stream while the tool is paused. The stream has just been queried
    /// and is not being captured.
    #[inline]
    fn ask_tool_numbers(&self) {
        if self.tool_numbers.get().is_none()
            && let Some(ask) = TOOL_NUMBERS.get()
            && let Some(numbers) = ask(self.context.ptr, of_context(self.ptr))
        {
            let _ = self.tool_numbers.set(numbers);
        }
    }

    /// Calls `work` with a context current in which the stream's handle denotes this stream.
    #[inline]
    fn where_known<T>(&self, work: impl FnOnce() -> Result<T, CudaError>) -> Result<T, CudaError> {
        let Context { driver, ptr, .. } = &*self.context;
        driver.in_context(is_default(self.ptr).then_some(*ptr), work)
    }

    /// Records an event on the stream. The stream must not be in a capture.
    #[inline]
    fn record(&self, event: EventPtr) -> Result<(), Refused> {
        let driver = self.context.driver;
        self.where_known(|| driver.record(event, self.ptr)).map_err(|error| error.refusal(driver))
    }

    fn count(&self) -> u64 {
        self.order.fetch_add(1, Ordering::Relaxed)
    }

    /// Ends the count of the stream: no more zones begin on it.
    fn retire(&self) {
        if self.counted.swap(false, Ordering::Relaxed) {
            self.context.queues.remove(self.id);
        }
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        self.retire();
    }
}

/// Returns the stream, or the default stream that the handle denotes in a context.
pub(crate) fn of_context(ptr: StreamPtr) -> Result<StreamPtr, DefaultStream> {
    match ptr as usize {
        0 | LEGACY => Err(DefaultStream::Legacy),
        PER_THREAD => Err(DefaultStream::PerThread),
        _ => Ok(ptr),
    }
}

impl Context {
    /// Describes an error of the collector. If the context was destroyed, its handles are not used again.
    pub(super) fn failed(&self, error: CudaError) -> BackendError {
        if error.context_is_gone() {
            self.pool.abandon();
        }
        self.driver.describe(error)
    }
}

/// Passes a stream's name to the tool that mirrors zones.
pub(super) fn name_in_tools(stream: StreamPtr, name: &str) {
    // The handle of a default stream denotes a different stream in each context.
    if !is_default(stream) {
        observer::stream_named(stream, name);
    }
}

/// A stream in a session.
pub(super) struct CudaBackend(pub(super) Arc<CudaStream>);

impl Backend for CudaBackend {
    fn set_name_in_tools(&self, name: &str) {
        name_in_tools(self.0.ptr, name);
    }

    fn name(&self) -> Option<String> {
        self.0.name.clone()
    }

    fn tool_numbers(&self) -> Option<(u32, u32)> {
        self.0.tool_numbers.get().copied()
    }

    fn device(&self) -> DeviceInfo {
        self.0.context.device.clone()
    }

    fn clock_space(&self) -> u64 {
        self.0.context.id
    }

    fn points(&self) -> Result<EventPair, BackendError> {
        let stream = Arc::clone(&self.0) as Arc<dyn PointStream>;
        Ok(EventPair::Device(DevicePoints::new(stream)))
    }

    fn reader(&self) -> Box<dyn Reader> {
        if self.0.context.is_timed_by_kernels {
            return Box::new(KernelReader);
        }
        Box::new(CudaReader::new(Arc::clone(&self.0)))
    }

    fn clock(&self) -> Result<Box<dyn Clock>, BackendError> {
        if self.0.context.is_timed_by_kernels {
            return Ok(Box::new(KernelClock));
        }
        Ok(Box::new(CudaClock::new(Arc::clone(&self.0.context))?))
    }

    fn provide(&self) {
        let context = &self.0.context;
        if !context.is_timed_by_kernels {
            context.queues.review(Instant::now());
            context.pool.provide(context.is_lazy());
        }
    }

    fn has_lazy_ends(&self) -> bool {
        !self.0.context.is_timed_by_kernels && self.0.context.is_lazy()
    }

    fn retire(&self) {
        self.0.retire();
    }
}
