//! Synchronisations of threads and streams with the device, as CUPTI reports them: plain data, without GPU handles.
//!
//! A session with `synchronizations` delivers them to sinks, tests and users' own analysis. Times are nanoseconds of the host's
//! `CLOCK_BOOTTIME`, like those of zones.

use std::fmt;
use std::sync::Arc;

use crate::kernel::ZoneRef;
use crate::record::{Span, StreamInfo, ThreadInfo};

/// A call that made a thread wait for the device, or that made a stream wait for an event.
///
/// Records come in batches, each ordered by begin; a later batch may hold earlier calls. Queries (`cuEventQuery`, `cuStreamQuery`) are
/// not among them, because they do not wait. `Send` and `Sync`; cloning shares the texts.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncRecord {
    /// The call.
    pub kind: SyncKind,
    /// The thread that made it.
    pub thread: Arc<ThreadInfo>,
    /// The time span of the call: the time for which the thread waited. For [`SyncKind::StreamWaitEvent`], the time in which the thread
    /// queued the wait; CUPTI does not report how long the stream waited.
    pub host: Span,
    /// The stream that was waited for, or that was made to wait, as in zone records if zones use it. None for waits for an event or a
    /// context, and if the stream's device is unknown because CUPTI has reported no work of its context and no zone uses the stream.
    pub stream: Option<Arc<StreamInfo>>,
    /// CUPTI's number of the stream within its context; none for waits for an event or a context.
    pub cuda_stream: Option<u32>,
    /// CUPTI's number of the CUDA context.
    pub context: u32,
    /// CUPTI's number of the event that was waited for; none for waits for a stream or a context.
    pub event: Option<u32>,
    /// CUPTI's number of the call.
    pub correlation: u32,
    /// The innermost zone that was open on the thread; none outside zones, and in zones of `async fn`s.
    pub zone: Option<ZoneRef>,
}

impl SyncRecord {
    /// Returns the duration of the call, in ns.
    pub fn duration_ns(&self) -> i64 {
        self.host.duration_ns()
    }
}

/// The call of a [`SyncRecord`]. CUDA's runtime makes the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SyncKind {
    /// `cuEventSynchronize`: a thread waits for an event.
    EventSynchronize,
    /// `cuStreamWaitEvent`: a stream waits for an event, and the thread does not.
    StreamWaitEvent,
    /// `cuStreamSynchronize`: a thread waits for a stream.
    StreamSynchronize,
    /// `cuCtxSynchronize`, `cudaDeviceSynchronize`: a thread waits for a context.
    ContextSynchronize,
}

impl SyncKind {
    /// Returns the name of the driver's call.
    pub const fn as_str(self) -> &'static str {
        match self {
            SyncKind::EventSynchronize => "cuEventSynchronize",
            SyncKind::StreamWaitEvent => "cuStreamWaitEvent",
            SyncKind::StreamSynchronize => "cuStreamSynchronize",
            SyncKind::ContextSynchronize => "cuCtxSynchronize",
        }
    }

    /// Returns whether the calling thread waits.
    pub const fn is_on_thread(self) -> bool {
        !matches!(self, SyncKind::StreamWaitEvent)
    }
}

impl fmt::Display for SyncKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
