//! Declarative GPU instrumentation.
//!
//! Mark the functions that launch work on a GPU stream; the compiler checks the marks; while the program runs, each one
//! becomes a zone on its stream, and a session writes the zones to the trace UI that you already use.
//!
//! ```
//! use warpline::{HostStream, gpu_zone};
//!
//! warpline::namespace!("demo", "vector arithmetic");
//!
//! /// Adds `n` numbers on the stream.
//! #[gpu_zone("demo.add", fields(n = n))]
//! fn add(stream: &HostStream, n: u64) {
//!     stream.launch(move || { std::hint::black_box((0..n).sum::<u64>()); });
//! }
//!
//! fn main() -> Result<(), warpline::Error> {
//!     let session = warpline::Session::from_env_or("summary")?; // WARPLINE=… wins
//!     let stream = HostStream::new("compute");
//!     add(&stream, 1_000);
//!     session.finish().print();
//!     Ok(())
//! }
//! ```
//!
//! What it promises: the application comes first (nothing here panics, blocks a launching thread on a GPU or swallows an
//! error); nothing is lost silently (`recorded + captured + dropped = begun`); without feature `enable` a marked function compiles
//! to the same machine code as an unmarked one.
//!
//! Libraries depend on this crate with no features and mark freely, or with `cuda` if they mark on cudarc's `CudaStream`; only
//! the final application turns on `enable`.
#![deny(unsafe_code)]

pub mod catalog;
mod collective;
/// In the open for the command `warpline`, which needs no `enable` for what is said.
#[cfg(feature = "export")]
mod control;
mod fields;
mod files;
mod flight;
#[cfg(feature = "cuda")]
pub mod graph;
mod kernel;
mod path;
mod profile;
mod record;
mod replay;
mod session;
mod sink;
#[cfg(feature = "tracing")]
mod spans;
mod spelling;
mod stream;
mod tell;
#[cfg(feature = "timeline")]
pub mod timeline;
mod wait;
mod zone;

#[cfg(feature = "enable")]
mod budget;
#[cfg(feature = "enable")]
mod clock;
#[cfg(feature = "enable")]
mod collector;
#[cfg(all(feature = "enable", feature = "cupti"))]
mod cupti;
#[cfg(feature = "enable")]
mod lock;
#[cfg(feature = "enable")]
mod nvtx;
#[cfg(feature = "enable")]
mod process;
#[cfg(feature = "enable")]
mod switch;
#[cfg(all(feature = "enable", feature = "tracy"))]
mod tracy;

mod backend;

#[cfg(feature = "cuda")]
pub use backend::cuda::RawStream;
pub use backend::fault::Faults;
pub use backend::host::{HostStream, LaunchPanicked};
#[cfg(feature = "cuda")]
pub use backend::nccl::NcclError;
pub use catalog::{Kind, Level, RangeSpec, catalog};
pub use collective::{
    Bandwidth, CollectiveKind, DataType, Element, IntoCount, IntoDataType, Message, ProcessGroup, ReduceOp,
};
pub use fields::{Displayed, Fields, IntoValue, MAX_FIELDS, MAX_LABEL_BYTES, Value, display};
#[cfg(feature = "export")]
pub use flight::recover;
pub use flight::{RecoverError, Recovered};
pub use kernel::{GraphNodeId, KernelLaunch, KernelRecord, KernelWork, ZoneRef};
pub use path::{CriticalPath, PathPart, Stretch, critical_path};
pub use profile::{AskedRange, PendingZone, PendingZones, ProfileError, profile_next, profile_next_n, profile_range};
pub use record::{
    BatchEntry, DeviceInfo, DeviceKind, EndFound, Span, SpanRecord, SpanRef, SpanSite, Status, StreamInfo, ThreadInfo,
    ZoneRecord,
};
pub use replay::{ReplayRecord, ReplayTiming, ReplayedZone};
pub use session::{
    ClockFigures, CollectiveStats, Dropped, Ends, Error, GraphTiming, GraphTimingCounts, Kept, KernelCounts,
    RangeStats, Report, SemaphoreStats, Session, SessionBuilder, SinkReport, SpanCounts, StreamStats, TraceFile,
    WaitCounts, WaitedFor,
};
#[cfg(all(feature = "enable", feature = "tracy"))]
pub use sink::TracySink;
pub use sink::{Change, MemorySink, Progress, SessionChange, SessionInfo, Sink};
#[cfg(feature = "enable")]
pub use sink::{ChromeSink, PerfettoSink};
#[cfg(feature = "tracing")]
pub use spans::{TracingLayer, tracing_layer};
pub use stream::{AsStream, StreamRef};
pub use wait::{QueueDepth, SignalInfo, WaitOutcome, WaitRecord};
pub use warpline_macros::{collective, gpu_zone, host_zone, range};
pub use zone::{AsyncZone, CollectiveBatch, Zone};

/// The block forms of the marks, for a part of a function.
///
/// ```
/// # use warpline::HostStream;
/// use warpline::block;
///
/// warpline::namespace!("demo", "vector arithmetic");
///
/// fn step(stream: &HostStream) -> usize {
///     let rows = block::host_zone!("demo.load", description = "Loads a batch.", { 64 });
///     block::gpu_zone!("demo.scale", stream, description = "Scales a batch.", {
///         stream.launch(|| ());
///     });
///     rows
/// }
/// # fn main() {}
/// ```
///
/// They stand in a module of their own because one name cannot be an attribute and a macro at once.
pub mod block {
    pub use warpline_macros::{
        collective_block as collective, gpu_zone_block as gpu_zone, host_zone_block as host_zone,
    };
}

/// What the macros expand to. Not for people; it may change in any release.
#[doc(hidden)]
pub mod __private {
    pub use crate::catalog::declare::refused;
    pub use crate::catalog::record::Note;
    pub use crate::catalog::spec::{Facts, NamespaceSpec, WARPLINE_NAMESPACES_V1, WARPLINE_RANGES_V1};
    #[cfg(all(feature = "export", unix))]
    pub use crate::control::place;
    #[cfg(feature = "export")]
    pub use crate::control::protocol;
    pub use crate::profile::{time, timed};
    #[cfg(feature = "export")]
    pub use crate::sink::proto;
    pub use crate::zone::{Begin, Opening, Outcome, begin};
    pub use linkme;
    pub use warpline_macros::{__claim as claim, __package as package, __version as version};
}
