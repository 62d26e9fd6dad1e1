//! Tracks, and the sequences of packets that fill them.
//!
//! A [`Track`] is one row for the user: a stream, a thread, or a range's own lane under one of them. Zones that do not nest are put
//! on further lanes, which are separate tracks to Perfetto and one row to the user. Each lane is filled by its own [`Sequence`],
//! whose defaults contain the fields that every packet would repeat.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::OnceLock;

use super::category::{Category, Defined};
use super::intern::{Numbers, Seen, Word};
use super::proto::{Buffer, Short, clock, defaults, event, interned, packet, track};
use crate::write::lanes::Lanes;
use warpline_core::catalog::RangeSpec;
use warpline_core::hashing::splitmix64;
use warpline_core::record::{Span, SpanSite};

/// Ids that no other trace uses, so that traces of many processes can be joined in one file.
#[derive(Debug)]
pub(super) struct Ids {
    seed: u64,
    used: u64,
    sequences: u32,
}

impl Ids {
    /// Uses `RandomState`, which is random in each process, plus the process id and the time for systems where it is not.
    pub(super) fn new(process_id: u32, begin_unix_ns: i64) -> Ids {
        let seed = RandomState::new().hash_one((process_id, begin_unix_ns));
        // An id takes three bytes on the wire. Two traces with the same id are still read correctly, because each sequence begins
        // with cleared state.
        let sequences = (seed >> 44) as u32 | 1 << 14;
        Ids { seed, used: 0, sequences }
    }

    /// Returns a new 64-bit id. SplitMix64 gives different results for different numbers, so the ids of one trace cannot collide.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        self.used += 1;
        // Zero means none.
        splitmix64(self.seed.wrapping_add(self.used)).max(1)
    }

    /// Returns the id derived from `what`, which is the same each time. A collision with another id of the trace is as improbable
    /// as between two random numbers.
    pub(super) fn derive(&self, what: impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, what).hash(&mut hasher);
        hasher.finish().max(1)
    }

    pub(super) fn sequence(&mut self) -> u32 {
        self.sequences = self.sequences.wrapping_add(1).max(1);
        self.sequences
    }
}

/// Returns the id of this process's track. The id is the same in everything that the process writes: open zones from the flight
/// recorder and a sink's output become one trace, in which two ids would mean two processes.
pub(super) fn process_track(process_id: u32) -> u64 {
    static STATE: OnceLock<RandomState> = OnceLock::new();
    // A forked process has its parent's state and a different process id. Zero means none.
    STATE.get_or_init(RandomState::new).hash_one(process_id).max(1)
}

/// The kind of a track.
#[derive(Debug)]
pub(super) enum Kind {
    /// A stream of a device, or a lane of its own under a stream or a thread; then `above` is the index of that track.
    Row { parent: u64, above: Option<usize>, name: String, rank: u32 },
    /// A thread of the process.
    Thread { process_id: u32, thread_id: u64, name: Option<String> },
}

/// One row of the trace.
#[derive(Debug)]
pub(super) struct Track {
    /// The first lane's id. Lanes of ranges and groups are its children. It also distinguishes siblings with the same name.
    pub(super) uuid: u64,
    kind: Kind,
    lanes: Lanes,
    sequences: Vec<Sequence>,
    /// The piece of the trace that last described the track.
    piece: u32,
    /// The time of the last lookup: larger is later.
    pub(super) used: u64,
}

impl Track {
    /// Creates a track that is new, or was forgotten and returns, and describes its first lane.
    pub(super) fn new(uuid: u64, kind: Kind, session: &mut Session, buffer: &mut Buffer) -> Track {
        let first = Sequence::new(uuid, session, buffer);
        let lanes = session.forgotten_until_ns.map_or_else(Lanes::with_first, Lanes::with_first_from);
        let track = Track { uuid, kind, lanes, sequences: vec![first], piece: session.piece, used: 0 };
        track.write_descriptor(buffer);
        track
    }

    /// Returns the end of the last slice on the first lane. Once the track is forgotten, further lanes are never written to again.
    pub(super) fn until_ns(&self) -> i64 {
        self.lanes.until_ns()
    }

    fn write_descriptor(&self, buffer: &mut Buffer) {
        buffer.packet(|packet| {
            packet.short(&self.sequences[0].head);
            packet.message(packet::TRACK_DESCRIPTOR, |descriptor| self.describe_first(descriptor));
        });
    }

    /// Whether the current piece of the trace has described the track.
    #[inline]
    pub(super) fn is_known(&self, session: &Session) -> bool {
        self.piece == session.piece
    }

    /// Returns the index of the track above it.
    pub(super) fn above(&self) -> Option<usize> {
        if let Kind::Row { above, .. } = self.kind { above } else { None }
    }

