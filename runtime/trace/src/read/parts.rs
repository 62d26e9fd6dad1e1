//! The messages of a Perfetto trace that several readers need, borrowed from a packet's bytes: the packet itself, its clocks, names and attributes, and an event
//! with its annotations. `perfetto` and `native` read whole traces with it, the commands `catalog` and `stragglers` and the merger of traces what
//! each needs. Fields that no reader needs are skipped.

use std::borrow::Cow;

use super::wire::{Fields, Malformed, Value, varint};
use crate::write::perfetto::proto::{annotation, attribute, clock, defaults, event, interned, packet, stage, track};

/// `TracePacket.compressed_packets`.
const COMPRESSED: u32 = 50;
/// `TracePacket.gpu_counter_event`.
const COUNTERS: u32 = 52;
/// `TrackEvent`, an extension: `GpuTrackEvent.gpu_correlation`.
const GPU_CORRELATION: u32 = 3000;
/// `GpuCorrelation`: the `event_id` of the work that the call submitted.
const SUBMITTED: u32 = 1;
/// `GpuRenderStageEvent.extra_data`, `event_wait_ids` and `kernel_iid`.
const EXTRA: u32 = 6;
const WAITS_FOR: u32 = 18;
const KERNEL_IID: u32 = 19;
/// `DebugAnnotation.pointer_value` and `legacy_json_value`.
const POINTER: u32 = 7;
const JSON: u32 = 9;

/// The parts of a packet. A message that it does not have is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet<'a> {
    pub timestamp: Option<u64>,
    /// 0 if it is of no sequence.
    pub sequence: u64,
    /// The clock of its timestamp; none for that of its sequence.
    pub clock: Option<u64>,
    /// Names and numbers that were defined earlier on the sequence are void.
    pub is_cleared: bool,
    /// It contains compressed packets.
    pub is_compressed: bool,
    pub event: Option<&'a [u8]>,
    pub interned: Option<&'a [u8]>,
    pub clocks: Option<&'a [u8]>,
    pub defaults: Option<&'a [u8]>,
    pub track: Option<&'a [u8]>,
    pub stage: Option<&'a [u8]>,
    pub counters: Option<&'a [u8]>,
    pub attributes: Option<&'a [u8]>,
}

impl<'a> Packet<'a> {
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Result<Packet<'a>, Malformed> {
        let mut parts = Packet::default();
        for field in Fields(bytes) {
            let (number, value) = field?;
            match number {
                packet::TIMESTAMP => parts.timestamp = Some(value.int()),
                packet::SEQUENCE_ID => parts.sequence = value.int(),
                packet::SEQUENCE_FLAGS => parts.is_cleared = value.int() & packet::STATE_CLEARED != 0,
                packet::TIMESTAMP_CLOCK_ID => parts.clock = Some(value.int()),
                packet::TRACK_EVENT => parts.event = Some(value.bytes()),
                packet::INTERNED_DATA => parts.interned = Some(value.bytes()),
                packet::CLOCK_SNAPSHOT => parts.clocks = Some(value.bytes()),
                packet::DEFAULTS => parts.defaults = Some(value.bytes()),
                packet::TRACK_DESCRIPTOR => parts.track = Some(value.bytes()),
                packet::GPU_RENDER_STAGE => parts.stage = Some(value.bytes()),
                COUNTERS => parts.counters = Some(value.bytes()),
                packet::TRACE_ATTRIBUTES => parts.attributes = Some(value.bytes()),
                COMPRESSED => parts.is_compressed = true,
                _ => {}
            }
        }
        Ok(parts)
    }

    /// The times of its clocks, by the ids of [`clock`].
    pub fn clocks(&self) -> Result<Clocks, Malformed> {
        let mut found = Clocks::default();
        for field in Fields(self.clocks.unwrap_or_default()) {
            let (clock::CLOCKS, value) = field? else { continue };
            let (mut id, mut time) = (0, 0);
            for field in Fields(value.bytes()) {
                match field? {
                    (clock::ID, value) => id = value.int(),
                    (clock::TIMESTAMP, value) => time = value.int() as i64,
                    _ => {}
                }
            }
            match id {
                clock::REALTIME => found.real_ns = Some(time),
                clock::BOOTTIME => found.boot_ns = Some(time),
                clock::SESSION => found.session_ns = Some(time),
                _ => {}
            }
        }
        Ok(found)
    }

    /// The clock and the track that later events of its sequence have unless they name others.
    pub fn defaults(&self) -> Result<(Option<u64>, Option<u64>), Malformed> {
        let (mut clock, mut track) = (None, None);
        for field in Fields(self.defaults.unwrap_or_default()) {
            match field? {
                (defaults::TIMESTAMP_CLOCK_ID, value) => clock = Some(value.int()),
                (defaults::TRACK_EVENT, value) => {
                    for field in Fields(value.bytes()) {
                        if let (defaults::TRACK_UUID, value) = field? {
                            track = Some(value.int());
                        }
                    }
                }
                _ => {}
            }
        }
        Ok((clock, track))
    }

    /// The names that it defines.
    pub fn interned(&self) -> impl Iterator<Item = Result<Interned<'a>, Malformed>> + use<'a> {
        Fields(self.interned.unwrap_or_default()).map(|field| {
            let (number, value) = field?;
            let mut found = Interned { number, iid: 0, text: Value::Bytes(&[]), message: value.bytes() };
            for field in Fields(found.message) {
                match field? {
                    (interned::IID, value) => found.iid = value.int(),
                    (interned::TEXT, value) => found.text = value,
                    _ => {}
                }
            }
            Ok(found)
        })
    }

    /// The texts among the attributes of the trace, by their keys. The text of another attribute is empty.
    pub fn attributes(&self) -> impl Iterator<Item = Result<(Cow<'a, str>, Cow<'a, str>), Malformed>> + use<'a> {
        let keys = (attribute::KEY, attribute::STRING_VALUE);
        pairs(self.attributes.unwrap_or_default(), attribute::ATTRIBUTE, keys)
    }

    /// The track that it describes.
    pub fn track(&self) -> Result<Option<Track<'a>>, Malformed> {
        self.track.map(Track::read).transpose()
    }
}

