//! Extracts the collectives from a Perfetto trace, packet by packet.
//!
//! A trace can be gigabytes in size, truncated, or hostile. Memory is bounded by the limit of [`Packets`], [`MAX_TEXTS`] and
//! [`MAX_CALLS`], a malformed packet is counted and skipped, and nothing here panics.
//!
//! warpline writes the end of a slice directly after its begin on the same packet sequence, so begins and ends are paired in file order.
//! Each trace starts with its clocks, so concatenated traces are read as separate traces.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Read};

use warpline_core::collective::{CollectiveKind, DataType};
use warpline_trace::perfetto::proto::clock::{BOOTTIME, SESSION};
use warpline_trace::perfetto::proto::{event, interned};
use warpline_trace::read::Packets;
use warpline_trace::read::parts::{Annotation, Clocks, Packet, Said, TrackEvent};
use warpline_trace::read::wire::Malformed;

use super::{Call, Calls, Session};

/// The most bytes of names that are kept while one trace is read, and the most that are kept for all traces together.
pub const MAX_TEXTS: usize = 256 << 20;

/// The most collectives that are kept for all traces together.
pub const MAX_CALLS: usize = 10_000_000;

/// The approximate memory overhead of a name, in bytes.
pub(super) const ENTRY: usize = 64;

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system reported an error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not a Perfetto trace.
    #[error("not a Perfetto trace; record one with `WARPLINE=perfetto=FILE`")]
    NotATrace,
    /// The clocks at the beginning of the trace are missing.
    #[error("a trace without the clocks that warpline writes at its beginning; name the whole file of a session")]
    NoClocks,
    /// The names exceed [`MAX_TEXTS`].
    #[error("the names in the trace have more than {} MiB; is the file damaged?", MAX_TEXTS >> 20)]
    TooManyNames,
    /// The collectives exceed [`MAX_CALLS`].
    #[error("more than {MAX_CALLS} collectives; record less with `WARPLINE=filter=…`")]
    TooManyCalls,
}

/// What was left out of one trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Packets that are malformed or too large.
    pub packets: u64,
    /// Collectives whose marks give no group.
    pub ungrouped: u64,
    /// Collectives that give a group, but not their rank, sequence number and a known kind.
    pub calls: u64,
    /// Zones that the sessions dropped, as they report at their ends. A dropped collective takes no sequence number.
    pub dropped: u64,
    /// The byte offset at which the file stops being a trace.
    pub damaged_at: Option<u64>,
}

/// Why a packet is not read.
enum Stop {
    Malformed,
    Trace(TraceError),
}

impl From<Malformed> for Stop {
    fn from(_: Malformed) -> Stop {
        Stop::Malformed
    }
}

impl From<TraceError> for Stop {
    fn from(error: TraceError) -> Stop {
        Stop::Trace(error)
    }
}

/// The state of one trace while it is read.
pub(super) struct Reader<'a> {
    calls: &'a mut Calls,
    /// The index of the session, once its clocks are known.
    session: Option<u32>,
    sequences: HashMap<u64, Sequence>,
    /// The groups without a communicator id, by packet sequence and the ids of their interned name and ranks. It avoids parsing a long list
    /// of ranks for every collective.
    groups: HashMap<(u64, u64, u64), u32>,
    /// How many more bytes of names are accepted.
    texts_left: usize,
    skipped: Skipped,
}