    /// Updates the index of the track above it.
    pub(super) fn put_above(&mut self, place: usize) {
        if let Kind::Row { above: above @ Some(_), .. } = &mut self.kind {
            *above = Some(place);
        }
    }

    /// Describes the track again in a new piece of the trace, which must not depend on other pieces.
    pub(super) fn describe_again(&mut self, session: &mut Session, buffer: &mut Buffer) {
        self.piece = session.piece;
        self.sequences[0] = Sequence::new(self.uuid, session, buffer);
        self.write_descriptor(buffer);
    }

    /// Returns the sequence of the slice's lane. The caller must write the slice at once, so that the lanes know the order of the
    /// file.
    #[inline]
    pub(super) fn lane(&mut self, span: Span, session: &mut Session, buffer: &mut Buffer) -> &mut Sequence {
        let place = self.lanes.place(span);
        if place.is_new {
            let uuid = session.ids.next();
            self.open_lane(place.lane, uuid, session, buffer);
        } else if self.sequences[place.lane].piece != session.piece {
            let uuid = self.sequences[place.lane].uuid;
            self.open_lane(place.lane, uuid, session, buffer);
        }
        &mut self.sequences[place.lane]
    }

    /// Returns the sequence of a zone's lane for a span at the zone's end, which the caller must write at once. None if something else reaches
    /// into that time, or if this piece of the trace does not have the lane.
    pub(super) fn at_end(&mut self, zone: Span, tail: Span, session: &Session) -> Option<&mut Sequence> {
        let lane = self.lanes.place_at_end(zone, tail)?;
        self.sequences.get_mut(lane).filter(|sequence| sequence.piece == session.piece)
    }

    /// Returns the sequence of the first lane, for events that occupy no time on it.
    pub(super) fn first_lane(&mut self) -> &mut Sequence {
        &mut self.sequences[0]
    }

    #[cold]
    fn open_lane(&mut self, lane: usize, uuid: u64, session: &mut Session, buffer: &mut Buffer) {
        let sequence = Sequence::new(uuid, session, buffer);
        buffer.packet(|packet| {
            packet.short(&sequence.head);
            packet.message(packet::TRACK_DESCRIPTOR, |descriptor| self.describe_further(uuid, descriptor));
        });
        match self.sequences.get_mut(lane) {
            Some(closed) => *closed = sequence,
            None => self.sequences.push(sequence),
        }
    }

    fn describe_first(&self, descriptor: &mut Buffer) {
        descriptor.uint(track::UUID, self.uuid);
        match &self.kind {
            Kind::Row { parent, name, rank, .. } => self.describe_row(*parent, name, *rank, descriptor),
            Kind::Thread { process_id, thread_id, name } => descriptor.message(track::THREAD, |thread| {
                thread.uint(track::THREAD_PID, i32_bits(u64::from(*process_id)));
                thread.uint(track::THREAD_TID, i32_bits(*thread_id));
                if let Some(name) = name {
                    thread.text(track::THREAD_NAME, name);
                }
            }),
        }
    }

    fn describe_further(&self, uuid: u64, descriptor: &mut Buffer) {
        descriptor.uint(track::UUID, uuid);
        match &self.kind {
            Kind::Row { parent, name, rank, .. } => self.describe_row(*parent, name, *rank, descriptor),
            Kind::Thread { .. } => self.describe_row(self.uuid, "overlapping zones", 0, descriptor),
        }
    }

    fn describe_row(&self, parent: u64, name: &str, rank: u32, descriptor: &mut Buffer) {
        descriptor.uint(track::PARENT_UUID, parent);
        descriptor.text(track::NAME, name);
        descriptor.uint(track::SIBLING_RANK, u64::from(rank));
        descriptor.uint(track::MERGE_BEHAVIOR, track::MERGE_BY_KEY);
        descriptor.uint(track::MERGE_KEY_INT, self.uuid);
    }
}

/// Converts a process or thread id, which is an `int32` in Perfetto.
pub(super) fn i32_bits(id: u64) -> u64 {
    id & i32::MAX as u64
}

/// The state that all parts of one trace share.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) ids: Ids,
    pub(super) begin_ns: i64,
    /// The current piece. Each piece repeats everything that it refers to, so that it can be read alone.
    pub(super) piece: u32,
    /// The latest end of a slice on the first lane of any forgotten track; none if no track was forgotten.
    pub(super) forgotten_until_ns: Option<i64>,
}

/// The packets of one track, in order.
#[derive(Debug)]
pub(super) struct Sequence {
    /// The fields that every packet of the sequence has, encoded.
    pub(super) head: Short,
    /// The same fields, and all other fields of the end of a slice except its time.
    end: Short,
    categories: Defined,
    pub(super) ranges: Seen,
    pub(super) sites: Seen,
    pub(super) kernels: Seen,
    pub(super) names: Seen,
    pub(super) texts: Seen,
    pub(super) uuid: u64,
    pub(super) piece: u32,
    begin_ns: i64,
}

