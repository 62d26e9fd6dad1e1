//! Records to slices: the hot path of the sink.
//!
//! Called by the sink with each batch. It must never allocate for a record, once its tables have met everything, but for what a
//! collective moves.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash};

use super::category::Category;
use super::facts::Facts;
use super::intern::{AddressHasher, Numbers, Sites};
use super::kernels::Kernels;
use super::proto::{Buffer, annotation, event};
use super::replays::Replays;
use super::track::{Ids, Kind, Sequence, Session, Track, description_iid, range_iid, text_iid};
use super::waits::Queues;
use crate::collective::arguments::Said;
use crate::fields::{MAX_FIELDS, Value};
use crate::record::{DeviceInfo, DeviceKind, EndFound, Span, SpanRef, Status, StreamInfo, ThreadInfo, ZoneRecord};
use crate::session::Report;
use crate::sink::lanes::{Order, OwnLane};
use crate::sink::names::{ALGBW, BUSBW, arg_name};
use crate::sink::written::Marks;
use crate::sink::{Batch, SessionChange, SessionInfo};

type Table<K, V> = HashMap<K, V, BuildHasherDefault<AddressHasher>>;

/// Everything that is known of a trace while it is written.
pub(super) struct Trace {
    pub(super) session: Session,
    pub(super) facts: Facts,
    pub(super) ranges: Numbers,
    pub(super) sites: Sites,
    pub(super) texts: Numbers,
    pub(super) words: Words,
    /// Kept, so that its memory is.
    pub(super) names: Vec<Option<u32>>,
    pub(super) kernels: Kernels,
    pub(super) replays: Replays,
    pub(super) queues: Queues,
    devices: HashMap<(DeviceKind, u32), Device>,
    pub(super) tracks: Vec<Track>,
    streams: Table<u32, usize>,
    threads: Table<u64, usize>,
    own_lanes: HashMap<(usize, OwnLane), usize>,
    /// Goes up with each track that is looked up.
    lookups: u64,
    pub(super) order: Order,
    /// The latest end in the trace.
    pub(super) end_ns: i64,
}

/// The group of a device's rows.
struct Device {
    uuid: u64,
    name: String,
    rank: u32,
}

/// A trace that knows so many tracks forgets the half that it looked up least recently. One that comes back has the id and the name
/// that it had.
const MOST_TRACKS: usize = if cfg!(test) { 8 } else { 3_000 };

impl Trace {
    /// Begins a trace.
    pub(super) fn begin(info: &SessionInfo, buffer: &mut Buffer) -> Trace {
        let mut ids = Ids::new(info.process_id, info.begin_unix_ns);
        let facts = Facts::begin(info, &mut ids, buffer);
        let mut texts = Numbers::default();
        let words = Words {
            description: texts.text(DESCRIPTION),
            label: texts.text(LABEL),
            status: texts.text(STATUS),
            error: texts.text(ERROR),
            end: texts.text(END),
            parent: texts.text(PARENT),
            parent_id: texts.text(PARENT_ID),
            span_id: texts.text(SPAN_ID),
        };
        Trace {
            session: Session { ids, begin_ns: info.begin_ns, piece: 0, forgotten_until_ns: None },
            facts,
            ranges: Numbers::default(),
            sites: Sites::default(),
            texts,
            words,
            names: Vec::new(),
            kernels: Kernels::default(),
            replays: Replays::default(),
            queues: Queues::default(),
            devices: HashMap::new(),
            tracks: Vec::new(),
            streams: Table::default(),
            threads: Table::default(),
            own_lanes: HashMap::new(),
            lookups: 0,
            order: Order::default(),
            end_ns: info.begin_ns,
        }
    }

    /// Ends it with the report.
    pub(super) fn end(&mut self, report: &Report, buffer: &mut Buffer) {
        self.facts.end(report, self.end_ns, &mut self.session.ids, buffer);
    }

    /// Begins another piece, which can be read without those before it: all that packets refer to is said again in it.
    pub(super) fn next_piece(&mut self, buffer: &mut Buffer) {
        self.session.piece += 1;
        self.facts.again(&mut self.session.ids, buffer);
        for device in self.devices.values() {
            self.facts.group(device.uuid, &device.name, device.rank, buffer);
        }
    }

