//! Writes Chrome JSON: the trace byte for byte, except for the arguments of annotated kernels, without copies of annotations on streams
//! without work, and with the added events.
//!
//! The rows of replays and zones are separate processes after the events of the trace. Slices of the trace that overlap on one row stay
//! there unchanged: the format has no other place for them, and most readers show only some of them.

use std::io::{self, Write};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use warpline_trace::read::event::{Members, us};

use super::{FirstReading, Format, REPLAYS, ReadEvent};
use crate::index::Disposition;

const ARROWS: &str = "graph_launch";

pub(crate) struct Chrome<'a, W> {
    known: FirstReading<'a>,
    out: W,
    state: DocumentState,
    has_rows: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DocumentState {
    /// Nothing is written yet.
    Begin,
    Members,
    /// In the events. The flag says whether there is one.
    Events(bool),
}

impl<'a, W: Write> Chrome<'a, W> {
    pub(crate) fn new(known: FirstReading<'a>, out: W) -> Chrome<'a, W> {
        Chrome { known, out, state: DocumentState::Begin, has_rows: false }
    }

    /// The separator before the next event.
    fn comma(&mut self) -> io::Result<()> {
        let between: &[u8] = match self.state {
            DocumentState::Begin => b"{\n\"traceEvents\": [\n",
            DocumentState::Members => b",\n\"traceEvents\": [\n",
            DocumentState::Events(false) => b"",
            DocumentState::Events(true) => b",\n",
        };
        self.state = DocumentState::Events(true);
        self.out.write_all(between)
    }

    fn add(&mut self, event: &Value) -> io::Result<()> {
        self.comma()?;
        serde_json::to_writer(&mut self.out, event).map_err(io::Error::from)
    }

    /// Writes an event with its time as text, because no float holds it exactly.
    fn add_at(&mut self, ns: i64, dur_ns: Option<i64>, event: &Value) -> io::Result<()> {
        self.comma()?;
        let text = event.to_string();
        let inner = text.strip_prefix('{').unwrap_or(&text);
        write!(self.out, "{{\"ts\": {}, ", us(ns))?;
        if let Some(dur_ns) = dur_ns {
            write!(self.out, "\"dur\": {}, ", us(dur_ns))?;
        }
        self.out.write_all(inner.as_bytes())
    }

    fn rows_once(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.has_rows, true) { Ok(()) } else { self.rows() }
    }

    /// Writes the rows of replays and zones.
    fn rows(&mut self) -> io::Result<()> {
        let known = self.known;
        let mut tid = 0_u64;
        for row in known.rows() {
            let process = &known.index.rows.processes[row.process as usize];
            let pid = format!("{REPLAYS}: {}", process.title());
            if row.lane.is_none() {
                tid = 0;
                self.add(&json!({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": pid}}))?;
            }
            let first = tid;
            tid += row.lanes as u64;
            for lane in first..tid {
                let name = row.lane.unwrap_or(REPLAYS);
                self.add(&json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": lane, "args": {"name": name}}))?;
                self.add(&json!({"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": lane, "args": {"sort_index": lane}}))?;
            }
            for bar in &row.bars {
                let lane = first + bar.lane as u64;
                let category = if bar.zone.is_some() { "graph_zone" } else { "graph_replay" };
                self.add_at(
                    bar.begin_ns,
                    Some(bar.end_ns - bar.begin_ns),
                    &json!({"ph": "X", "name": known.bar_name(bar), "cat": category, "pid": pid, "tid": lane, "args": known.bar_args(bar)}),
                )?;
                if bar.zone.is_none() && known.replay(bar.replay).launch.is_some() {
                    let id = known.index.arrows + bar.replay + 1;
                    self.add_at(
                        bar.begin_ns,
                        None,
                        &json!({"ph": "f", "bp": "e", "name": ARROWS, "cat": ARROWS, "id": id, "pid": pid, "tid": lane}),
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Writes a kernel with its added arguments.
    fn kernel(&mut self, told: &ReadEvent<'_>) -> io::Result<()> {
        let Some(joined) = told.joined else { return Ok(()) };
        let own = told.event.members_of_args();
        let args = self.known.kernel_args(joined, |name| own.as_ref().is_some_and(|own| own.get(name).is_some()));
        let members: Members<'_> = serde_json::from_slice(told.bytes)?;
        self.out.write_all(b"{")?;
        for (at, (name, value)) in members.0.iter().enumerate() {
            let comma: &[u8] = if at == 0 { b"" } else { b", " };
            self.out.write_all(comma)?;
            self.member_of(name, value, told.event.args.is_some_and(|args| std::ptr::eq(args, *value)), &args)?;
        }
        self.out.write_all(b"}")
    }

    fn member_of(
        &mut self,
        name: &str,
        value: &RawValue,
        is_args: bool,
        args: &serde_json::Map<String, Value>,
    ) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, name)?;
        self.out.write_all(b": ")?;
        let own = value.get().trim_end();
        let own = own.strip_suffix('}').filter(|_| is_args);
        let Some(own) = own else { return self.out.write_all(value.get().as_bytes()) };
        self.out.write_all(own.as_bytes())?;
        let mut comma = if own.trim_end().ends_with('{') && own.trim() == "{" { "" } else { ", " };
        for (name, value) in args {
            self.out.write_all(comma.as_bytes())?;
            serde_json::to_writer(&mut self.out, name)?;
            self.out.write_all(b": ")?;
            serde_json::to_writer(&mut self.out, value)?;
            comma = ", ";
        }
        self.out.write_all(b"}")
    }
}

impl<W: Write> Format for Chrome<'_, W> {
    fn member(&mut self, name: &[u8], value: &[u8]) -> io::Result<()> {
        if matches!(self.state, DocumentState::Events(_)) {
            self.rows_once()?;
        }
        let between: &[u8] = match self.state {
            DocumentState::Begin => b"{\n",
            DocumentState::Members => b",\n",
            DocumentState::Events(_) => b"\n],\n",
        };
        self.state = DocumentState::Members;
        for bytes in [between, name, b": ", value] {
            self.out.write_all(bytes)?;
        }
        Ok(())
    }

    fn event(&mut self, told: &ReadEvent<'_>) -> io::Result<()> {
        if told.fate == Disposition::LeftOut {
            return Ok(());
        }
        self.comma()?;
        match told.joined {
            Some(_) => self.kernel(told)?,
            None => self.out.write_all(told.bytes)?,
        }
        // Arrows to replays begin at their launches. The arrows of the trace itself are separate events.
        let arrows = self.known.index.arrows;
        for link in told.links.iter().filter(|link| link.arrow > arrows) {
            let event = told.event;
            let arrow = json!({"ph": "s", "name": ARROWS, "cat": ARROWS, "id": link.arrow, "pid": number(&event.pid), "tid": number(&event.tid)});
            self.add_at(event.ts.unwrap_or_default(), None, &arrow)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<u64> {
        self.rows_once()?;
        self.out.write_all(match self.state {
            DocumentState::Begin => b"{\n\"traceEvents\": []\n}\n",
            DocumentState::Members => b"\n}\n",
            DocumentState::Events(_) => b"\n]\n}\n",
        })?;
        self.out.flush()?;
        Ok(0)
    }
}

/// The id as in the trace: most are numbers.
fn number(id: &str) -> Value {
    id.parse::<i64>().map_or_else(|_| id.into(), Value::from)
}
