//! The tables that all kinds of records share while a trace is written: tracks, numbers of names, and facts about the session.
//!
//! `rows` finds a record's track in the tables; `zones`, `spans`, `kernels`, `replays` and `waits` use them to write records.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::intern::{AddressHasher, Numbers, Sites, Word};
use super::proto::Buffer;
use super::session_facts::SessionFacts;
use super::track::{Ids, Session, Track};
use crate::write::lanes::OwnLane;
use warpline_core::record::DeviceKind;
use warpline_report::sink::SessionInfo;

pub(super) type Table<K, V> = HashMap<K, V, BuildHasherDefault<AddressHasher>>;

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
    pub(super) streams: Table<u32, usize>,
    pub(super) threads: Table<u64, usize>,
    pub(super) own_lanes: HashMap<(usize, OwnLane), usize>,
    /// The number of lookups of tracks.
    pub(super) lookups: u64,
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
}