    /// Writes records, the outer ones first, and marks where each ends.
    pub(super) fn in_order<T>(
        &mut self,
        batch: &[T],
        key: impl Fn(&T) -> (Span, u64),
        buffer: &mut Buffer,
        marks: &mut Marks,
        write: impl Fn(&mut Trace, &T, &mut Buffer),
    ) {
        let mut order = std::mem::take(&mut self.order);
        for record in order.outer_first(batch, key) {
            write(self, record, buffer);
            marks.end_record(buffer.len());
        }
        self.order = order;
    }

    /// Writes a batch, and marks where each record ends.
    pub(super) fn write(&mut self, batch: Batch<'_>, buffer: &mut Buffer, marks: &mut Marks) {
        match batch {
            Batch::Zones(zones) => self.zones(zones, buffer, marks),
            Batch::Spans(spans) => self.spans(spans, buffer, marks),
            Batch::Kernels(kernels) => self.kernels(kernels, buffer, marks),
            Batch::Replays(replays) => self.replays(replays, buffer, marks),
            Batch::Waits(waits) => self.waits(waits, buffer, marks),
            Batch::Depths(depths) => self.depths(depths, buffer, marks),
            Batch::Changes(changes) => changes.iter().for_each(|change| self.change(change, buffer)),
        }
    }

    pub(super) fn change(&mut self, change: &SessionChange, buffer: &mut Buffer) {
        self.facts.change(change, buffer);
    }

    /// Writes a batch.
    pub(super) fn zones(&mut self, batch: &[ZoneRecord], buffer: &mut Buffer, marks: &mut Marks) {
        self.in_order(batch, |record| (record.gpu.unwrap_or(record.host), record.sequence), buffer, marks, Trace::zone);
    }

    pub(super) fn zone(&mut self, record: &ZoneRecord, buffer: &mut Buffer) {
        self.make_room();
        let range = self.ranges.object(record.range);
        let thread = self.thread(&record.thread, buffer);
        self.end_ns = self.end_ns.max(record.host.end_ns);
        let (Some(stream), Some(gpu)) = (&record.stream, record.gpu) else {
            let row = self.own_lane(thread, record, buffer);
            let lane = self.tracks[row].lane(record.host, &mut self.session, buffer);
            lane.define_range(range, record.range, buffer);
            let words = (&mut self.texts, &self.words);
            return write_zone(lane, range, record, (record.host, false), words, buffer, |event| {
                event.uint(event::SOURCE_LOCATION_IID, range_iid(range));
            });
        };
        self.end_ns = self.end_ns.max(gpu.end_ns);
        let flow = self.session.ids.next();
        // A flow leads from the earlier end to the later one. When the clocks disagree by more than the time between the
        // launch and the zone, that is from the zone to the launch, and the figures of the clock tell by how much.
        let (of_launch, of_zone) = if record.host.begin_ns <= gpu.begin_ns {
            (event::FLOW_IDS, event::TERMINATING_FLOW_IDS)
        } else {
            (event::TERMINATING_FLOW_IDS, event::FLOW_IDS)
        };

        // The entries of a batch have its launch.
        let is_entry = record.entry.is_some();
        if !is_entry {
            let lane = self.tracks[thread].lane(record.host, &mut self.session, buffer);
            lane.define_range(range, record.range, buffer);
            lane.define_category(Category::Launch, buffer);
            lane.slice(record.host, buffer, |event| {
                event.uint(event::NAME_IID, range_iid(range));
                Category::Launch.write(event);
                event.uint(event::SOURCE_LOCATION_IID, range_iid(range));
                event.fixed(of_launch, flow);
            });
        }

        let stream = self.stream(stream, buffer);
        let row = self.own_lane(stream, record, buffer);
        let lane = self.tracks[row].lane(gpu, &mut self.session, buffer);
        lane.define_range(range, record.range, buffer);
        write_zone(lane, range, record, (gpu, true), (&mut self.texts, &self.words), buffer, |event| {
            if !is_entry {
                event.fixed(of_zone, flow);
            }
        });
    }

