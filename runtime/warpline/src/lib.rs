//! Declarative GPU instrumentation.
//!
//! Mark the functions that launch work on a GPU stream, and the compiler checks the marks. At run time, each call becomes a zone on its
//! stream, and a session writes the zones to the trace UI that you already use.
//!
//! ```no_run
//! use std::hint::black_box;
//!
//! use warpline::{HostStream, gpu_zone};
//!
//! warpline::namespace!("demo", "vector arithmetic");
//!
//! /// Sums the values on the stream.
//! #[gpu_zone("demo.sum", fields(n = values.len()))]
//! fn sum(stream: &HostStream, values: Vec<f32>) {
//!     stream.launch(move || {
//!         black_box(black_box(values).iter().sum::<f32>()); // each addition needs the one before: about 1 ms
//!     });
//! }
//!
//! fn main() {
//!     let session = warpline::Session::from_env_or("perfetto=trace.pftrace,summary"); // WARPLINE=… wins
//!     let stream = HostStream::new("compute");
//!     sum(&stream, vec![1.0; 1_000_000]);
//!     session.finish(); // drains, writes, and says what was recorded and what was dropped
//! }
//! ```
//!
//! warpline never panics, never blocks a launching thread on a GPU and never swallows an error. It counts everything that it loses:
//! `recorded + captured + dropped = begun`.
//!
//! # Guide
//!
//! | page | for |
//! |---|---|
//! | [Tutorial](guide::tutorial) | a small program: mark it, find the gap, fix it |
//! | [Migration](guide::migration) | code that uses NVTX, `tracing` or PyTorch's profiler |
//! | [Troubleshooting](guide::troubleshooting) | an empty trace, missing times, unexpected file names |
//! | [How it works](guide::how_it_works) | one zone, from its mark to a trace |
//! | [Features](guide::features), [comparison](guide::compare) | what each Cargo feature adds; other tools, and limits |
//! | [Marks](guide::marks) | the grammar of the attributes, the block forms and `range!` |
//! | [Sessions](guide::sessions), [how they end](guide::shutdown) | the life of a recording, its report; exit, signals, forks |
//! | [Settings](guide::settings), [what is recorded](guide::selection) | `WARPLINE=…`; filters, steps, samples and budgets |
//! | [Reports](guide::report), [what the figures mean](guide::figures), [comparing traces](guide::compare_traces), [SQL](guide::query) | figures from traces, what became slower, and any other question |
//! | [CUDA streams](guide::cuda), [how exact the times are](guide::exactness) | streams of cudarc and of other bindings; what is measured, and how well |
//! | [HIP streams](guide::hip) | AMD GPUs; not run on hardware |
//! | [CUDA graphs](guide::graphs), [their reference](guide::graphs_reference) | zones that are captured, and their times in replays |
//! | [Kernels](guide::kernels) | exact times of kernels and copies |
//! | [Collectives](guide::collectives), [many ranks](guide::ranks), [their tables](guide::ranks_tables) | sizes and bandwidths, which rank is late, how to launch |
//! | [Timelines](guide::timelines) | semaphores and queues |
//! | [What is in a trace](guide::traces) | rows, arguments, categories |
//! | [Backends](guide::backends) | streams of an API that warpline does not know |
//! | [Testing your marks](guide::testing) | a test that checks the zones of your code |
//! | [Single zones](guide::profile) | timing one zone without a session |
//! | [Metrics](guide::metrics) | OpenTelemetry, Prometheus and Grafana while a program runs |
//! | [From outside](guide::control) | recording a running program with the command `warpline` |
//! | [The flight recorder](guide::flight) | the last zones of a program that was killed or hangs |
//! | [The catalog](guide::catalog) | what a binary can record |
//! | [Other tools' traces](guide::annotate) | naming the kernels of graphs in traces of PyTorch's profiler |
//! | [Nsight and CUPTI](guide::nvtx), [`tracing`](guide::tracing), [Tracy](guide::tracy) | other tools |
//!
//! # Cargo features
//!
//! Libraries mark with no features, or with `cuda` if they mark on cudarc's `CudaStream`. Only the final application turns on
//! `enable`. All features are additive, and none is on by default.
//!
//! | feature | what it adds | who turns it on |
//! |---|---|---|
//! | [`enable`](guide::sessions) | Zones are recorded, and NVTX tools see them. Without it, marks leave no code | the application |
//! | [`cuda`](guide::cuda) | Zones on CUDA streams: cudarc's `CudaStream`, and `RawStream` for any other binding. The application chooses the versions of cudarc, CUDA and NCCL | crates that mark CUDA streams |
//! | [`cudarc-0_19`](guide::cuda) | The streams of cudarc 0.19, which `cuda` has today. Includes `cuda` | crates that stay on cudarc 0.19 |
//! | [`cudarc-0_18`](guide::cuda) | The streams of cudarc 0.18, beside those of `cuda`. Includes `cuda` | crates that mark streams of cudarc 0.18 |
//! | [`cupti`](guide::kernels) | Exact times of kernels and copies, from NVIDIA's CUPTI, which is opened at run time. Includes `cuda` | the application |
//! | [`cublas`](guide::cuda) | Zones on the stream of cudarc's `CudaBlas`. Includes `cuda` | crates that mark on `CudaBlas` |
//! | [`hip`](guide::hip) | Zones on HIP streams by their raw handles, and roctx ranges. *Not run on hardware* | crates that mark HIP streams |
//! | [`timeline`](guide::timelines) | Semaphores and queues that order streams and host threads | crates that use them |
//! | [`tracing`](guide::tracing) | Spans of `tracing` in the trace, and zones as its events | the application |
//! | [`tracy`](guide::tracy) | Zones live in Tracy. Compiles Tracy's client, which is C++ | the application |
//! | [`ranks`](guide::ranks) | Parquet tables of each rank of a job, and what it is doing now | the application |
//! | [`otlp`](guide::metrics) | Metrics for an OpenTelemetry collector while the session runs | the application |
//! | [`prometheus`](guide::metrics) | Metrics for Prometheus while the session runs | the application |
//! | [`export`](guide::catalog) | The catalog as JSON, Markdown, CSV, HTML, or filters and configurations of profilers. `enable` includes it | tools |
//!
//! # Testing your marks
//!
//! [`testing::record`] returns the zones of a test, and [`HostStream`] executes work without a GPU:
//!
//! ```
//! use warpline::{HostStream, Value, block, testing};
//!
//! warpline::namespace!("demo", "vector arithmetic");
//!
//! # fn main() {
//! # if !cfg!(feature = "enable") { return }
//! let stream = HostStream::new("compute");
//! let zones = testing::record(|| {
//!     block::gpu_zone!("demo.scale", &stream, description = "Scales a batch.", fields(n = 64), { stream.launch(|| ()) });
//! });
//! assert_eq!(zones[0].range.name(), "demo.scale");
//! assert_eq!(zones[0].fields.get("n"), Some(&Value::I64(64)));
//! # }
//! ```
//!
//! [The guide](guide::testing) describes tests in detail.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