/// One instant by several clocks, in ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clocks {
    /// `CLOCK_REALTIME`.
    pub real_ns: Option<i64>,
    /// `CLOCK_BOOTTIME`.
    pub boot_ns: Option<i64>,
    /// The clock of a session's sequence.
    pub session_ns: Option<i64>,
}

impl Clocks {
    /// `CLOCK_BOOTTIME` when the session's clock was zero; none if either is not given.
    pub fn zero_ns(&self) -> Option<i64> {
        Some(self.boot_ns?.wrapping_sub(self.session_ns?))
    }
}

/// A name that later packets refer to by its id.
#[derive(Clone, Copy, Debug)]
pub struct Interned<'a> {
    /// The field of `InternedData`, which says what it is the name of.
    pub number: u32,
    pub iid: u64,
    pub text: Value<'a>,
    /// The whole entry.
    pub message: &'a [u8],
}

/// The description of a track.
#[derive(Clone, Debug, Default)]
pub struct Track<'a> {
    pub uuid: u64,
    /// 0 if it is within no other one.
    pub parent: u64,
    pub name: Cow<'a, str>,
    pub process: Option<Process<'a>>,
    pub thread: Option<Thread<'a>>,
    /// Siblings with one key are drawn as one track; 0 if it has none.
    pub merge_key: u64,
}

/// The process that a track is of.
#[derive(Clone, Debug, Default)]
pub struct Process<'a> {
    pub pid: i32,
    pub name: Cow<'a, str>,
}

/// The thread that a track is of.
#[derive(Clone, Debug, Default)]
pub struct Thread<'a> {
    pub pid: i32,
    pub tid: i64,
    pub name: Cow<'a, str>,
}

