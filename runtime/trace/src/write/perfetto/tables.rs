//! The tables that all kinds of records share while a trace is written: tracks, numbers of names, and facts about the session. They find the
//! row of a record: a thread, a stream, or a lane of its own below one.
//!
//! A row is described on first use, and again in each piece of the trace. A trace with too many rows forgets the least recently used.
//! `zones`, `spans`, `kernels`, `replays` and `waits` use the tables to write records.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash};

use super::intern::{AddressHasher, Numbers, Sites, Word};
use super::proto::Buffer;
use super::session_facts::SessionFacts;
use super::track::{Ids, Kind, Session, Track};
use crate::write::lanes::OwnLane;
use warpline_core::record::{DeviceInfo, DeviceKind, StreamInfo, ThreadInfo, ZoneRecord};
use warpline_core::sorting;
use warpline_report::sink::SessionInfo;

/// The maximum number of tracks that a trace knows. At this number, it forgets the half that it looked up least recently. A track
/// that returns keeps its id and name.
pub(super) const MOST_TRACKS: usize = if cfg!(test) { 8 } else { 3_000 };

type Table<K, V> = HashMap<K, V, BuildHasherDefault<AddressHasher>>;

/// The group of a device's rows.
pub(super) struct Device {
    pub(super) uuid: u64,
    pub(super) name: String,
    pub(super) rank: u32,
}

/// The state that every kind of record needs.
pub(super) struct Tables {
    pub(super) session: Session,
    pub(super) facts: SessionFacts,
    pub(super) ranges: Numbers,
    pub(super) sites: Sites,
    pub(super) texts: Numbers,
    /// Kept to reuse its memory.
    pub(super) names: Vec<Word<'static>>,
    pub(super) devices: HashMap<(DeviceKind, u32), Device>,
    pub(super) tracks: Vec<Track>,
    streams: Table<u32, usize>,
    threads: Table<u64, usize>,
    own_lanes: HashMap<(usize, OwnLane), usize>,
    /// The number of lookups of tracks.
    lookups: u64,
    /// The latest end in the trace.
    pub(super) end_ns: i64,
}

impl Tables {
    /// Begins a trace.
    pub(super) fn begin(info: &SessionInfo, buffer: &mut Buffer) -> Tables {
        let mut ids = Ids::new(info.process_id, info.begin_unix_ns);
        let facts = SessionFacts::begin(info, &mut ids, buffer);
        Tables {
            session: Session { ids, begin_ns: info.begin_ns, piece: 0, forgotten_until_ns: None },
            facts,
            ranges: Numbers::default(),
            sites: Sites::default(),
            texts: Numbers::default(),
            names: Vec::new(),
            devices: HashMap::new(),
            tracks: Vec::new(),
            streams: Table::default(),
            threads: Table::default(),
            own_lanes: HashMap::new(),
            lookups: 0,
            end_ns: info.begin_ns,
        }
    }

    /// Returns the track of a thread. An operating system may reuse a thread's id for a later thread; both then share a track.
    #[inline]
    pub(super) fn thread(&mut self, thread: &ThreadInfo, buffer: &mut Buffer) -> usize {
        match self.threads.get(&thread.id) {
            Some(track) => self.known(*track, buffer),
            None => {
                let (process_id, thread_id, name) = (self.facts.process_id, thread.id, thread.name.clone());
                let uuid = self.session.ids.derive(("thread", thread_id));
                let track = self.add(uuid, Kind::Thread { process_id, thread_id, name }, buffer);
                self.threads.insert(thread.id, track);
                track
            }
        }
    }

    #[inline]
    pub(super) fn stream(&mut self, stream: &StreamInfo, buffer: &mut Buffer) -> usize {
        match self.streams.get(&stream.id) {
            Some(track) => self.known(*track, buffer),
            None => {
                let parent = self.device(&stream.device, buffer);
                let name = stream.name.clone();
                let uuid = self.session.ids.derive(("stream", stream.id));
                let track = self.add(uuid, Kind::Row { parent, above: None, name, rank: stream.id }, buffer);
                self.streams.insert(stream.id, track);
                track
            }
        }
    }

    fn device(&mut self, device: &DeviceInfo, buffer: &mut Buffer) -> u64 {
        let Tables { session, facts, devices, .. } = self;
        let group = devices.entry((device.kind, device.ordinal)).or_insert_with(|| {
            let name = format!("{} (device {})", device.name, device.ordinal);
            let group = Device { uuid: session.ids.next(), name, rank: device.ordinal + 1 };
            facts.group(group.uuid, &group.name, group.rank, buffer);
            group
        });
        group.uuid
    }

