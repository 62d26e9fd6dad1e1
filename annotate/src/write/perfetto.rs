//! Writes a Perfetto trace. All events are on one sequence of packets, names are interned, and the end of a slice follows its begin.
//! Tracks are described on another sequence, because a reader assigns all events of a sequence to the thread that it described last.
//!
//! ```text
//! process                       its threads with their slices; slices that overlap are on further lanes of the row
//! device                        a group: streams, and
//! └─ graph replays              each replay, with an arrow from its launch
//!    ├─ attention               the zones of a lane
//!    └─ comm: tp0 [0,1]
//! ```

use std::collections::HashMap;
use std::io::{self, Write};

use warpline_core::hashing::splitmix64;
use warpline_trace::read::budget::MemoryBudget;
use warpline_trace::read::event::{Event, Members, scalar};

use super::words::{Kind, Words, argument, arguments, raw_text};
use super::{FirstReading, Format, REPLAYS, ReadEvent, ReplayRow};
use crate::index::Disposition;
use crate::runtime::proto::{Buffer, attribute, clock, event as field, packet, track as descriptor};

/// The memory limit for the names of counters.
const COUNTERS: usize = 64 << 20;
const LARGE: usize = 256 << 10;
/// The largest process id of Linux (`PID_MAX_LIMIT`). Larger numbers, and 0, are those of devices in Chrome traces.
const MOST_PID: i32 = 1 << 22;
/// The sort index of the rows of replays, before the other rows of a device.
const REPLAYS_RANK: i64 = -1;

pub(crate) struct Perfetto<'a, W> {
    known: FirstReading<'a>,
    out: W,
    buffer: Buffer,
    /// The event that is being built.
    body: Buffer,
    words: Words,
    ids: Ids,
    sequence: u64,
    /// The sequence of the descriptions of tracks.
    descriptions: u64,
    /// The track of each process.
    processes: Vec<u64>,
    /// The track of each lane of each row.
    tracks: Vec<Vec<u64>>,
    counters: HashMap<String, u64>,
    counter_names: MemoryBudget,
    counter_texts: u64,
    key: String,
}

/// Ids that are unique across traces: steps of the SplitMix64 generator.
struct Ids(u64);

impl Ids {
    fn next(&mut self) -> u64 {
        let id = splitmix64(self.0).max(1);
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        id
    }
}