impl<'a> Track<'a> {
    pub fn read(message: &'a [u8]) -> Result<Track<'a>, Malformed> {
        let mut read = Track::default();
        for field in Fields(message) {
            let (number, value) = field?;
            match number {
                track::UUID => read.uuid = value.int(),
                track::PARENT_UUID => read.parent = value.int(),
                track::NAME => read.name = value.text(),
                track::MERGE_KEY_INT => read.merge_key = value.int(),
                track::PROCESS => {
                    let process = read.process.get_or_insert_default();
                    for field in Fields(value.bytes()) {
                        match field? {
                            (track::PROCESS_PID, value) => process.pid = value.int() as i32,
                            (track::PROCESS_NAME, value) => process.name = value.text(),
                            _ => {}
                        }
                    }
                }
                track::THREAD => {
                    let thread = read.thread.get_or_insert_default();
                    for field in Fields(value.bytes()) {
                        match field? {
                            (track::THREAD_PID, value) => thread.pid = value.int() as i32,
                            (track::THREAD_TID, value) => thread.tid = value.int() as i64,
                            (track::THREAD_NAME, value) => thread.name = value.text(),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(read)
    }
}

/// Work on a device.
#[derive(Clone, Debug, Default)]
pub struct RenderStage<'a> {
    pub event_id: u64,
    pub duration_ns: u64,
    pub gpu: i32,
    pub queue_iid: u64,
    pub stage_iid: u64,
    pub kernel_iid: u64,
    pub name_iid: u64,
    /// None if it is interned.
    pub name: Option<Cow<'a, str>>,
    /// The message `ComputeKernelLaunch`.
    pub launch: Option<&'a [u8]>,
    message: &'a [u8],
}

impl<'a> RenderStage<'a> {
    pub fn read(message: &'a [u8]) -> Result<RenderStage<'a>, Malformed> {
        let mut read = RenderStage { message, ..RenderStage::default() };
        for field in Fields(message) {
            let (number, value) = field?;
            match number {
                stage::EVENT_ID => read.event_id = value.int(),
                stage::DURATION => read.duration_ns = value.int(),
                stage::GPU_ID => read.gpu = value.int() as i32,
                stage::HW_QUEUE_IID => read.queue_iid = value.int(),
                stage::STAGE_IID => read.stage_iid = value.int(),
                KERNEL_IID => read.kernel_iid = value.int(),
                stage::NAME_IID => read.name_iid = value.int(),
                stage::NAME => read.name = Some(value.text()),
                stage::LAUNCH => read.launch = Some(value.bytes()),
                _ => {}
            }
        }
        Ok(read)
    }

    /// The ids of the work for which it waits.
    pub fn waits_for(&self) -> Result<Vec<u64>, Malformed> {
        numbers(self.message, WAITS_FOR)
    }

    /// Its named facts, as texts.
    pub fn extra(&self) -> impl Iterator<Item = Result<(Cow<'a, str>, Cow<'a, str>), Malformed>> + use<'a> {
        pairs(self.message, EXTRA, (1, 2))
    }
}

/// An event on a track. What it repeats is read when it is asked for, so that no packet takes more memory than its bytes.
#[derive(Clone, Debug, Default)]
pub struct TrackEvent<'a> {
    pub kind: u64,
    /// 0 for the track of its sequence.
    pub track: u64,
    pub name_iid: u64,
    /// None if it is interned.
    pub name: Option<Cow<'a, str>>,
    pub counter: Option<i64>,
    pub double_counter: Option<f64>,
    correlation: Option<&'a [u8]>,
    message: &'a [u8],
}

impl<'a> TrackEvent<'a> {
    pub fn read(message: &'a [u8]) -> Result<TrackEvent<'a>, Malformed> {
        let mut read = TrackEvent { message, ..TrackEvent::default() };
        for field in Fields(message) {
            let (number, value) = field?;
            match number {
                event::TYPE => read.kind = value.int(),
                event::TRACK_UUID => read.track = value.int(),
                event::NAME_IID => read.name_iid = value.int(),
                event::NAME => read.name = Some(value.text()),
                event::COUNTER_VALUE => read.counter = Some(value.int() as i64),
                event::DOUBLE_COUNTER_VALUE => read.double_counter = Some(value.double()),
                GPU_CORRELATION => read.correlation = Some(value.bytes()),
                _ => {}
            }
        }
        Ok(read)
    }

    pub fn annotations(&self) -> impl Iterator<Item = Result<Annotation<'a>, Malformed>> + use<'a> {
        annotations(self.message, event::ANNOTATIONS)
    }

    pub fn categories(&self) -> impl Iterator<Item = Cow<'a, str>> + use<'a> {
        let fields = Fields(self.message).map_while(Result::ok);
        fields.filter(|(number, _)| *number == event::CATEGORIES).map(|(_, value)| value.text())
    }

    /// The ids of interned categories.
    pub fn category_iids(&self) -> Result<Vec<u64>, Malformed> {
        numbers(self.message, event::CATEGORY_IIDS)
    }

    /// The ids of arrows that begin at it or pass it, and of those that end at it.
    pub fn flows(&self) -> Result<[Vec<u64>; 2], Malformed> {
        Ok([numbers(self.message, event::FLOW_IDS)?, numbers(self.message, event::TERMINATING_FLOW_IDS)?])
    }

    /// Whether it is a call that says which of the device's work it submitted.
    pub fn submits(&self) -> bool {
        self.correlation.is_some()
    }

    /// The ids of the device's work that a call submitted.
    pub fn submitted(&self) -> Result<Vec<u64>, Malformed> {
        numbers(self.correlation.unwrap_or_default(), SUBMITTED)
    }
}

/// The numbers of a repeated field, packed or not.
fn numbers(message: &[u8], wanted: u32) -> Result<Vec<u64>, Malformed> {
    let mut all = Vec::new();
    for field in Fields(message) {
        match field? {
            (number, _) if number != wanted => {}
            (event::FLOW_IDS | event::TERMINATING_FLOW_IDS, Value::Bytes(packed)) => {
                let (whole, rest) = packed.as_chunks();
                all.extend(whole.iter().map(|number| u64::from_le_bytes(*number)));
                if !rest.is_empty() {
                    return Err(Malformed);
                }
            }
            (_, Value::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    let (number, width) = varint(packed).ok_or(Malformed)?;
                    all.push(number);
                    packed = &packed[width..];
                }
            }
            (_, value) => all.push(value.int()),
        }
    }
    Ok(all)
}

/// An annotation of an event.
#[derive(Clone, Debug, Default)]
pub struct Annotation<'a> {
    pub name_iid: u64,
    /// None if it is interned.
    pub name: Option<Cow<'a, str>>,
    /// None for an array and a dictionary.
    pub value: Option<Said<'a>>,
    message: &'a [u8],
}

/// The value of an annotation.
#[derive(Clone, Debug, PartialEq)]
pub enum Said<'a> {
    Bool(bool),
    Uint(u64),
    Int(i64),
    Double(f64),
    Text(Cow<'a, str>),
    /// The id of an interned text.
    TextIid(u64),
    Pointer(u64),
    Json(Cow<'a, str>),
}

impl<'a> Annotation<'a> {
    pub fn read(message: &'a [u8]) -> Result<Annotation<'a>, Malformed> {
        let mut read = Annotation { message, ..Annotation::default() };
        for field in Fields(message) {
            let (number, value) = field?;
            read.value = Some(match number {
                annotation::BOOL => Said::Bool(value.int() != 0),
                annotation::UINT => Said::Uint(value.int()),
                annotation::INT => Said::Int(value.int() as i64),
                annotation::DOUBLE => Said::Double(value.double()),
                annotation::STRING => Said::Text(value.text()),
                annotation::STRING_IID => Said::TextIid(value.int()),
                POINTER => Said::Pointer(value.int()),
                JSON => Said::Json(value.text()),
                annotation::NAME_IID => {
                    read.name_iid = value.int();
                    continue;
                }
                annotation::NAME => {
                    read.name = Some(value.text());
                    continue;
                }
                _ => continue,
            });
        }
        Ok(read)
    }

    /// The named values of a dictionary.
    pub fn entries(&self) -> impl Iterator<Item = Result<Annotation<'a>, Malformed>> + use<'a> {
        annotations(self.message, annotation::DICT_ENTRIES)
    }

    /// The values of an array.
    pub fn values(&self) -> impl Iterator<Item = Result<Annotation<'a>, Malformed>> + use<'a> {
        annotations(self.message, annotation::ARRAY_VALUES)
    }

    pub fn uint(&self) -> Option<u64> {
        if let Some(Said::Uint(value)) = self.value { Some(value) } else { None }
    }

    pub fn int(&self) -> Option<i64> {
        if let Some(Said::Int(value)) = self.value { Some(value) } else { None }
    }
}

/// The annotations in the fields of a message with this number.
fn annotations(message: &[u8], wanted: u32) -> impl Iterator<Item = Result<Annotation<'_>, Malformed>> {
    messages(message, wanted).map(|annotation| Annotation::read(annotation?))
}

/// Returns the messages in the fields of this number.
pub(super) fn messages(message: &[u8], wanted: u32) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    let fields = Fields(message).filter(move |field| !matches!(field, Ok((number, _)) if *number != wanted));
    fields.map(|field| Ok(field?.1.bytes()))
}

/// Returns the two texts of each message in the fields of this number.
fn pairs(
    message: &[u8],
    wanted: u32,
    (first, second): (u32, u32),
) -> impl Iterator<Item = Result<(Cow<'_, str>, Cow<'_, str>), Malformed>> {
    messages(message, wanted).map(move |message| {
        let mut texts = (Cow::default(), Cow::default());
        for field in Fields(message?) {
            match field? {
                (number, value) if number == first => texts.0 = value.text(),
                (number, value) if number == second => texts.1 = value.text(),
                _ => {}
            }
        }
        Ok(texts)
    })
}