mod error;
pub mod memory;
// The module exists only in the documentation. The tests of its pages run elsewhere, with the features that they need.
#[cfg(all(doc, not(doctest)))]
// Incomplete examples contain `…` instead of the missing part.
#[allow(rustdoc::invalid_rust_codeblocks)]
pub mod guide;
pub mod profile;
mod session;
// Only a build with the feature `enable` uses all of it.
#[cfg_attr(not(feature = "enable"), allow(dead_code, unused_imports))]
mod settings;
#[cfg(feature = "tracing")]
mod spans;
mod stream_names;
pub mod testing;

#[cfg(all(feature = "enable", any(feature = "otlp", feature = "prometheus", feature = "ranks")))]
#[cfg_attr(
    not(any(feature = "otlp", feature = "ranks")),
    allow(dead_code, reason = "the metrics of Prometheus use a part of it")
)]
mod buckets;
#[cfg(feature = "enable")]
// Only the control server uses all of it.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports))]
mod collector;
#[cfg(all(feature = "enable", target_os = "linux"))]
mod control;
#[cfg(feature = "enable")]
mod exit;
#[cfg(all(feature = "enable", unix))]
mod flight;
#[cfg(all(feature = "enable", any(feature = "otlp", feature = "prometheus")))]
#[cfg_attr(
    not(all(feature = "otlp", feature = "prometheus")),
    allow(dead_code, reason = "each of the two uses parts that the other one does not")
)]
mod metrics;
#[cfg(feature = "enable")]
mod mirror;
#[cfg(all(feature = "enable", feature = "ranks"))]
mod ranks;
#[cfg(all(feature = "enable", any(feature = "otlp", feature = "prometheus", feature = "ranks")))]
#[cfg_attr(not(feature = "ranks"), allow(dead_code, reason = "metrics use a part of it"))]
mod step_times;
#[cfg(all(feature = "enable", feature = "tracy"))]
mod tracy;

