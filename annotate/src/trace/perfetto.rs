//! Reads the slices of a Perfetto trace, packet by packet.
//!
//! warpline writes the end of a slice directly after its begin on the same packet sequence, a launch directly before its zone, and a signal
//! directly before the wait that it ended. Other writers may nest begins and ends; an end closes the innermost open slice of its track.

use std::collections::HashMap;
use std::io::Read;

use warpline_core::record::Span;

use super::kinds::{Args, Key, Kind, Said};
use super::names::{Name, Names};
use super::packets::Packets;
use super::rows::{Place, Row, Rows, Stream, device_of};
use super::wire::{Fields, Malformed, Value};
use super::{Arrow, Fact, Fault, Skipped, Slice, Visitor};

use warpline_trace::perfetto::proto::{
    annotation, attribute, clock, defaults, event, interned, packet as field, stage, track,
};

/// The most slices that are open at once on one sequence.
const OPEN: usize = 4_096;

/// The most tracks between a row and its process.
const DEPTH: usize = 16;

/// The name of the group of the counters of device memory.
const MEMORY: &str = "memory";

/// Reads the whole trace. A truncated last packet is accepted, because a killed process leaves one.
pub(super) fn read<V: Visitor>(trace: impl Read, names: &mut Names, visitor: &mut V) -> Result<Skipped, Fault> {
    let mut packets = Packets::new(trace);
    let mut reader = Reader::new(visitor);
    let mut understood = false;
    while let Some(bytes) = packets.next_packet()? {
        match reader.packet(bytes, names) {
            Ok(has_sequence) => understood |= has_sequence,
            Err(Stop::Malformed) => reader.skipped.malformed += 1,
            Err(Stop::Fault(fault)) => return Err(fault),
        }
    }
    // Arbitrary bytes can decode as a message, but every packet of warpline has a sequence id.
    if !understood {
        return Err(Fault::NotATrace("not a Perfetto trace; name a trace that a session or a profiler wrote"));
    }
    reader.skipped.malformed += packets.too_large;
    reader.skipped.unpaired += reader.sequences.values().map(|sequence| sequence.open.len() as u64).sum::<u64>();
    reader.skipped.damaged_at = packets.damaged_at;
    reader.skipped.is_cut = packets.is_cut;
    Ok(reader.skipped)
}

enum Stop {
    Malformed,
    Fault(Fault),
}

