//! Reads the slices of a Chrome trace, event by event: of warpline, or of PyTorch's profiler as far as its events mean the same.

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::Arc;

use serde_json::Value;
use warpline_core::record::Span;

use super::document::{Broken, Document, MAX_VALUE, Piece};
use super::event::{Event, Lenient, scalar};
use super::inputs;
use super::kinds::{Args, Key, Kind, Said};
use super::others::{Annotated, Others, Scopes, is_call, step};
use super::rows::{Place, Rows, Stream, TraceRow, device_of};
use super::{Arrow, Fact, Fault, Skipped, Slice, Visitor};
use crate::names::{BATCH_ENTRY, COLLECTIVE, NCCL_KERNEL, OVERLAPPING, ZONE_KIND};
use warpline_report::names::{Name, Names};

/// How PyTorch's profiler labels a device.
const GPU: &str = "GPU ";

/// The most begins that wait for their end.
const OPEN: usize = 1 << 16;

/// The most bytes that these take in the file. They are kept until their ends come.
const OPEN_BYTES: usize = 16 << 20;

/// The most launches that wait for their zone.
const LAUNCHES: usize = 1 << 16;

/// The largest member that is read for the facts of the session.
const FACTS: usize = MAX_VALUE;

/// Reads the whole trace. An array may be cut, because a killed process leaves one.
pub(super) fn read<V: Visitor>(trace: impl BufRead, names: &mut Names, visitor: &mut V) -> Result<Skipped, Fault> {
    let mut document = Document::new(trace).may_be_cut();
    let mut reader = Reader {
        visitor,
        rows: Rows::default(),
        places: HashMap::new(),
        streams: HashMap::new(),
        devices: HashMap::new(),
        groups: HashMap::new(),
        threads: HashMap::new(),
        ids: HashMap::new(),
        processes: HashMap::new(),
        session: None,
        launches: HashMap::new(),
        open: HashMap::new(),
        open_in_all: 0,
        open_bytes: 0,
        others: Others::default(),
        scopes: Scopes::default(),
        signal: None,
        wait: None,
        skipped: Skipped::default(),
    };
    let mut has_events = false;
    loop {
        match document.next_piece() {
            Ok(Some(Piece::Event(bytes))) => {
                has_events = true;
                let mut room = None;
                let Lenient { event, bytes, is_mended } = Event::read_or_mend(bytes, &mut room);
                reader.skipped.mended += u64::from(is_mended);
                match event {
                    Some(event) => reader.event(&event, bytes, names)?,
                    None => reader.skipped.malformed += 1,
                }
            }
            Ok(Some(Piece::Member(name, value))) => reader.member(name, value),
            Ok(Some(Piece::Events)) => has_events = true,
            Ok(None) => break,
            Err(Broken::Io(error)) if has_events && inputs::is_damage(&error) => {
                reader.skipped.damaged_at = Some(document.place().byte);
                break;
            }
            Err(Broken::Io(error)) => return Err(Fault::Io(error)),
            Err(Broken::TooLong(_)) => return Err(Fault::NotATrace("more than 64 GiB; name a part of it")),
            Err(Broken::NoTrace(_)) => return Err(NO_EVENTS),
            Err(Broken::Short(at) | Broken::Wrong(at, _) | Broken::TooLarge(at)) if has_events => {
                reader.skipped.damaged_at = Some(at.byte);
                break;
            }
            Err(_) => return Err(NO_EVENTS),
        }
    }
    if !has_events {
        return Err(NO_EVENTS);
    }
    reader.skipped.is_cut = document.cut().is_some();
    reader.skipped.unpaired += reader.open_in_all as u64;
    reader.zones_of_scopes(names);
    reader.others.finish(reader.visitor, &reader.rows, names);
    Ok(reader.skipped)
}

const NO_EVENTS: Fault =
    Fault::NotATrace("JSON without `traceEvents`; name a trace that a session or a profiler wrote");

/// The process and the thread of an event.
type ThreadKey = (Arc<str>, Arc<str>);