impl<'a, W: Write> Perfetto<'a, W> {
    pub(crate) fn new(known: FirstReading<'a>, out: W) -> io::Result<Perfetto<'a, W>> {
        let mut ids = Ids(known.seed);
        // Three bytes each on the wire.
        let sequence = (ids.next() >> 44 | 1 << 14) & !1;
        let mut writer = Perfetto {
            known,
            out,
            buffer: Buffer::default(),
            body: Buffer::default(),
            words: Words::new(),
            ids,
            sequence,
            descriptions: sequence + 1,
            processes: Vec::new(),
            tracks: Vec::new(),
            counters: HashMap::new(),
            counter_names: MemoryBudget::new(COUNTERS),
            counter_texts: 0,
            key: String::new(),
        };
        writer.begin();
        writer.describe_rows()?;
        Ok(writer)
    }

    fn begin(&mut self) {
        let (first_ns, base_ns) = (self.known.index.first_ns, self.known.base_ns);
        self.buffer.packet(|packet| {
            packet.int(packet::TIMESTAMP, first_ns);
            packet.uint(packet::SEQUENCE_ID, self.descriptions);
            packet.uint(packet::SEQUENCE_FLAGS, packet::STATE_CLEARED);
            packet.message(packet::CLOCK_SNAPSHOT, |snapshot| {
                let unix_ns = base_ns.and_then(|base| base.checked_add(first_ns)).filter(|ns| *ns > 0);
                for (id, ns) in [(clock::BOOTTIME, Some(first_ns)), (clock::REALTIME, unix_ns)] {
                    let Some(ns) = ns else { continue };
                    snapshot.message(clock::CLOCKS, |clock| {
                        clock.uint(clock::ID, id);
                        clock.int(clock::TIMESTAMP, ns);
                    });
                }
                snapshot.uint(clock::PRIMARY, clock::BOOTTIME);
            });
        });
        self.buffer.packet(|packet| {
            packet.uint(packet::SEQUENCE_ID, self.sequence);
            packet.uint(packet::SEQUENCE_FLAGS, packet::STATE_CLEARED);
        });
    }

    fn describe_rows(&mut self) -> io::Result<()> {
        let rows = &self.known.index.rows;
        let mut devices = vec![false; rows.processes.len()];
        for replay in &self.known.outcome.replays {
            devices[replay.process as usize] = true;
        }
        let mut is_real = Vec::with_capacity(devices.len());
        for (process, is_device) in rows.processes.iter().zip(devices) {
            let is_device = is_device || process.is_device();
            let pid = process.pid.parse::<i32>().ok().filter(|pid| (1..=MOST_PID).contains(pid) && !is_device);
            let uuid = self.ids.next();
            self.processes.push(uuid);
            is_real.push(pid.is_some());
            let labels = process.labels.as_deref();
            describe(&mut self.buffer, self.descriptions, uuid, |track| match pid {
                Some(pid) => {
                    track.message(descriptor::PROCESS, |message| {
                        message.int(descriptor::PROCESS_PID, i64::from(pid));
                        if let Some(name) = &process.name {
                            message.text(descriptor::PROCESS_NAME, name);
                        }
                    });
                    if let Some(labels) = labels {
                        track.text(descriptor::DESCRIPTION, labels);
                    }
                }
                None => {
                    track.text(descriptor::NAME, &process.title());
                    if let (Some(_), Some(name)) = (labels, process.name.as_deref()) {
                        track.text(descriptor::DESCRIPTION, name);
                    }
                    rank(track, process.sort);
                    track.uint(descriptor::CHILD_ORDERING, descriptor::EXPLICIT);
                    track.uint(descriptor::MERGE_BEHAVIOR, descriptor::MERGE_NONE);
                }
            });
        }
        for row in &rows.rows {
            let (parent, process) = (self.processes[row.process as usize], &rows.processes[row.process as usize]);
            let pid = is_real[row.process as usize].then(|| process.pid.parse::<i32>().unwrap_or_default());
            let tid = row.tid.as_ref().and_then(|tid| tid.parse::<i32>().ok()).filter(|tid| *tid > 0);
            let first = self.ids.next();
            let mut lanes = vec![first];
            let name = &row.title(process);
            let thread = pid.zip(tid);
            describe(&mut self.buffer, self.descriptions, first, |track| match thread {
                Some((pid, tid)) => track.message(descriptor::THREAD, |thread| {
                    thread.int(descriptor::THREAD_PID, i64::from(pid));
                    thread.int(descriptor::THREAD_TID, i64::from(tid));
                    if let Some(name) = &row.name {
                        thread.text(descriptor::THREAD_NAME, name);
                    }
                }),
                None => lane(track, parent, name, row.sort, first),
            });
            for _ in 1..row.lanes {
                let uuid = self.ids.next();
                lanes.push(uuid);
                describe(&mut self.buffer, self.descriptions, uuid, |track| match thread {
                    Some(_) => lane(track, first, "overlapping slices", None, first),
                    None => lane(track, parent, name, row.sort, first),
                });
            }
            self.tracks.push(lanes);
            write_when_large(&mut self.buffer, &mut self.out, LARGE)?;
        }
        Ok(())
    }

    /// Writes the event in `body`.
    fn put(&mut self, ns: i64) -> io::Result<()> {
        let (words, body) = (&mut self.words, &self.body);
        self.buffer.packet(|packet| {
            packet.int(packet::TIMESTAMP, ns);
            packet.uint(packet::SEQUENCE_ID, self.sequence);
            packet.uint(packet::SEQUENCE_FLAGS, packet::NEEDS_STATE);
            if !words.fresh.is_empty() {
                packet.bytes(packet::INTERNED_DATA, words.fresh.as_bytes());
            }
            packet.bytes(packet::TRACK_EVENT, body.as_bytes());
        });
        self.words.fresh.clear();
        self.body.clear();
        write_when_large(&mut self.buffer, &mut self.out, LARGE)
    }

    fn put_end(&mut self, track: u64, ns: i64) -> io::Result<()> {
        self.body.uint(field::TYPE, field::SLICE_END);
        self.body.uint(field::TRACK_UUID, track);
        self.put(ns)
    }

    /// Begins an event in `body`.
    fn head(&mut self, kind: u64, track: u64, name: &str, category: &str) {
        self.body.uint(field::TYPE, kind);
        self.body.uint(field::TRACK_UUID, track);
        let name = if name.is_empty() { "(no name)" } else { name };
        match self.words.number(Kind::Event, name) {
            Some(number) => self.body.uint(field::NAME_IID, number),
            None => self.body.text(field::NAME, name),
        }
        if !category.is_empty() {
            match self.words.number(Kind::Category, category) {
                Some(number) => self.body.uint(field::CATEGORY_IIDS, number),
                None => raw_text("cat", category, &mut self.body, &mut self.words),
            }
        }
    }

    /// Adds everything of an event but its time and track.
    fn details(&mut self, told: &ReadEvent<'_>) {
        let event = told.event;
        let (body, words) = (&mut self.body, &mut self.words);
        if let Some(args) = event.args {
            match event.members_of_args() {
                Some(members) => members.0.iter().for_each(|(name, value)| argument(Some(name), value, 0, body, words)),
                None => argument(Some("args"), args, 0, body, words),
            }
        }
        let shows_id = !matches!(&*event.phase, "s" | "t" | "f") && event.rest.iter().all(|(name, _)| name != "id2");
        if let Some(id) = event.id.as_deref().filter(|_| shows_id) {
            raw_text("chrome_id", id, body, words);
        }
        for (name, value) in &event.rest {
            argument(Some(&format!("chrome.{name}")), value, 0, body, words);
        }
        if !matches!(&*event.phase, "X" | "B" | "b" | "S" | "i" | "I" | "s" | "t" | "f") {
            raw_text("chrome_ph", &event.phase, body, words);
        }
        for link in told.links {
            let id = arrow_id(self.known.seed, link.arrow);
            body.fixed(if link.is_end { field::TERMINATING_FLOW_IDS } else { field::FLOW_IDS }, id);
        }
    }

    fn slice(&mut self, told: &ReadEvent<'_>, track: u64, ns: i64) -> io::Result<()> {
        let (event, known) = (told.event, self.known);
        self.head(field::SLICE_BEGIN, track, &event.name, &event.category);
        self.details(told);
        let mut end_ns = ns.saturating_add(event.dur.unwrap_or(0).max(0));
        if let Some((end, args)) = known.index.ends.get(&told.number) {
            end_ns = *end;
            let members = args.as_deref().and_then(|args| serde_json::from_str::<Members<'_>>(args).ok());
            for (name, value) in members.iter().flat_map(|members| &members.0) {
                argument(Some(name), value, 0, &mut self.body, &mut self.words);
            }
        }
        if let Some(joined) = told.joined {
            let own = event.members_of_args();
            let args = known.kernel_args(joined, |name| own.as_ref().is_some_and(|own| own.get(name).is_some()));
            arguments(&args, &mut self.body, &mut self.words);
        }
        self.put(ns)?;
        self.put_end(track, end_ns)
    }

    /// Writes the values of a counter, each on its own track.
    fn counter(&mut self, event: &Event<'_>, ns: i64, process: u32) -> io::Result<()> {
        let Some(members) = event.members_of_args() else {
            self.counter_texts += 1;
            return Ok(());
        };
        for (series, value) in &members.0 {
            let Some(number) = scalar(value).parse::<f64>().ok().filter(|number| number.is_finite()) else {
                self.counter_texts += 1;
                continue;
            };
            let id = event.id.as_deref().map(|id| format!(" {id}")).unwrap_or_default();
            let series = if series == "value" { String::new() } else { format!(" {series}") };
            let name = format!("{}{id}{series}", event.name);
            let key = format!("{process} {name}");
            let uuid = match self.counters.get(&key) {
                Some(uuid) => *uuid,
                None if !self.counter_names.spend(2 * key.len() + 64) => {
                    self.counter_texts += 1;
                    continue;
                }
                None => {
                    let uuid = self.ids.next();
                    let parent = self.processes[process as usize];
                    describe(&mut self.buffer, self.descriptions, uuid, |track| {
                        track.uint(descriptor::PARENT_UUID, parent);
                        track.text(descriptor::NAME, &name);
                        track.message(descriptor::COUNTER, |_| {});
                    });
                    self.counters.insert(key, uuid);
                    uuid
                }
            };
            self.body.uint(field::TYPE, field::COUNTER);
            self.body.uint(field::TRACK_UUID, uuid);
            self.body.double(field::DOUBLE_COUNTER_VALUE, number);
            self.put(ns)?;
        }
        Ok(())
    }

    /// Writes a row of replays or zones; `above` is the track of the replays.
    fn row(&mut self, row: &ReplayRow<'a>, above: u64, order: i64) -> io::Result<u64> {
        let tracks: Vec<u64> = (0..row.lanes).map(|_| self.ids.next()).collect();
        let Some(first) = tracks.first().copied() else { return Ok(above) };
        for track in &tracks {
            let name = row.lane.unwrap_or(REPLAYS);
            describe(&mut self.buffer, self.descriptions, *track, |track| lane(track, above, name, Some(order), first));
        }
        for bar in &row.bars {
            let track = tracks[bar.lane];
            let category = if bar.zone.is_some() { "graph_zone" } else { "graph_replay" };
            self.head(field::SLICE_BEGIN, track, self.known.bar_name(bar), category);
            arguments(&self.known.bar_args(bar), &mut self.body, &mut self.words);
            let replay = self.known.replay(bar.replay);
            if bar.zone.is_none() && replay.launch.is_some() {
                let arrow = self.known.index.arrows + bar.replay + 1;
                self.body.fixed(field::TERMINATING_FLOW_IDS, arrow_id(self.known.seed, arrow));
            }
            self.put(bar.begin_ns)?;
            self.put_end(track, bar.end_ns)?;
        }
        Ok(first)
    }
}

impl<W: Write> Format for Perfetto<'_, W> {
    fn member(&mut self, name: &[u8], value: &[u8]) -> io::Result<()> {
        let name: String = serde_json::from_slice(name)?;
        let value = String::from_utf8_lossy(value);
        self.buffer.packet(|packet| {
            packet.uint(packet::SEQUENCE_ID, self.descriptions);
            packet.message(packet::TRACE_ATTRIBUTES, |attributes| {
                attributes.message(attribute::ATTRIBUTE, |attribute| {
                    attribute.text(attribute::KEY, &format!("chrome.{name}"));
                    attribute.text(attribute::STRING_VALUE, &value);
                });
            });
        });
        write_when_large(&mut self.buffer, &mut self.out, LARGE)
    }

    fn event(&mut self, told: &ReadEvent<'_>) -> io::Result<()> {
        let event = told.event;
        let index = self.known.index;
        if matches!(told.fate, Disposition::Done | Disposition::LeftOut) {
            return Ok(());
        }
        let ns = event.ts.unwrap_or(index.first_ns);
        if event.phase == "C" {
            let Some(process) = index.rows.find_process(&event.pid) else { return Ok(()) };
            return self.counter(event, ns, process);
        }
        let Some(row) = index.rows.find(event, &mut self.key) else { return Ok(()) };
        let tracks = &self.tracks[row as usize];
        match told.fate {
            Disposition::Slice(lane) => {
                // If the file has changed since the first reading, the row may have fewer lanes.
                let Some(track) = tracks.get(usize::from(lane)).copied() else { return Ok(()) };
                self.slice(told, track, ns)
            }
            Disposition::AsItIs | Disposition::Arrow => {
                let track = tracks[0];
                self.head(field::INSTANT, track, &event.name, &event.category);
                self.details(told);
                self.put(ns)
            }
            Disposition::Done | Disposition::LeftOut => Ok(()),
        }
    }

    fn finish(&mut self) -> io::Result<u64> {
        let mut above = (u32::MAX, 0);
        for (row, order) in self.known.rows().iter().zip(0..) {
            if row.lane.is_none() {
                let parent = self.processes[row.process as usize];
                above = (row.process, self.row(row, parent, REPLAYS_RANK)?);
            } else {
                self.row(row, above.1, order)?;
            }
        }
        write_when_large(&mut self.buffer, &mut self.out, 1)?;
        self.out.flush()?;
        Ok(self.counter_texts)
    }
}

fn write_when_large(buffer: &mut Buffer, out: &mut impl Write, large: usize) -> io::Result<()> {
    if buffer.len() >= large {
        out.write_all(buffer.as_bytes())?;
        buffer.clear();
    }
    Ok(())
}

fn arrow_id(seed: u64, arrow: u32) -> u64 {
    splitmix64(seed.wrapping_add(u64::from(arrow).wrapping_mul(0xD1B5_4A32_D192_ED03))).max(1)
}

fn describe(buffer: &mut Buffer, sequence: u64, uuid: u64, fill: impl FnOnce(&mut Buffer)) {
    buffer.packet(|packet| {
        packet.uint(packet::SEQUENCE_ID, sequence);
        packet.message(packet::TRACK_DESCRIPTOR, |track| {
            track.uint(descriptor::UUID, uuid);
            fill(track);
        });
    });
}

/// A lane of a row. `key` is the same for all lanes of a row.
fn lane(track: &mut Buffer, parent: u64, name: &str, sort: Option<i64>, key: u64) {
    track.uint(descriptor::PARENT_UUID, parent);
    track.text(descriptor::NAME, name);
    rank(track, sort);
    track.uint(descriptor::MERGE_BEHAVIOR, descriptor::MERGE_BY_KEY);
    track.uint(descriptor::MERGE_KEY_INT, key);
}

/// An `int32`.
fn rank(track: &mut Buffer, sort: Option<i64>) {
    if let Some(sort) = sort {
        track.int(descriptor::SIBLING_RANK, sort.clamp(i64::from(i32::MIN), i64::from(i32::MAX)));
    }
}
