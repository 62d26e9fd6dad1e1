//! The messages of a Perfetto trace that PyTorch's profiler writes; all other fields are skipped.
//!
//! The tags are from `protos/perfetto/trace` in Perfetto's repository, which documents each field.

use prost::{Message, Oneof};

/// `SequenceFlags`: strings that were interned earlier on this sequence are no longer valid.
pub const STATE_CLEARED: u32 = 1;

/// `TracePacket`.
#[derive(Clone, PartialEq, Message)]
pub struct Packet {
    #[prost(message, optional, tag = "6")]
    pub clocks: Option<ClockSnapshot>,
    #[prost(uint64, tag = "8")]
    pub timestamp: u64,
    #[prost(uint32, tag = "10")]
    pub sequence: u32,
    #[prost(message, optional, tag = "11")]
    pub event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub interned: Option<Interned>,
    #[prost(uint32, tag = "13")]
    pub flags: u32,
    #[prost(bytes = "vec", optional, tag = "50")]
    pub compressed: Option<Vec<u8>>,
    #[prost(message, optional, tag = "52")]
    pub counters: Option<CounterEvent>,
    #[prost(message, optional, tag = "53")]
    pub stage: Option<RenderStage>,
    #[prost(uint32, tag = "58")]
    pub clock: u32,
    #[prost(message, optional, tag = "60")]
    pub track: Option<TrackDescriptor>,
}

/// `ClockSnapshot`.
#[derive(Clone, PartialEq, Message)]
pub struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
}

/// `ClockSnapshot.Clock`.
#[derive(Clone, PartialEq, Message)]
pub struct Clock {
    /// 1 is `BUILTIN_CLOCK_REALTIME`, and 6 `BUILTIN_CLOCK_BOOTTIME`.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    #[prost(uint64, tag = "2")]
    pub timestamp: u64,
}

/// `TrackDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    pub uuid: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, optional, tag = "3")]
    pub process: Option<Process>,
    #[prost(message, optional, tag = "4")]
    pub thread: Option<Thread>,
    #[prost(uint64, tag = "5")]
    pub parent: u64,
}

/// `ProcessDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct Process {
    #[prost(int32, tag = "1")]
    pub pid: i32,
    #[prost(string, tag = "6")]
    pub name: String,
}

/// `ThreadDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct Thread {
    #[prost(int32, tag = "1")]
    pub pid: i32,
    #[prost(int64, tag = "2")]
    pub tid: i64,
    #[prost(string, tag = "5")]
    pub name: String,
}

/// `TrackEvent.Type`.
pub const SLICE_BEGIN: u32 = 1;
pub const SLICE_END: u32 = 2;

/// `TrackEvent`.
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    #[prost(uint64, repeated, tag = "3")]
    pub category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub annotations: Vec<Annotation>,
    #[prost(uint32, tag = "9")]
    pub kind: u32,
    #[prost(uint64, tag = "10")]
    pub name_iid: u64,
    #[prost(uint64, tag = "11")]
    pub track: u64,
    #[prost(string, repeated, tag = "22")]
    pub categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    pub counter: Option<i64>,
    #[prost(double, optional, tag = "44")]
    pub double_counter: Option<f64>,
    #[prost(fixed64, repeated, tag = "47")]
    pub flows: Vec<u64>,
    #[prost(fixed64, repeated, tag = "48")]
    pub ended_flows: Vec<u64>,
    /// An extension: `GpuTrackEvent.gpu_correlation`.
    #[prost(message, optional, tag = "3000")]
    pub correlation: Option<GpuCorrelation>,
}

/// `GpuCorrelation`.
#[derive(Clone, PartialEq, Message)]
pub struct GpuCorrelation {
    /// The `event_id` of the work that the call submitted.
    #[prost(uint64, repeated, tag = "1")]
    pub submitted: Vec<u64>,
}

