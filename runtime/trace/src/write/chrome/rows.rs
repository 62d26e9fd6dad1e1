//! The rows of a trace, and the row of each slice.
//!
//! A reader drops overlapping slices of one row, so these are put on further rows. Only `trace` and its submodules call it; each
//! slice is written right after its row was looked up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::Arc;

use serde_json::json;

use super::document::Events;
use super::json::metadata;
use crate::names::OVERLAPPING;
use crate::write::lanes::{Lanes, OwnLane};
use warpline_core::record::{DeviceInfo, DeviceKind, Span, StreamInfo, ThreadInfo};
use warpline_core::sorting;

/// The number of the first device, as that of a process: far above the numbers that operating systems give to processes, and below those
/// of further rows, so that no thread is taken for the main thread of a device.
pub(super) const FIRST_DEVICE: u64 = 1 << 29;

/// The first number of rows that are neither a thread nor a stream: above every thread's id.
pub(super) const FIRST_ROW: u64 = 1 << 30;

/// The largest number of rows that a trace knows. At this number it forgets the half that it looked up least recently. A row that
/// returns is described again; the row of a stream or a thread keeps its number.
const MOST_ROWS: usize = if cfg!(test) { 8 } else { 3_000 };

/// The owner of a row, and the row's own lane under that owner.
pub(super) type Key = (Owner, Option<OwnLane>);

/// The facts from which a row gets its name.
#[derive(Clone, Copy)]
pub(super) struct Whose<'a> {
    pub(super) thread: Option<&'a ThreadInfo>,
    pub(super) stream: Option<&'a StreamInfo>,
    /// The name of the row's own lane.
    pub(super) lane: Option<&'a str>,
}

