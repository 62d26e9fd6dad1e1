//! The sink for readers of Chrome's JSON trace format: `chrome://tracing`, TensorBoard-style tools, pandas.
//!
//! Launches and host zones stand under the process, zones under their device, as PyTorch's profiler lays its traces out.
//! A reader drops slices of one row that overlap, so those go to further rows. Times are µs since a second before
//! the session, with the ns as decimals: absolute µs would not fit into a double. The file is a whole JSON document after every flush. Nothing
//! here moves a time or leaves a zone out.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::lanes::{Lanes, Order};
use super::{ALGBW, BUSBW, OwnLane, SessionInfo, Sink};
use crate::fields;
use crate::record::{DeviceInfo, DeviceKind, EndFound, Span, Status, ZoneRecord};
use crate::session::Report;

/// Written without being asked.
const LARGE: usize = 256 << 10;

/// Takes no more while so much waits for a disk that refuses it.
const FULL: usize = 16 << 20;

/// Rows that are no thread and no stream are numbered from here, above every thread's id.
const FIRST_ROW: u64 = 1 << 30;

/// Times count from so long before the session: readers drop what is before zero, and the clocks may put a zone a little
/// before the session that it belongs to.
const BEFORE_NS: i64 = 1_000_000_000;

/// Closes the document until there is more.
const OPEN_END: &str = "\n]}\n";

/// Writes a trace in Chrome's JSON format.
///
/// The file is a whole JSON document after every flush, about ten times a second: a process that is killed leaves one with
/// every zone that had been flushed. A range's color and description are not in it; the format has no place for them.
///
/// `Send`, not `Sync`: a session's collector owns it.
pub struct ChromeSink {
    name: String,
    document: Document,
    trace: Option<Trace>,
}

impl ChromeSink {
    /// Writes to a new file, or over an old one.
    ///
    /// # Errors
    /// The file could not be created.
    pub fn create(path: impl AsRef<Path>) -> io::Result<ChromeSink> {
        let path = path.as_ref();
        Ok(ChromeSink::to_file(path, super::create(path)?))
    }

    /// Writes to this file, which the sink is named after.
    pub(crate) fn to_file(path: &Path, file: File) -> ChromeSink {
        let document = Document { file, written: 0, waiting: Vec::new(), end: OPEN_END.to_owned() };
        ChromeSink { name: format!("chrome={}", path.display()), document, trace: None }
    }
}

impl fmt::Debug for ChromeSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChromeSink").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Sink for ChromeSink {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        self.trace = Some(Trace::begin(session, &mut self.document.waiting)?);
        self.document.write()
    }

    fn records(&mut self, batch: &[ZoneRecord]) -> io::Result<()> {
        let Some(trace) = &mut self.trace else { return Err(super::not_started()) };
        if self.document.waiting.len() >= FULL {
            self.document.write()?;
        }
        trace.zones(batch, &mut self.document.waiting)?;
        if self.document.waiting.len() >= LARGE {
            // The batch is safe in memory; if the disk refuses it, the next flush meets the error again.
            let _ = self.document.write();
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.document.write()
    }

    fn finish(&mut self, report: &Report) -> io::Result<()> {
        let Some(trace) = &self.trace else { return Err(super::not_started()) };
        self.document.end = trace.end(report);
        self.document.write()
    }
}

/// A document that is complete after each write.
struct Document {
    file: File,
    /// Bytes of the document that are in the file, less its end.
    written: u64,
    /// Events that are not.
    waiting: Vec<u8>,
    end: String,
}

impl Document {
    /// Writes what waits and a new end over the old end. After an error everything is still there for the next time.
    fn write(&mut self) -> io::Result<()> {
        let events = self.waiting.len();
        self.waiting.extend_from_slice(self.end.as_bytes());
        let result = self.file.seek(SeekFrom::Start(self.written)).and_then(|_| self.file.write_all(&self.waiting));
        self.waiting.truncate(events);
        result?;
        self.written += events as u64;
        self.waiting.clear();
        Ok(())
    }
}

