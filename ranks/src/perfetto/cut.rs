//! One rank's trace, cut to a window of time, on the time line of the archive: the packets that warpline wrote, with other timestamps
//! where clocks differ, and with process, thread and GPU ids that no other rank has.
//!
//! A slice is kept whole if it overlaps the window. Clocks, descriptions and names are kept wherever they stand, since later packets
//! need them. Memory holds what is kept.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, BufRead};

use super::wire::{Field, Value, Write, fields, first, next_packet, rewrite};

/// The numbers of fields, by message.
pub mod id {
    pub const CLOCK_SNAPSHOT: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED: u32 = 12;
    pub const FLAGS: u32 = 13;
    pub const RENDER_STAGE: u32 = 53;
    pub const TIMESTAMP_CLOCK: u32 = 58;
    pub const DEFAULTS: u32 = 59;
    pub const DESCRIPTOR: u32 = 60;
    pub const ATTRIBUTES: u32 = 126;

    pub const SNAPSHOT_CLOCKS: u32 = 1;
    pub const SNAPSHOT_PRIMARY: u32 = 2;
    pub const CLOCK_ID: u32 = 1;
    pub const CLOCK_TIME: u32 = 2;

    pub const ATTRIBUTE: u32 = 1;
    pub const ATTRIBUTE_KEY: u32 = 1;
    pub const ATTRIBUTE_INT: u32 = 2;
    pub const ATTRIBUTE_TEXT: u32 = 3;

    pub const UUID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const PROCESS: u32 = 3;
    pub const THREAD: u32 = 4;
    pub const PARENT: u32 = 5;
    pub const PID: u32 = 1;
    pub const TID: u32 = 2;
    pub const PROCESS_NAME: u32 = 6;
    pub const PROCESS_LABEL: u32 = 8;

    pub const ANNOTATION: u32 = 4;
    pub const EVENT_TYPE: u32 = 9;
    pub const TRACK: u32 = 11;
    pub const CATEGORY: u32 = 22;
    pub const EVENT_NAME: u32 = 23;
    pub const FLOW: u32 = 47;
    pub const FLOW_END: u32 = 48;

    pub const ANNOTATION_INT: u32 = 4;
    pub const ANNOTATION_TEXT: u32 = 6;
    pub const ANNOTATION_NAME: u32 = 10;

    pub const STAGE_DURATION: u32 = 2;
    pub const STAGE_GPU: u32 = 11;
    pub const CONTEXTS: u32 = 23;
    pub const CONTEXT_PID: u32 = 2;

    pub const SLICE_BEGIN: u64 = 1;
    pub const SLICE_END: u64 = 2;
    pub const COUNTER: u64 = 4;
    pub const STATE_CLEARED: u64 = 1;
}

/// `BuiltinClock`, and the clock of a sequence: `BOOTTIME` minus the session's begin.
pub const REALTIME: u64 = 1;
pub const BOOTTIME: u64 = 6;
const SESSION: u64 = 64;

/// What a trace says of itself at its begin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    pub boot_id: String,
    pub pid: i64,
}

/// The packets in which a trace says what it is.
const HEAD: usize = 64;

