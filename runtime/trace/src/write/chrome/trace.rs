//! Converts records to events.
//!
//! Times are in µs since one second before the session, with the ns as decimals: absolute µs would not fit into a double. Only the
//! sink calls this module.

use std::collections::HashSet;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::colors::reserved_name;
use super::document::Events;
use super::json::{Args, Micros, metadata};
use super::rows::{Owner, Rows, TrackId, Whose};
use crate::names::{NCCL_KERNEL, accounts, change_args, change_name};
use crate::write::catalog::{Catalog, MOST};
use crate::write::lanes::OwnLane;
use crate::write::order::Record;
use warpline_core::catalog::Kind;
use warpline_core::clock;
use warpline_core::record::{Span, SpanRecord, ZoneRecord};
use warpline_core::step::StepRecord;
use warpline_report::Report;
use warpline_report::export::json_object;
use warpline_report::sink::{SessionChange, SessionInfo};

/// The time between the zero of the trace and the begin of the session: readers drop negative times, and the clocks may put a zone
/// slightly before its session.
const BEFORE_NS: i64 = 1_000_000_000;

/// The state of a trace while it is written.
pub(super) struct Trace {
    pub(super) zero_ns: i64,
    /// The zero of the trace, in ns since the Unix epoch.
    base_unix_ns: i64,
    pub(super) process_id: u32,
    rank: u32,
    facts: Value,
    info: SessionInfo,
    /// The number of dropped zones that the trace last reported.
    dropped: u64,
    /// The number of launches. It ties each launch to its zone.
    launches: u64,
    /// The number of arrows from signals to waits.
    pub(super) arrows: u64,
    pub(super) rows: Rows,
    /// Those who hold memory and have a counter.
    pub(super) holders: HashSet<String>,
    /// Whether kernels are in the trace. If so, no zone represents a kernel.
    with_kernels: bool,
}

