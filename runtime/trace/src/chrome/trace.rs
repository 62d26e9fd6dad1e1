//! Records to events, and the rows that they stand on.
//!
//! A reader drops slices of one row that overlap, so those go to further rows. Times are µs since a second before the
//! session, with the ns as decimals: absolute µs would not fit into a double. Only the sink calls it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;

use serde_json::{Value, json};

use super::document::Events;
use super::json::{Args, Micros};
use crate::lanes::{Lanes, Order, OwnLane, Spanned};
use crate::names::{change_args, change_name};
use crate::written::Marks;
use warpline_core::catalog::Kind;
use warpline_core::clock;
use warpline_core::record::{DeviceInfo, DeviceKind, Span, SpanRecord, StreamInfo, ThreadInfo, ZoneRecord};
use warpline_core::report::Report;
use warpline_core::sink::{Batch, SessionChange, SessionInfo};

/// Rows that are no thread and no stream are numbered from here, above every thread's id.
pub(super) const FIRST_ROW: u64 = 1 << 30;

/// Times count from so long before the session: readers drop what is before zero, and the clocks may put a zone a little
/// before the session that it belongs to.
const BEFORE_NS: i64 = 1_000_000_000;

/// Everything that is known of a trace while it is written.
pub(super) struct Trace {
    pub(super) zero_ns: i64,
    /// The same instant, in ns since the Unix epoch.
    base_unix_ns: i64,
    pub(super) process_id: u32,
    rank: u32,
    facts: Value,
    /// Zones that were dropped, as the trace says.
    dropped: u64,
    /// Counts launches; ties each to its zone.
    launches: u64,
    /// Counts arrows from signals to waits.
    pub(super) arrows: u64,
    /// Counts rows that are no thread and no stream.
    further_rows: u64,
    devices: HashSet<(DeviceKind, u32)>,
    rows: HashMap<Key, Row>,
    /// Goes up with each row that is looked up.
    lookups: u64,
    /// When the last slice ends on the first lane of any row that was forgotten; none while none was.
    forgotten_until_ns: Option<i64>,
    pub(super) order: Order,
    /// Kernels are in the trace: then no zone stands in for one.
    with_kernels: bool,
    /// Lanes of replays, by name, from 1.
    pub(super) replay_lanes: HashMap<(Arc<str>, u32), u32>,
    pub(super) last_replay_lane: u32,
}

/// A trace that knows so many rows forgets the half that it looked up least recently. One that comes back is described again; a row
/// of a stream or a thread has the number that it had.
const MOST_ROWS: usize = if cfg!(test) { 8 } else { 3_000 };

/// What a row belongs to, and the lane of its own that it is there.
pub(super) type Key = (Owner, Option<OwnLane>);

/// What a row may be named after.
#[derive(Clone, Copy)]
pub(super) struct Whose<'a> {
    pub(super) thread: Option<&'a ThreadInfo>,
    pub(super) stream: Option<&'a StreamInfo>,
    /// The lane of its own.
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
    /// The replays of graphs on a stream, and the lanes in them, from 1.
    Replays(u32, u32),
}

/// A row of the UI, with the rows below it for what overlaps.
struct Row {
    process: u64,
    name: String,
    sort_index: u64,
    lanes: Lanes,
    /// The row of each lane.
    threads: Vec<u64>,
    /// When it was looked up last: the larger, the later.
    used: u64,
}

/// Where a slice goes.
#[derive(Clone, Copy)]
pub(super) struct TrackId {
    pub(super) process: u64,
    pub(super) thread: u64,
}

impl Trace {
    /// Begins a trace: what is known of the session from the start, also for readers of a file that was never finished.
    pub(super) fn begin(info: &SessionInfo, out: &mut Events) -> io::Result<Trace> {
        metadata("process_name", info.process_id.into(), 0, &json!({ "name": info.label() }), out)?;
        let facts = json!({
            "catalog_hash": format!("{:#018x}", info.catalog_hash()),
            "warpline_version": env!("CARGO_PKG_VERSION"),
            "clock": "CLOCK_BOOTTIME",
            "begin_ns": info.begin_ns,
        });
        let base_unix_ns = info.begin_unix_ns - BEFORE_NS;
        let mut early = facts.clone();
        early["rank"] = info.rank.into();
        early["baseTimeNanoseconds"] = base_unix_ns.into();
        metadata("warpline_session", info.process_id.into(), 0, &early, out)?;
        Ok(Trace {
            zero_ns: info.begin_ns - BEFORE_NS,
            base_unix_ns,
            process_id: info.process_id,
            rank: info.rank.unwrap_or(0),
            facts,
            dropped: 0,
            launches: 0,
            arrows: 0,
            further_rows: 0,
            devices: HashSet::new(),
            rows: HashMap::new(),
            lookups: 0,
            forgotten_until_ns: None,
            order: Order::default(),
            with_kernels: info.kernels,
            replay_lanes: HashMap::new(),
            last_replay_lane: 0,
        })
    }