struct Reader<'a, V> {
    visitor: &'a mut V,
    rows: Rows,
    /// The rows by process and thread; none where there are too many.
    places: HashMap<(Arc<str>, Arc<str>), Option<usize>>,
    /// The streams by process, and by number or name.
    streams: HashMap<(Arc<str>, Arc<str>), usize>,
    /// The numbers of rows that are one, by process, and by number and name.
    groups: HashMap<(Arc<str>, Arc<str>), u64>,
    /// The numbers of devices whose process is no number, by that.
    devices: HashMap<Arc<str>, u32>,
    threads: HashMap<ThreadKey, Arc<str>>,
    /// The number of the stream or thread that a row is of, in a trace of warpline: overlapping slices have rows with numbers of their own.
    ids: HashMap<ThreadKey, u64>,
    processes: HashMap<Arc<str>, Arc<str>>,
    /// The process of the session, in a trace of warpline: all others are devices.
    session: Option<Arc<str>>,
    /// The launches by the ids of their arrows.
    launches: HashMap<Box<str>, (usize, Span)>,
    /// The begins without an end yet, of each thread: events as they are in the file.
    open: HashMap<ThreadKey, Vec<Vec<u8>>>,
    open_in_all: usize,
    open_bytes: usize,
    others: Others,
    scopes: Scopes,
    /// The last signal and the last wait. A session writes the signal, the wait, and the end of the arrow from the one to the other.
    signal: Option<(Box<str>, usize, i64)>,
    wait: Option<(usize, Span, i64)>,
    skipped: Skipped,
}