impl From<Malformed> for Stop {
    fn from(_: Malformed) -> Stop {
        Stop::Malformed
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

struct Reader<'a, V> {
    visitor: &'a mut V,
    rows: Rows,
    tracks: HashMap<u64, Track>,
    sequences: HashMap<u64, Sequence>,
    /// The streams by their tracks.
    streams: HashMap<u64, usize>,
    /// The last launch, the last signal and the last wait, with their arrows.
    launch: Option<(u64, usize, Span)>,
    signal: Option<(u64, usize, i64)>,
    wait: Option<(usize, Span)>,
    args: Args,
    skipped: Skipped,
}

/// A track as it was described, and its row once it has slices.
#[derive(Default)]
struct Track {
    parent: u64,
    name: Name,
    is_process: bool,
    thread: Option<u64>,
    row: Option<usize>,
}

/// A slice that has begun.
struct Open {
    track: u64,
    kind: Kind,
    name: Name,
    begin_ns: i64,
    flows: Flows,
    args: Args,
}

/// The ids of arrows that begin and end at an event.
#[derive(Clone, Copy, Default)]
struct Flows {
    out: u64,
    into: u64,
}

#[derive(Default)]
struct Sequence {
    /// The clock of timestamps that do not name one; 0 for `BOOTTIME`.
    clock: u64,
    /// `BOOTTIME` when the sequence's own clock was zero.
    zero: Option<i64>,
    track: u64,
    categories: HashMap<u64, Kind>,
    event_names: HashMap<u64, Name>,
    arguments: HashMap<u64, Key>,
    strings: HashMap<u64, Name>,
    specifications: HashMap<u64, Name>,
    open: Vec<Open>,
}

impl<'a, V: Visitor> Reader<'a, V> {
    fn new(visitor: &'a mut V) -> Reader<'a, V> {
        Reader {
            visitor,
            rows: Rows::default(),
            tracks: HashMap::new(),
            sequences: HashMap::new(),
            streams: HashMap::new(),
            launch: None,
            signal: None,
            wait: None,
            args: Args::NONE,
            skipped: Skipped::default(),
        }
    }

    /// Reads a packet. Returns whether it is of a sequence.
    fn packet(&mut self, bytes: &[u8], names: &mut Names) -> Result<bool, Stop> {
        let (mut time, mut on, mut flags, mut clock_id) = (None, 0, 0, None);
        let (mut event, mut data, mut clocks, mut defaults, mut described, mut work, mut facts) =
            (None, None, None, None, None, None, None);
        for read in Fields(bytes) {
            let (number, value) = read?;
            match number {
                field::TIMESTAMP => time = Some(value.int() as i64),
                field::SEQUENCE_ID => on = value.int(),
                field::SEQUENCE_FLAGS => flags = value.int(),
                field::TIMESTAMP_CLOCK_ID => clock_id = Some(value.int()),
                field::TRACK_EVENT => event = Some(value.bytes()),
                field::INTERNED_DATA => data = Some(value.bytes()),
                field::CLOCK_SNAPSHOT => clocks = Some(value.bytes()),
                field::DEFAULTS => defaults = Some(value.bytes()),
                field::TRACK_DESCRIPTOR => described = Some(value.bytes()),
                field::GPU_RENDER_STAGE => work = Some(value.bytes()),
                field::TRACE_ATTRIBUTES => facts = Some(value.bytes()),
                _ => {}
            }
        }
        if flags & field::STATE_CLEARED != 0 || !self.sequences.contains_key(&on) {
            if !self.sequences.contains_key(&on) {
                names.spend(1 << 10)?;
            }
            let before = self.sequences.insert(on, Sequence::default());
            self.skipped.unpaired += before.map_or(0, |before| before.open.len() as u64);
        }
        let Some(sequence) = self.sequences.get_mut(&on) else { return Ok(false) };
        if let Some(clocks) = clocks {
            sequence.clocks(clocks)?;
        }
        if let Some(defaults) = defaults {
            sequence.defaults(defaults)?;
        }
        if let Some(data) = data {
            sequence.define(data, names)?;
        }
        if let Some(described) = described {
            self.describe(described, names)?;
        }
        if let Some(facts) = facts {
            self.attributes(facts)?;
        }
        if event.is_none() && work.is_none() {
            return Ok(on != 0);
        }
        let sequence = self.sequences.get(&on);
        let ns = time.zip(sequence).and_then(|(time, sequence)| match clock_id.unwrap_or(sequence.clock) {
            clock::SESSION => sequence.zero.map(|zero| zero.wrapping_add(time)),
            65.. => None,
            _ => Some(time),
        });
        if let Some(event) = event {
            self.event(on, ns, event, names)?;
        }
        if let Some(work) = work {
            match ns {
                Some(ns) => self.work(on, ns, work, names)?,
                None => self.skipped.unplaced += 1,
            }
        }
        Ok(on != 0)
    }

    fn describe(&mut self, bytes: &[u8], names: &mut Names) -> Result<(), Stop> {
        let (mut uuid, mut described) = (0, Track::default());
        for read in Fields(bytes) {
            let (number, value) = read?;
            match number {
                track::UUID => uuid = value.int(),
                track::PARENT_UUID => described.parent = value.int(),
                track::NAME => described.name = names.number(&value.text())?,
                track::PROCESS => described.is_process = true,
                track::THREAD => {
                    described.thread = Some(0);
                    for read in Fields(value.bytes()) {
                        match read? {
                            (track::THREAD_TID, value) => described.thread = Some(value.int()),
                            (track::THREAD_NAME, value) => described.name = names.number(&value.text())?,
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        match self.tracks.get_mut(&uuid) {
            // A further piece of the trace describes it again.
            Some(known) => *known = Track { row: known.row, ..described },
            None => {
                names.spend(size_of::<Track>())?;
                self.tracks.insert(uuid, described);
            }
        }
        Ok(())
    }

    fn attributes(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        for read in Fields(bytes) {
            let (attribute::ATTRIBUTE, value) = read? else { continue };
            for read in Fields(value.bytes()) {
                if let (attribute::KEY, key) = read? {
                    self.skipped.is_ours |= key.text() == "warpline.version";
                }
            }
        }
        Ok(())
    }

    /// Returns the row of a track; none if there are too many.
    fn row(&mut self, uuid: u64, names: &Names) -> Option<usize> {
        if let Some(row) = self.tracks.get(&uuid).and_then(|track| track.row) {
            return Some(row);
        }
        let mut around: Vec<u64> = Vec::new();
        let mut next = uuid;
        while around.len() < DEPTH
            && let Some(track) = self.tracks.get(&next)
        {
            around.push(next);
            if let Some(thread) = track.thread {
                let name = names.text(track.name).clone();
                return self.keep(uuid, Row { place: Place::Thread(thread), name });
            }
            next = track.parent;
        }
        if around.last().and_then(|last| self.tracks.get(last)).is_some_and(|last| last.is_process) {
            around.pop();
        }
        let name =
            |uuid: &u64| self.tracks.get(uuid).map_or_else(Default::default, |track| names.text(track.name).clone());
        let own = around.first().map_or_else(|| "".into(), name);
        let place = match around[..] {
            [.., stream, device] => {
                let (stream_name, device) = (name(&stream), name(&device));
                let place = match self.streams.get(&stream) {
                    Some(known) => *known,
                    None => {
                        let (device, ordinal) = device_of(&device);
                        let added = self.rows.add_stream(Stream { name: stream_name, device, ordinal });
                        self.streams.insert(stream, added);
                        added
                    }
                };
                Place::Stream(place)
            }
            _ => Place::Other,
        };
        self.keep(uuid, Row { place, name: own })
    }

    fn keep(&mut self, uuid: u64, row: Row) -> Option<usize> {
        let added = self.rows.add(row)?;
        self.tracks.entry(uuid).or_default().row = Some(added);
        Some(added)
    }

    fn event(&mut self, on: u64, ns: Option<i64>, bytes: &[u8], names: &mut Names) -> Result<(), Stop> {
        let Some(sequence) = self.sequences.get_mut(&on) else { return Ok(()) };
        let (mut kind, mut name, mut uuid, mut what) = (Kind::Other, Name::default(), sequence.track, 0);
        let mut flows = Flows::default();
        self.args.clone_from(&Args::NONE);
        let (mut is_session, mut own_name, mut counted) = (false, None, None);
        for read in Fields(bytes) {
            let (number, value) = read?;
            match number {
                event::TYPE => what = value.int(),
                event::CATEGORY_IIDS => kind = sequence.categories.get(&value.int()).copied().unwrap_or(kind),
                event::CATEGORIES => {
                    kind = Kind::of_category(&value.text());
                    is_session = kind == Kind::Session;
                }
                event::NAME_IID => name = sequence.event_names.get(&value.int()).copied().unwrap_or_default(),
                event::NAME => own_name = Some(value),
                event::TRACK_UUID => uuid = value.int(),
                event::FLOW_IDS => flows.out = value.int(),
                event::TERMINATING_FLOW_IDS => flows.into = value.int(),
                event::COUNTER_VALUE => counted = Some(value.int()),
                event::ANNOTATIONS if !is_session => annotate(value.bytes(), sequence, &mut self.args, names)?,
                _ => {}
            }
        }
        // The names of steps have their numbers, and are of no use here.
        if let Some(own) = own_name.filter(|_| kind != Kind::Step) {
            name = names.number(&own.text())?;
        }
        match what {
            event::SLICE_BEGIN => {
                let Some(begin_ns) = ns.filter(|_| sequence.open.len() < OPEN) else {
                    self.skipped.unplaced += 1;
                    return Ok(());
                };
                let args = self.args.clone();
                sequence.open.push(Open { track: uuid, kind, name, begin_ns, flows, args });
            }
            event::SLICE_END => {
                let at = sequence.open.iter().rposition(|open| open.track == uuid);
                match at.map(|at| sequence.open.remove(at)).zip(ns) {
                    Some((open, end_ns)) if end_ns >= open.begin_ns => self.slice(open, end_ns, names),
                    _ => self.skipped.unpaired += 1,
                }
            }
            event::INSTANT if is_session => self.session(name, ns.unwrap_or(0), bytes, names)?,
            event::INSTANT if kind == Kind::Signal => self.arrow_end(uuid, ns, flows, names),
            event::COUNTER => self.counter(uuid, ns.zip(counted), names),
            _ => {}
        }
        Ok(())
    }

    /// A value of a counter. Those of device memory are in a group of their own.
    fn counter(&mut self, uuid: u64, counted: Option<(i64, u64)>, names: &Names) {
        let Some((ns, value)) = counted else { return };
        let Some(track) = self.tracks.get(&uuid) else { return };
        if self.tracks.get(&track.parent).is_some_and(|group| &**names.text(group.name) == MEMORY) {
            self.visitor.memory(names.text(track.name), ns, value);
        }
    }

    fn slice(&mut self, open: Open, end_ns: i64, names: &Names) {
        let Open { track, kind, name, begin_ns, flows, args } = open;
        let Some(row) = self.row(track, names) else {
            self.skipped.unplaced += 1;
            return;
        };
        let span = Span { begin_ns, end_ns };
        let flow = flows.out.max(flows.into);
        match kind {
            Kind::Launch => self.launch = Some((flow, row, span)),
            Kind::Wait => self.wait = Some((row, span)),
            _ => {}
        }
        let launch = self.launch.filter(|(of, ..)| *of == flow && flow != 0 && kind != Kind::Launch);
        let launch = launch.map(|(_, row, span)| (row, span));
        self.visitor.slice(&Slice { kind, name, row, span, launch, args: &args }, &self.rows, names);
    }

    /// A signal, or the end of the wait that it ended.
    fn arrow_end(&mut self, uuid: u64, ns: Option<i64>, flows: Flows, names: &Names) {
        let Some((row, ns)) = self.row(uuid, names).zip(ns) else { return };
        if flows.out != 0 {
            self.signal = Some((flows.out, row, ns));
        } else if let (Some((flow, from, at_ns)), Some((on, wait))) = (self.signal, self.wait)
            && flow == flows.into
            && on == row
        {
            self.visitor.arrow(&Arrow { on, wait, from, at_ns }, &self.rows);
        }
    }

    /// An instant of the session: its begin, its account, or a change.
    fn session(&mut self, name: Name, ns: i64, bytes: &[u8], names: &Names) -> Result<(), Stop> {
        let name = names.text(name).clone();
        match &*name {
            "session begins" => self.visitor.fact(Fact::Begun(ns)),
            "session ends" => {
                for read in Fields(bytes) {
                    let (event::ANNOTATIONS, value) = read? else { continue };
                    let (mut key, mut number, mut text) = (String::new(), None, None);
                    for read in Fields(value.bytes()) {
                        match read? {
                            (annotation::NAME, value) => key = value.text().into_owned(),
                            (annotation::UINT, value) => number = i64::try_from(value.int()).ok(),
                            (annotation::INT, value) => number = Some(value.int() as i64),
                            (annotation::STRING, value) => text = Some(value.text().into_owned()),
                            _ => {}
                        }
                    }
                    match (number, text) {
                        (Some(number), _) => self.visitor.fact(Fact::Number(key, number)),
                        (None, Some(text)) if key.starts_with("note.") => self.visitor.fact(Fact::Note(text)),
                        _ => {}
                    }
                }
                self.visitor.fact(Fact::Ended(ns));
            }
            name if !name.starts_with("piece ") => self.visitor.fact(Fact::Changed(name.to_owned())),
            _ => {}
        }
        Ok(())
    }

    /// Work of a device, with the zone that launched it.
    fn work(&mut self, on: u64, ns: i64, bytes: &[u8], names: &mut Names) -> Result<(), Stop> {
        let Some(sequence) = self.sequences.get(&on) else { return Ok(()) };
        let (mut args, mut name, mut length_ns, mut of) = (Args::NONE, Name::default(), 0_i64, Name::default());
        args.has_correlation = true;
        for read in Fields(bytes) {
            let (number, value) = read?;
            match number {
                stage::DURATION => length_ns = value.int() as i64,
                stage::NAME_IID => name = sequence.event_names.get(&value.int()).copied().unwrap_or_default(),
                stage::NAME => name = names.number(&value.text())?,
                stage::STAGE_IID => of = sequence.specifications.get(&value.int()).copied().unwrap_or_default(),
                stage::HW_QUEUE_IID => args.stream = sequence.specifications.get(&value.int()).copied(),
                stage::LAUNCH => {
                    for read in Fields(value.bytes()) {
                        let (stage::ARGS, argument) = read? else { continue };
                        let (mut key, mut text) = ("".into(), None);
                        for read in Fields(argument.bytes()) {
                            match read? {
                                (stage::ARG_NAME, value) => key = value.text(),
                                (stage::ARG_STRING, value) => text = Some(value.text()),
                                _ => {}
                            }
                        }
                        if let (Key::Zone, Some(text)) = (Key::of(&key), text) {
                            args.zone = Some(names.number(&text)?);
                        }
                    }
                }
                _ => {}
            }
        }
        let kind = if names.text(of).eq_ignore_ascii_case("kernel") { Kind::Kernel } else { Kind::Copy };
        let name = if name == Name::default() { of } else { name };
        let Some(end_ns) = ns.checked_add(length_ns).filter(|_| length_ns >= 0) else { return Err(Stop::Malformed) };
        let span = Span { begin_ns: ns, end_ns };
        // Its row is not one of the tracks.
        self.visitor.slice(&Slice { kind, name, row: usize::MAX, span, launch: None, args: &args }, &self.rows, names);
        Ok(())
    }
}

impl Sequence {
    fn clocks(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let (mut boot, mut zero) = (None, None);
        for read in Fields(bytes) {
            let (clock::CLOCKS, value) = read? else { continue };
            let (mut id, mut time) = (0, 0);
            for read in Fields(value.bytes()) {
                match read? {
                    (clock::ID, value) => id = value.int(),
                    (clock::TIMESTAMP, value) => time = value.int() as i64,
                    _ => {}
                }
            }
            match id {
                clock::BOOTTIME => boot = Some(time),
                clock::SESSION => zero = Some(time),
                _ => {}
            }
        }
        if let (Some(boot), Some(zero)) = (boot, zero) {
            self.zero = Some(boot.wrapping_sub(zero));
        }
        Ok(())
    }

    fn defaults(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        for read in Fields(bytes) {
            match read? {
                (defaults::TIMESTAMP_CLOCK_ID, value) => self.clock = value.int(),
                (defaults::TRACK_EVENT, value) => {
                    for read in Fields(value.bytes()) {
                        if let (defaults::TRACK_UUID, value) = read? {
                            self.track = value.int();
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn define(&mut self, bytes: &[u8], names: &mut Names) -> Result<(), Stop> {
        for read in Fields(bytes) {
            let (number, value) = read?;
            let (mut iid, mut text) = (0, Value::Bytes(&[]));
            if !matches!(
                number,
                interned::EVENT_CATEGORIES
                    | interned::EVENT_NAMES
                    | interned::ANNOTATION_NAMES
                    | interned::ANNOTATION_STRINGS
                    | interned::GPU_SPECIFICATIONS
            ) {
                continue;
            }
            for read in Fields(value.bytes()) {
                match read? {
                    (interned::IID, value) => iid = value.int(),
                    (interned::TEXT, value) => text = value,
                    _ => {}
                }
            }
            names.spend(0)?;
            match number {
                interned::EVENT_CATEGORIES => drop(self.categories.insert(iid, Kind::of_category(&text.text()))),
                interned::ANNOTATION_NAMES => drop(self.arguments.insert(iid, Key::of(&text.text()))),
                interned::EVENT_NAMES => drop(self.event_names.insert(iid, names.number(&text.text())?)),
                interned::ANNOTATION_STRINGS => drop(self.strings.insert(iid, names.number(&text.text())?)),
                _ => drop(self.specifications.insert(iid, names.number(&text.text())?)),
            }
        }
        Ok(())
    }
}

/// Reads an annotation into the arguments, if figures need it.
#[inline]
fn annotate(bytes: &[u8], sequence: &Sequence, args: &mut Args, names: &mut Names) -> Result<(), Stop> {
    let mut key = Key::Other;
    for read in Fields(bytes) {
        let (number, value) = read?;
        let said = match number {
            annotation::NAME_IID => {
                key = sequence.arguments.get(&value.int()).copied().unwrap_or(Key::Other);
                continue;
            }
            annotation::NAME => {
                key = Key::of(&value.text());
                continue;
            }
            _ if key == Key::Other => return Ok(()),
            annotation::UINT | annotation::INT => Said::Number(value.int() as i64),
            annotation::STRING_IID => Said::Text(sequence.strings.get(&value.int()).copied().unwrap_or_default()),
            annotation::DOUBLE => Said::Real,
            annotation::STRING => Said::Text(names.number(&value.text())?),
            _ => continue,
        };
        args.set(key, said);
    }
    Ok(())
}