    /// Writes how many zones were dropped, if it is another number than before.
    pub(super) fn drops(&mut self, dropped: u64, out: &mut Events) -> io::Result<bool> {
        if std::mem::replace(&mut self.dropped, dropped) == dropped {
            return Ok(false);
        }
        let (ts, pid) = (Micros(clock::now_ns() - self.zero_ns), self.process_id);
        out.begin();
        write!(out, r#"{{"ph":"C","name":"zones dropped","pid":{pid},"ts":{ts},"args":{{"zones":{dropped}}}}}"#)?;
        out.end();
        Ok(true)
    }

    /// What a finished document has behind its events: what the session says of itself.
    pub(super) fn end(&self, report: &Report) -> String {
        let mut facts = self.facts.clone();
        let dropped: serde_json::Map<_, _> =
            report.dropped.reasons().map(|(reason, count)| (reason.to_owned(), count.into())).collect();
        let clocks: Vec<_> = (report.clocks.iter())
            .map(|clock| {
                let mut said = json!({
                    "device": clock.device,
                    "uncertainty_ns": clock.uncertainty_ns,
                    "bracket_ns": clock.bracket_ns,
                    "busy_bracket_ns": clock.busy_bracket_ns,
                });
                if clock.bracket_is_bound {
                    said["bracket_is_bound"] = true.into();
                }
                said
            })
            .collect();
        facts["begun"] = report.begun.into();
        facts["recorded"] = report.recorded.into();
        if report.captured > 0 {
            facts["captured"] = report.captured.into();
        }
        facts["dropped"] = dropped.into();
        for (name, count) in report.said_left_out() {
            facts[name] = count.into();
        }
        let spans: serde_json::Map<_, _> =
            report.spans.to_args().into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
        if !spans.is_empty() {
            facts["spans"] = spans.into();
        }
        let kernels: serde_json::Map<_, _> =
            report.kernels.to_args().into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
        if !kernels.is_empty() {
            facts["kernels"] = kernels.into();
        }
        let replays: serde_json::Map<_, _> =
            report.graph_timing.to_args().into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
        if !replays.is_empty() {
            facts["replays"] = replays.into();
        }
        let waits: serde_json::Map<_, _> =
            report.waits.to_args().into_iter().map(|(name, count)| (name, count.into())).collect();
        if !waits.is_empty() {
            facts["waits"] = waits.into();
        }
        if !report.semaphores.is_empty() {
            let stats = report.semaphores.iter();
            let told = stats.map(|s| json!({ "name": s.name, "waits": s.waits, "waited_ns": s.waited_ns }));
            facts["semaphores"] = told.collect();
        }
        facts["clocks"] = clocks.into();
        facts["notes"] = report.notes.clone().into();
        let Trace { rank, base_unix_ns, .. } = self;
        // HolisticTraceAnalysis looks in each line for `"rank": ` with the space.
        format!(
            "\"schemaVersion\":1,\"displayTimeUnit\":\"ns\",\"baseTimeNanoseconds\":{base_unix_ns},\n\
             \"distributedInfo\":{{\"rank\": {rank}}},\n\"otherData\":{facts}"
        )
    }

    /// Writes a batch, and marks where each record ends.
    pub(super) fn write(&mut self, batch: Batch<'_>, out: &mut Events, marks: &mut Marks) -> io::Result<()> {
        match batch {
            Batch::Zones(zones) => self.in_order(zones, out, marks, Trace::zone),
            Batch::Spans(spans) => self.in_order(spans, out, marks, Trace::span),
            Batch::Kernels(kernels) => self.in_order(kernels, out, marks, Trace::kernel),
            Batch::Replays(replays) => self.each(replays.iter(), out, marks, Trace::replay),
            Batch::Waits(waits) => self.in_order(waits, out, marks, Trace::wait),
            Batch::Depths(depths) => self.each(depths.iter(), out, marks, Trace::depth),
            Batch::Changes(changes) => changes.iter().try_for_each(|change| self.change(change, out)),
            _ => Ok(()),
        }
    }

    /// Writes the outer ones first.
    fn in_order<T: Spanned>(
        &mut self,
        batch: &[T],
        out: &mut Events,
        marks: &mut Marks,
        write: impl Fn(&mut Trace, &T, &mut Events) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut order = std::mem::take(&mut self.order);
        let result = self.each(order.outer_first(batch), out, marks, write);
        self.order = order;
        result
    }

    fn each<'a, T: 'a>(
        &mut self,
        mut batch: impl Iterator<Item = &'a T>,
        out: &mut Events,
        marks: &mut Marks,
        write: impl Fn(&mut Trace, &T, &mut Events) -> io::Result<()>,
    ) -> io::Result<()> {
        batch.try_for_each(|record| {
            write(self, record, out)?;
            marks.end_record(out.len());
            Ok(())
        })
    }

    fn span(&mut self, record: &SpanRecord, out: &mut Events) -> io::Result<()> {
        let TrackId { process, thread } =
            self.place((Owner::Thread(record.thread.id), None), Whose::thread(&record.thread), record.host, out)?;
        let ts = Micros(record.host.begin_ns - self.zero_ns);
        let category = Value::from(format!("{},{}", record.site.target, record.site.level));
        out.begin();
        let (is_event, name) = match (record.id, record.message()) {
            (None, Some(message)) => (true, Value::from(message.to_string())),
            (id, _) => (id.is_none(), Value::from(record.site.name)),
        };
        if is_event {
            write!(
                out,
                r#"{{"ph":"i","s":"t","cat":{category},"name":{name},"pid":{process},"tid":{thread},"ts":{ts}"#
            )?;
        } else {
            let dur = Micros(record.host.duration_ns());
            write!(
                out,
                r#"{{"ph":"X","cat":{category},"name":{name},"pid":{process},"tid":{thread},"ts":{ts},"dur":{dur}"#
            )?;
        }
        // As `tracing-chrome` writes them.
        if let Some(file) = record.site.file {
            write!(out, r#",".file":{}"#, Value::from(file))?;
        }
        if let Some(line) = record.site.line {
            write!(out, r#",".line":{line}"#)?;
        }
        let mut args = Args::open(out)?;
        args.add_span(record)?;
        args.close()
    }

    /// Writes that somebody changed what is recorded.
    pub(super) fn change(&mut self, change: &SessionChange, out: &mut Events) -> io::Result<()> {
        let name = Value::from(change_name(&change.what));
        let ts = Micros(change.ns - self.zero_ns);
        let (process, thread) = (self.process_id, change.thread.id);
        out.begin();
        write!(out, r#"{{"ph":"i","s":"p","cat":"warpline","name":{name},"pid":{process},"tid":{thread},"ts":{ts}"#)?;
        let mut args = Args::open(out)?;
        for (name, value) in change_args(change) {
            args.add(name, value)?;
        }
        args.close()
    }

    fn zone(&mut self, record: &ZoneRecord, out: &mut Events) -> io::Result<()> {
        let thread = Owner::Thread(record.thread.id);
        let own_lane = OwnLane::for_record(record).map(|(own, _)| own);
        let lane = OwnLane::for_record(record).map(|(_, name)| name);
        let (Some(stream), Some(gpu)) = (&record.stream, record.gpu) else {
            let place =
                self.place((thread, own_lane), Whose { lane, ..Whose::thread(&record.thread) }, record.host, out)?;
            self.slice("user_annotation", record, record.host, place, out)?;
            let mut args = Args::open(out)?;
            args.add_fields(record)?;
            return args.close();
        };
        self.launches += 1;
        let id = self.launches;
        // As in a Perfetto trace, from what is earlier to what is later.
        let launch_first = record.host.begin_ns <= gpu.begin_ns;
        let (of_launch, of_zone) = if launch_first { ("flow_out", "flow_in") } else { ("flow_in", "flow_out") };

        // The entries of a batch have its launch.
        let is_entry = record.entry.is_some();
        if !is_entry {
            let place = self.place((thread, None), Whose::thread(&record.thread), record.host, out)?;
            self.slice("user_annotation", record, record.host, place, out)?;
            write!(out, r#","bind_id":"{id:#x}","{of_launch}":true"#)?;
            let mut args = Args::open(out)?;
            if !self.with_kernels {
                args.add("correlation", id)?;
            }
            args.close()?;
        }

        let whose = Whose { stream: Some(stream), lane, ..Whose::thread(&record.thread) };
        let place = self.place((Owner::Stream(stream.id), own_lane), whose, gpu, out)?;
        // By such a name readers know communication. Of a batch they are to count the time once, so its entries have none.
        let operation = match &record.message {
            _ if self.with_kernels => None,
            Some(message) if !is_entry => Some(message.kind.nccl_name()),
            None if record.range.kind() == Kind::Collective => Some("Group"),
            _ => None,
        };
        match operation {
            None => self.slice("gpu_user_annotation", record, gpu, place, out)?,
            Some(operation) => {
                let name = format!("ncclDevKernel_{operation} {}", record.range.name());
                self.named_slice("kernel", &name, gpu, place, out)?;
            }
        }
        if !is_entry {
            write!(out, r#","bind_id":"{id:#x}","{of_zone}":true"#)?;
        }
        let mut args = Args::open(out)?;
        if !is_entry {
            args.add("device", stream.device.ordinal)?;
            args.add("stream", stream.id)?;
            if !self.with_kernels {
                args.add("correlation", id)?;
            }
        }
        args.add_fields(record)?;
        args.close()
    }

    /// The begin of a slice's event.
    pub(super) fn slice(
        &self,
        category: &str,
        record: &ZoneRecord,
        span: Span,
        place: TrackId,
        out: &mut Events,
    ) -> io::Result<()> {
        self.named_slice(category, record.range.name(), span, place, out)
    }

    /// The same under another name, which may be anything.
    pub(super) fn named_slice(
        &self,
        category: &str,
        name: &str,
        span: Span,
        TrackId { process, thread }: TrackId,
        out: &mut Events,
    ) -> io::Result<()> {
        let (ts, dur) = (Micros(span.begin_ns - self.zero_ns), Micros(span.duration_ns()));
        out.begin();
        write!(out, r#"{{"ph":"X","cat":"{category}","name":"#)?;
        serde_json::to_writer(&mut *out, name)?;
        write!(out, r#","pid":{process},"tid":{thread},"ts":{ts},"dur":{dur}"#)
    }

    /// Where a slice goes. Every call is followed by writing that slice, so that the lanes know the order of the file.
    pub(super) fn place(&mut self, key: Key, whose: Whose<'_>, span: Span, out: &mut Events) -> io::Result<TrackId> {
        if self.rows.len() >= MOST_ROWS && !self.rows.contains_key(&key) {
            self.forget_rows();
        }
        self.lookups += 1;
        let row = match self.rows.entry(key) {
            Entry::Occupied(row) => row.into_mut(),
            Entry::Vacant(free) => {
                let lanes = self.forgotten_until_ns.map_or_else(Lanes::with_first, Lanes::with_first_from);
                let row = Row::new(key, whose, self.process_id, lanes, &mut self.further_rows);
                if let (Owner::Stream(_) | Owner::Kernels(_) | Owner::Replays(..), Some(stream)) = (key.0, whose.stream)
                    && self.devices.insert((stream.device.kind, stream.device.ordinal))
                {
                    describe_device(&stream.device, out)?;
                }
                row.describe(row.threads[0], &row.name, out)?;
                free.insert(row)
            }
        };
        row.used = self.lookups;
        let place = row.lanes.place(span);
        if place.is_new {
            let thread = further_row(&mut self.further_rows);
            row.describe(thread, &format!("{} (overlapping)", row.name), out)?;
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
        let half = lookups.len() / 2;
        let oldest = *lookups.select_nth_unstable(half).1;
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

impl Row {
    fn new((owner, own_lane): Key, whose: Whose<'_>, process_id: u32, lanes: Lanes, further_rows: &mut u64) -> Row {
        let (process, thread, name) = match (owner, whose.stream) {
            (Owner::Stream(id), Some(stream)) => (u64::from(stream.device.ordinal), u64::from(id), stream.name.clone()),
            (Owner::Kernels(id) | Owner::Replays(id, _), Some(stream)) => {
                let below = if matches!(owner, Owner::Kernels(_)) { "kernels" } else { "replays" };
                let name = match whose.lane {
                    Some(lane) => format!("{}: {below}: {lane}", stream.name),
                    None => format!("{}: {below}", stream.name),
                };
                let row = further_row(further_rows);
                let process = u64::from(stream.device.ordinal);
                return Row { process, name, sort_index: u64::from(id), lanes, threads: vec![row], used: 0 };
            }
            _ => {
                let id = whose.thread.map_or(0, |thread| thread.id);
                let name = whose.thread.and_then(|thread| thread.name.clone());
                (u64::from(process_id), id, name.unwrap_or_else(|| format!("thread {id}")))
            }
        };
        match own_lane {
            None => Row { process, name, sort_index: thread, lanes, threads: vec![thread], used: 0 },
            Some(_) => {
                let own = further_row(further_rows);
                let lane = whose.lane.unwrap_or_default();
                Row { process, name: format!("{name}: {lane}"), sort_index: thread, lanes, threads: vec![own], used: 0 }
            }
        }
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

fn describe_device(device: &DeviceInfo, out: &mut Events) -> io::Result<()> {
    let process = u64::from(device.ordinal);
    let name = format!("{} (device {})", device.name, device.ordinal);
    metadata("process_name", process, 0, &json!({ "name": name }), out)?;
    // Devices stand below the process.
    metadata("process_sort_index", process, 0, &json!({ "sort_index": FIRST_ROW + process }), out)
}

fn metadata(what: &str, process: u64, thread: u64, args: &Value, out: &mut Events) -> io::Result<()> {
    out.begin();
    write!(out, r#"{{"ph":"M","name":"{what}","pid":{process},"tid":{thread},"args":{args}}}"#)?;
    out.end();
    Ok(())
}
