//! JSON of the trace: one event per line, arguments, and times in µs.

use std::fmt;
use std::io::{self, Write};

use serde_json::Value;

use super::document::Events;
use crate::json::json_value;
use crate::names::{
    ALGBW, BATCH_ENTRY, BUSBW, BYTES, COLLECTIVE, FLOPS, GB_PER_S, TFLOP_PER_S, ZONE_KIND, arg_name, len_name,
    plain_arg_name,
};
use warpline_core::catalog::Kind;
use warpline_core::record::{EndSource, SAMPLED, SpanRecord, SpanRef, Status, ZoneRecord};

/// The arguments of an event.
pub(super) struct Args<'a> {
    out: &'a mut Events,
    is_first: bool,
}

impl<'a> Args<'a> {
    pub(super) fn open(out: &'a mut Events) -> io::Result<Args<'a>> {
        out.write_all(br#","args":{"#)?;
        Ok(Args { out, is_first: true })
    }

    pub(super) fn add(&mut self, name: &str, value: impl Into<Value>) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.is_first) { "" } else { "," };
        write!(self.out, "{comma}{}:{}", Value::from(name), value.into())
    }

    pub(super) fn add_some(&mut self, name: &str, value: Option<impl Into<Value>>) -> io::Result<()> {
        value.map_or(Ok(()), |value| self.add(name, value))
    }

    /// Adds the fields of the zone.
    pub(super) fn add_fields(&mut self, record: &ZoneRecord) -> io::Result<()> {
        match record {
            _ if record.entry.is_some() => self.add(ZONE_KIND, BATCH_ENTRY)?,
            _ if record.gpu.is_some() && record.range.kind() == Kind::Collective => self.add(ZONE_KIND, COLLECTIVE)?,
            _ => {}
        }
        for (name, value) in record.fields.iter() {
            let name = arg_name(record, name);
            self.add(name, json_value(value))?;
            if let Some(len) = value.cut_len() {
                self.add(&len_name(name), len)?;
            }
        }
        self.add_some("label", record.fields.label())?;
        for (name, said) in record.message.iter().flat_map(|message| message.arguments()) {
            self.add(name, json_value(&said.short()))?;
        }
        if let Some(bandwidth) = record.bandwidth() {
            self.add(ALGBW, bandwidth.algorithm * 1e-9)?;
            self.add_some(BUSBW, bandwidth.bus.map(|bus| bus * 1e-9))?;
        }
        let (work, rates) = (record.work(), record.work_rates());
        for (name, amount) in [(BYTES, work.bytes), (FLOPS, work.flops)] {
            self.add_some(name, amount)?;
        }
        self.add_some(GB_PER_S, rates.bytes_per_s.map(|rate| rate * 1e-9))?;
        self.add_some(TFLOP_PER_S, rates.flops_per_s.map(|rate| rate * 1e-12))?;
        if record.status != Status::Complete {
            self.add("status", record.status.as_str())?;
        }
        for (name, number) in record.quality().into_iter().flatten() {
            self.add(name, number)?;
        }
        self.add_some(SAMPLED, record.sampled())?;
        if record.end != EndSource::Event {
            self.add("end", record.end.as_str())?;
        }
        self.add_parent(record.parent)?;
        self.add_some("error", record.error.as_deref())
    }

    /// Adds the fields of a span or an event.
    pub(super) fn add_span(&mut self, record: &SpanRecord) -> io::Result<()> {
        for (name, value) in record.args() {
            self.add(plain_arg_name(name), json_value(value))?;
        }
        self.add_some("span_id", record.id)?;
        self.add_parent(record.parent)
    }

    fn add_parent(&mut self, parent: Option<SpanRef>) -> io::Result<()> {
        let Some(parent) = parent else { return Ok(()) };
        self.add("parent", parent.name)?;
        self.add("parent_id", parent.id)
    }

    /// Ends the arguments and the event.
    pub(super) fn close(self) -> io::Result<()> {
        self.out.write_all(b"}}")?;
        self.out.end();
        Ok(())
    }
}

/// A time in ns, shown as µs with three decimals.
pub(super) struct Micros(pub(super) i64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let ns = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:03}", ns / 1_000, ns % 1_000)
    }
}

/// Writes an event that describes a process or a row.
pub(super) fn metadata(what: &str, process: u64, thread: u64, args: &Value, out: &mut Events) -> io::Result<()> {
    out.begin();
    write!(out, r#"{{"ph":"M","name":"{what}","pid":{process},"tid":{thread},"args":{args}}}"#)?;
    out.end();
    Ok(())
}
