//! The messages of a Perfetto trace that PyTorch's profiler writes; all other fields are skipped.
//!
//! The tags are from `protos/perfetto/trace` in Perfetto's repository, which documents each field.

use prost::{Message, Oneof};

/// `SequenceFlags`: strings that were interned earlier on this sequence are no longer valid.
pub(super) const STATE_CLEARED: u32 = 1;

/// `TracePacket`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Packet {
    #[prost(uint64, tag = "8")]
    pub(super) timestamp: u64,
    #[prost(uint32, tag = "10")]
    pub(super) sequence: u32,
    #[prost(message, optional, tag = "11")]
    pub(super) event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub(super) interned: Option<Interned>,
    #[prost(uint32, tag = "13")]
    pub(super) flags: u32,
    #[prost(bytes = "vec", optional, tag = "50")]
    pub(super) compressed: Option<Vec<u8>>,
    #[prost(message, optional, tag = "52")]
    pub(super) counters: Option<CounterEvent>,
    #[prost(message, optional, tag = "53")]
    pub(super) stage: Option<RenderStage>,
    #[prost(uint32, tag = "58")]
    pub(super) clock: u32,
    #[prost(message, optional, tag = "60")]
    pub(super) track: Option<TrackDescriptor>,
}

/// `TrackDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    pub(super) uuid: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(message, optional, tag = "3")]
    pub(super) process: Option<Process>,
    #[prost(message, optional, tag = "4")]
    pub(super) thread: Option<Thread>,
    #[prost(uint64, tag = "5")]
    pub(super) parent: u64,
}

/// `ProcessDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Process {
    #[prost(int32, tag = "1")]
    pub(super) pid: i32,
    #[prost(string, tag = "6")]
    pub(super) name: String,
}

/// `ThreadDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Thread {
    #[prost(int32, tag = "1")]
    pub(super) pid: i32,
    #[prost(int64, tag = "2")]
    pub(super) tid: i64,
    #[prost(string, tag = "5")]
    pub(super) name: String,
}

/// `TrackEvent.Type`.
pub(super) const SLICE_BEGIN: u32 = 1;
pub(super) const SLICE_END: u32 = 2;
pub(super) const INSTANT: u32 = 3;
pub(super) const COUNTER: u32 = 4;

/// `TrackEvent`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackEvent {
    #[prost(uint64, repeated, tag = "3")]
    pub(super) category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub(super) annotations: Vec<Annotation>,
    #[prost(uint32, tag = "9")]
    pub(super) kind: u32,
    #[prost(uint64, tag = "10")]
    pub(super) name_iid: u64,
    #[prost(uint64, tag = "11")]
    pub(super) track: u64,
    #[prost(string, repeated, tag = "22")]
    pub(super) categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    pub(super) name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    pub(super) counter: Option<i64>,
    #[prost(double, optional, tag = "44")]
    pub(super) double_counter: Option<f64>,
    #[prost(fixed64, repeated, tag = "47")]
    pub(super) flows: Vec<u64>,
    #[prost(fixed64, repeated, tag = "48")]
    pub(super) ended_flows: Vec<u64>,
    /// An extension: `GpuTrackEvent.gpu_correlation`.
    #[prost(message, optional, tag = "3000")]
    pub(super) correlation: Option<GpuCorrelation>,
}

/// `GpuCorrelation`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GpuCorrelation {
    /// The `event_id` of the work that the call submitted.
    #[prost(uint64, repeated, tag = "1")]
    pub(super) submitted: Vec<u64>,
}

/// `DebugAnnotation`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Annotation {
    #[prost(uint64, tag = "1")]
    pub(super) name_iid: u64,
    #[prost(string, optional, tag = "10")]
    pub(super) name: Option<String>,
    #[prost(oneof = "AnnotationValue", tags = "2, 3, 4, 5, 6, 7, 9, 17")]
    pub(super) value: Option<AnnotationValue>,
    #[prost(message, repeated, tag = "11")]
    pub(super) entries: Vec<Annotation>,
    #[prost(message, repeated, tag = "12")]
    pub(super) values: Vec<Annotation>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum AnnotationValue {
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(uint64, tag = "3")]
    Uint(u64),
    #[prost(int64, tag = "4")]
    Int(i64),
    #[prost(double, tag = "5")]
    Double(f64),
    #[prost(string, tag = "6")]
    Text(String),
    #[prost(uint64, tag = "7")]
    Pointer(u64),
    #[prost(string, tag = "9")]
    Json(String),
    #[prost(uint64, tag = "17")]
    TextIid(u64),
}