impl<'a> Whose<'a> {
    pub(super) fn thread(thread: &'a ThreadInfo) -> Whose<'a> {
        Whose { thread: Some(thread), stream: None, lane: None }
    }

    pub(super) fn stream(stream: &'a StreamInfo) -> Whose<'a> {
        Whose { thread: None, stream: Some(stream), lane: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    Thread(u64),
    Stream(u32),
    /// The kernels of a stream.
    Kernels(u32),
    /// The waits for events that threads queued on a stream.
    Waits(u32),
    /// The replays of graphs on a stream, and the lanes in them, from 1.
    Replays(u32, u32),
}

/// A group of tracks: a row of the UI, with further rows below it for overlapping slices.
struct TrackGroup {
    process: u64,
    name: String,
    sort_index: u64,
    lanes: Lanes,
    /// The row of each lane.
    threads: Vec<u64>,
    /// The time of the last lookup: larger is later.
    used: u64,
}

/// The row of a slice.
#[derive(Clone, Copy)]
pub(super) struct TrackId {
    pub(super) process: u64,
    pub(super) thread: u64,
}

/// The rows that the trace knows.
pub(super) struct Rows {
    process_id: u32,
    rows: HashMap<Key, TrackGroup>,
    /// The numbers of the devices, which have been described.
    devices: HashMap<(DeviceKind, u32), u64>,
    /// The number of rows that are neither a thread nor a stream.
    further_rows: u64,
    /// The number of lookups.
    lookups: u64,
    /// The latest end of a slice on the first lane of any forgotten row; none if no row was forgotten.
    forgotten_until_ns: Option<i64>,
    /// The lanes of replays, by name and part, from 1.
    replay_lanes: HashMap<(Arc<str>, u32), u32>,
    last_replay_lane: u32,
}

impl Rows {
    pub(super) fn new(process_id: u32) -> Rows {
        Rows {
            process_id,
            rows: HashMap::new(),
            devices: HashMap::new(),
            further_rows: 0,
            lookups: 0,
            forgotten_until_ns: None,
            replay_lanes: HashMap::new(),
            last_replay_lane: 0,
        }
    }

    /// Returns the number of a lane of replays, by its name and the part of a large batch.
    pub(super) fn replay_lane(&mut self, name: &Arc<str>, part: u32) -> u32 {
        *self.replay_lanes.entry((Arc::clone(name), part)).or_insert_with(|| {
            self.last_replay_lane += 1;
            self.last_replay_lane
        })
    }

    /// Returns the row of a thread for a slice: see [`place`](Self::place).
    pub(super) fn place_on_thread(&mut self, thread: &ThreadInfo, span: Span, out: &mut Events) -> io::Result<TrackId> {
        self.place((Owner::Thread(thread.id), None), Whose::thread(thread), span, out)
    }

    /// Returns the row of a slice. The caller must write the slice at once, so that the lanes know the order of the file.
    pub(super) fn place(&mut self, key: Key, whose: Whose<'_>, span: Span, out: &mut Events) -> io::Result<TrackId> {
        if self.rows.len() >= MOST_ROWS && !self.rows.contains_key(&key) {
            self.forget_rows();
        }
        self.lookups += 1;
        let row = match self.rows.entry(key) {
            Entry::Occupied(row) => row.into_mut(),
            Entry::Vacant(free) => {
                let lanes = self.forgotten_until_ns.map_or_else(Lanes::with_first, Lanes::with_first_from);
                let process = match (key.0, whose.stream) {
                    (Owner::Thread(_), _) | (_, None) => u64::from(self.process_id),
                    (_, Some(stream)) => number_of_device(&mut self.devices, &stream.device, out)?,
                };
                let row = TrackGroup::new(key, whose, process, lanes, &mut self.further_rows);
                row.describe(row.threads[0], &row.name, out)?;
                free.insert(row)
            }
        };
        row.used = self.lookups;
        let place = row.lanes.place(span);
        if place.is_new {
            let thread = further_row(&mut self.further_rows);
            row.describe(thread, &format!("{}{OVERLAPPING}", row.name), out)?;
            match row.threads.get_mut(place.lane) {
                Some(closed) => *closed = thread,
                None => row.threads.push(thread),
            }
        }
        Ok(TrackId { process: row.process, thread: row.threads[place.lane] })
    }

    #[cold]
    fn forget_rows(&mut self) {
        let mut lookups: Vec<u64> = self.rows.values().map(|row| row.used).collect();
        let oldest = sorting::median(&mut lookups);
        let mut until_ns = self.forgotten_until_ns.unwrap_or(i64::MIN);
        self.rows.retain(|_, row| {
            if row.used < oldest {
                until_ns = until_ns.max(row.lanes.until_ns());
            }
            row.used >= oldest
        });
        self.forgotten_until_ns = Some(until_ns);
        if self.replay_lanes.len() >= MOST_ROWS {
            self.replay_lanes.clear();
        }
    }
}

impl TrackGroup {
    fn new((owner, own_lane): Key, whose: Whose<'_>, process: u64, lanes: Lanes, further_rows: &mut u64) -> TrackGroup {
        let below = match owner {
            Owner::Thread(_) | Owner::Stream(_) => None,
            Owner::Kernels(_) => Some("kernels"),
            Owner::Waits(_) => Some("waits for events"),
            Owner::Replays(..) => Some("replays"),
        };
        let (id, name) = match (owner, whose.stream) {
            (Owner::Stream(id) | Owner::Kernels(id) | Owner::Waits(id) | Owner::Replays(id, _), Some(stream)) => {
                (u64::from(id), stream.name.clone())
            }
            _ => {
                let id = whose.thread.map_or(0, |thread| thread.id);
                let name = whose.thread.and_then(|thread| thread.name.clone());
                (id, name.unwrap_or_else(|| format!("thread {id}")))
            }
        };
        let thread = if below.is_some() || own_lane.is_some() { further_row(further_rows) } else { id };
        let name = [Some(&*name), below, whose.lane].into_iter().flatten().collect::<Vec<_>>().join(": ");
        TrackGroup { process, name, sort_index: id, lanes, threads: vec![thread], used: 0 }
    }

    fn describe(&self, thread: u64, name: &str, out: &mut Events) -> io::Result<()> {
        metadata("thread_name", self.process, thread, &json!({ "name": name }), out)?;
        metadata("thread_sort_index", self.process, thread, &json!({ "sort_index": self.sort_index }), out)
    }
}

fn further_row(count: &mut u64) -> u64 {
    *count += 1;
    FIRST_ROW + *count
}

/// Returns the number of a device among processes: its own, whatever other kinds of devices there are. The first call describes it.
fn number_of_device(
    devices: &mut HashMap<(DeviceKind, u32), u64>,
    device: &DeviceInfo,
    out: &mut Events,
) -> io::Result<u64> {
    let next = FIRST_DEVICE + devices.len() as u64;
    let process = match devices.entry((device.kind, device.ordinal)) {
        Entry::Occupied(known) => return Ok(*known.get()),
        Entry::Vacant(new) => *new.insert(next),
    };
    metadata("process_name", process, 0, &json!({ "name": device.label() }), out)?;
    // Devices are sorted below the process.
    let sort_index = FIRST_ROW + u64::from(device.ordinal);
    metadata("process_sort_index", process, 0, &json!({ "sort_index": sort_index }), out)?;
    Ok(process)
}