pub use error::Error;
pub use session::Session;
pub use settings::SessionBuilder;
pub use stream_names::name_stream;
pub use warpline_core::backend::AsStream;
pub use warpline_core::backend::host::HostStream;
pub use warpline_core::catalog::{RangeSpec, catalog};
pub use warpline_core::fields::{Value, display};
pub use warpline_core::namespace;
#[doc(inline)]
pub use warpline_core::zone::step::step;
pub use warpline_core::zone::{AsyncZone, Zone};
#[doc(hidden)]
pub use warpline_core::{__namespace, __note, __range, __spec};
#[cfg(feature = "cuda")]
pub use warpline_cuda::{RawEvent, RawStream};
#[cfg(feature = "hip")]
pub use warpline_hip::HipStream;
pub use warpline_macros::{collective, gpu_zone, host_zone, range};
#[cfg(feature = "timeline")]
#[doc(inline)]
pub use warpline_timeline as timeline;

/// The catalog of ranges: what a binary can record.
pub mod catalog {
    #[cfg(feature = "export")]
    pub use warpline_core::catalog::export;
    pub use warpline_core::catalog::{
        ByteOrder, Catalog, CatalogFault, Kind, Level, NamespaceRecord, NamespaceSpec, NoteError, RangeId, RangeRecord,
        Records, name, record,
    };
}

/// Backends of one's own: the traits by which zones are timed on streams that warpline does not know.
///
/// CUDA streams and [`HostStream`] have built-in backends. A backend for another API (Vulkan, Level Zero, wgpu, a
/// thread pool) is a crate that depends on `warpline` alone. [The guide](crate::guide::backends) says how to write one, and
/// `examples/backend` in the repository is a complete one.
///
/// | a backend implements | for |
/// |---|---|
/// | [`AsStream`] and [`BackendStream`](backend::BackendStream) | its stream type, which marks take |
/// | [`Backend`](backend::Backend) | one stream in one session |
/// | [`Points`](backend::Points) | the begin and end of a zone |
/// | [`Reader`](backend::Reader) | the times of a stream's zones |
/// | [`Clock`](backend::Clock) | the device's clock, related to the host's |
pub mod backend {
    pub use warpline_core::backend::device::KeepAlive;
    pub use warpline_core::backend::{
        Backend, BackendError, BackendStream, Call, Clock, EventPair, Limits, NoKey, Points, Reader, Reading, Refused,
        Scope, Shared, Space, StreamKey, StreamRef, new_space, stream_dropped,
    };
    pub use warpline_core::clock::{Comparison, Comparisons, Correlation, EventOverhead, now_ns};
}

/// Data of collectives: kinds, element types, process groups and messages.
pub mod collective {
    pub use warpline_core::collective::{
        Bandwidth, CollectiveKind, DataType, Element, IntoCount, IntoDataType, Message, ProcessGroup, ReduceOp,
    };
    pub use warpline_core::zone::CollectiveBatch;
}