/// Reads the begin of a trace; none if warpline did not write it.
pub fn head(mut trace: impl BufRead) -> io::Result<Option<Head>> {
    let (mut head, mut packet, mut is_ours) = (Head::default(), Vec::new(), false);
    for _ in 0..HEAD {
        if !next_packet(&mut trace, &mut packet)? {
            break;
        }
        for field in fields(&packet) {
            let bytes = field.value.bytes().unwrap_or_default();
            match field.id {
                id::DESCRIPTOR => {
                    let pid =
                        first(bytes, id::PROCESS).and_then(Value::bytes).and_then(|process| first(process, id::PID));
                    if let Some(pid) = pid.and_then(Value::uint) {
                        head.pid = pid as i64;
                    }
                }
                id::ATTRIBUTES => {
                    for attribute in fields(bytes).filter_map(|field| field.value.bytes()) {
                        let text = |number| first(attribute, number).and_then(Value::text).unwrap_or_default();
                        match text(id::ATTRIBUTE_KEY) {
                            "warpline.version" => is_ours = true,
                            "warpline.boot_id" => head.boot_id = text(id::ATTRIBUTE_TEXT).to_owned(),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        if is_ours && head.pid != 0 {
            break;
        }
    }
    Ok(is_ours.then_some(head))
}

/// How a rank appears in the archive.
pub struct Rank<'a> {
    /// From the rank's `CLOCK_BOOTTIME` to the time line of the archive.
    pub place: &'a dyn Fn(i64) -> i64,
    /// The wall clock minus the time line.
    pub wall_ns: i64,
    /// What is kept, on the time line.
    pub window: (i64, i64),
    /// The process id in the archive.
    pub pid: i64,
    /// The begin of the process's name.
    pub name: &'a str,
    /// Facts beside the process's name.
    pub labels: &'a [String],
    /// Facts as metadata.
    pub attributes: &'a [(String, String)],
}

/// GPU ids of the archive, by process and GPU id in its trace.
pub type Gpus = BTreeMap<(i64, u64), u64>;

/// What a trace has in the window.
#[derive(Debug, Default)]
pub struct Cut {
    pub trace: Vec<u8>,
    pub slices: u64,
    pub events: u64,
    /// Packets whose clock is unknown.
    pub unplaced: u64,
}

#[derive(Default)]
struct Sequence {
    clock: u64,
    /// `BOOTTIME` at the zero of the session's clock, on the rank's clock and on the time line.
    zero: Option<(i64, i64)>,
    /// Names that no kept event needs yet.
    names: Vec<Vec<u8>>,
    /// The begin of a slice, and its time.
    open: Option<(Vec<u8>, i64)>,
    /// By track: the last value before the window.
    counters: HashMap<u64, Vec<u8>>,
}

struct Cutter<'a> {
    rank: &'a Rank<'a>,
    gpus: &'a mut Gpus,
    sequences: HashMap<u64, Sequence>,
    own_pid: u64,
    kept: Vec<Vec<u8>>,
    cut: Cut,
}

/// Cuts a trace to the window.
///
/// # Errors
/// The trace cannot be read.
pub fn cut(mut trace: impl BufRead, rank: &Rank<'_>, gpus: &mut Gpus) -> io::Result<Cut> {
    let (sequences, kept, cut) = (HashMap::new(), Vec::new(), Cut::default());
    let mut cutter = Cutter { rank, gpus, sequences, own_pid: 0, kept, cut };
    let mut packet = Vec::new();
    while next_packet(&mut trace, &mut packet)? {
        cutter.packet(&packet);
    }
    Ok(cutter.end())
}

impl Cutter<'_> {
    fn packet(&mut self, packet: &[u8]) {
        let find = |number| fields(packet).filter(move |field| field.id == number).last().map(|field| field.value);
        let uint = |number| find(number).and_then(Value::uint);
        let sequence = uint(id::SEQUENCE).unwrap_or(0);
        let is_cleared = uint(id::FLAGS).unwrap_or(0) & id::STATE_CLEARED != 0;
        let state =
            self.sequences.entry(sequence).or_insert_with(|| Sequence { clock: BOOTTIME, ..Sequence::default() });
        if is_cleared {
            *state = Sequence { clock: BOOTTIME, ..Sequence::default() };
        }
        if let Some(snapshot) = find(id::CLOCK_SNAPSHOT).and_then(Value::bytes) {
            let clock = |wanted| clocks(snapshot).find(|(clock, _)| *clock == wanted).map(|(_, time)| time);
            if let (Some(boot), Some(session)) = (clock(BOOTTIME), clock(SESSION)) {
                let zero = boot.wrapping_sub(session);
                state.zero = Some((zero, (self.rank.place)(zero)));
            }
        }
        let default =
            find(id::DEFAULTS).and_then(Value::bytes).and_then(|defaults| first(defaults, id::TIMESTAMP_CLOCK));
        if let Some(clock) = default.and_then(Value::uint) {
            state.clock = clock;
        }
        let own = uint(id::TIMESTAMP).map(|time| time as i64);
        let placed =
            own.and_then(|own| place(own, uint(id::TIMESTAMP_CLOCK).unwrap_or(state.clock), state, self.rank.place));
        if own.is_some() && placed.is_none() {
            self.cut.unplaced += 1;
            return;
        }
        // On the time line, and as it is written.
        let (at, written) = placed.unwrap_or_default();
        let copy = self.copy(packet, own.map(|_| written));
        let (from, to) = self.rank.window;
        let is_inside = |at: i64| (from..=to).contains(&at);
        // A neighbour that only touches the window is none of it.
        let overlaps = |begin: i64, end: i64| begin < to && end > from || begin == end && is_inside(begin);
        let event = find(id::TRACK_EVENT).and_then(Value::bytes);
        let stage = find(id::RENDER_STAGE).and_then(Value::bytes);
        let Some(state) = self.sequences.get_mut(&sequence) else { return };
        match (event, stage) {
            (Some(event), _) => match first(event, id::EVENT_TYPE).and_then(Value::uint) {
                Some(id::SLICE_BEGIN) => state.open = Some((copy, at)),
                Some(id::SLICE_END) => {
                    if let Some((begin, begun)) = state.open.take()
                        && overlaps(begun, at)
                    {
                        self.kept.append(&mut state.names);
                        self.kept.extend([begin, copy]);
                        self.cut.slices += 1;
                    }
                }
                Some(id::COUNTER) if at < from => {
                    let track = first(event, id::TRACK).and_then(Value::uint).unwrap_or(0);
                    // Its value at the begin of the window. The begin is on the clock that the packet names.
                    let begin = written.saturating_add(from - at);
                    let copy = rewrite(&copy, |field, out| {
                        field.id == id::TIMESTAMP && {
                            out.int(id::TIMESTAMP, begin);
                            true
                        }
                    });
                    state.counters.insert(track, copy);
                }
                _ if is_inside(at) => {
                    self.kept.append(&mut state.names);
                    self.kept.push(copy);
                    self.cut.events += 1;
                }
                _ => {}
            },
            (None, Some(stage)) => {
                let length = first(stage, id::STAGE_DURATION).and_then(Value::uint).unwrap_or(0) as i64;
                if overlaps(at, at.saturating_add(length)) {
                    self.kept.append(&mut state.names);
                    self.kept.push(copy);
                    self.cut.slices += 1;
                }
            }
            (None, None) if find(id::INTERNED).is_some() && !is_cleared => state.names.push(copy),
            (None, None) => self.kept.push(copy),
        }
    }

    /// The packet with its time, its clocks and its ids as they are in the archive.
    fn copy(&mut self, packet: &[u8], time: Option<i64>) -> Vec<u8> {
        rewrite(packet, |field, out| match (field.id, field.value) {
            (id::TIMESTAMP, _) => {
                out.int(id::TIMESTAMP, time.unwrap_or_default());
                true
            }
            (id::CLOCK_SNAPSHOT, Value::Bytes(snapshot)) => {
                out.bytes(id::CLOCK_SNAPSHOT, &self.snapshot(snapshot));
                true
            }
            (id::DESCRIPTOR, Value::Bytes(descriptor)) => {
                out.bytes(id::DESCRIPTOR, &self.descriptor(descriptor));
                true
            }
            (id::INTERNED, Value::Bytes(interned)) => {
                let pid = self.rank.pid as u64;
                let context = |field: &Field<'_>, out: &mut Vec<u8>| {
                    field.id == id::CONTEXT_PID && {
                        out.uint(id::CONTEXT_PID, pid);
                        true
                    }
                };
                let interned = rewrite(interned, |field, out| match (field.id, field.value) {
                    (id::CONTEXTS, Value::Bytes(found)) => {
                        out.bytes(id::CONTEXTS, &rewrite(found, context));
                        true
                    }
                    _ => false,
                });
                out.bytes(id::INTERNED, &interned);
                true
            }
            (id::RENDER_STAGE, Value::Bytes(stage)) => {
                let own = first(stage, id::STAGE_GPU).and_then(Value::uint).unwrap_or(0);
                let next = self.gpus.len() as u64;
                let gpu = *self.gpus.entry((self.rank.pid, own)).or_insert(next);
                let mut stage = rewrite(stage, |field, _| field.id == id::STAGE_GPU);
                stage.uint(id::STAGE_GPU, gpu);
                out.bytes(id::RENDER_STAGE, &stage);
                true
            }
            _ => false,
        })
    }

    fn snapshot(&self, snapshot: &[u8]) -> Vec<u8> {
        let boot = clocks(snapshot).find(|(clock, _)| *clock == BOOTTIME).map(|(_, time)| (self.rank.place)(time));
        rewrite(snapshot, |field, out| {
            let (id::SNAPSHOT_CLOCKS, Value::Bytes(clock), Some(boot)) = (field.id, field.value, boot) else {
                return false;
            };
            let time = match first(clock, id::CLOCK_ID).and_then(Value::uint) {
                Some(BOOTTIME) => boot,
                Some(REALTIME) => boot.saturating_add(self.rank.wall_ns),
                _ => return false,
            };
            let clock = rewrite(clock, |field, out| {
                field.id == id::CLOCK_TIME && {
                    out.int(id::CLOCK_TIME, time);
                    true
                }
            });
            out.bytes(id::SNAPSHOT_CLOCKS, &clock);
            true
        })
    }

    fn descriptor(&mut self, descriptor: &[u8]) -> Vec<u8> {
        let Rank { pid, name, labels, .. } = self.rank;
        let own_pid = &mut self.own_pid;
        rewrite(descriptor, |field, out| match (field.id, field.value) {
            (id::PROCESS, Value::Bytes(process)) => {
                *own_pid = first(process, id::PID).and_then(Value::uint).unwrap_or(0);
                let mut process = rewrite(process, |field, out| match (field.id, field.value.text()) {
                    (id::PID, _) => {
                        out.int(id::PID, *pid);
                        true
                    }
                    (id::PROCESS_NAME, Some(own)) if !own.starts_with(name) => {
                        out.text(id::PROCESS_NAME, &format!("{name} · {own}"));
                        true
                    }
                    _ => false,
                });
                labels.iter().for_each(|label| process.text(id::PROCESS_LABEL, label));
                out.bytes(id::PROCESS, &process);
                true
            }
            (id::THREAD, Value::Bytes(thread)) => {
                let thread = rewrite(thread, |field, out| match (field.id, field.value.uint()) {
                    (id::PID, _) => {
                        out.int(id::PID, *pid);
                        true
                    }
                    // The main thread stays the main thread.
                    (id::TID, Some(tid)) if tid == *own_pid => {
                        out.int(id::TID, *pid);
                        true
                    }
                    _ => false,
                });
                out.bytes(id::THREAD, &thread);
                true
            }
            _ => false,
        })
    }

    fn end(mut self) -> Cut {
        for state in self.sequences.values_mut().filter(|state| !state.counters.is_empty()) {
            self.kept.append(&mut state.names);
            self.kept.extend(state.counters.drain().map(|(_, copy)| copy));
        }
        let is_flow = |field: &Field<'_>| matches!(field.id, id::FLOW | id::FLOW_END);
        let flows = |packet: &[u8], which| -> Vec<u64> {
            let events =
                fields(packet).filter(|field| field.id == id::TRACK_EVENT).filter_map(|field| field.value.bytes());
            let ids = events.flat_map(fields).filter(move |field| field.id == which);
            ids.filter_map(|field| if let Value::Fixed64(flow) = field.value { Some(flow) } else { None }).collect()
        };
        let begun: HashSet<u64> = self.kept.iter().flat_map(|packet| flows(packet, id::FLOW)).collect();
        let ended: HashSet<u64> = self.kept.iter().flat_map(|packet| flows(packet, id::FLOW_END)).collect();
        let is_whole = |value: Value<'_>| match value {
            Value::Fixed64(flow) => begun.contains(&flow) && ended.contains(&flow),
            _ => true,
        };
        let mut trace = std::mem::take(&mut self.cut.trace);
        attributes(self.rank.attributes, &mut trace);
        for packet in &self.kept {
            // The other end of an arrow may be outside of the window.
            let packet = rewrite(packet, |field, out| match (field.id, field.value) {
                (id::TRACK_EVENT, Value::Bytes(event)) => {
                    out.bytes(id::TRACK_EVENT, &rewrite(event, |field, _| is_flow(field) && !is_whole(field.value)));
                    true
                }
                _ => false,
            });
            trace.packet(|out| out.extend_from_slice(&packet));
        }
        self.cut.trace = trace;
        self.cut
    }
}

