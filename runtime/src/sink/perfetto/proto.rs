//! Perfetto's wire format: the numbers of the fields that we write, and a buffer that writes them.
//!
//! The numbers are from `protos/perfetto/trace` in Perfetto's repository, where each field is explained. The rest of the
//! sink calls this and nothing else writes bytes. It must never allocate for a packet once the buffer has grown.

/// `Trace`.
pub(super) const PACKET: u32 = 1;

/// `TracePacket`.
pub(super) mod packet {
    pub(in crate::sink::perfetto) const CLOCK_SNAPSHOT: u32 = 6;
    pub(in crate::sink::perfetto) const TIMESTAMP: u32 = 8;
    pub(in crate::sink::perfetto) const SEQUENCE_ID: u32 = 10;
    pub(in crate::sink::perfetto) const TRACK_EVENT: u32 = 11;
    pub(in crate::sink::perfetto) const INTERNED_DATA: u32 = 12;
    pub(in crate::sink::perfetto) const SEQUENCE_FLAGS: u32 = 13;
    pub(in crate::sink::perfetto) const GPU_RENDER_STAGE: u32 = 53;
    pub(in crate::sink::perfetto) const TIMESTAMP_CLOCK_ID: u32 = 58;
    pub(in crate::sink::perfetto) const DEFAULTS: u32 = 59;
    pub(in crate::sink::perfetto) const TRACK_DESCRIPTOR: u32 = 60;
    pub(in crate::sink::perfetto) const TRACE_ATTRIBUTES: u32 = 126;

    /// `SequenceFlags`: what was interned before on this sequence is void.
    pub(in crate::sink::perfetto) const STATE_CLEARED: u64 = 1;
    /// `SequenceFlags`: this packet means nothing without what was interned before.
    pub(in crate::sink::perfetto) const NEEDS_STATE: u64 = 2;
}

/// `TracePacketDefaults` and `TrackEventDefaults`.
pub(super) mod defaults {
    pub(in crate::sink::perfetto) const TRACK_EVENT: u32 = 11;
    pub(in crate::sink::perfetto) const TIMESTAMP_CLOCK_ID: u32 = 58;
    pub(in crate::sink::perfetto) const TRACK_UUID: u32 = 11;
}

/// `ClockSnapshot` and its clocks.
pub(super) mod clock {
    pub(in crate::sink::perfetto) const CLOCKS: u32 = 1;
    pub(in crate::sink::perfetto) const PRIMARY: u32 = 2;
    pub(in crate::sink::perfetto) const ID: u32 = 1;
    pub(in crate::sink::perfetto) const TIMESTAMP: u32 = 2;

    /// `BuiltinClock`.
    pub(in crate::sink::perfetto) const REALTIME: u64 = 1;
    /// `BuiltinClock`.
    pub(in crate::sink::perfetto) const BOOTTIME: u64 = 6;
    /// The first id that is free for a sequence's own clock: here `BOOTTIME` less the session's begin, so that a
    /// timestamp is five bytes and not eight.
    pub(in crate::sink::perfetto) const SESSION: u64 = 64;
}

/// `TraceAttributes` and its attributes.
pub(super) mod attribute {
    pub(in crate::sink::perfetto) const ATTRIBUTE: u32 = 1;
    pub(in crate::sink::perfetto) const KEY: u32 = 1;
    pub(in crate::sink::perfetto) const STRING_VALUE: u32 = 3;
}

/// `TrackDescriptor`, with its process, thread and counter.
pub(super) mod track {
    pub(in crate::sink::perfetto) const UUID: u32 = 1;
    pub(in crate::sink::perfetto) const NAME: u32 = 2;
    pub(in crate::sink::perfetto) const PROCESS: u32 = 3;
    pub(in crate::sink::perfetto) const THREAD: u32 = 4;
    pub(in crate::sink::perfetto) const PARENT_UUID: u32 = 5;
    pub(in crate::sink::perfetto) const COUNTER: u32 = 8;
    pub(in crate::sink::perfetto) const CHILD_ORDERING: u32 = 11;
    pub(in crate::sink::perfetto) const SIBLING_RANK: u32 = 12;
    pub(in crate::sink::perfetto) const DESCRIPTION: u32 = 14;
    pub(in crate::sink::perfetto) const MERGE_BEHAVIOR: u32 = 15;
    pub(in crate::sink::perfetto) const MERGE_KEY_INT: u32 = 17;

