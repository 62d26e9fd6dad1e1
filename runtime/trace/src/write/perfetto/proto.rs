//! Perfetto's wire format: the numbers of the fields that the sink writes, and a buffer that writes them.
//!
//! The numbers are from `protos/perfetto/trace` in Perfetto's repository, which explains each field. The rest of the sink calls
//! this module, and so does the command `warpline`, which writes traces of other programs; no other module writes bytes. Once the
//! buffer has grown, writing a packet must not allocate.

use warpline_core::fields::cut;

/// The most bytes of a text. A name that a program gives a stream or a kernel has any length.
pub const MOST_TEXT: usize = 256 << 10;

/// `Trace`.
pub const PACKET: u32 = 1;

/// `TracePacket`.
pub mod packet {
    pub const CLOCK_SNAPSHOT: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE_ID: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED_DATA: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const GPU_RENDER_STAGE: u32 = 53;
    pub const TIMESTAMP_CLOCK_ID: u32 = 58;
    pub const DEFAULTS: u32 = 59;
    pub const TRACK_DESCRIPTOR: u32 = 60;
    pub const TRACE_ATTRIBUTES: u32 = 126;

    /// `SequenceFlags`: state that was interned earlier on this sequence is void.
    pub const STATE_CLEARED: u64 = 1;
    /// `SequenceFlags`: the packet depends on state that was interned earlier.
    pub const NEEDS_STATE: u64 = 2;
}

/// `TracePacketDefaults` and `TrackEventDefaults`.
pub mod defaults {
    pub const TRACK_EVENT: u32 = 11;
    pub const TIMESTAMP_CLOCK_ID: u32 = 58;
    pub const TRACK_UUID: u32 = 11;
}

/// `ClockSnapshot` and its clocks.
pub mod clock {
    pub const CLOCKS: u32 = 1;
    pub const PRIMARY: u32 = 2;
    pub const ID: u32 = 1;
    pub const TIMESTAMP: u32 = 2;

    /// `BuiltinClock`.
    pub const REALTIME: u64 = 1;
    /// `BuiltinClock`.
    pub const BOOTTIME: u64 = 6;
    /// The first id that is free for a sequence's own clock. Here, it is `BOOTTIME` minus the begin of the session, so that a
    /// timestamp takes five bytes instead of eight.
    pub const SESSION: u64 = 64;
}

/// `TraceAttributes` and its attributes.
pub mod attribute {
    pub const ATTRIBUTE: u32 = 1;
    pub const KEY: u32 = 1;
    pub const INT_VALUE: u32 = 2;
    pub const STRING_VALUE: u32 = 3;
}

/// `TrackDescriptor`, with its process, thread and counter.
pub mod track {
    pub const UUID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const PROCESS: u32 = 3;
    pub const THREAD: u32 = 4;
    pub const PARENT_UUID: u32 = 5;
    pub const COUNTER: u32 = 8;
    pub const CHILD_ORDERING: u32 = 11;
    pub const SIBLING_RANK: u32 = 12;
    pub const DESCRIPTION: u32 = 14;
    pub const MERGE_BEHAVIOR: u32 = 15;
    pub const MERGE_KEY_INT: u32 = 17;

    /// `ChildTracksOrdering`: by rank.
    pub const EXPLICIT: u64 = 3;
    /// `SiblingMergeBehavior`: drawn as a separate track, whatever its name.
    pub const MERGE_NONE: u64 = 2;
    /// `SiblingMergeBehavior`: siblings with one key are drawn as one track.
    pub const MERGE_BY_KEY: u64 = 3;

    pub const PROCESS_PID: u32 = 1;
    pub const PROCESS_NAME: u32 = 6;
    pub const PROCESS_LABELS: u32 = 8;
    pub const THREAD_PID: u32 = 1;
    pub const THREAD_TID: u32 = 2;
    pub const THREAD_NAME: u32 = 5;
    pub const COUNTER_UNIT: u32 = 3;

    /// `Unit`.
    pub const UNIT_COUNT: u64 = 2;
    pub const UNIT_BYTES: u64 = 3;
}