/// The time on the time line, and the same on the clock of the packet; none for a clock that is unknown.
fn place(own: i64, clock: u64, state: &Sequence, place: &dyn Fn(i64) -> i64) -> Option<(i64, i64)> {
    match (clock, state.zero) {
        (BOOTTIME, _) => Some((place(own), place(own))),
        (SESSION, Some((zero, placed_zero))) => {
            let at = place(zero.wrapping_add(own));
            Some((at, at.saturating_sub(placed_zero).max(0)))
        }
        _ => None,
    }
}

/// The clocks of a snapshot, with their times.
fn clocks(snapshot: &[u8]) -> impl Iterator<Item = (u64, i64)> {
    fields(snapshot).filter(|field| field.id == id::SNAPSHOT_CLOCKS).filter_map(|field| {
        let clock = field.value.bytes()?;
        let uint = |number| first(clock, number).and_then(Value::uint);
        Some((uint(id::CLOCK_ID)?, uint(id::CLOCK_TIME)? as i64))
    })
}

/// Writes facts as metadata of a trace.
pub fn attributes(facts: &[(String, String)], trace: &mut Vec<u8>) {
    if facts.is_empty() {
        return;
    }
    trace.packet(|packet| {
        packet.message(id::ATTRIBUTES, |attributes| {
            for (key, value) in facts {
                attributes.message(id::ATTRIBUTE, |attribute| {
                    attribute.text(id::ATTRIBUTE_KEY, key);
                    match value.parse() {
                        Ok(number) => attribute.int(id::ATTRIBUTE_INT, number),
                        Err(_) => attribute.text(id::ATTRIBUTE_TEXT, value),
                    }
                });
            }
        });
    });
}