/// `InternedData`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Interned {
    #[prost(message, repeated, tag = "1")]
    pub(super) categories: Vec<Name>,
    #[prost(message, repeated, tag = "2")]
    pub(super) event_names: Vec<Name>,
    #[prost(message, repeated, tag = "3")]
    pub(super) annotation_names: Vec<Name>,
    #[prost(message, repeated, tag = "24")]
    pub(super) specifications: Vec<Name>,
    #[prost(message, repeated, tag = "29")]
    pub(super) texts: Vec<Name>,
    #[prost(message, repeated, tag = "47")]
    pub(super) counters: Vec<Counters>,
    /// An extension: `GpuInternedData.compute_kernels`.
    #[prost(message, repeated, tag = "1000")]
    pub(super) kernels: Vec<Kernel>,
}

/// Any interned text. Its messages have different names and the same fields.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Name {
    #[prost(uint64, tag = "1")]
    pub(super) iid: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
}

/// `InternedComputeKernel`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Kernel {
    #[prost(uint64, tag = "1")]
    pub(super) iid: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) demangled: String,
}

/// `InternedGpuCounterDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Counters {
    #[prost(uint64, tag = "1")]
    pub(super) iid: u64,
    #[prost(message, optional, tag = "2")]
    pub(super) descriptor: Option<CounterDescriptor>,
    #[prost(int32, tag = "3")]
    pub(super) gpu: i32,
}

/// `GpuCounterDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CounterDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub(super) specs: Vec<CounterSpec>,
}

/// `GpuCounterSpec`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CounterSpec {
    #[prost(uint32, tag = "1")]
    pub(super) id: u32,
    #[prost(string, tag = "2")]
    pub(super) name: String,
}

/// `GpuCounterEvent`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CounterEvent {
    #[prost(message, repeated, tag = "2")]
    pub(super) counters: Vec<Counter>,
    #[prost(uint64, tag = "4")]
    pub(super) descriptor_iid: u64,
}

/// `GpuCounter`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Counter {
    #[prost(uint32, tag = "1")]
    pub(super) id: u32,
    #[prost(int64, optional, tag = "2")]
    pub(super) int: Option<i64>,
    #[prost(double, optional, tag = "3")]
    pub(super) double: Option<f64>,
}

/// `GpuRenderStageEvent`: work on a device.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RenderStage {
    #[prost(uint64, tag = "1")]
    pub(super) event_id: u64,
    #[prost(uint64, tag = "2")]
    pub(super) duration: u64,
    #[prost(message, repeated, tag = "6")]
    pub(super) extra: Vec<Extra>,
    #[prost(int32, tag = "11")]
    pub(super) gpu: i32,
    #[prost(uint64, tag = "13")]
    pub(super) queue_iid: u64,
    #[prost(uint64, tag = "14")]
    pub(super) stage_iid: u64,
    #[prost(string, optional, tag = "17")]
    pub(super) name: Option<String>,
    #[prost(uint64, tag = "19")]
    pub(super) kernel_iid: u64,
    #[prost(uint64, tag = "20")]
    pub(super) name_iid: u64,
    #[prost(message, optional, tag = "21")]
    pub(super) launch: Option<Launch>,
}

/// `ExtraData`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Extra {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// `ComputeKernelLaunch`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Launch {
    #[prost(message, optional, tag = "1")]
    pub(super) grid: Option<Dim3>,
    #[prost(message, optional, tag = "2")]
    pub(super) block: Option<Dim3>,
}

/// `Dim3`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Dim3 {
    #[prost(uint32, tag = "1")]
    pub(super) x: u32,
    #[prost(uint32, tag = "2")]
    pub(super) y: u32,
    #[prost(uint32, tag = "3")]
    pub(super) z: u32,
}
