//! The messages of a Perfetto trace that collectives need, encoded by a library that shares nothing with the reader.
//!
//! The tags are from `protos/perfetto/trace` in Perfetto's repository, which documents each field.

use prost::Message;

/// `TracePacket`.
#[derive(Clone, PartialEq, Message)]
pub struct Packet {
    #[prost(message, optional, tag = "6")]
    pub clocks: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    pub sequence: u32,
    #[prost(message, optional, tag = "11")]
    pub event: Option<Event>,
    #[prost(message, optional, tag = "12")]
    pub interned: Option<Interned>,
    #[prost(uint32, tag = "13")]
    pub flags: u32,
    #[prost(uint32, optional, tag = "58")]
    pub clock: Option<u32>,
    #[prost(message, optional, tag = "59")]
    pub defaults: Option<Defaults>,
    #[prost(message, optional, tag = "60")]
    pub track: Option<Track>,
    #[prost(message, optional, tag = "126")]
    pub attributes: Option<Attributes>,
}

/// `TraceAttributes`.
#[derive(Clone, PartialEq, Message)]
pub struct Attributes {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, optional, tag = "3")]
    pub string: Option<String>,
}

/// `TrackDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct Track {
    #[prost(message, optional, tag = "3")]
    pub process: Option<Process>,
}

/// `ProcessDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct Process {
    #[prost(int32, tag = "1")]
    pub pid: i32,
}

/// `SequenceFlags`: strings that were interned earlier on this sequence are no longer valid.
pub const STATE_CLEARED: u32 = 1;

#[derive(Clone, PartialEq, Message)]
pub struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Clock {
    #[prost(uint32, tag = "1")]
    pub id: u32,
    #[prost(uint64, tag = "2")]
    pub timestamp: u64,
}

/// `BuiltinClock`.
pub const REALTIME: u32 = 1;
/// `BuiltinClock`.
pub const BOOTTIME: u32 = 6;
/// The clock of one sequence: `BOOTTIME` minus the session's begin.
pub const SESSION: u32 = 64;

/// `TracePacketDefaults`.
#[derive(Clone, PartialEq, Message)]
pub struct Defaults {
    #[prost(uint32, optional, tag = "58")]
    pub clock: Option<u32>,
}

/// `InternedData`.
#[derive(Clone, PartialEq, Message)]
pub struct Interned {
    #[prost(message, repeated, tag = "2")]
    pub event_names: Vec<Text>,
    #[prost(message, repeated, tag = "3")]
    pub annotation_names: Vec<Text>,
    #[prost(message, repeated, tag = "29")]
    pub strings: Vec<Text>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Text {
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    #[prost(string, tag = "2")]
    pub text: String,
}

/// `TrackEvent`.
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    #[prost(message, repeated, tag = "4")]
    pub annotations: Vec<Annotation>,
    #[prost(int32, tag = "9")]
    pub kind: i32,
    #[prost(uint64, tag = "10")]
    pub name_iid: u64,
    #[prost(string, optional, tag = "22")]
    pub category: Option<String>,
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
}

/// `TrackEvent::Type`.
pub const SLICE_BEGIN: i32 = 1;
/// `TrackEvent::Type`.
pub const SLICE_END: i32 = 2;
/// `TrackEvent::Type`.
pub const INSTANT: i32 = 3;

/// `DebugAnnotation`.
#[derive(Clone, PartialEq, Message)]
pub struct Annotation {
    #[prost(uint64, tag = "1")]
    pub name_iid: u64,
    #[prost(uint64, optional, tag = "3")]
    pub uint: Option<u64>,
    #[prost(int64, optional, tag = "4")]
    pub int: Option<i64>,
    #[prost(string, optional, tag = "6")]
    pub string: Option<String>,
    #[prost(string, tag = "10")]
    pub name: String,
    #[prost(uint64, optional, tag = "17")]
    pub string_iid: Option<u64>,
}