/// `TrackEvent`.
pub mod event {
    pub const CATEGORY_IIDS: u32 = 3;
    pub const ANNOTATIONS: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME_IID: u32 = 10;
    pub const TRACK_UUID: u32 = 11;
    pub const CATEGORIES: u32 = 22;
    pub const NAME: u32 = 23;
    pub const COUNTER_VALUE: u32 = 30;
    pub const SOURCE_LOCATION_IID: u32 = 34;
    pub const DOUBLE_COUNTER_VALUE: u32 = 44;
    pub const FLOW_IDS: u32 = 47;
    pub const TERMINATING_FLOW_IDS: u32 = 48;
    pub const CORRELATION_ID_STR: u32 = 53;
    pub const CORRELATION_ID_STR_IID: u32 = 54;

    /// `Type`.
    pub const SLICE_BEGIN: u64 = 1;
    /// `Type`.
    pub const SLICE_END: u64 = 2;
    /// `Type`.
    pub const INSTANT: u64 = 3;
    /// `Type`.
    pub const COUNTER: u64 = 4;
}

/// `GpuRenderStageEvent`, with its launch.
pub mod stage {
    pub const EVENT_ID: u32 = 1;
    pub const DURATION: u32 = 2;
    pub const CONTEXT: u32 = 5;
    pub const SUBMISSION_ID: u32 = 10;
    pub const GPU_ID: u32 = 11;
    pub const HW_QUEUE_IID: u32 = 13;
    pub const STAGE_IID: u32 = 14;
    pub const NAME: u32 = 17;
    pub const NAME_IID: u32 = 20;
    pub const LAUNCH: u32 = 21;

    /// A field of a launch.
    pub const GRID_SIZE: u32 = 1;
    /// A field of a launch.
    pub const WORKGROUP_SIZE: u32 = 2;
    /// A field of a launch.
    pub const ARGS: u32 = 3;

    pub const ARG_NAME: u32 = 2;
    pub const ARG_UINT: u32 = 4;
    pub const ARG_DOUBLE: u32 = 5;
    pub const ARG_STRING: u32 = 6;

    /// A field of a graphics context.
    pub const CONTEXT_PID: u32 = 2;
    /// A field of a graphics context.
    pub const CONTEXT_API: u32 = 3;
    /// `Api`.
    pub const CUDA: u64 = 4;

    /// A field of a specification: a queue or a stage.
    pub const DESCRIPTION: u32 = 3;
    /// A field of a specification.
    pub const CATEGORY: u32 = 4;
    /// `RenderStageCategory`.
    pub const COMPUTE: u64 = 2;
}

/// `DebugAnnotation`.
pub mod annotation {
    pub const NAME_IID: u32 = 1;
    pub const BOOL: u32 = 2;
    pub const UINT: u32 = 3;
    pub const INT: u32 = 4;
    pub const DOUBLE: u32 = 5;
    pub const STRING: u32 = 6;
    pub const NAME: u32 = 10;
    pub const DICT_ENTRIES: u32 = 11;
    pub const ARRAY_VALUES: u32 = 12;
    pub const STRING_IID: u32 = 17;
}

/// `InternedData` and its entries.
pub mod interned {
    pub const EVENT_CATEGORIES: u32 = 1;
    pub const EVENT_NAMES: u32 = 2;
    pub const ANNOTATION_NAMES: u32 = 3;
    pub const SOURCE_LOCATIONS: u32 = 4;
    pub const GRAPHICS_CONTEXTS: u32 = 23;
    pub const GPU_SPECIFICATIONS: u32 = 24;
    pub const ANNOTATION_STRINGS: u32 = 29;
    pub const CORRELATION_IDS: u32 = 43;

    pub const IID: u32 = 1;
    /// A field of an event's name, an annotation's name and a string.
    pub const TEXT: u32 = 2;
    pub const FILE_NAME: u32 = 2;
    pub const FUNCTION_NAME: u32 = 3;
    pub const LINE_NUMBER: u32 = 4;
}

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