    /// The track of a thread. An operating system gives a thread's id to a later thread too; both have one track.
    #[inline]
    pub(super) fn thread(&mut self, thread: &ThreadInfo, buffer: &mut Buffer) -> usize {
        match self.threads.get(&thread.id) {
            Some(track) => self.known(*track, buffer),
            None => {
                let (process_id, thread_id, name) = (self.facts.process_id, thread.id, thread.name.clone());
                let uuid = self.session.ids.of(("thread", thread_id));
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
                let uuid = self.session.ids.of(("stream", stream.id));
                let track = self.add(uuid, Kind::Row { parent, above: None, name, rank: stream.id }, buffer);
                self.streams.insert(stream.id, track);
                track
            }
        }
    }

    fn device(&mut self, device: &DeviceInfo, buffer: &mut Buffer) -> u64 {
        let Trace { session, facts, devices, .. } = self;
        let group = devices.entry((device.kind, device.ordinal)).or_insert_with(|| {
            let name = format!("{} (device {})", device.name, device.ordinal);
            let group = Device { uuid: session.ids.next(), name, rank: device.ordinal + 1 };
            facts.group(group.uuid, &group.name, group.rank, buffer);
            group
        });
        group.uuid
    }

    /// The row under `track` that the record has to itself; the track itself for most.
    #[inline]
    fn own_lane(&mut self, track: usize, record: &ZoneRecord, buffer: &mut Buffer) -> usize {
        let Some((own, name)) = OwnLane::of(record) else { return track };
        match self.own_lanes.get(&(track, own)) {
            Some(row) => self.known(*row, buffer),
            None => {
                let row = self.add_below(track, own, name, buffer);
                self.own_lanes.insert((track, own), row);
                row
            }
        }
    }

    /// The track, described in this piece of the trace.
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

    /// A row below another track, which `what` tells from the others there.
    pub(super) fn add_below(&mut self, above: usize, what: impl Hash, name: &str, buffer: &mut Buffer) -> usize {
        let parent = self.tracks[above].uuid;
        let uuid = self.session.ids.of((parent, what));
        self.add(uuid, Kind::Row { parent, above: Some(above), name: name.to_owned(), rank: 0 }, buffer)
    }

    fn add(&mut self, uuid: u64, kind: Kind, buffer: &mut Buffer) -> usize {
        let index = self.tracks.len();
        self.lookups += 1;
        let mut track = Track::new(uuid, kind, &mut self.session, buffer);
        track.used = self.lookups;
        self.tracks.push(track);
        index
    }

    /// Forgets tracks if there are too many. Every record begins with it: in the middle of one, places of tracks are in use.
    #[inline]
    pub(super) fn make_room(&mut self) {
        if self.tracks.len() >= MOST_TRACKS {
            self.forget_tracks();
        }
    }

    #[cold]
    fn forget_tracks(&mut self) {
        let mut lookups: Vec<u64> = self.tracks.iter().map(|track| track.used).collect();
        let half = lookups.len() / 2;
        let oldest = *lookups.select_nth_unstable(half).1;
        let mut is_kept = vec![false; self.tracks.len()];
        for index in 0..self.tracks.len() {
            let mut next = (self.tracks[index].used >= oldest).then_some(index);
            // With a row stays what is above it.
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
        self.kernels.keep(&places);
        self.replays.keep(&places);
    }
}

/// Puts tracks to their new places, and drops those that have none.
pub(super) fn keep<K: Eq + Hash, S: BuildHasher>(tracks: &mut HashMap<K, usize, S>, places: &[Option<usize>]) {
    tracks.retain(|_, track| places[*track].map(|place| *track = place).is_some());
}

/// The same of rows that are known by the place of the track above them, in a key that `moved` puts together anew.
pub(super) fn keep_below<K: Eq + Hash>(
    rows: &mut HashMap<K, usize>,
    places: &[Option<usize>],
    moved: impl Fn(K, &dyn Fn(usize) -> Option<usize>) -> Option<K>,
) {
    keep(rows, places);
    let place = |track: usize| places[track];
    *rows = std::mem::take(rows).into_iter().filter_map(|(key, row)| Some((moved(key, &place)?, row))).collect();
}

/// Numbers of the texts that the sink itself writes.
pub(super) struct Words {
    description: Option<u32>,
    label: Option<u32>,
    status: Option<u32>,
    error: Option<u32>,
    end: Option<u32>,
    parent: Option<u32>,
    parent_id: Option<u32>,
    pub(super) span_id: Option<u32>,
}

/// A span that something belongs to, and the number of its name.
pub(super) type Parent = (SpanRef, Option<u32>);

impl Words {
    /// Defines whatever [`write_parent`](Self::write_parent) refers to.
    pub(super) fn define_parent(
        &self,
        parent: SpanRef,
        lane: &mut Sequence,
        texts: &mut Numbers,
        buffer: &mut Buffer,
    ) -> Parent {
        for (id, name) in [(self.parent, PARENT), (self.parent_id, PARENT_ID)] {
            if let Some(id) = id {
                lane.define_name(id, name, buffer);
            }
        }
        let name = texts.text(parent.name);
        if let Some(id) = name {
            lane.define_text(id, parent.name, buffer);
        }
        (parent, name)
    }