#[derive(Default)]
struct Sequence {
    /// The clock of timestamps that do not name one.
    clock: u64,
    /// `BOOTTIME` when [`SESSION`] was zero.
    zero: Option<i64>,
    event_names: HashMap<u64, u32>,
    annotation_names: HashMap<u64, String>,
    strings: HashMap<u64, String>,
    /// A collective that has begun and whose end has not been read.
    open: Option<Call>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(calls: &'a mut Calls) -> Reader<'a> {
        let (sequences, groups) = (HashMap::new(), HashMap::new());
        Reader { calls, session: None, sequences, groups, texts_left: MAX_TEXTS, skipped: Skipped::default() }
    }

    /// Reads the whole trace. A truncated last packet is accepted, because a killed process leaves one.
    pub(super) fn read(mut self, trace: impl Read) -> Result<Skipped, TraceError> {
        let (mut packets, mut understood) = (Packets::new(trace), false);
        while let Some(bytes) = packets.next_packet()? {
            match self.packet(bytes) {
                // Arbitrary bytes can decode as a message, but every packet of warpline has a sequence id.
                Ok(has_sequence) => understood |= has_sequence,
                Err(Stop::Malformed) => self.skipped.packets += 1,
                Err(Stop::Trace(error)) => return Err(error),
            }
        }
        self.skipped.packets += packets.too_large;
        self.skipped.damaged_at = packets.damaged_at;
        if understood { Ok(self.skipped) } else { Err(TraceError::NotATrace) }
    }

    /// Reads a packet. Returns whether it is of a sequence.
    fn packet(&mut self, bytes: &[u8]) -> Result<bool, Stop> {
        let packet = Packet::read(bytes)?;
        let clocks = packet.clocks()?;
        if let Clocks { boot_ns: Some(boot_ns), real_ns: Some(wall_ns), .. } = clocks {
            // This is the beginning of another trace.
            self.sequences.clear();
            self.groups.clear();
            self.texts_left = MAX_TEXTS;
            self.session = Some(self.calls.session(Session { boot_ns, wall_ns, ..Session::default() })?);
        }
        let session = self.session.and_then(|id| self.calls.sessions.get_mut(id as usize));
        if let Some(session) = session {
            if let Some(process) = packet.track()?.and_then(|track| track.process) {
                session.process = Some(process.pid);
            }
            for attribute in packet.attributes() {
                let (key, text) = attribute?;
                match &*key {
                    "warpline.boot_id" if (1..ENTRY).contains(&text.len()) => session.boot_id = Some(text.into_owned()),
                    "warpline.host" if text.len() < ENTRY => session.host = text.into_owned(),
                    _ => {}
                }
            }
        }
        if packet.is_cleared || !self.sequences.contains_key(&packet.sequence) {
            spend(&mut self.texts_left, 4 * ENTRY)?;
            self.groups.clear();
            self.sequences.insert(packet.sequence, Sequence { clock: BOOTTIME, ..Sequence::default() });
        }
        let has_sequence = packet.sequence != 0;
        let Some(sequence) = self.sequences.get_mut(&packet.sequence) else { return Ok(has_sequence) };
        sequence.zero = clocks.zero_ns().or(sequence.zero);
        sequence.clock = packet.defaults()?.0.unwrap_or(sequence.clock);
        for entry in packet.interned() {
            let entry = entry?;
            let mut text = || {
                let text = entry.text.text().into_owned();
                spend(&mut self.texts_left, ENTRY + text.len()).map(|()| text)
            };
            match entry.number {
                interned::EVENT_NAMES => {
                    spend(&mut self.texts_left, ENTRY)?;
                    sequence.event_names.insert(entry.iid, self.calls.range(&entry.text.text())?);
                }
                interned::ANNOTATION_NAMES => drop(sequence.annotation_names.insert(entry.iid, text()?)),
                interned::ANNOTATION_STRINGS => {
                    self.groups.clear();
                    sequence.strings.insert(entry.iid, text()?);
                }
                _ => {}
            }
        }
        let Some(event) = packet.event else { return Ok(has_sequence) };
        let event = TrackEvent::read(event)?;
        let time = packet.timestamp.unwrap_or(0) as i64;
        let time = match packet.clock.unwrap_or(sequence.clock) {
            BOOTTIME => Some(time),
            SESSION => sequence.zero.map(|zero| zero.wrapping_add(time)),
            _ => None,
        };
        match event.kind {
            event::SLICE_BEGIN => {
                sequence.open = None;
                let said = SliceArgs::read(&event, sequence)?;
                if !said.is_collective {
                    return Ok(has_sequence);
                }
                let session = self.session.ok_or(TraceError::NoClocks)?;
                let range = sequence.event_names.get(&event.name_iid).copied().unwrap_or_default();
                let call = match (time, said.group()) {
                    (Some(begin_ns), Some(group)) => {
                        let interned = said.interned_group().map(|(name, ranks)| (packet.sequence, name, ranks));
                        let id = match interned.and_then(|interned| self.groups.get(&interned)) {
                            Some(id) => *id,
                            None => {
                                let id = self.calls.group(&group)?;
                                if let Some(interned) = interned {
                                    spend(&mut self.texts_left, ENTRY)?;
                                    self.groups.insert(interned, id);
                                }
                                id
                            }
                        };
                        said.call(id, session, range, begin_ns)
                    }
                    (Some(_), None) if said.group.is_none() => {
                        self.skipped.ungrouped += 1;
                        return Ok(has_sequence);
                    }
                    _ => None,
                };
                self.skipped.calls += u64::from(call.is_none());
                sequence.open = call;
            }
            event::SLICE_END => {
                let Some(call) = sequence.open.take() else { return Ok(has_sequence) };
                match time.and_then(|end| end.checked_sub(call.begin_ns)) {
                    Some(length_ns @ 0..) => self.calls.add(Call { length_ns, ..call })?,
                    _ => self.skipped.calls += 1,
                }
            }
            event::INSTANT => {
                let (mut counts, mut uncertain_ns) = ([None; 3], 0);
                for annotation in event.annotations() {
                    let annotation = annotation?;
                    let name = name_of(&annotation, &sequence.annotation_names);
                    if let Some(at) = ["begun", "recorded", "dropped"].iter().position(|count| *count == name) {
                        counts[at] = counts[at].or(annotation.uint());
                    } else if name.ends_with(".clock_uncertainty_ns") {
                        // A session on in-process streams has no device clock: its times are those of the host clock.
                        uncertain_ns = annotation.int().unwrap_or(0).max(uncertain_ns);
                    }
                }
                // A session writes its counts at its end.
                if let [Some(_), Some(_), Some(dropped)] = counts {
                    self.skipped.dropped = self.skipped.dropped.saturating_add(dropped);
                    let session = self.session.and_then(|id| self.calls.sessions.get_mut(id as usize));
                    if let Some(session) = session {
                        session.uncertain_ns = Some(uncertain_ns);
                    }
                }
            }
            _ => {}
        }
        Ok(has_sequence)
    }
}

/// Returns the name of an annotation; empty if its id is not defined.
fn name_of<'a>(annotation: &'a Annotation<'_>, names: &'a HashMap<u64, String>) -> &'a str {
    annotation.name.as_deref().unwrap_or_else(|| names.get(&annotation.name_iid).map_or("", String::as_str))
}