impl Trace {
    /// Begins a trace with the known facts about the session, also for readers of a file that was never finished.
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
            info: info.clone(),
            dropped: 0,
            launches: 0,
            arrows: 0,
            rows: Rows::new(info.process_id),
            holders: HashSet::new(),
            with_kernels: info.kernels,
        })
    }

    /// Writes the number of dropped zones if it has changed.
    pub(super) fn drops(&mut self, dropped: u64, out: &mut Events) -> io::Result<bool> {
        if std::mem::replace(&mut self.dropped, dropped) == dropped {
            return Ok(false);
        }
        self.counter("zones dropped", clock::now_ns(), &json!({ "zones": dropped }), out)?;
        Ok(true)
    }

    /// Returns the members after the events of a finished document: the facts about the session.
    pub(super) fn end(&self, report: &Report) -> String {
        let mut facts = self.facts.clone();
        let clocks: Vec<_> = (report.clocks.iter())
            .map(|clock| {
                let mut said = json!({
                    "device": clock.device,
                    "uncertainty_ns": clock.uncertainty_ns,
                    "worst_uncertainty_ns": clock.worst_uncertainty_ns,
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
        facts["dropped"] = json_object(report.dropped.reasons());
        for (name, count) in report.said_coverage() {
            facts[name] = count.into();
        }
        let mut seen = report.said_seen().peekable();
        if seen.peek().is_some() {
            facts["seen"] = json_object(seen);
        }
        for (name, counts) in accounts(report).into_iter().filter(|(_, counts)| !counts.is_empty()) {
            facts[name] = json_object(counts);
        }
        if !report.semaphores.is_empty() {
            let stats = report.semaphores.iter();
            let told = stats.map(|s| json!({ "name": s.name, "waits": s.waits, "waited_ns": s.waited_ns }));
            facts["semaphores"] = told.collect();
        }
        facts["clocks"] = clocks.into();
        facts["notes"] = report.notes.clone().into();
        let Trace { rank, base_unix_ns, .. } = self;
        let catalog = Catalog::of(&self.info, MOST);
        if catalog.left_out() > 0 {
            facts["catalog_left_out"] = catalog.left_out().into();
        }
        let facts = facts.to_string();
        // The catalog is the text that `Records::to_json` returns, so it does not go through a `Value`.
        let facts = facts.strip_suffix('}').unwrap_or(&facts);
        let catalog = catalog.records.to_json();
        // HolisticTraceAnalysis looks in each line for `"rank": ` with the space.
        format!(
            "\"schemaVersion\":1,\"displayTimeUnit\":\"ns\",\"baseTimeNanoseconds\":{base_unix_ns},\n\
             \"distributedInfo\":{{\"rank\": {rank}}},\n\"otherData\":{facts},\n\"catalog\":{}}}",
            catalog.trim_end()
        )
    }

    /// Writes a record.
    pub(super) fn record(&mut self, record: Record<'_>, out: &mut Events) -> io::Result<()> {
        match record {
            Record::Zone(zone) => self.zone(zone, out),
            // The zone's `end_early_by_ns` says it.
            Record::Tail(_) => Ok(()),
            Record::Span(span) => self.span(span, out),
            Record::Kernel(kernel) => self.kernel(kernel, out),
            Record::Replay(replay) => self.replay(replay, out),
            Record::Sync(sync) => self.sync(sync, out),
            Record::Wait(wait) => self.wait(wait, out),
            Record::Depth(depth) => self.depth(depth, out),
            Record::Step(step) => self.step(step, out),
            Record::Memory(record) => self.memory(record, out),
            Record::Change(change) => self.change(change, out),
        }
    }

    fn span(&mut self, record: &SpanRecord, out: &mut Events) -> io::Result<()> {
        let TrackId { process, thread } = self.rows.place_on_thread(&record.thread, record.host, out)?;
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
        // `tracing-chrome` uses the same names.
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

    /// Writes a step under the name that PyTorch's profiler gives its steps, by which HolisticTraceAnalysis finds iterations.
    fn step(&mut self, record: &StepRecord, out: &mut Events) -> io::Result<()> {
        let place = self.rows.place_on_thread(&record.thread, record.host, out)?;
        self.named_slice("user_annotation", &format!("ProfilerStep#{}", record.number), record.host, place, out)?;
        let mut args = Args::open(out)?;
        args.add("step", record.number)?;
        args.close()
    }

    /// Writes a change of what is recorded.
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
            let place = self.rows.place(
                (thread, own_lane),
                Whose { lane, ..Whose::thread(&record.thread) },
                record.host,
                out,
            )?;
            self.slice("user_annotation", record, record.host, place, out)?;
            let mut args = Args::open(out)?;
            args.add_fields(record)?;
            return args.close();
        };
        self.launches += 1;
        let id = self.launches;
        // As in a Perfetto trace, an arrow leads from the earlier event to the later one.
        let launch_first = record.host.begin_ns <= gpu.begin_ns;
        let (of_launch, of_zone) = if launch_first { ("flow_out", "flow_in") } else { ("flow_in", "flow_out") };

        // The entries of a batch share its launch.
        let is_entry = record.entry.is_some();
        if !is_entry {
            let place = self.rows.place((thread, None), Whose::thread(&record.thread), record.host, out)?;
            self.slice("user_annotation", record, record.host, place, out)?;
            write!(out, r#","bind_id":"{id:#x}","{of_launch}":true"#)?;
            let mut args = Args::open(out)?;
            if !self.with_kernels {
                args.add("correlation", id)?;
            }
            args.close()?;
        }

        let whose = Whose { stream: Some(stream), lane, ..Whose::thread(&record.thread) };
        let place = self.rows.place((Owner::Stream(stream.id), own_lane), whose, gpu, out)?;
        // Readers recognize communication by such a name. They must count the time of a batch only once, so its entries have no
        // such name.
        let operation = match &record.message {
            _ if self.with_kernels => None,
            Some(message) if !is_entry => Some(message.kind.nccl_name()),
            None if record.range.kind() == Kind::Collective => Some("Group"),
            _ => None,
        };
        match operation {
            None => self.slice("gpu_user_annotation", record, gpu, place, out)?,
            Some(operation) => {
                let name = format!("{NCCL_KERNEL}{operation} {}", record.range.name());
                self.named_slice("kernel", &name, gpu, place, out)?;
                color(record, out)?;
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

    /// Writes the begin of a slice's event.
    pub(super) fn slice(
        &self,
        category: &str,
        record: &ZoneRecord,
        span: Span,
        place: TrackId,
        out: &mut Events,
    ) -> io::Result<()> {
        self.named_slice(category, record.range.name(), span, place, out)?;
        color(record, out)
    }

    /// Like [`slice`](Self::slice), with a different name, which may be any text.
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

    /// Writes the value of a counter, whose name may be any text, from this time on.
    pub(super) fn counter(&self, name: &str, at_ns: i64, args: &Value, out: &mut Events) -> io::Result<()> {
        let (name, ts, pid) = (Value::from(name), Micros(at_ns - self.zero_ns), self.process_id);
        out.begin();
        write!(out, r#"{{"ph":"C","name":{name},"pid":{pid},"ts":{ts},"args":{args}}}"#)?;
        out.end();
        Ok(())
    }
}

/// Writes the color of the zone's range into the begin of a slice's event.
fn color(record: &ZoneRecord, out: &mut Events) -> io::Result<()> {
    record.range.color().map_or(Ok(()), |color| write!(out, r#","cname":"{}""#, reserved_name(color)))
}