/// `DebugAnnotation`.
#[derive(Clone, PartialEq, Message)]
pub struct Annotation {
    #[prost(uint64, tag = "1")]
    pub name_iid: u64,
    #[prost(string, optional, tag = "10")]
    pub name: Option<String>,
    #[prost(oneof = "AnnotationValue", tags = "2, 3, 4, 5, 6, 7, 9, 17")]
    pub value: Option<AnnotationValue>,
    #[prost(message, repeated, tag = "11")]
    pub entries: Vec<Annotation>,
    #[prost(message, repeated, tag = "12")]
    pub values: Vec<Annotation>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum AnnotationValue {
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
pub struct Interned {
    #[prost(message, repeated, tag = "1")]
    pub categories: Vec<Name>,
    #[prost(message, repeated, tag = "2")]
    pub event_names: Vec<Name>,
    #[prost(message, repeated, tag = "3")]
    pub annotation_names: Vec<Name>,
    #[prost(message, repeated, tag = "24")]
    pub specifications: Vec<Name>,
    #[prost(message, repeated, tag = "29")]
    pub texts: Vec<Name>,
    #[prost(message, repeated, tag = "47")]
    pub counters: Vec<Counters>,
    /// An extension: `GpuInternedData.compute_kernels`.
    #[prost(message, repeated, tag = "1000")]
    pub kernels: Vec<Kernel>,
    /// An extension: `GpuInternedData.compute_arg_names`.
    #[prost(message, repeated, tag = "1001")]
    pub arguments: Vec<Name>,
}

/// Any interned text. Its messages have different names and the same fields.
#[derive(Clone, PartialEq, Message)]
pub struct Name {
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    #[prost(string, tag = "2")]
    pub name: String,
}

/// `InternedComputeKernel`.
#[derive(Clone, PartialEq, Message)]
pub struct Kernel {
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub demangled: String,
}

/// `InternedGpuCounterDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct Counters {
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    #[prost(message, optional, tag = "2")]
    pub descriptor: Option<CounterDescriptor>,
    #[prost(int32, tag = "3")]
    pub gpu: i32,
}

/// `GpuCounterDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub specs: Vec<CounterSpec>,
}

/// `GpuCounterSpec`.
#[derive(Clone, PartialEq, Message)]
pub struct CounterSpec {
    #[prost(uint32, tag = "1")]
    pub id: u32,
    #[prost(string, tag = "2")]
    pub name: String,
}

/// `GpuCounterEvent`.
#[derive(Clone, PartialEq, Message)]
pub struct CounterEvent {
    #[prost(message, repeated, tag = "2")]
    pub counters: Vec<Counter>,
    #[prost(uint64, tag = "4")]
    pub descriptor_iid: u64,
}

/// `GpuCounter`.
#[derive(Clone, PartialEq, Message)]
pub struct Counter {
    #[prost(uint32, tag = "1")]
    pub id: u32,
    #[prost(int64, optional, tag = "2")]
    pub int: Option<i64>,
    #[prost(double, optional, tag = "3")]
    pub double: Option<f64>,
}

/// `GpuRenderStageEvent`: work on a device.
#[derive(Clone, PartialEq, Message)]
pub struct RenderStage {
    #[prost(uint64, tag = "1")]
    pub event_id: u64,
    #[prost(uint64, tag = "2")]
    pub duration: u64,
    #[prost(message, repeated, tag = "6")]
    pub extra: Vec<Extra>,
    #[prost(int32, tag = "11")]
    pub gpu: i32,
    #[prost(uint64, tag = "13")]
    pub queue_iid: u64,
    #[prost(uint64, tag = "14")]
    pub stage_iid: u64,
    #[prost(string, optional, tag = "17")]
    pub name: Option<String>,
    #[prost(uint64, repeated, packed = "false", tag = "18")]
    pub waits_for: Vec<u64>,
    #[prost(uint64, tag = "19")]
    pub kernel_iid: u64,
    #[prost(uint64, tag = "20")]
    pub name_iid: u64,
    #[prost(message, optional, tag = "21")]
    pub launch: Option<Launch>,
}

/// `ExtraData`.
#[derive(Clone, PartialEq, Message)]
pub struct Extra {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// `ComputeKernelLaunch`.
#[derive(Clone, PartialEq, Message)]
pub struct Launch {
    #[prost(message, optional, tag = "1")]
    pub grid: Option<Dim3>,
    #[prost(message, optional, tag = "2")]
    pub block: Option<Dim3>,
    #[prost(message, repeated, tag = "3")]
    pub arguments: Vec<Argument>,
}

/// `ExtraComputeArg`.
#[derive(Clone, PartialEq, Message)]
pub struct Argument {
    #[prost(uint64, tag = "1")]
    pub name_iid: u64,
    #[prost(uint64, tag = "4")]
    pub value: u64,
}

/// `Dim3`.
#[derive(Clone, PartialEq, Message)]
pub struct Dim3 {
    #[prost(uint32, tag = "1")]
    pub x: u32,
    #[prost(uint32, tag = "2")]
    pub y: u32,
    #[prost(uint32, tag = "3")]
    pub z: u32,
}