    /// `ChildTracksOrdering`: by rank.
    pub(in crate::sink::perfetto) const EXPLICIT: u64 = 3;
    /// `SiblingMergeBehavior`: drawn as a track of its own, whatever its name.
    pub(in crate::sink::perfetto) const MERGE_NONE: u64 = 2;
    /// `SiblingMergeBehavior`: siblings with one key are drawn as one track.
    pub(in crate::sink::perfetto) const MERGE_BY_KEY: u64 = 3;

    pub(in crate::sink::perfetto) const PROCESS_PID: u32 = 1;
    pub(in crate::sink::perfetto) const PROCESS_NAME: u32 = 6;
    pub(in crate::sink::perfetto) const THREAD_PID: u32 = 1;
    pub(in crate::sink::perfetto) const THREAD_TID: u32 = 2;
    pub(in crate::sink::perfetto) const THREAD_NAME: u32 = 5;
    pub(in crate::sink::perfetto) const COUNTER_UNIT: u32 = 3;

    /// `Unit`.
    pub(in crate::sink::perfetto) const UNIT_TIME_NS: u64 = 1;
    /// `Unit`.
    pub(in crate::sink::perfetto) const UNIT_COUNT: u64 = 2;
}

/// `TrackEvent`.
pub(super) mod event {
    pub(in crate::sink::perfetto) const CATEGORY_IIDS: u32 = 3;
    pub(in crate::sink::perfetto) const ANNOTATIONS: u32 = 4;
    pub(in crate::sink::perfetto) const TYPE: u32 = 9;
    pub(in crate::sink::perfetto) const NAME_IID: u32 = 10;
    pub(in crate::sink::perfetto) const TRACK_UUID: u32 = 11;
    pub(in crate::sink::perfetto) const NAME: u32 = 23;
    pub(in crate::sink::perfetto) const COUNTER_VALUE: u32 = 30;
    pub(in crate::sink::perfetto) const SOURCE_LOCATION_IID: u32 = 34;
    pub(in crate::sink::perfetto) const FLOW_IDS: u32 = 47;
    pub(in crate::sink::perfetto) const TERMINATING_FLOW_IDS: u32 = 48;

    /// `Type`.
    pub(in crate::sink::perfetto) const SLICE_BEGIN: u64 = 1;
    /// `Type`.
    pub(in crate::sink::perfetto) const SLICE_END: u64 = 2;
    /// `Type`.
    pub(in crate::sink::perfetto) const INSTANT: u64 = 3;
    /// `Type`.
    pub(in crate::sink::perfetto) const COUNTER: u64 = 4;
}

/// `GpuRenderStageEvent`, with its launch.
pub(super) mod stage {
    pub(in crate::sink::perfetto) const EVENT_ID: u32 = 1;
    pub(in crate::sink::perfetto) const DURATION: u32 = 2;
    pub(in crate::sink::perfetto) const CONTEXT: u32 = 5;
    pub(in crate::sink::perfetto) const SUBMISSION_ID: u32 = 10;
    pub(in crate::sink::perfetto) const GPU_ID: u32 = 11;
    pub(in crate::sink::perfetto) const HW_QUEUE_IID: u32 = 13;
    pub(in crate::sink::perfetto) const STAGE_IID: u32 = 14;
    pub(in crate::sink::perfetto) const NAME: u32 = 17;
    pub(in crate::sink::perfetto) const NAME_IID: u32 = 20;
    pub(in crate::sink::perfetto) const LAUNCH: u32 = 21;

    /// Of a launch.
    pub(in crate::sink::perfetto) const GRID_SIZE: u32 = 1;
    /// Of a launch.
    pub(in crate::sink::perfetto) const WORKGROUP_SIZE: u32 = 2;
    /// Of a launch.
    pub(in crate::sink::perfetto) const ARGS: u32 = 3;

    pub(in crate::sink::perfetto) const ARG_NAME: u32 = 2;
    pub(in crate::sink::perfetto) const ARG_UINT: u32 = 4;
    pub(in crate::sink::perfetto) const ARG_DOUBLE: u32 = 5;
    pub(in crate::sink::perfetto) const ARG_STRING: u32 = 6;

    /// Of a graphics context.
    pub(in crate::sink::perfetto) const CONTEXT_PID: u32 = 2;
    /// Of a graphics context.
    pub(in crate::sink::perfetto) const CONTEXT_API: u32 = 3;
    /// `Api`.
    pub(in crate::sink::perfetto) const CUDA: u64 = 4;