impl<V: Visitor> Reader<'_, V> {
    fn event(&mut self, event: &Event<'_>, bytes: &[u8], names: &mut Names) -> Result<(), Fault> {
        match &*event.phase {
            "X" => self.slice(event, names),
            "M" => self.metadata(event, names),
            "C" => {
                self.counter(event);
                Ok(())
            }
            "B" => {
                self.begin(event, bytes);
                Ok(())
            }
            "E" => self.end(event, names),
            // Asynchronous slices are on no row.
            "b" | "S" if self.session.is_none() => self.others.count(&event.category, names),
            _ => Ok(()),
        }
    }

    /// A begin waits for its end, which is the next one on its thread that closes no later begin.
    fn begin(&mut self, event: &Event<'_>, bytes: &[u8]) {
        if self.open_in_all >= OPEN || self.open_bytes + bytes.len() > OPEN_BYTES {
            self.skipped.unpaired += 1;
            return;
        }
        self.open.entry((Arc::from(&*event.pid), Arc::from(&*event.tid))).or_default().push(bytes.to_vec());
        (self.open_in_all, self.open_bytes) = (self.open_in_all + 1, self.open_bytes + bytes.len());
    }

    fn end(&mut self, event: &Event<'_>, names: &mut Names) -> Result<(), Fault> {
        let thread = (Arc::from(&*event.pid), Arc::from(&*event.tid));
        let Some(bytes) = self.open.get_mut(&thread).and_then(Vec::pop) else {
            self.skipped.unpaired += 1;
            return Ok(());
        };
        (self.open_in_all, self.open_bytes) = (self.open_in_all - 1, self.open_bytes - bytes.len());
        let Ok(mut slice) = Event::read(&bytes) else { return Ok(()) };
        slice.dur = event.ts.zip(slice.ts).and_then(|(end, begin)| end.checked_sub(begin));
        slice.args = slice.args.or(event.args);
        self.slice(&slice, names)
    }

    /// A value of a counter of device memory, which has bytes.
    fn counter(&mut self, event: &Event<'_>) {
        let bytes = event.members_of_args().and_then(|args| scalar(args.get("bytes")?).parse().ok());
        if let (true, Some(ns), Some(bytes)) = (self.skipped.is_ours, event.ts, bytes) {
            self.visitor.memory(&event.name, ns, bytes);
        }
    }

    fn metadata(&mut self, event: &Event<'_>, names: &mut Names) -> Result<(), Fault> {
        let text =
            |key: &str| event.members_of_args().and_then(|args| args.get(key).map(|value| scalar(value).into_owned()));
        let (pid, tid) = (Arc::from(&*event.pid), Arc::from(&*event.tid));
        match &*event.name {
            "thread_name" => {
                let Some(name) = text("name") else { return Ok(()) };
                names.spend(name.len())?;
                // A reused thread keeps its row; the last name counts for rows that come later. PyTorch's profiler writes `stream 7 `.
                self.threads.insert((pid, tid), name.trim_end().into());
            }
            "thread_sort_index" if self.session.is_some() => {
                if let Some(id) = text("sort_index").and_then(|id| id.parse().ok()) {
                    names.spend(0)?;
                    self.ids.insert((pid, tid), id);
                }
            }
            "process_name" | "process_labels" => {
                let key = if event.name == "process_name" { "name" } else { "labels" };
                let Some(name) = text(key) else { return Ok(()) };
                names.spend(name.len())?;
                if event.name == "process_labels" && !name.starts_with(GPU) {
                    return Ok(());
                }
                self.processes.insert(pid, name.into());
            }
            "warpline_session" => {
                self.skipped.is_ours = true;
                self.session = Some(pid);
                if let Some(begin) = text("begin_ns").and_then(|begin| begin.parse().ok()) {
                    self.visitor.fact(Fact::Begun(begin));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn slice(&mut self, event: &Event<'_>, names: &mut Names) -> Result<(), Fault> {
        let mut kind = Kind::of_category(&event.category);
        let is_ours = self.session.is_some();
        let is_others_work = !is_ours && matches!(kind, Kind::Kernel | Kind::Copy);
        let is_others_call = !is_ours && is_call(&event.category);
        if kind == Kind::Other && !is_ours && !is_others_call {
            return self.others.count(&event.category, names);
        }
        let (mut args, mut is_replay, mut own_kind) = (Args::default(), false, None);
        let (mut annotated, mut stream) = (Annotated::default(), None);
        let wants_fields = self.visitor.wants_fields() && !is_others_work;
        for (key, value) in event.members_of_args().into_iter().flat_map(|args| args.0) {
            if wants_fields {
                args.add_field(&key, names, || serde_json::from_str(value.get()).unwrap_or_default())?;
            }
            match &*key {
                "timed by" => is_replay = true,
                ZONE_KIND if is_ours => {
                    own_kind = match &*scalar(value) {
                        COLLECTIVE => Some(Kind::Collective),
                        BATCH_ENTRY => Some(Kind::BatchEntry),
                        _ => None,
                    };
                }
                "graph correlation" => args.has_correlation = true,
                // PyTorch moves work of graphs to rows that it makes up.
                "original_stream" if is_others_work => stream = Some(scalar(value)),
                "graph node id" | "name" | "module_fqn" | "module_name" if is_others_work => {
                    annotated.argument(&key, &scalar(value), names)?;
                }
                "correlation" => args.correlation = scalar(value).parse().ok(),
                // A stream's number and name are in the row.
                "stream" => {}
                key => match Key::of(key) {
                    Key::Other => {}
                    key => {
                        let text = scalar(value);
                        let said = match text.parse::<i64>() {
                            Ok(number) if !value.get().starts_with('"') || !is_ours && key.is_number() => {
                                Said::Number(number)
                            }
                            _ if value.get().starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
                                Said::Real(text.parse().unwrap_or(f64::NAN))
                            }
                            _ => Said::Text(names.number(&text)?),
                        };
                        args.set(key, said);
                    }
                },
            }
        }
        if is_ours {
            args.step = step(&event.name);
        } else {
            let slice = (kind, &*event.category, &*event.name);
            let Some(read) = self.others.kind(slice, &mut args, self.visitor, names)? else { return Ok(()) };
            kind = read;
        }
        kind = match kind {
            Kind::Kernel | Kind::Zone if own_kind.is_some() => own_kind.unwrap_or(kind),
            Kind::Wait if event.flow_out || event.flow_in => return self.arrow_end(event, names),
            Kind::Zone if is_replay => Kind::Replay,
            Kind::HostZone if args.step.is_some() => Kind::Step,
            Kind::HostZone if event.bind_id.is_some() || event.name.starts_with("launch of ") => Kind::Launch,
            kind => kind,
        };
        let (Some(begin_ns), Some(length_ns)) = (event.ts, event.dur.filter(|ns| *ns >= 0)) else {
            self.skipped.malformed += 1;
            return Ok(());
        };
        let Some(end_ns) = begin_ns.checked_add(length_ns) else {
            self.skipped.malformed += 1;
            return Ok(());
        };
        let span = Span { begin_ns, end_ns };
        let is_on_stream = matches!(kind, Kind::Collective | Kind::BatchEntry | Kind::Kernel | Kind::Copy)
                // A zone that is found by the kernels of a replay is on no stream.
                || (matches!(kind, Kind::Zone | Kind::Replay) && (is_ours || !args.has_correlation))
                || (kind == Kind::Wait && !self.is_thread(event))
                // PyTorch's profiler has synchronisations on the rows of devices, and a session on those of threads.
                || (kind == Kind::Sync && !is_ours && !is_others_call);
        let tid = stream.as_deref().unwrap_or(&event.tid);
        let Some(row) = self.row(&event.pid, tid, is_on_stream, names)? else {
            self.skipped.unplaced += 1;
            return Ok(());
        };
        if let Some(scope) = annotated.scope().filter(|_| args.zone.is_none()) {
            args.zone = Some(scope);
            let zones = self.row(&format!("graph zones: {}", event.pid), "", false, names)?;
            if zones.is_some_and(|row| self.scopes.add(row, (&annotated, args.correlation), span)) {
                self.zones_of_scopes(names);
            }
        }
        let mut launch = None;
        if let Some(id) = &event.bind_id {
            if kind == Kind::Launch {
                if self.launches.len() >= LAUNCHES {
                    self.launches.clear();
                }
                self.launches.insert((&**id).into(), (row, span));
            } else {
                launch = self.launches.remove(&**id);
            }
        }
        let own_name = own_kind.and(event.name.strip_prefix(NCCL_KERNEL)).and_then(|rest| rest.split_once(' '));
        let name = names.number(own_name.map_or(&*event.name, |(_, name)| name))?;
        let mut slice = Slice { kind, name, row, span, launch, args: &args };
        if !is_ours {
            let rank = rank(&event.pid, names)?;
            let passed = self.others.launched(rank, slice, self.visitor, (&self.rows, names));
            let Some(passed) = passed else { return Ok(()) };
            slice = passed;
        }
        if kind == Kind::Wait {
            self.wait = Some((row, span, slice.early_by_ns()));
        }
        self.visitor.slice(&slice, &self.rows, names);
        Ok(())
    }

    /// The zones of the replays whose kernels came so far.
    fn zones_of_scopes(&mut self, names: &mut Names) {
        let args = Args { has_correlation: true, ..Args::default() };
        for (row, name, span) in self.scopes.zones() {
            let zone = Slice { kind: Kind::Zone, name, row, span, launch: None, args: &args };
            self.visitor.slice(&zone, &self.rows, names);
        }
    }

    /// A signal, or the end of the wait that it ended.
    fn arrow_end(&mut self, event: &Event<'_>, names: &mut Names) -> Result<(), Fault> {
        let (Some(ns), Some(id)) = (event.ts, &event.bind_id) else { return Ok(()) };
        let Some(row) = self.row(&event.pid, &event.tid, !self.is_thread(event), names)? else { return Ok(()) };
        if event.flow_out {
            self.signal = Some(((&**id).into(), row, ns));
        } else if let (Some((signal, from, at_ns)), Some((on, wait, early_by_ns))) = (&self.signal, self.wait)
            && **signal == **id
            && self.is_same_place(on, row)
        {
            self.visitor.arrow(&Arrow { on, wait, early_by_ns, from: *from, at_ns: *at_ns }, &self.rows);
        }
        Ok(())
    }

    /// Whether two rows are of one stream or thread: what overlaps has rows of its own.
    fn is_same_place(&self, one: usize, other: usize) -> bool {
        self.rows.row(one).zip(self.rows.row(other)).is_some_and(|(one, other)| one.place == other.place)
    }

    /// Whether the event's process is one of the operating system, and not a device, as the trace says.
    fn is_thread(&self, event: &Event<'_>) -> bool {
        match &self.session {
            Some(session) => **session == *event.pid,
            None => !self.processes.get(&*event.pid).map_or(&*event.pid, |name| name).starts_with(GPU),
        }
    }

    fn row(&mut self, pid: &str, tid: &str, is_on_stream: bool, names: &mut Names) -> Result<Option<usize>, Fault> {
        let key = (Arc::from(pid), Arc::from(tid));
        if let Some(row) = self.places.get(&key) {
            return Ok(*row);
        }
        names.spend(pid.len() + tid.len())?;
        // A number, or a text that is a name.
        let numbered = |what: &str, text: &str| -> Arc<str> {
            if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
                format!("{what} {text}").into()
            } else {
                text.into()
            }
        };
        let what = if is_on_stream { "stream" } else { "thread" };
        let name = self.threads.get(&key).cloned().unwrap_or_else(|| numbered(what, tid));
        let id = self.ids.get(&key).copied();
        let place = if is_on_stream {
            let device = self.processes.get(&key.0).cloned();
            let (device, ordinal) = match (pid.strip_prefix(GPU).unwrap_or(pid).parse(), device) {
                (Ok(ordinal), None) => (format!("GPU {ordinal}").into(), ordinal),
                (number, Some(name)) if number.is_ok() || self.session.is_some() => {
                    // Only a session's devices have their number in the name.
                    let (device, named) = device_of(&name);
                    (device, named.or(number.ok()).unwrap_or(0))
                }
                // A merged trace: the same device of several ranks.
                (_, name) => {
                    let next = self.devices.len() as u32;
                    let ordinal = *self.devices.entry(key.0.clone()).or_insert(next);
                    (name.map_or_else(|| key.0.clone(), |name| format!("{name} of {}", key.0).into()), ordinal)
                }
            };
            // Lanes below a stream are called `compute: copies`.
            let stream = name.strip_suffix(OVERLAPPING).unwrap_or(&name);
            let stream: Arc<str> = stream.split_once(": ").map_or(stream, |(stream, _)| stream).into();
            let rows = &mut self.rows;
            let of = id.map_or_else(|| stream.clone(), |id| id.to_string().into());
            let at = (self.streams.entry((key.0.clone(), of)))
                .or_insert_with(|| rows.add_stream(Stream { name: stream, device, ordinal }));
            Place::Stream(*at)
        } else {
            Place::Thread(id.or(tid.parse().ok()).unwrap_or(0))
        };
        let lane = name.strip_suffix(OVERLAPPING).unwrap_or(&name);
        let lane: Arc<str> = id.map_or_else(|| lane.into(), |id| format!("{id} {lane}").into());
        let next = self.groups.len() as u64;
        let group = *self.groups.entry((key.0.clone(), lane)).or_insert(next);
        let row = self.rows.add(TraceRow { place, name, group });
        self.places.insert(key, row);
        Ok(row)
    }

    /// A member beside the events: the account of the session.
    fn member(&mut self, name: &[u8], value: &[u8]) {
        if value.len() > FACTS || name != b"\"otherData\"" {
            return;
        }
        let Ok(Value::Object(facts)) = serde_json::from_slice(value) else { return };
        if !facts.contains_key("begun") {
            return;
        }
        let number = |name: String, value: &Value| value.as_i64().map(|number| Fact::Number(name, number));
        let mut found = Vec::new();
        for (key, fact) in &facts {
            match fact {
                Value::Number(_) => found.extend(number(key.clone(), fact)),
                Value::Object(counts) => {
                    found.extend(counts.iter().filter_map(|(name, count)| number(format!("{key}.{name}"), count)));
                }
                Value::Array(reasons) if key == "dropped" => {
                    let of = |reason: &Value| number(format!("dropped.{}", reason[0].as_str()?), &reason[1]);
                    found.extend(reasons.iter().filter_map(of));
                }
                Value::Array(items) if key == "notes" => {
                    found.extend(items.iter().filter_map(Value::as_str).map(|note| Fact::Note(note.to_owned())));
                }
                Value::Array(clocks) if key == "clocks" => {
                    for clock in clocks {
                        let Some(device) = clock["device"].as_str() else { continue };
                        for (name, said) in [
                            ("uncertainty_ns", "clock_uncertainty_ns"),
                            ("worst_uncertainty_ns", "clock_worst_uncertainty_ns"),
                            ("bracket_ns", "bracket_ns"),
                            ("busy_bracket_ns", "busy_bracket_ns"),
                        ] {
                            found.extend(number(format!("{device}.{said}"), &clock[name]));
                        }
                    }
                }
                _ => {}
            }
        }
        found.into_iter().for_each(|fact| self.visitor.fact(fact));
        self.visitor.fact(Fact::Ended(0));
    }
}

/// The rank of a process in a merged trace, such as `[TP00]` of `[TP00] 0`, and that of all others.
fn rank(pid: &str, names: &mut Names) -> Result<Name, Fault> {
    Ok(names.number(pid.rsplit_once(' ').map_or("", |(rank, _)| rank).trim_end_matches(GPU.trim_end()))?)
}