    pub(super) fn write_parent(&self, (parent, name): Parent, event: &mut Buffer) {
        annotate(event, self.parent, PARENT, |annotation| write_value(annotation, &Value::Str(parent.name), name));
        annotate(event, self.parent_id, PARENT_ID, |annotation| annotation.uint(annotation::UINT, parent.id));
    }
}

const DESCRIPTION: &str = "description";
const LABEL: &str = "label";
const STATUS: &str = "status";
const ERROR: &str = "error";
const END: &str = "end";
const PARENT: &str = "parent";
const PARENT_ID: &str = "parent_id";
pub(super) const SPAN_ID: &str = "span_id";

/// Writes the slice of a zone, with everything that the zone carries.
#[inline]
pub(super) fn write_zone(
    lane: &mut Sequence,
    range: u32,
    record: &ZoneRecord,
    (span, on_stream): (Span, bool),
    (texts, words): (&mut Numbers, &Words),
    buffer: &mut Buffer,
    fill: impl FnOnce(&mut Buffer),
) {
    let category = if on_stream { Category::of_zone(record) } else { Category::HostZone };
    lane.define_category(category, buffer);
    let (label, error) = (record.fields.label(), record.error.as_deref());
    let status = (record.status != Status::Complete).then_some(record.status);
    let mut define = |id: Option<u32>, name: &str| {
        if let Some(id) = id {
            lane.define_name(id, name, buffer);
        }
    };
    define(words.description, DESCRIPTION);
    if label.is_some() {
        define(words.label, LABEL);
    }
    if status.is_some() {
        define(words.status, STATUS);
    }
    if error.is_some() {
        define(words.error, ERROR);
    }
    let end = (on_stream && record.end != EndFound::Event).then_some(record.end);
    if end.is_some() {
        define(words.end, END);
    }
    let mut quality =
        if on_stream { record.quality().map(|said| said.map(|(name, ns)| (name, ns, None))) } else { [None; 5] };
    for (name, _, id) in quality.iter_mut().flatten() {
        *id = texts.text(name);
        if let Some(id) = *id {
            lane.define_name(id, name, buffer);
        }
    }
    let parent = record.parent.map(|parent| words.define_parent(parent, lane, texts, buffer));
    let message: Vec<_> = record
        .message
        .iter()
        .flat_map(|message| message.arguments())
        .map(|(name, said)| Argument::define(name, said, lane, texts, buffer))
        .collect();
    let mut names = [None; MAX_FIELDS];
    let mut values = [None; MAX_FIELDS];
    for ((name, value), (name_id, value_id)) in record.fields.iter().zip(names.iter_mut().zip(&mut values)) {
        let name = arg_name(record, name);
        *name_id = texts.text(name);
        if let Some(id) = *name_id {
            lane.define_name(id, name, buffer);
        }
        if let Value::Str(text) = value {
            *value_id = texts.text(text);
            if let Some(id) = *value_id {
                lane.define_text(id, text, buffer);
            }
        }
    }
    lane.slice(span, buffer, |event| {
        event.uint(event::NAME_IID, range_iid(range));
        category.write(event);
        for ((name, value), (name_id, value_id)) in record.fields.iter().zip(names.iter().zip(&values)) {
            annotate(event, *name_id, arg_name(record, name), |annotation| write_value(annotation, value, *value_id));
        }
        if let Some(label) = label {
            annotate(event, words.label, LABEL, |annotation| annotation.text(annotation::STRING, label));
        }
        if let Some(status) = status {
            annotate(event, words.status, STATUS, |annotation| annotation.text(annotation::STRING, status.as_str()));
        }
        if let Some(error) = error {
            annotate(event, words.error, ERROR, |annotation| annotation.text(annotation::STRING, error));
        }
        if let Some(end) = end {
            annotate(event, words.end, END, |annotation| annotation.text(annotation::STRING, end.as_str()));
        }
        if let Some(parent) = parent {
            words.write_parent(parent, event);
        }
        for (name, ns, id) in quality.into_iter().flatten() {
            annotate(event, id, name, |annotation| annotation.int(annotation::INT, ns));
        }
        message.iter().for_each(|argument| argument.write(event));
        if let Some(bandwidth) = record.bandwidth() {
            let figures = [Some((ALGBW, bandwidth.algorithm)), bandwidth.bus.map(|bus| (BUSBW, bus))];
            for (name, bytes_per_s) in figures.into_iter().flatten() {
                annotate(event, None, name, |annotation| annotation.double(annotation::DOUBLE, bytes_per_s * 1e-9));
            }
        }
        annotate(event, words.description, DESCRIPTION, |annotation| {
            annotation.uint(annotation::STRING_IID, description_iid(u64::from(range)));
        });
        fill(event);
    });
}

/// An argument of a collective, with the numbers of its name and of its text.
struct Argument {
    name: &'static str,
    name_id: Option<u32>,
    /// None for a text that is defined.
    value: Option<Value>,
    text_id: Option<u32>,
}

impl Argument {
    fn define(
        name: &'static str,
        said: Said<'_>,
        lane: &mut Sequence,
        texts: &mut Numbers,
        buffer: &mut Buffer,
    ) -> Argument {
        let name_id = texts.text(name);
        if let Some(id) = name_id {
            lane.define_name(id, name, buffer);
        }
        let shared = match &said {
            Said::Value(Value::Str(word)) => texts.text(word).map(|id| (id, *word)),
            said => said.shared().and_then(|(text, words)| Some((texts.of_group(text)?, words))),
        };
        if let Some((id, words)) = shared {
            lane.define_text(id, words, buffer);
        }
        let text_id = shared.map(|(id, _)| id);
        Argument { name, name_id, value: text_id.is_none().then(|| said.value()), text_id }
    }