    /// Returns the record's own row under `track`, or for most records the track itself.
    #[inline]
    pub(super) fn own_lane(&mut self, track: usize, record: &ZoneRecord, buffer: &mut Buffer) -> usize {
        let Some((own, name)) = OwnLane::for_record(record) else { return track };
        match self.own_lanes.get(&(track, own)) {
            Some(row) => self.known(*row, buffer),
            None => {
                let row = self.add_below(track, own, name, buffer);
                self.own_lanes.insert((track, own), row);
                row
            }
        }
    }

    /// Returns the track after describing it, if necessary, in this piece of the trace.
    #[inline]
    pub(super) fn known(&mut self, track: usize, buffer: &mut Buffer) -> usize {
        self.lookups += 1;
        self.tracks[track].used = self.lookups;
        if !self.tracks[track].is_known(&self.session) {
            self.describe_again(track, buffer);
        }
        track
    }

    #[cold]
    fn describe_again(&mut self, track: usize, buffer: &mut Buffer) {
        if let Some(above) = self.tracks[track].above() {
            self.known(above, buffer);
        }
        self.tracks[track].describe_again(&mut self.session, buffer);
    }

    /// Adds a row below another track, where `what` distinguishes it from the others.
    pub(super) fn add_below(&mut self, above: usize, what: impl Hash, name: &str, buffer: &mut Buffer) -> usize {
        let parent = self.tracks[above].uuid;
        let uuid = self.session.ids.derive((parent, what));
        self.add(uuid, Kind::Row { parent, above: Some(above), name: name.to_owned(), rank: 0 }, buffer)
    }

    /// Returns the row `name` below a stream, of those by the streams' ids in `rows`.
    pub(super) fn below_stream(
        &mut self,
        rows: &mut HashMap<u32, usize>,
        stream: &StreamInfo,
        name: &str,
        buffer: &mut Buffer,
    ) -> usize {
        if let Some(row) = rows.get(&stream.id) {
            return self.known(*row, buffer);
        }
        let above = self.stream(stream, buffer);
        let row = self.add_below(above, name, name, buffer);
        rows.insert(stream.id, row);
        row
    }

    fn add(&mut self, uuid: u64, kind: Kind, buffer: &mut Buffer) -> usize {
        let index = self.tracks.len();
        self.lookups += 1;
        let mut track = Track::new(uuid, kind, &mut self.session, buffer);
        track.used = self.lookups;
        self.tracks.push(track);
        index
    }

    /// Forgets the least recently used tracks. Returns the new index of each track, or none for a forgotten one.
    pub(super) fn forget_tracks(&mut self) -> Vec<Option<usize>> {
        let mut lookups: Vec<u64> = self.tracks.iter().map(|track| track.used).collect();
        let oldest = sorting::median(&mut lookups);
        let mut is_kept = vec![false; self.tracks.len()];
        for index in 0..self.tracks.len() {
            let mut next = (self.tracks[index].used >= oldest).then_some(index);
            // A kept row keeps the rows above it.
            while let Some(kept) = next.filter(|kept| !is_kept[*kept]) {
                is_kept[kept] = true;
                next = self.tracks[kept].above();
            }
        }
        let mut last = 0..;
        let places: Vec<Option<usize>> = is_kept.iter().map(|is_kept| is_kept.then(|| last.next()).flatten()).collect();
        for (track, place) in std::mem::take(&mut self.tracks).into_iter().zip(&places) {
            if place.is_none() {
                let until_ns = self.session.forgotten_until_ns.unwrap_or(i64::MIN);
                self.session.forgotten_until_ns = Some(until_ns.max(track.until_ns()));
                continue;
            }
            self.tracks.push(track);
        }
        for track in &mut self.tracks {
            if let Some(place) = track.above().and_then(|above| places[above]) {
                track.put_above(place);
            }
        }
        keep(&mut self.streams, &places);
        keep(&mut self.threads, &places);
        keep_below(&mut self.own_lanes, &places, |(above, lane), place| Some((place(above)?, lane)));
        places
    }
}

/// Updates the indexes of tracks, and removes forgotten tracks.
pub(super) fn keep<K: Eq + Hash, S: BuildHasher>(tracks: &mut HashMap<K, usize, S>, places: &[Option<usize>]) {
    tracks.retain(|_, track| places[*track].map(|place| *track = place).is_some());
}

/// Like [`keep`], for rows whose key contains the index of the track above them. `moved` rebuilds the key.
pub(super) fn keep_below<K: Eq + Hash>(
    rows: &mut HashMap<K, usize>,
    places: &[Option<usize>],
    moved: impl Fn(K, &dyn Fn(usize) -> Option<usize>) -> Option<K>,
) {
    keep(rows, places);
    let place = |track: usize| places[track];
    *rows = std::mem::take(rows).into_iter().filter_map(|(key, row)| Some((moved(key, &place)?, row))).collect();
}