/// Subtracts `bytes` from the remaining budget.
pub(super) fn spend(left: &mut usize, bytes: usize) -> Result<(), TraceError> {
    *left = left.checked_sub(bytes).ok_or(TraceError::TooManyNames)?;
    Ok(())
}

/// The identity of a process group in a trace.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct GroupKey<'a> {
    pub(super) name: &'a str,
    pub(super) ranks: &'a str,
    pub(super) comm_id: Option<u64>,
}

/// The annotations of a slice. A user's fields come first, so the last of two annotations with one name is used.
#[derive(Default)]
struct SliceArgs<'a> {
    is_collective: bool,
    kind: Option<CollectiveKind>,
    group: Option<Cow<'a, str>>,
    ranks: Option<Cow<'a, str>>,
    /// The ids of `group` and `ranks` if these are interned.
    iids: [Option<u64>; 2],
    comm_id: Option<u64>,
    rank: Option<u64>,
    seq: Option<u64>,
    uncertain_ns: i64,
    element_bytes: u64,
    /// The elements that the rank gives and gets.
    elements: [u64; 2],
    failed: bool,
    /// What only zones in replays have.
    has_kernels: bool,
    has_correlation: bool,
}

impl<'a> SliceArgs<'a> {
    fn read(event: &TrackEvent<'a>, sequence: &'a Sequence) -> Result<SliceArgs<'a>, Malformed> {
        let mut said = SliceArgs::default();
        event.annotations().try_for_each(|annotation| annotation.map(|annotation| said.add(&annotation, sequence)))?;
        Ok(said)
    }

    fn add(&mut self, annotation: &Annotation<'a>, sequence: &'a Sequence) {
        let (text, iid) = match &annotation.value {
            Some(Said::Text(text)) => (Some(text.clone()), None),
            Some(Said::TextIid(iid)) => (sequence.strings.get(iid).map(|text| text.as_str().into()), Some(*iid)),
            _ => (None, None),
        };
        match name_of(annotation, &sequence.annotation_names) {
            "Collective name" => {
                self.is_collective = true;
                self.kind = CollectiveKind::ALL.into_iter().find(|kind| text.as_deref() == Some(kind.torch_name()));
            }
            "Process Group Name" => (self.group, self.iids[0]) = (text, iid),
            "Process Group Ranks" => (self.ranks, self.iids[1]) = (text, iid),
            "Comms Id" => self.comm_id = annotation.uint(),
            "Rank" => self.rank = annotation.uint(),
            "Seq" => self.seq = annotation.uint(),
            "dtype" => {
                let mut types = (0..).map_while(DataType::from_nccl);
                let named = types.find(|dtype| text.as_deref() == Some(dtype.torch_name()));
                self.element_bytes = named.map_or(0, DataType::bytes);
            }
            "In msg nelems" => self.elements[0] = annotation.uint().unwrap_or(0),
            "Out msg nelems" => self.elements[1] = annotation.uint().unwrap_or(0),
            "end_early_by_ns" => self.uncertain_ns = annotation.int().unwrap_or(0).max(0),
            "status" => self.failed = text.is_some(),
            "kernels" => self.has_kernels = annotation.uint().is_some(),
            "correlation" => self.has_correlation = annotation.uint().is_some(),
            _ => {}
        }
    }

    fn group(&self) -> Option<GroupKey<'_>> {
        Some(GroupKey { name: self.group.as_deref()?, ranks: self.ranks.as_deref()?, comm_id: self.comm_id })
    }

    /// Returns the ids of the interned name and ranks of a group that has no communicator id.
    fn interned_group(&self) -> Option<(u64, u64)> {
        let [name, ranks] = self.iids;
        name.zip(ranks).filter(|_| self.comm_id.is_none())
    }

    /// Returns the collective; none if required annotations are missing.
    fn call(&self, group: u32, session: u32, range: u32, begin_ns: i64) -> Option<Call> {
        Some(Call {
            group,
            seq: self.seq?,
            rank: u32::try_from(self.rank?).ok()?,
            kind: self.kind?,
            session,
            range,
            begin_ns,
            length_ns: 0,
            uncertain_ns: self.uncertain_ns,
            bytes: self.elements[0].max(self.elements[1]).saturating_mul(self.element_bytes),
            failed: self.failed,
            is_replayed: self.has_kernels && self.has_correlation,
            turn: 0,
            is_unmatched: false,
        })
    }
}