/// Zones that are named at run time: for kernels that a compiler generates, source lines of an interpreter, callers in another language.
///
/// ```
/// use warpline::{HostStream, dynamic};
///
/// fn launch(stream: &HostStream, kernel: &str) {
///     let _zone = dynamic::zone(stream, kernel, "model.py", 12, "forward");
///     stream.launch(|| ());
/// }
/// # fn main() { launch(&HostStream::new("jit"), "fused_add_17"); }
/// ```
///
/// A name with its place is a range, which traces, reports, `filter=` and tools treat like one of the catalog. It is created on first use, which
/// allocates and takes a lock, and lives as long as the process. Keep the [`RangeSpec`] that [`range`](dynamic::range) returns where
/// the same name is used often: a zone of it costs as much as one of a mark. Names, files and functions are cut to 255 bytes. After 65,536
/// names, zones of further names count under `(more)`.
///
/// Such ranges are not in [`catalog()`](crate::catalog()), which lists what the binary declares; [`ranges`](dynamic::ranges) lists them.
pub mod dynamic {
    pub use warpline_core::dynamic::{range, ranges};
    pub use warpline_core::zone::named::{host, zone};
}

/// The fields of zones, and the types of their values.
pub mod fields {
    pub use warpline_core::fields::{
        Displayed, Element, EntryValue, Fields, IntoValue, Item, List, MAX_FIELDS, MAX_LABEL_BYTES, MAX_LIST_ITEMS,
        MAX_MAP_ENTRIES, MAX_TEXT_BYTES, MORE_LANES, MOST_LANES, Map,
    };
}

/// Recovery of traces of killed programs.
pub mod recovery {
    pub use warpline_core::recovered::{RecoverError, Recovered};
    #[cfg(feature = "export")]
    pub use warpline_trace::flight::recover;
}

/// Zones in CUDA graphs: labels of nodes, and the nodes of a replay.
#[cfg(feature = "cuda")]
pub mod graph {
    pub use warpline_cuda::graph::{
        AddedNodes, AsGraph, GraphError, GraphNode, GraphRef, GraphZones, JSON_FORMAT, NodeCount, NodeIdSource,
        NodeKind, RawGraph, Unlabelled, ZoneLabel, save,
    };
}

/// NCCL's communicators.
#[cfg(feature = "cuda")]
pub mod nccl {
    pub use warpline_cuda::nccl::{NcclError, process_group};
}

/// The records of a session: zones, kernels, replays, waits, device memory and spans.
pub mod record {
    pub use warpline_core::kernel::{GraphNodeId, KernelLaunch, KernelRecord, KernelWork, ZoneRef};
    pub use warpline_core::memory::{MemoryChange, MemoryRecord, MemoryTiming};
    pub use warpline_core::record::{
        BatchEntry, DeviceInfo, DeviceKind, EndSource, Span, SpanRecord, SpanRef, SpanSite, Status, StreamInfo,
        ThreadInfo, ZoneRecord, is_bound,
    };
    pub use warpline_core::replay::{ReplayRecord, ReplayTiming, ReplayedZone};
    pub use warpline_core::step::StepRecord;
    pub use warpline_core::synchronization::{SyncKind, SyncRecord};
    pub use warpline_core::wait::{QueueDepth, SignalInfo, WaitOutcome, WaitRecord};
    pub use warpline_core::work::{IntoWork, Work, WorkRates};
}

/// The report at a session's end: counts, sums, drops, and the critical path.
pub mod report {
    pub use warpline_report::path::{CriticalPath, PathPart, PathSegment, critical_path};
    pub use warpline_report::work::{Peak, PeakMeasurement, WorkStats};
    pub use warpline_report::{
        ClockFigures, CollectiveStats, Dropped, EventPoolCounts, GraphTimingCounts, HostWaitStats, KernelCounts,
        KernelStats, KernelTimingCounts, LeftOut, MemoryCounts, MemoryHolder, MemoryStats, RangeStats, Report,
        Retention, SemaphoreStats, SinkReport, SpanCounts, StepStats, StreamStats, SyncCounts, TraceFile, WaitCounts,
        WaitedFor, WindowFigures,
    };
}

/// Destinations of records: the trait, and warpline's own sinks.
pub mod sink {
    pub use crate::session::SinkId;
    #[cfg(all(feature = "enable", feature = "tracy"))]
    pub use crate::tracy::sink::TracySink;
    pub use warpline_report::sink::{Batch, Change, MemorySink, Progress, SessionChange, SessionInfo, Sink};
    #[cfg(feature = "export")]
    pub use warpline_trace::write::{chrome::ChromeSink, perfetto::PerfettoSink};
}

