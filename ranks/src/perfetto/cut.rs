//! One rank's trace, cut to a window of time, on the time line of the archive: the packets that warpline wrote, with
//! other timestamps where clocks differ, and with process, thread and GPU ids that no other rank has.
//!
//! A slice is kept whole if it overlaps the window. Clocks, descriptions and names are kept wherever they are, since
//! later packets need them. The kept packets are in memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read};

use warpline_trace::read::Packets;
use warpline_trace::read::parts::{Clocks, Packet, RenderStage, TrackEvent};
use warpline_trace::read::wire::{Malformed, Value, first, rewrite};
use warpline_trace::write::perfetto::proto::{Buffer, attribute, clock, event, interned, packet, stage, track};

/// The facts about a trace at its beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    pub boot_id: String,
    pub pid: i64,
}

/// The number of packets that contain these facts.
const HEAD: usize = 64;

/// Reads the begin of a trace; none if warpline did not write it.
pub fn head(trace: impl Read) -> io::Result<Option<Head>> {
    let (mut packets, mut head, mut is_ours) = (Packets::new(trace), Head::default(), false);
    for _ in 0..HEAD {
        let Some(bytes) = packets.next_packet()? else { break };
        let Ok(packet) = Packet::read(bytes) else { continue };
        if let Ok(Some(process)) = packet.track().map(|track| track.and_then(|track| track.process)) {
            head.pid = process.pid.into();
        }
        for (key, text) in packet.attributes().map_while(Result::ok) {
            match &*key {
                "warpline.version" => is_ours = true,
                "warpline.boot_id" => head.boot_id = text.into_owned(),
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
    /// The window that is kept, on the time line.
    pub window: (i64, i64),
    /// The process id in the archive.
    pub pid: i64,
    /// The begin of the process's name.
    pub name: &'a str,
    /// Facts that are shown with the process's name.
    pub labels: &'a [String],
    /// Facts as metadata.
    pub attributes: &'a [(String, String)],
}

/// GPU ids of the archive, by process and GPU id in its trace.
pub type Gpus = BTreeMap<(i64, u64), u64>;

/// The part of a trace in the window.
#[derive(Debug, Default)]
pub struct Cut {
    pub trace: Buffer,
    pub slices: u64,
    pub events: u64,
    /// Packets whose clock is unknown.
    pub unplaced: u64,
    /// Packets that are malformed or too large.
    pub damaged: u64,
}

#[derive(Default)]
struct Sequence {
    clock: u64,
    /// `BOOTTIME` at the zero of the session's clock, on the rank's clock and on the time line.
    zero: Option<(i64, i64)>,
    /// Names that no kept event needs yet.
    names: Vec<Buffer>,
    /// The begin of a slice, and its time.
    open: Option<(Buffer, i64)>,
    /// By track: the last value before the window.
    counters: HashMap<u64, Buffer>,
}

struct Cutter<'a> {
    rank: &'a Rank<'a>,
    gpus: &'a mut Gpus,
    sequences: HashMap<u64, Sequence>,
    own_pid: u64,
    kept: Vec<Buffer>,
    cut: Cut,
}

/// Cuts a trace to the window.
///
/// # Errors
/// The trace cannot be read.
pub fn cut(trace: impl Read, rank: &Rank<'_>, gpus: &mut Gpus) -> io::Result<Cut> {
    let (sequences, kept, cut) = (HashMap::new(), Vec::new(), Cut::default());
    let mut cutter = Cutter { rank, gpus, sequences, own_pid: 0, kept, cut };
    let mut packets = Packets::new(trace);
    while let Some(packet) = packets.next_packet()? {
        if cutter.packet(packet).is_err() {
            cutter.cut.damaged += 1;
        }
    }
    cutter.cut.damaged += packets.too_large;
    Ok(cutter.end())
}

impl Cutter<'_> {
    fn packet(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let packet = Packet::read(bytes)?;
        let clocks = packet.clocks()?;
        let default = packet.defaults()?.0;
        let state = self
            .sequences
            .entry(packet.sequence)
            .or_insert_with(|| Sequence { clock: clock::BOOTTIME, ..Sequence::default() });
        if packet.is_cleared {
            *state = Sequence { clock: clock::BOOTTIME, ..Sequence::default() };
        }
        if let Some(zero) = clocks.zero_ns() {
            state.zero = Some((zero, (self.rank.place)(zero)));
        }
        state.clock = default.unwrap_or(state.clock);
        let own = packet.timestamp.map(|time| time as i64);
        let placed = own.and_then(|own| place(own, packet.clock.unwrap_or(state.clock), state, self.rank.place));
        if own.is_some() && placed.is_none() {
            self.cut.unplaced += 1;
            return Ok(());
        }
        // On the time line, and as it is written.
        let (at, written) = placed.unwrap_or_default();
        let copy = self.copy(bytes, &clocks, own.map(|_| written));
        let (from, to) = self.rank.window;
        let is_inside = |at: i64| (from..=to).contains(&at);
        // A neighbour that only touches the window is not in it.
        let overlaps = |begin: i64, end: i64| begin < to && end > from || begin == end && is_inside(begin);
        let Some(state) = self.sequences.get_mut(&packet.sequence) else { return Ok(()) };
        match (packet.event, packet.stage) {
            (Some(event), _) => {
                let event = TrackEvent::read(event)?;
                match event.kind {
                    event::SLICE_BEGIN => state.open = Some((copy, at)),
                    event::SLICE_END => {
                        if let Some((begin, begun)) = state.open.take()
                            && overlaps(begun, at)
                        {
                            self.kept.append(&mut state.names);
                            self.kept.extend([begin, copy]);
                            self.cut.slices += 1;
                        }
                    }
                    event::COUNTER if at < from => {
                        // Its value at the begin of the window. The begin is on the clock that the packet names.
                        let begin = written.saturating_add(from - at);
                        let copy = rewrite(copy.as_bytes(), |number, _, out| {
                            number == packet::TIMESTAMP && {
                                out.int(packet::TIMESTAMP, begin);
                                true
                            }
                        });
                        state.counters.insert(event.track, copy);
                    }
                    _ if is_inside(at) => {
                        self.kept.append(&mut state.names);
                        self.kept.push(copy);
                        self.cut.events += 1;
                    }
                    _ => {}
                }
            }
            (None, Some(stage)) => {
                let length = RenderStage::read(stage)?.duration_ns as i64;
                if overlaps(at, at.saturating_add(length)) {
                    self.kept.append(&mut state.names);
                    self.kept.push(copy);
                    self.cut.slices += 1;
                }
            }
            (None, None) if packet.interned.is_some() && !packet.is_cleared => state.names.push(copy),
            (None, None) => self.kept.push(copy),
        }
        Ok(())
    }

    /// The packet with its time, its clocks and its ids as they are in the archive.
    fn copy(&mut self, packet: &[u8], clocks: &Clocks, time: Option<i64>) -> Buffer {
        rewrite(packet, |number, value, out| match (number, value) {
            (packet::TIMESTAMP, _) => {
                out.int(packet::TIMESTAMP, time.unwrap_or_default());
                true
            }
            (packet::CLOCK_SNAPSHOT, Value::Bytes(snapshot)) => {
                out.bytes(packet::CLOCK_SNAPSHOT, self.snapshot(snapshot, clocks).as_bytes());
                true
            }
            (packet::TRACK_DESCRIPTOR, Value::Bytes(descriptor)) => {
                out.bytes(packet::TRACK_DESCRIPTOR, self.descriptor(descriptor).as_bytes());
                true
            }
            (packet::INTERNED_DATA, Value::Bytes(interned)) => {
                let pid = self.rank.pid as u64;
                let context = |number: u32, _: Value<'_>, out: &mut Buffer| {
                    number == stage::CONTEXT_PID && {
                        out.uint(stage::CONTEXT_PID, pid);
                        true
                    }
                };
                let interned = rewrite(interned, |number, value, out| match (number, value) {
                    (interned::GRAPHICS_CONTEXTS, Value::Bytes(found)) => {
                        out.bytes(interned::GRAPHICS_CONTEXTS, rewrite(found, context).as_bytes());
                        true
                    }
                    _ => false,
                });
                out.bytes(packet::INTERNED_DATA, interned.as_bytes());
                true
            }
            (packet::GPU_RENDER_STAGE, Value::Bytes(stage)) => {
                let own = first(stage, stage::GPU_ID).map_or(0, Value::int);
                let next = self.gpus.len() as u64;
                let gpu = *self.gpus.entry((self.rank.pid, own)).or_insert(next);
                let mut stage = rewrite(stage, |number, _, _| number == stage::GPU_ID);
                stage.uint(stage::GPU_ID, gpu);
                out.bytes(packet::GPU_RENDER_STAGE, stage.as_bytes());
                true
            }
            _ => false,
        })
    }

    fn snapshot(&self, snapshot: &[u8], clocks: &Clocks) -> Buffer {
        let boot = clocks.boot_ns.map(self.rank.place);
        rewrite(snapshot, |number, value, out| {
            let (clock::CLOCKS, Value::Bytes(clock), Some(boot)) = (number, value, boot) else {
                return false;
            };
            let time = match first(clock, clock::ID).map(Value::int) {
                Some(clock::BOOTTIME) => boot,
                Some(clock::REALTIME) => boot.saturating_add(self.rank.wall_ns),
                _ => return false,
            };
            let clock = rewrite(clock, |number, _, out| {
                number == clock::TIMESTAMP && {
                    out.int(clock::TIMESTAMP, time);
                    true
                }
            });
            out.bytes(clock::CLOCKS, clock.as_bytes());
            true
        })
    }

    fn descriptor(&mut self, descriptor: &[u8]) -> Buffer {
        let Rank { pid, name, labels, .. } = self.rank;
        let own_pid = &mut self.own_pid;
        rewrite(descriptor, |number, value, out| match (number, value) {
            (track::PROCESS, Value::Bytes(process)) => {
                *own_pid = first(process, track::PROCESS_PID).map_or(0, Value::int);
                let mut process = rewrite(process, |number, value, out| match number {
                    track::PROCESS_PID => {
                        out.int(track::PROCESS_PID, *pid);
                        true
                    }
                    track::PROCESS_NAME if !value.text().starts_with(name) => {
                        out.text(track::PROCESS_NAME, &format!("{name} · {}", value.text()));
                        true
                    }
                    _ => false,
                });
                labels.iter().for_each(|label| process.text(track::PROCESS_LABELS, label));
                out.bytes(track::PROCESS, process.as_bytes());
                true
            }
            (track::THREAD, Value::Bytes(thread)) => {
                let thread = rewrite(thread, |number, value, out| match number {
                    track::THREAD_PID => {
                        out.int(track::THREAD_PID, *pid);
                        true
                    }
                    // The main thread stays the main thread.
                    track::THREAD_TID if value.int() == *own_pid => {
                        out.int(track::THREAD_TID, *pid);
                        true
                    }
                    _ => false,
                });
                out.bytes(track::THREAD, thread.as_bytes());
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
        // The ends of arrows in the window, by where they begin and where they end.
        let mut ends: [HashSet<u64>; 2] = Default::default();
        for packet in &self.kept {
            let event = Packet::read(packet.as_bytes()).ok().and_then(|packet| packet.event);
            let flows = event.and_then(|event| TrackEvent::read(event).and_then(|event| event.flows()).ok());
            ends.iter_mut().zip(flows.unwrap_or_default()).for_each(|(ends, flows)| ends.extend(flows));
        }
        let is_half = |number, value: Value<'_>| match (number, value) {
            (event::FLOW_IDS | event::TERMINATING_FLOW_IDS, Value::Fixed64(flow)) => {
                !ends.iter().all(|ends| ends.contains(&flow))
            }
            _ => false,
        };
        let mut trace = std::mem::take(&mut self.cut.trace);
        attributes(self.rank.attributes, &mut trace);
        for packet in &self.kept {
            // The other end of an arrow may be outside of the window.
            let packet = rewrite(packet.as_bytes(), |number, value, out| match (number, value) {
                (packet::TRACK_EVENT, Value::Bytes(event)) => {
                    let event = rewrite(event, |number, value, _| is_half(number, value));
                    out.bytes(packet::TRACK_EVENT, event.as_bytes());
                    true
                }
                _ => false,
            });
            trace.packet(|out| out.encoded(packet.as_bytes()));
        }
        self.cut.trace = trace;
        self.cut
    }
}

/// The time on the time line, and the same on the clock of the packet; none for a clock that is unknown.
fn place(own: i64, clock: u64, state: &Sequence, place: &dyn Fn(i64) -> i64) -> Option<(i64, i64)> {
    match (clock, state.zero) {
        (clock::BOOTTIME, _) => Some((place(own), place(own))),
        (clock::SESSION, Some((zero, placed_zero))) => {
            let at = place(zero.wrapping_add(own));
            Some((at, at.saturating_sub(placed_zero).max(0)))
        }
        _ => None,
    }
}

/// Writes facts as metadata of a trace.
pub fn attributes(facts: &[(String, String)], trace: &mut Buffer) {
    if facts.is_empty() {
        return;
    }
    trace.packet(|packet| {
        packet.message(packet::TRACE_ATTRIBUTES, |attributes| {
            for (key, value) in facts {
                attributes.message(attribute::ATTRIBUTE, |attribute| {
                    attribute.text(attribute::KEY, key);
                    match value.parse() {
                        Ok(number) => attribute.int(attribute::INT_VALUE, number),
                        Err(_) => attribute.text(attribute::STRING_VALUE, value),
                    }
                });
            }
        });
    });
}