impl Sequence {
    /// Creates a sequence and writes its first packet, which defines the zero of its timestamps and its track.
    pub(super) fn new(uuid: u64, session: &mut Session, buffer: &mut Buffer) -> Sequence {
        let id = u64::from(session.ids.sequence());
        let begin_ns = session.begin_ns;
        buffer.packet(|packet| {
            packet.uint(packet::SEQUENCE_ID, id);
            packet.uint(packet::SEQUENCE_FLAGS, packet::STATE_CLEARED);
            packet.message(packet::CLOCK_SNAPSHOT, |snapshot| {
                snapshot.clocks([(clock::SESSION, 0), (clock::BOOTTIME, begin_ns)]);
            });
            packet.message(packet::DEFAULTS, |defaults| {
                defaults.uint(defaults::TIMESTAMP_CLOCK_ID, clock::SESSION);
                defaults.message(defaults::TRACK_EVENT, |event| event.uint(defaults::TRACK_UUID, uuid));
            });
        });
        let write_head = |packet: &mut Buffer| {
            packet.uint(packet::SEQUENCE_ID, id);
            packet.uint(packet::SEQUENCE_FLAGS, packet::NEEDS_STATE);
        };
        let end = Short::encode(|packet| {
            write_head(packet);
            packet.message(packet::TRACK_EVENT, |event| event.uint(event::TYPE, event::SLICE_END));
        });
        Sequence {
            head: Short::encode(write_head),
            end,
            categories: Defined::default(),
            ranges: Seen::default(),
            sites: Seen::default(),
            kernels: Seen::default(),
            names: Seen::default(),
            texts: Seen::default(),
            uuid,
            piece: session.piece,
            begin_ns,
        }
    }

    /// Writes a slice: its begin, which `fill` completes, and immediately its end, so that no slice stays open.
    #[inline]
    pub(super) fn slice(&self, span: Span, buffer: &mut Buffer, fill: impl FnOnce(&mut Buffer)) {
        buffer.packet(|packet| {
            self.time(span.begin_ns, packet);
            packet.short(&self.head);
            packet.message(packet::TRACK_EVENT, |event| {
                event.uint(event::TYPE, event::SLICE_BEGIN);
                fill(event);
            });
        });
        buffer.packet(|packet| {
            self.time(span.end_ns, packet);
            packet.short(&self.end);
        });
    }

    /// Writes an instant, which `fill` completes.
    #[inline]
    pub(super) fn instant(&self, ns: i64, buffer: &mut Buffer, fill: impl FnOnce(&mut Buffer)) {
        buffer.packet(|packet| {
            self.time(ns, packet);
            packet.short(&self.head);
            packet.message(packet::TRACK_EVENT, |event| {
                event.uint(event::TYPE, event::INSTANT);
                fill(event);
            });
        });
    }

    #[inline]
    pub(super) fn time(&self, ns: i64, packet: &mut Buffer) {
        match ns.checked_sub(self.begin_ns) {
            Some(since @ 0..) => packet.int(packet::TIMESTAMP, since),
            _ => {
                packet.int(packet::TIMESTAMP, ns);
                packet.uint(packet::TIMESTAMP_CLOCK_ID, clock::BOOTTIME);
            }
        }
    }

    /// Defines a category on first use.
    #[inline]
    pub(super) fn define_category(&mut self, category: Category, buffer: &mut Buffer) {
        if self.categories.is_first(category) {
            self.define(buffer, |data| entry(data, interned::EVENT_CATEGORIES, category.iid(), category.name()));
        }
    }

    /// Defines a range's name, source and description on first use.
    #[inline]
    pub(super) fn define_range(&mut self, id: u32, range: &RangeSpec, buffer: &mut Buffer) {
        if self.ranges.is_first(id) {
            self.write_range(id, range, buffer);
        }
    }

    #[cold]
    fn write_range(&self, id: u32, range: &RangeSpec, buffer: &mut Buffer) {
        self.define(buffer, |data| {
            entry(data, interned::EVENT_NAMES, range_iid(id), range.name());
            entry(data, interned::CORRELATION_IDS, range_iid(id), range.name());
            entry(data, interned::ANNOTATION_STRINGS, description_iid(u64::from(id)), range.description());
            data.message(interned::SOURCE_LOCATIONS, |location| {
                location.uint(interned::IID, range_iid(id));
                location.text(interned::FILE_NAME, range.file());
                location.text(interned::FUNCTION_NAME, range.module());
                location.uint(interned::LINE_NUMBER, u64::from(range.line()));
            });
        });
    }