/// The stream reference that an [`AsStream`] implementation returns, and the error of a host stream.
pub mod stream {
    pub use warpline_core::backend::StreamRef;
    #[doc(hidden)]
    pub use warpline_core::backend::fault::Faults;
    pub use warpline_core::backend::host::LaunchPanicked;
}

/// How zones are timed: the values of [`SessionBuilder::ends`], [`SessionBuilder::timing`] and [`SessionBuilder::graph_timing`].
pub mod timing {
    pub use warpline_core::timing::{EndMode, GraphTiming, Timing};
}

/// Spans and events of the crate `tracing`, beside the zones of a session. [The guide](crate::guide::tracing) has whole programs.
#[cfg(feature = "tracing")]
pub mod tracing {
    pub use crate::spans::{OnStream, TracingLayer, on_stream, tracing_layer as layer};
}

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
/// They are in a separate module because one name cannot be both an attribute and a macro.
pub mod block {
    pub use warpline_macros::{
        collective_block as collective, gpu_zone_block as gpu_zone, host_zone_block as host_zone,
    };
}

/// The items that the command `warpline doctor` uses. This is not a public API and may change in any release.
#[doc(hidden)]
pub mod __doctor {
    pub use crate::settings::inspect::{InspectedSettings, inspect};
}

/// The items that expanded macros use. This is not a public API and may change in any release.
#[doc(hidden)]
pub mod __private {
    pub use crate::profile::{time, timed};
    pub use warpline_core::catalog::expansion::{Shape, refused};
    pub use warpline_core::catalog::{Kind, RangeSpec};
    pub use warpline_core::collective::{CollectiveKind, DataType, Element, Message, ReduceOp, infer};
    pub use warpline_core::fields::Value;
    pub use warpline_core::zone::step::StepGuard;
    pub use warpline_core::zone::{Check, Outcome, Tried, exits, exits_with, never, once, returned};
    pub use warpline_core::zone::{Keep, KeepReference, KeptStream};
    pub use warpline_core::zone::{ZoneBuilder, ZoneRequest, begin};
}

// Stand-ins for the parts that need another operating system.
#[cfg(all(feature = "enable", not(target_os = "linux")))]
mod control {
    //! No control server: it needs Linux.

    use crate::settings::Config;

    pub(crate) enum Listening {}

    impl Listening {
        pub(crate) fn start(_: &Config) -> Result<Listening, String> {
            Err("it needs Linux".to_owned())
        }
    }
}

#[cfg(all(feature = "enable", not(unix)))]
mod flight {
    //! No flight recorder: it needs Unix.

    use std::path::Path;
    use std::sync::Arc;
    use std::thread::Thread;
    use std::time::Duration;

    use crate::error::Error;
    use crate::settings::Config;
    use warpline_core::recovered::{RecoverError, Recovered};
    use warpline_report::sink::{SessionInfo, Sink};

    pub(crate) enum Flight {}

    #[rustfmt::skip]
    impl Flight {
        pub(crate) fn open(_: &Config, _: &SessionInfo) -> Result<Option<Arc<Flight>>, Error> { Ok(None) }
        pub(crate) fn sink(&self) -> Box<dyn Sink> { match *self {} }
        pub(crate) fn path(&self) -> &Path { match *self {} }
        pub(crate) fn notice(&self) -> Option<String> { match *self {} }
        pub(crate) fn is_temporary(&self) -> bool { match *self {} }
        pub(crate) fn undo(&self) { match *self {} }
        pub(crate) fn begin(&self, _: Thread, _: fn() -> Option<Arc<Flight>>) { match *self {} }
        pub(crate) fn problems(&self) -> Vec<String> { match *self {} }
        pub(crate) fn dump(&self, _: &Path) -> Result<Recovered, RecoverError> { match *self {} }
        pub(crate) fn end(&self, _: Duration) { match *self {} }
    }
}
