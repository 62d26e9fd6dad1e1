//! Reads the slices of a Perfetto trace, packet by packet.
//!
//! warpline writes the end of a slice directly after its begin on the same packet sequence, a launch directly before its zone, and a signal
//! directly before the wait that it ended. Other writers may nest begins and ends; an end closes the innermost open slice of its track.
//!
//! This file takes a packet apart; `sequence` has what a packet sequence has defined, `tracks` finds the rows of events, `events` pairs the begins
//! and ends of slices, `session` has the facts about a session, and `work` the kernels and copies of a device.

mod events;
mod sequence;
mod session;
mod tracks;
mod work;

use std::collections::HashMap;
use std::io::Read;

use warpline_core::record::Span;

use super::kinds::Args;
use super::others::Others;
use super::packets::Packets;
use super::parts::Packet;
use super::rows::Rows;
use super::wire::Malformed;
use super::{Arrow, Fact, Fault, Skipped, Slice, Visitor};
use crate::write::perfetto::proto::clock;
use sequence::Sequence;
use tracks::Track;
use warpline_report::names::{Names, TooManyNames};

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
        if reader.visitor.has_enough() {
            break;
        }
    }
    // Arbitrary bytes can decode as a message, but every packet of warpline has a sequence id.
    if !understood {
        return Err(Fault::NotATrace("not a Perfetto trace; name a trace that a session or a profiler wrote"));
    }
    reader.others.finish(reader.visitor, &reader.rows, names);
    reader.skipped.malformed += packets.too_large;
    reader.skipped.unpaired += reader.open as u64;
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

impl From<TooManyNames> for Stop {
    fn from(why: TooManyNames) -> Stop {
        Stop::Fault(why.into())
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
    sequences: Vec<Sequence>,
    /// The sequences by their ids, and the last one: packets of one follow each other.
    by_id: HashMap<u64, usize>,
    last: Option<(u64, usize)>,
    /// The slices that are open on all sequences.
    open: usize,
    /// The streams by their tracks.
    streams: HashMap<u64, usize>,
    /// The last launch, the last signal and the last wait, with their arrows.
    launch: Option<(u64, usize, Span)>,
    signal: Option<(u64, usize, i64)>,
    wait: Option<(usize, Span, i64)>,
    args: Args,
    /// Whether the visitor wants the fields of zones.
    wants_fields: bool,
    others: Others,
    skipped: Skipped,
}

impl<'a, V: Visitor> Reader<'a, V> {
    fn new(visitor: &'a mut V) -> Reader<'a, V> {
        let wants_fields = visitor.wants_fields();
        Reader {
            visitor,
            rows: Rows::default(),
            tracks: HashMap::new(),
            sequences: Vec::new(),
            by_id: HashMap::new(),
            last: None,
            open: 0,
            streams: HashMap::new(),
            launch: None,
            signal: None,
            wait: None,
            args: Args::default(),
            wants_fields,
            others: Others::default(),
            skipped: Skipped::default(),
        }
    }

    /// The index of a sequence.
    #[inline]
    fn sequence(&mut self, id: u64, names: &mut Names) -> Result<usize, Fault> {
        if let Some((of, at)) = self.last
            && of == id
        {
            return Ok(at);
        }
        let at = match self.by_id.get(&id) {
            Some(at) => *at,
            None => {
                names.spend(1 << 10)?;
                self.sequences.push(Sequence::default());
                self.by_id.insert(id, self.sequences.len() - 1);
                self.sequences.len() - 1
            }
        };
        self.last = Some((id, at));
        Ok(at)
    }

    /// Reads a packet. Returns whether it is of a sequence.
    fn packet(&mut self, bytes: &[u8], names: &mut Names) -> Result<bool, Stop> {
        let packet = Packet::read(bytes)?;
        let (on, is_of_sequence) = (self.sequence(packet.sequence, names)?, packet.sequence != 0);
        let Some(sequence) = self.sequences.get_mut(on) else { return Ok(false) };
        if packet.is_cleared {
            self.open -= sequence.open.len();
            self.skipped.unpaired += sequence.open.len() as u64;
            *sequence = Sequence::default();
        }
        if packet.defaults.is_some() {
            let (clock, track) = packet.defaults()?;
            (sequence.clock, sequence.track) = (clock.unwrap_or(sequence.clock), track.unwrap_or(sequence.track));
        }
        if packet.interned.is_some() {
            sequence.define(&packet, names)?;
        }
        if packet.clocks.is_some() {
            self.clocks(on, &packet)?;
        }
        if let Some(described) = packet.track {
            self.describe(described, names)?;
        }
        if packet.attributes.is_some() {
            self.attributes(&packet)?;
        }
        if packet.event.is_none() && packet.stage.is_none() {
            return Ok(is_of_sequence);
        }
        let (time, sequence) = (packet.timestamp.map(|time| time as i64), self.sequences.get(on));
        let ns = time.zip(sequence).and_then(|(time, sequence)| match packet.clock.unwrap_or(sequence.clock) {
            clock::SESSION => sequence.zero.map(|zero| zero.wrapping_add(time)),
            65.. => None,
            _ => Some(time),
        });
        if let Some(event) = packet.event {
            self.event(on, ns, event, names)?;
        }
        if let Some(work) = packet.stage {
            match ns {
                Some(ns) => self.work(on, ns, work, names)?,
                None => self.skipped.unplaced += 1,
            }
        }
        Ok(is_of_sequence)
    }
}