    /// Defines the name, category and source of a span's or event's site on first use.
    #[inline]
    pub(super) fn define_site(&mut self, id: u32, site: &SpanSite, is_span: bool, buffer: &mut Buffer) {
        if self.sites.is_first(id) {
            self.write_site(site_iid(id), site, is_span, buffer);
        }
    }

    #[cold]
    fn write_site(&self, id: u64, site: &SpanSite, is_span: bool, buffer: &mut Buffer) {
        let kind = if is_span { "span" } else { "event" };
        self.define(buffer, |data| {
            entry(data, interned::EVENT_NAMES, id, site.name);
            entry(data, interned::EVENT_CATEGORIES, id, &format!("{kind},{},{}", site.target, site.level));
            data.message(interned::SOURCE_LOCATIONS, |location| {
                location.uint(interned::IID, id);
                if let Some(file) = site.file {
                    location.text(interned::FILE_NAME, file);
                }
                location.text(interned::FUNCTION_NAME, site.target);
                if let Some(line) = site.line {
                    location.uint(interned::LINE_NUMBER, u64::from(line));
                }
            });
        });
    }

    /// Defines the name of a kernel on first use.
    #[inline]
    pub(super) fn define_kernel(&mut self, id: u32, name: &str, buffer: &mut Buffer) {
        if self.kernels.is_first(id) {
            self.define(buffer, |data| entry(data, interned::EVENT_NAMES, kernel_iid(id), name));
        }
    }

    /// Returns the name of an annotation, which it defines on first use.
    #[inline]
    pub(super) fn word(&mut self, name: &'static str, texts: &mut Numbers, buffer: &mut Buffer) -> Word<'static> {
        self.defined(Word { id: texts.text(name), name }, buffer)
    }

    /// Returns a word, which it defines on first use.
    #[inline]
    pub(super) fn defined(&mut self, word: Word<'static>, buffer: &mut Buffer) -> Word<'static> {
        if let Some(id) = word.id.filter(|id| self.names.is_first(*id)) {
            self.define_name(id, word.name, buffer);
        }
        word
    }

    #[cold]
    fn define_name(&self, id: u32, name: &str, buffer: &mut Buffer) {
        self.define(buffer, |data| entry(data, interned::ANNOTATION_NAMES, u64::from(id), name));
    }

    /// Returns the number of a text that is an annotation's value, which it defines on first use.
    #[inline]
    pub(super) fn text(&mut self, text: &'static str, texts: &mut Numbers, buffer: &mut Buffer) -> Option<u32> {
        let id = texts.text(text);
        if let Some(id) = id {
            self.define_text(id, text, buffer);
        }
        id
    }

    /// Defines the text that is an annotation's value on first use.
    #[inline]
    pub(super) fn define_text(&mut self, id: u32, text: &str, buffer: &mut Buffer) {
        if self.texts.is_first(id) {
            self.define(buffer, |data| entry(data, interned::ANNOTATION_STRINGS, text_iid(u64::from(id)), text));
        }
    }

    #[cold]
    pub(super) fn define(&self, buffer: &mut Buffer, fill: impl FnOnce(&mut Buffer)) {
        buffer.packet(|packet| {
            packet.short(&self.head);
            packet.message(packet::INTERNED_DATA, fill);
        });
    }
}

fn entry(data: &mut Buffer, field: u32, id: u64, text: &str) {
    data.message(field, |entry| {
        entry.uint(interned::IID, id);
        entry.text(interned::TEXT, text);
    });
}

/// Returns the id of a kernel's name. Names of kernels share an id space with ranges and sites, of which there are fewer than this
/// offset.
pub(super) fn kernel_iid(kernel: u32) -> u64 {
    u64::from(kernel) + (1 << 20)
}

/// Returns the id of a range's name, source and correlation. Ranges and the sites of spans share one id space: ranges have the even ids.
pub(super) fn range_iid(range: u32) -> u64 {
    u64::from(range) * 2
}

/// Writes the range's name into an event, and that the event belongs together with all others of the range.
#[inline]
pub(super) fn write_range(range: u32, event: &mut Buffer) {
    event.uint(event::NAME_IID, range_iid(range));
    event.uint(event::CORRELATION_ID_STR_IID, range_iid(range));
}

/// See [`range_iid`].
pub(super) fn site_iid(site: u32) -> u64 {
    u64::from(site) * 2 + 1
}

/// Returns the id of a description. Descriptions and static texts share one id space: descriptions have the even ids.
pub(super) fn description_iid(range: u64) -> u64 {
    range * 2
}

/// See [`description_iid`].
pub(super) fn text_iid(text: u64) -> u64 {
    text * 2 + 1
}