    /// Of a specification: a queue or a stage.
    pub(in crate::sink::perfetto) const DESCRIPTION: u32 = 3;
    /// Of a specification.
    pub(in crate::sink::perfetto) const CATEGORY: u32 = 4;
    /// `RenderStageCategory`.
    pub(in crate::sink::perfetto) const COMPUTE: u64 = 2;
}

/// `DebugAnnotation`.
pub(super) mod annotation {
    pub(in crate::sink::perfetto) const NAME_IID: u32 = 1;
    pub(in crate::sink::perfetto) const BOOL: u32 = 2;
    pub(in crate::sink::perfetto) const UINT: u32 = 3;
    pub(in crate::sink::perfetto) const INT: u32 = 4;
    pub(in crate::sink::perfetto) const DOUBLE: u32 = 5;
    pub(in crate::sink::perfetto) const STRING: u32 = 6;
    pub(in crate::sink::perfetto) const NAME: u32 = 10;
    pub(in crate::sink::perfetto) const STRING_IID: u32 = 17;
}

/// `InternedData` and its entries.
pub(super) mod interned {
    pub(in crate::sink::perfetto) const EVENT_CATEGORIES: u32 = 1;
    pub(in crate::sink::perfetto) const EVENT_NAMES: u32 = 2;
    pub(in crate::sink::perfetto) const ANNOTATION_NAMES: u32 = 3;
    pub(in crate::sink::perfetto) const SOURCE_LOCATIONS: u32 = 4;
    pub(in crate::sink::perfetto) const GRAPHICS_CONTEXTS: u32 = 23;
    pub(in crate::sink::perfetto) const GPU_SPECIFICATIONS: u32 = 24;
    pub(in crate::sink::perfetto) const ANNOTATION_STRINGS: u32 = 29;

    pub(in crate::sink::perfetto) const IID: u32 = 1;
    /// Of an event's name, an annotation's name and a string alike.
    pub(in crate::sink::perfetto) const TEXT: u32 = 2;
    pub(in crate::sink::perfetto) const FILE_NAME: u32 = 2;
    pub(in crate::sink::perfetto) const FUNCTION_NAME: u32 = 3;
    pub(in crate::sink::perfetto) const LINE_NUMBER: u32 = 4;
}

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

/// Packets on their way to the file.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets the first `count` bytes: they are in the file.
    pub(super) fn consume(&mut self, count: usize) {
        self.bytes.drain(..count);
    }

    /// Writes one packet.
    #[inline]
    pub(super) fn packet(&mut self, fill: impl FnOnce(&mut Buffer)) {
        self.message(PACKET, fill);
    }

    #[inline]
    pub(super) fn uint(&mut self, field: u32, value: u64) {
        self.key(field, VARINT);
        self.varint(value);
    }

    /// An `int64` or `int32`: a negative one takes ten bytes.
    #[inline]
    pub(super) fn int(&mut self, field: u32, value: i64) {
        self.uint(field, value as u64);
    }

    #[inline]
    pub(super) fn bool(&mut self, field: u32, value: bool) {
        self.uint(field, u64::from(value));
    }

    #[inline]
    pub(super) fn double(&mut self, field: u32, value: f64) {
        self.fixed(field, value.to_bits());
    }

    /// A `fixed64`.
    #[inline]
    pub(super) fn fixed(&mut self, field: u32, value: u64) {
        self.key(field, FIXED64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn text(&mut self, field: u32, value: &str) {
        self.key(field, BYTES);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value.as_bytes());
    }

    /// Bytes that are encoded already. All sixteen are copied, which is two instructions where a few bytes are a call.
    #[inline]
    pub(super) fn short(&mut self, short: &Short) {
        let len = self.bytes.len() + short.len;
        self.bytes.extend_from_slice(&short.bytes);
        self.bytes.truncate(len);
    }

    /// A message within this one. Nearly all are shorter than 128 bytes, so one byte is left for the length, and what
    /// was written is moved where that is not enough.
    #[inline]
    pub(super) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Buffer)) {
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

    #[cold]
    fn long_len(&mut self, start: usize, len: usize) {
        self.varint(len as u64);
        let width = self.bytes.len() - start - len;
        self.bytes[start..].rotate_right(width);
        // The first byte of the length belongs into the byte that was left for it.
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

/// The bytes of a varint of at most 56 bits, in a register, and how many they are: a loop over bytes would be half of the
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

/// A few encoded bytes that are written again and again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Short {
    bytes: [u8; 16],
    len: usize,
}

impl Short {
    /// What `fill` writes, which must be at most 16 bytes.
    pub(super) fn of(fill: impl FnOnce(&mut Buffer)) -> Short {
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