    fn write(&self, event: &mut Buffer) {
        annotate(event, self.name_id, self.name, |annotation| match (&self.value, self.text_id) {
            (Some(value), _) => write_value(annotation, value, None),
            (None, Some(id)) => annotation.uint(annotation::STRING_IID, text_iid(u64::from(id))),
            (None, None) => {}
        });
    }
}

#[inline]
pub(super) fn annotate(event: &mut Buffer, id: Option<u32>, name: &str, value: impl FnOnce(&mut Buffer)) {
    event.message(event::ANNOTATIONS, |annotation| {
        match id {
            Some(id) => annotation.uint(annotation::NAME_IID, u64::from(id)),
            None => annotation.text(annotation::NAME, name),
        }
        value(annotation);
    });
}

#[inline]
pub(super) fn write_value(annotation: &mut Buffer, value: &Value, id: Option<u32>) {
    match (value, id) {
        (Value::U64(value), _) => annotation.uint(annotation::UINT, *value),
        (Value::I64(value), _) => annotation.int(annotation::INT, *value),
        (Value::F64(value), _) => annotation.double(annotation::DOUBLE, *value),
        (Value::Bool(value), _) => annotation.bool(annotation::BOOL, *value),
        (Value::Str(_), Some(id)) => annotation.uint(annotation::STRING_IID, text_iid(u64::from(id))),
        (Value::Str(text), None) => annotation.text(annotation::STRING, text),
        (Value::Text(text), _) => annotation.text(annotation::STRING, text),
    }
}
