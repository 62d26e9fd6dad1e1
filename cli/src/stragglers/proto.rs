//! The messages of a Perfetto trace that collectives need; all other fields are skipped.
//!
//! The tags are from `protos/perfetto/trace` in Perfetto's repository, which documents each field.

use prost::Message;

/// `TracePacket`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Packet {
    #[prost(message, optional, tag = "6")]
    pub(super) clocks: Option<ClockSnapshot>,
    #[prost(uint64, tag = "8")]
    pub(super) timestamp: u64,
    #[prost(uint32, tag = "10")]
    pub(super) sequence: u32,
    #[prost(message, optional, tag = "11")]
    pub(super) event: Option<Event>,
    #[prost(message, optional, tag = "12")]
    pub(super) interned: Option<Interned>,
    #[prost(uint32, tag = "13")]
    pub(super) flags: u32,
    #[prost(uint32, optional, tag = "58")]
    pub(super) clock: Option<u32>,
    #[prost(message, optional, tag = "59")]
    pub(super) defaults: Option<Defaults>,
    #[prost(message, optional, tag = "60")]
    pub(super) track: Option<Track>,
    #[prost(message, optional, tag = "126")]
    pub(super) attributes: Option<Attributes>,
}

/// `TraceAttributes`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Attributes {
    #[prost(message, repeated, tag = "1")]
    pub(super) attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Attribute {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, optional, tag = "3")]
    pub(super) string: Option<String>,
}

/// `TrackDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Track {
    #[prost(message, optional, tag = "3")]
    pub(super) process: Option<Process>,
}

/// `ProcessDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Process {
    #[prost(int32, tag = "1")]
    pub(super) pid: i32,
}

/// `SequenceFlags`: strings that were interned earlier on this sequence are no longer valid.
pub(super) const STATE_CLEARED: u32 = 1;

#[derive(Clone, PartialEq, Message)]
pub(super) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub(super) clocks: Vec<Clock>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Clock {
    #[prost(uint32, tag = "1")]
    pub(super) id: u32,
    #[prost(uint64, tag = "2")]
    pub(super) timestamp: u64,
}

/// `BuiltinClock`.
pub(super) const REALTIME: u32 = 1;
/// `BuiltinClock`.
pub(super) const BOOTTIME: u32 = 6;
/// The clock of one sequence: `BOOTTIME` minus the session's begin.
pub(super) const SESSION: u32 = 64;

/// `TracePacketDefaults`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Defaults {
    #[prost(uint32, optional, tag = "58")]
    pub(super) clock: Option<u32>,
}

/// `InternedData`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Interned {
    #[prost(message, repeated, tag = "2")]
    pub(super) event_names: Vec<Text>,
    #[prost(message, repeated, tag = "3")]
    pub(super) annotation_names: Vec<Text>,
    #[prost(message, repeated, tag = "29")]
    pub(super) strings: Vec<Text>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Text {
    #[prost(uint64, tag = "1")]
    pub(super) iid: u64,
    #[prost(string, tag = "2")]
    pub(super) text: String,
}

/// `TrackEvent`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(message, repeated, tag = "4")]
    pub(super) annotations: Vec<Annotation>,
    #[prost(int32, tag = "9")]
    pub(super) kind: i32,
    #[prost(uint64, tag = "10")]
    pub(super) name_iid: u64,
}

/// `TrackEvent::Type`.
pub(super) const SLICE_BEGIN: i32 = 1;
/// `TrackEvent::Type`.
pub(super) const SLICE_END: i32 = 2;
/// `TrackEvent::Type`.
pub(super) const INSTANT: i32 = 3;

/// `DebugAnnotation`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Annotation {
    #[prost(uint64, tag = "1")]
    pub(super) name_iid: u64,
    #[prost(uint64, optional, tag = "3")]
    pub(super) uint: Option<u64>,
    #[prost(int64, optional, tag = "4")]
    pub(super) int: Option<i64>,
    #[prost(string, optional, tag = "6")]
    pub(super) string: Option<String>,
    #[prost(string, tag = "10")]
    pub(super) name: String,
    #[prost(uint64, optional, tag = "17")]
    pub(super) string_iid: Option<u64>,
}