/// Packets that are not in the file yet.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Removes the first `count` bytes, which are now in the file.
    pub fn consume(&mut self, count: usize) {
        self.bytes.drain(..count);
    }

    /// Removes all but the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// Writes one packet.
    #[inline]
    pub fn packet(&mut self, fill: impl FnOnce(&mut Buffer)) {
        self.message(PACKET, fill);
    }

    #[inline]
    pub fn uint(&mut self, field: u32, value: u64) {
        self.key(field, VARINT);
        self.varint(value);
    }

    /// Writes an `int64` or `int32`. A negative value takes ten bytes.
    #[inline]
    pub fn int(&mut self, field: u32, value: i64) {
        self.uint(field, value as u64);
    }

    #[inline]
    pub fn bool(&mut self, field: u32, value: bool) {
        self.uint(field, u64::from(value));
    }

    #[inline]
    pub fn double(&mut self, field: u32, value: f64) {
        self.fixed(field, value.to_bits());
    }

    /// Writes a `fixed64`.
    #[inline]
    pub fn fixed(&mut self, field: u32, value: u64) {
        self.key(field, FIXED64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes a text; of one longer than [`MOST_TEXT`], the begin. Readers leave out large packets.
    pub fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, cut(value, MOST_TEXT).as_bytes());
    }

    /// Writes a text or an encoded message.
    pub fn bytes(&mut self, field: u32, value: &[u8]) {
        self.key(field, BYTES);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    /// Appends fields that are encoded.
    pub fn encoded(&mut self, fields: &[u8]) {
        self.bytes.extend_from_slice(fields);
    }

    /// The bytes, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Removes all bytes and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Appends encoded bytes. All sixteen are copied, which takes two instructions, while copying only some takes a call.
    #[inline]
    pub fn short(&mut self, short: &Short) {
        let len = self.bytes.len() + short.len;
        self.bytes.extend_from_slice(&short.bytes);
        self.bytes.truncate(len);
    }

    /// Writes a nested message. Nearly all are shorter than 128 bytes, so one byte is reserved for the length. If that is not
    /// enough, the content is moved.
    #[inline]
    pub fn message(&mut self, field: u32, fill: impl FnOnce(&mut Buffer)) {
        self.key(field, BYTES);
        self.bytes.push(0);
        let start = self.bytes.len();
        fill(self);
        let len = self.bytes.len() - start;
        if len < 0x80 {
            self.bytes[start - 1] = len as u8;
        } else {
            self.long_len(start, len);
        }
    }

    /// Writes one moment in two clocks into a snapshot of clocks.
    pub fn clocks(&mut self, times: [(u64, i64); 2]) {
        for (id, ns) in times {
            self.message(clock::CLOCKS, |clock| {
                clock.uint(clock::ID, id);
                clock.int(clock::TIMESTAMP, ns);
            });
        }
    }

    #[cold]
    fn long_len(&mut self, start: usize, len: usize) {
        self.varint(len as u64);
        let width = self.bytes.len() - start - len;
        self.bytes[start..].rotate_right(width);
        // The first byte of the length belongs in the reserved byte.
        self.bytes.remove(start - 1);
    }

    #[inline]
    fn key(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    #[inline]
    fn varint(&mut self, value: u64) {
        if value < 0x80 {
            self.bytes.push(value as u8);
        } else if value < 1 << 56 {
            let (bytes, len) = spread(value);
            let len = self.bytes.len() + len;
            self.bytes.extend_from_slice(&bytes.to_le_bytes());
            self.bytes.truncate(len);
        } else {
            self.long_varint(value);
        }
    }

    #[cold]
    fn long_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

/// Returns the bytes of a varint of at most 56 bits, in a register, and their number. A loop over bytes would take half of the
/// encoder's time.
#[inline]
fn spread(value: u64) -> (u64, usize) {
    let len = (63 - (value | 1).leading_zeros() as usize) / 7 + 1;
    let by_28 = value & 0x0FFF_FFFF | (value & 0x00FF_FFFF_F000_0000) << 4;
    let by_14 = by_28 & 0x0000_3FFF_0000_3FFF | (by_28 & 0x0FFF_C000_0FFF_C000) << 2;
    let by_7 = by_14 & 0x007F_007F_007F_007F | (by_14 & 0x3F80_3F80_3F80_3F80) << 1;
    let more = 0x8080_8080_8080_8080 & !(u64::MAX << (8 * (len - 1)));
    (by_7 | more, len)
}

/// A few encoded bytes that are written repeatedly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Short {
    bytes: [u8; 16],
    len: usize,
}

impl Short {
    /// Encodes what `fill` writes, at most 16 bytes.
    pub fn encode(fill: impl FnOnce(&mut Buffer)) -> Short {
        let mut buffer = Buffer::default();
        fill(&mut buffer);
        let mut short = Short::default();
        for byte in buffer.bytes {
            short.push(byte);
        }
        short
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }
}