struct Trace {
    zero_ns: i64,
    process_id: u32,
    facts: Value,
    /// Counts launches; ties each to its zone.
    launches: u64,
    /// Counts rows that are no thread and no stream.
    further_rows: u64,
    devices: HashSet<(DeviceKind, u32)>,
    rows: HashMap<Key, Row>,
    order: Order,
}

/// What a row belongs to, and the lane of its own that it is there.
type Key = (Owner, Option<OwnLane>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Thread(u64),
    Stream(u32),
}

/// A row of the UI, with the rows below it for what overlaps.
struct Row {
    process: u64,
    name: String,
    sort_index: u64,
    lanes: Lanes,
    /// The row of each lane.
    threads: Vec<u64>,
}

/// Where a slice goes.
#[derive(Clone, Copy)]
struct Place {
    process: u64,
    thread: u64,
}

impl Trace {
    fn begin(info: &SessionInfo, out: &mut Vec<u8>) -> io::Result<Trace> {
        // HolisticTraceAnalysis looks for `"rank": ` with the space.
        let (rank, base) = (info.rank, info.begin_unix_ns - BEFORE_NS);
        write!(
            out,
            r#"{{"schemaVersion":1,"displayTimeUnit":"ns","distributedInfo":{{"rank": {rank}}},"baseTimeNanoseconds":{base},"#
        )?;
        writeln!(out, r#""traceEvents":["#)?;
        // The first event has no comma before it, and every other one has.
        let process = json!({ "name": info.process_name });
        write!(out, r#"{{"ph":"M","name":"process_name","pid":{},"tid":0,"args":{process}}}"#, info.process_id)?;
        Ok(Trace {
            zero_ns: info.begin_ns - BEFORE_NS,
            process_id: info.process_id,
            facts: json!({
                "catalog_hash": format!("{:#018x}", info.catalog_hash),
                "warpline_version": env!("CARGO_PKG_VERSION"),
                "clock": "CLOCK_BOOTTIME",
                "begin_ns": info.begin_ns,
            }),
            launches: 0,
            further_rows: 0,
            devices: HashSet::new(),
            rows: HashMap::new(),
            order: Order::default(),
        })
    }

    /// The end of a document that is finished: what the session says of itself.
    fn end(&self, report: &Report) -> String {
        let mut facts = self.facts.clone();
        let dropped: serde_json::Map<_, _> =
            report.dropped.reasons().map(|(reason, count)| (reason.to_owned(), count.into())).collect();
        let clocks: Vec<_> = (report.clocks.iter())
            .map(|clock| {
                json!({
                    "device": clock.device,
                    "uncertainty_ns": clock.uncertainty_ns,
                    "bracket_ns": clock.bracket_ns,
                    "busy_bracket_ns": clock.busy_bracket_ns,
                })
            })
            .collect();
        facts["begun"] = report.begun.into();
        facts["recorded"] = report.recorded.into();
        facts["dropped"] = dropped.into();
        facts["clocks"] = clocks.into();
        facts["notes"] = report.notes.clone().into();
        format!("\n],\n\"otherData\":{facts}}}\n")
    }

    fn zones(&mut self, batch: &[ZoneRecord], out: &mut Vec<u8>) -> io::Result<()> {
        let mut order = std::mem::take(&mut self.order);
        let result = order.outer_first(batch).try_for_each(|record| self.zone(record, out));
        self.order = order;
        result
    }

    fn zone(&mut self, record: &ZoneRecord, out: &mut Vec<u8>) -> io::Result<()> {
        let thread = Owner::Thread(record.thread.id);
        let own_lane = OwnLane::of(record).map(|(own, _)| own);
        let (Some(stream), Some(gpu)) = (&record.stream, record.gpu) else {
            let place = self.place((thread, own_lane), record, record.host, out)?;
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
            let place = self.place((thread, None), record, record.host, out)?;
            self.slice("user_annotation", record, record.host, place, out)?;
            write!(out, r#","bind_id":"{id:#x}","{of_launch}":true"#)?;
            let mut args = Args::open(out)?;
            args.add("correlation", id)?;
            args.close()?;
        }

        let place = self.place((Owner::Stream(stream.id), own_lane), record, gpu, out)?;
        match &record.message {
            None => self.slice("gpu_user_annotation", record, gpu, place, out)?,
            // By such a name readers know communication.
            Some(message) => {
                let name = format_args!("ncclDevKernel_{} {}", message.kind.nccl_name(), record.range.name());
                self.named_slice("kernel", name, gpu, place, out)?;
            }
        }
        if !is_entry {
            write!(out, r#","bind_id":"{id:#x}","{of_zone}":true"#)?;
        }
        let mut args = Args::open(out)?;
        args.add("device", stream.device.ordinal)?;
        args.add("stream", stream.id)?;
        if !is_entry {
            args.add("correlation", id)?;
        }
        args.add_fields(record)?;
        args.close()
    }

    /// The begin of a slice's event. Names of ranges need no escapes: the catalog allows none that would.
    fn slice(
        &self,
        category: &str,
        record: &ZoneRecord,
        span: Span,
        place: Place,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        self.named_slice(category, format_args!("{}", record.range.name()), span, place, out)
    }

    fn named_slice(
        &self,
        category: &str,
        name: fmt::Arguments<'_>,
        span: Span,
        Place { process, thread }: Place,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let (ts, dur) = (Micros(span.begin_ns - self.zero_ns), Micros(span.duration_ns()));
        separate(out)?;
        write!(
            out,
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":{process},"tid":{thread},"ts":{ts},"dur":{dur}"#
        )
    }

    /// Where a slice goes. Every call is followed by writing that slice, so that the lanes know the order of the file.
    fn place(&mut self, key: Key, record: &ZoneRecord, span: Span, out: &mut Vec<u8>) -> io::Result<Place> {
        let row = match self.rows.entry(key) {
            Entry::Occupied(row) => row.into_mut(),
            Entry::Vacant(free) => {
                let row = Row::new(key, record, self.process_id, &mut self.further_rows);
                if let (Owner::Stream(_), Some(stream)) = (key.0, &record.stream)
                    && self.devices.insert((stream.device.kind, stream.device.ordinal))
                {
                    describe_device(&stream.device, out)?;
                }
                row.describe(row.threads[0], &row.name, out)?;
                free.insert(row)
            }
        };
        let place = row.lanes.place(span);
        if place.is_new {
            let thread = further_row(&mut self.further_rows);
            row.describe(thread, &format!("{} (overlapping)", row.name), out)?;
            match row.threads.get_mut(place.lane) {
                Some(closed) => *closed = thread,
                None => row.threads.push(thread),
            }
        }
        Ok(Place { process: row.process, thread: row.threads[place.lane] })
    }
}

impl Row {
    fn new((owner, own_lane): Key, record: &ZoneRecord, process_id: u32, further_rows: &mut u64) -> Row {
        let (process, thread, name) = match (owner, &record.stream) {
            (Owner::Stream(id), Some(stream)) => (u64::from(stream.device.ordinal), u64::from(id), stream.name.clone()),
            _ => {
                let id = record.thread.id;
                let name = record.thread.name.clone().unwrap_or_else(|| format!("thread {id}"));
                (u64::from(process_id), id, name)
            }
        };
        let lanes = Lanes::with_first();
        match own_lane {
            None => Row { process, name, sort_index: thread, lanes, threads: vec![thread] },
            Some(_) => {
                let own = further_row(further_rows);
                let lane = OwnLane::of(record).map_or("", |(_, name)| name);
                Row { process, name: format!("{name}: {lane}"), sort_index: thread, lanes, threads: vec![own] }
            }
        }
    }

    fn describe(&self, thread: u64, name: &str, out: &mut Vec<u8>) -> io::Result<()> {
        metadata("thread_name", self.process, thread, &json!({ "name": name }), out)?;
        metadata("thread_sort_index", self.process, thread, &json!({ "sort_index": self.sort_index }), out)
    }
}

fn further_row(count: &mut u64) -> u64 {
    *count += 1;
    FIRST_ROW + *count
}

fn describe_device(device: &DeviceInfo, out: &mut Vec<u8>) -> io::Result<()> {
    let process = u64::from(device.ordinal);
    let name = format!("{} (device {})", device.name, device.ordinal);
    metadata("process_name", process, 0, &json!({ "name": name }), out)?;
    // Devices stand below the process.
    metadata("process_sort_index", process, 0, &json!({ "sort_index": FIRST_ROW + process }), out)
}

fn metadata(what: &str, process: u64, thread: u64, args: &Value, out: &mut Vec<u8>) -> io::Result<()> {
    separate(out)?;
    write!(out, r#"{{"ph":"M","name":"{what}","pid":{process},"tid":{thread},"args":{args}}}"#)
}

/// Between two events.
fn separate(out: &mut Vec<u8>) -> io::Result<()> {
    out.write_all(b",\n")
}

/// The arguments of an event.
struct Args<'a> {
    out: &'a mut Vec<u8>,
    is_first: bool,
}

impl<'a> Args<'a> {
    fn open(out: &'a mut Vec<u8>) -> io::Result<Args<'a>> {
        out.write_all(br#","args":{"#)?;
        Ok(Args { out, is_first: true })
    }

    fn add(&mut self, name: &str, value: impl Into<Value>) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.is_first) { "" } else { "," };
        write!(self.out, "{comma}{}:{}", Value::from(name), value.into())
    }

    /// What the zone itself carries.
    fn add_fields(&mut self, record: &ZoneRecord) -> io::Result<()> {
        for (name, value) in record.fields.iter() {
            self.add(super::shown(record, name), json_value(value))?;
        }
        if let Some(label) = record.fields.label() {
            self.add("label", label)?;
        }
        for (name, value) in record.message.iter().flat_map(|message| message.arguments()) {
            self.add(name, json_value(&value))?;
        }
        if let Some(bandwidth) = record.bandwidth() {
            self.add(ALGBW, bandwidth.algorithm * 1e-9)?;
            self.add(BUSBW, bandwidth.bus * 1e-9)?;
        }
        if record.status != Status::Complete {
            self.add("status", record.status.as_str())?;
        }
        for (name, ns) in record.quality().into_iter().flatten() {
            self.add(name, ns)?;
        }
        if record.end != EndFound::Event {
            self.add("end", record.end.as_str())?;
        }
        record.error.as_deref().map_or(Ok(()), |error| self.add("error", error))
    }

    /// Ends the arguments, and the event with them.
    fn close(self) -> io::Result<()> {
        self.out.write_all(b"}}")
    }
}

/// JSON has no infinities and no NaN; they are written as text.
fn json_value(value: &fields::Value) -> Value {
    match value {
        fields::Value::U64(value) => (*value).into(),
        fields::Value::I64(value) => (*value).into(),
        fields::Value::F64(value) if value.is_finite() => (*value).into(),
        fields::Value::F64(value) => value.to_string().into(),
        fields::Value::Bool(value) => (*value).into(),
        fields::Value::Str(value) => (*value).into(),
        fields::Value::Text(value) => (&**value).into(),
    }
}

/// A time in ns, as µs with three decimals.
struct Micros(i64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let ns = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:03}", ns / 1_000, ns % 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{self, BEGIN_NS, LOAD, STEP, records, run, span, stream, thread, zone};
    use super::*;

    /// A file of the test's own, removed when it is over.
    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(test: &str) -> Scratch {
            Scratch(std::env::temp_dir().join(format!("warpline-{}-{test}.json", std::process::id())))
        }

        fn read(&self) -> Value {
            serde_json::from_str(&std::fs::read_to_string(&self.0).expect("the file")).expect("a whole document")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn slices(document: &Value) -> Vec<&Value> {
        document["traceEvents"].as_array().expect("events").iter().filter(|event| event["ph"] == "X").collect()
    }

    #[test]
    fn the_file_is_whole_after_every_flush() {
        let file = Scratch::new("flush");
        let mut sink = ChromeSink::create(&file.0).expect("a file");
        sink.start(&fixture::session()).expect("room");
        let mut expected = 0;
        for batch in records() {
            sink.records(&batch).expect("room");
            sink.flush().expect("room");
            expected += batch.iter().map(|record| 1 + usize::from(record.gpu.is_some())).sum::<usize>();
            assert_eq!(slices(&file.read()).len(), expected);
        }
        sink.finish(&fixture::report()).expect("room");
        let document = file.read();
        assert_eq!(slices(&document).len(), expected);
        assert_eq!(document["otherData"]["begun"], 12);
        assert_eq!(document["otherData"]["dropped"]["ring_full"], 2);
        assert!(std::fs::read_to_string(&file.0).expect("the file").contains(r#""rank": 0"#));
    }

    #[test]
    fn every_value_is_valid_json() {
        let file = Scratch::new("values");
        let mut record = zone(&LOAD, None, &thread(1, Some("a \"thread\"\n")), span(0, 1_234_567), None);
        record.fields.push("nan", f64::NAN);
        record.fields.push("infinite", f64::NEG_INFINITY);
        record.fields.push("huge", u64::MAX);
        record.fields.push("label", "a field of a taken name");
        record.fields.push("text", "\u{0}\u{1f}\"\\".to_owned());
        record.fields.set_label("the label");
        run(&mut ChromeSink::create(&file.0).expect("a file"), &[vec![record]]).expect("room");
        let document = file.read();
        let slice = slices(&document)[0];
        assert_eq!(slice["args"]["nan"], "NaN");
        assert_eq!(slice["args"]["infinite"], "-inf");
        assert_eq!(slice["args"]["huge"], u64::MAX);
        assert_eq!(slice["args"]["field.label"], "a field of a taken name");
        assert_eq!(slice["args"]["text"], "\u{0}\u{1f}\"\\");
        assert_eq!(slice["args"]["label"], "the label");
        assert_eq!(slice["dur"], 1_234.567);
    }

    #[test]
    fn overlapping_slices_stand_on_rows_of_their_own() {
        let file = Scratch::new("overlap");
        let (main, compute) = (thread(1, None), stream(1, "compute"));
        let batch = [(0, 10), (5, 15), (7, 20), (15, 30)];
        let zones = batch
            .map(|(begin, end)| zone(&STEP, Some(&compute), &main, span(begin, begin + 1), Some(span(begin, end))));
        run(&mut ChromeSink::create(&file.0).expect("a file"), &[zones.to_vec()]).expect("room");
        let document = file.read();
        let rows: Vec<_> = (slices(&document).iter())
            .filter(|slice| slice["cat"] == "gpu_user_annotation")
            .filter_map(|slice| slice["tid"].as_u64())
            .collect();
        assert_eq!(rows, [1, FIRST_ROW + 1, FIRST_ROW + 2, 1]);
    }

    #[test]
    fn times_before_the_session_are_kept() {
        assert_eq!(Micros(-1_001).to_string(), "-1.001");
        let file = Scratch::new("early");
        let early = Span { begin_ns: BEGIN_NS - 500, end_ns: BEGIN_NS };
        let record = zone(&LOAD, None, &thread(1, None), early, None);
        run(&mut ChromeSink::create(&file.0).expect("a file"), &[vec![record]]).expect("room");
        assert_eq!(slices(&file.read())[0]["ts"], 999_999.5);
    }
}
