//! The figures of traces: gives their slices to the builder that a session's records go to.
//!
//! One [`Figures`] reads any number of traces, one after another. `visitor` receives the slices. What the builder does
//! not know is here: which slices are one batch (`messages`), device memory (`memory`), the accounts of sessions
//! (`account`), and how traces are called.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use warpline_core::record::{DeviceKind, Span};
use warpline_report::Report;
use warpline_report::builder::{Calls, Complete, Counted, Place, ReportBuilder, RowId, StreamUse, Zone};
use warpline_report::figures::StreamStats;
use warpline_report::lengths::Lengths;
use warpline_report::path::Track;
use warpline_report::traffic::{Lane, Moved, is_of_collective};

use super::account::Account;
use super::memory::Memory;
use super::messages::{Entry, Messages};
use super::shown::OtherWork;
use super::steps::Steps;
use crate::output::{counted, time};
use crate::trace::{self, Kind, Message, Name, Names, Rows, Slice};

/// The figures of the traces so far.
#[derive(Default)]
pub(crate) struct Figures {
    pub(super) builder: ReportBuilder,
    /// Kernels of traces that have them only as slices.
    pub(super) kernel_slices: Counted<(Name, Option<Name>)>,
    pub(super) memory: Memory,
    pub(super) account: Account,
    corrected: u64,
    correction_ns: i64,
    /// The short names by which the traces are told apart.
    trace_names: Vec<String>,
    /// The batch of collectives that is being read.
    pub(super) messages: Messages,
    /// The figures that only the page shows.
    pub(super) steps: Option<Steps>,
    /// The ranges of collectives so far.
    collectives: HashSet<Name>,
    /// The field by whose values ranges are split.
    pub(super) by: Option<String>,
    /// The times to which the figures are limited; none for the whole trace.
    pub(super) only: Option<Vec<Span>>,
    /// The work of the current trace beside that of the step to which the figures are limited.
    pub(super) other_work: OtherWork,
    /// Whether streams worked for other steps between the step's work, in any of the traces.
    has_other_work: bool,
}

impl Figures {
    /// Returns figures that also collect what the page shows beside the report.
    pub(super) fn for_page() -> Figures {
        Figures { builder: ReportBuilder::for_page(), steps: Some(Steps::default()), ..Figures::default() }
    }

    /// Sets the short names by which the traces are told apart, in their order.
    pub(super) fn name_traces(&mut self, names: Vec<String>) {
        self.trace_names = names;
    }

    /// Returns which slices of other tools are in no figure.
    pub(super) fn others_note(&self) -> Option<String> {
        self.account.others_note()
    }

    /// Returns what is missing because programs ended without finishing their sessions.
    pub(super) fn unfinished_note(&self) -> Option<String> {
        self.account.unfinished_note()
    }

    /// Ends a trace. `is_whole`: nothing of it is missing as far as the reader knows. `is_ours`: a session wrote it.
    pub(crate) fn end_trace(&mut self, is_whole: bool, is_ours: bool, names: &Names) {
        let batch = self.messages.take_batch();
        self.add_entries(batch, names);
        self.memory.end_trace();
        let (mut zones, mut kernels) = self.account.end_trace(is_whole, is_ours);
        if std::mem::take(&mut self.other_work).is_between() {
            (zones, kernels, self.has_other_work) = (false, false, true);
        }
        self.builder.end_recording(Complete { zones, kernels }, names);
    }

    /// Returns what was collected for the page, once.
    pub(super) fn take_for_page(&mut self) -> (Calls, Steps) {
        (self.builder.take_calls(), self.steps.take().unwrap_or_default())
    }

    /// Returns the lengths of each range in each place.
    pub(super) fn lengths(&self) -> impl Iterator<Item = (Name, Place, &Lengths)> {
        self.builder.lengths()
    }

    /// Whether there is nothing to report.
    pub(crate) fn is_empty(&self) -> bool {
        self.builder.is_empty() && self.kernel_slices.is_empty()
    }

    /// Returns the report.
    pub(crate) fn report(&mut self, names: &Names) -> Report {
        if self.builder.kernels.is_empty() {
            self.builder.kernels = std::mem::take(&mut self.kernel_slices);
        }
        let mut report = Report::default();
        let zones =
            self.lengths().filter(|(_, place, _)| *place != Place::Replays).map(|(.., lengths)| lengths.count());
        self.account.add_to(&mut report, zones.sum());
        let seen = |name: Name, _| self.account.seen(names.text(name));
        self.builder.add_to(&mut report, Complete { zones: true, kernels: true }, names, seen);
        report.streams = self.streams();
        report.memory = self.memory.stats();
        if self.corrected > 0 {
            report.notes.push(format!(
                "the lengths of {} include the time of events, {} on average; `gpu_ns_corrected` in the trace excludes it",
                counted(self.corrected, "zone"),
                time(self.correction_ns as f64 / self.corrected as f64)
            ));
        }
        if self.has_other_work {
            report.critical_path = None;
            report.notes.push(
                "streams also worked for other steps between the begin and the end of this step's work, so neither their idle time nor \
                 the critical path is known"
                    .to_owned(),
            );
        }
        if self.builder.recording() > 1 && report.critical_path.is_some() {
            let of = self.trace_names.get(self.builder.path_of() as usize).map_or("a trace", |name| name);
            report.notes.push(format!("the critical path is that of {of}: the longest of all traces"));
        }
        report
    }

    /// The streams of all traces. A stream whose name another trace has, too, also has the name of its trace.
    fn streams(&self) -> Vec<StreamStats> {
        let streams = self.builder.ended_streams();
        let is_same = |(trace, a): &(u32, StreamStats), (other, b): &(u32, StreamStats)| {
            trace != other && (&a.device, &a.name) == (&b.device, &b.name)
        };
        let mut by_name: Vec<_> = streams.iter().collect();
        by_name.sort_by_key(|(_, stream)| (&stream.device, &stream.name));
        let shared: HashSet<_> = by_name
            .windows(2)
            .filter(|pair| is_same(pair[0], pair[1]))
            .map(|pair| (&pair[0].1.device, &pair[0].1.name))
            .collect();
        let named = streams.iter().map(|(trace, stream)| {
            let of = self.trace_names.get(*trace as usize);
            let of = of.filter(|_| shared.contains(&(&stream.device, &stream.name)));
            let name = of.map_or_else(|| stream.name.clone(), |of| format!("{} of {of}", stream.name));
            StreamStats { name, ..stream.clone() }
        });
        named.collect()
    }

    /// Returns a device of the current trace among those of all traces.
    fn device(&self, ordinal: u32) -> (DeviceKind, u32) {
        (DeviceKind::Cuda, self.builder.recording() << 12 | ordinal)
    }

    /// Returns the slice under the name of its range and of its value of the field by which ranges are split.
    pub(super) fn split<'a>(&self, slice: &Slice<'a>, names: &mut Names) -> Slice<'a> {
        let value = self.by.as_ref().and_then(|by| {
            let (_, value) = slice.args.fields(names).find(|(field, _)| field == by)?;
            Some(format!("{} [{by}={}]", names.text(slice.name), shown_value(value)))
        });
        // There is a limit to names; beyond it, values are counted together.
        let name = value.map_or(slice.name, |text| names.number(&text).unwrap_or(Name::MORE));
        Slice { name, ..*slice }
    }

    /// Adds a zone, or an entry of a batch with its share of the batch's time.
    pub(super) fn zone(&mut self, slice: &Slice<'_>, place: Place, rows: &Rows, entry: Option<f64>) {
        let Slice { span, args, .. } = *slice;
        let host = slice.launch.map(|(_, host)| host);
        let on = rows.stream_of(slice.row).map(|(_, stream)| stream);
        let work = Some(args.work()).filter(|work| !work.is_none() && !slice.is_bounded());
        let zone = Zone {
            span,
            early_by_ns: slice.early_by_ns(),
            found_early_by_ns: args.end_early_by_ns,
            host: if place == Place::Threads { host.or(Some(span)) } else { host },
            is_entry: entry.is_some(),
            share: entry.unwrap_or(1.0),
            sampled_share: args.sampled_share,
            window: args.window,
            device: on.map(|stream| self.device(stream.ordinal)),
            has_failed: args.has_failed,
            work: work.map(|work| {
                let ns = args.corrected_ns.unwrap_or(span.duration_ns());
                (work, ns, on.map_or("", |stream| &*stream.device))
            }),
            row: entry.is_none().then(|| RowId { place: 0, id: rows.group(slice.row), lane: 0 }),
            depth: 0,
            in_steps: entry.is_none() && place != Place::Replays,
        };
        let range = self.builder.range(slice.name, place);
        self.builder.zone(range, &zone, || false);
        if let Some(corrected_ns) = args.corrected_ns.filter(|_| place == Place::Streams) {
            self.corrected += 1;
            self.correction_ns += span.duration_ns() - corrected_ns;
        }
    }

    /// Adds a slice to the use of its stream, and to what moves or hides.
    pub(super) fn on_stream(&mut self, slice: &Slice<'_>, rows: &Rows, names: &Names) {
        let Some((at, stream)) = rows.stream_of(slice.row) else { return };
        let (id, span, streams) = (at as u32, slice.span, self.builder.streams());
        let made = || StreamUse::new(&stream.name, &stream.device, (DeviceKind::Cuda, stream.ordinal));
        match slice.kind {
            Kind::Kernel | Kind::Copy => streams.work(id, span, made),
            Kind::Collective if slice.args.is_kernel => streams.work(id, span, made),
            Kind::Wait => {
                let by = slice.args.signalled_by.unwrap_or_default();
                streams.wait(id, (span, slice.early_by_ns()), by, made);
            }
            _ => streams.zone(id, span, slice.early_by_ns(), made),
        }
        let (device, lane) = (self.device(stream.ordinal), Lane::from_stream(id));
        match slice.kind {
            Kind::Kernel => {
                // Its zone, also that in which it was captured, may be a collective.
                let is_collective = slice.args.zone.is_some_and(|zone| self.collectives.contains(&zone));
                let computes = !is_collective && !is_of_collective(names.text(slice.name));
                self.builder.traffic.kernel(device, lane, span, computes);
            }
            Kind::Zone | Kind::Collective => {
                if slice.args.is_kernel {
                    self.builder.traffic.kernel(device, lane, span, false);
                }
                self.traffic(slice, device, lane, names);
            }
            _ => {}
        }
    }

    /// Adds a zone of a replay. Each stream that was captured has a row, and counts as a stream.
    pub(super) fn in_replay(&mut self, slice: &Slice<'_>, rows: &Rows, names: &Names) {
        let Some((at, stream)) = rows.stream_of(slice.row) else { return };
        self.traffic(slice, self.device(stream.ordinal), Lane::from_replay(at as u32, slice.row as u64), names);
    }

    /// Adds what a zone moved, or that it computed.
    fn traffic(&mut self, slice: &Slice<'_>, device: (DeviceKind, u32), lane: Lane, names: &Names) {
        let span = slice.span;
        if slice.kind == Kind::Collective {
            self.collectives.insert(slice.name);
            if let Some(message) = Message::read(slice, 1.0, names) {
                self.builder.traffic.collective(device, lane, span, &moved(&message, 1.0, slice.early_by_ns()));
            }
        } else {
            // A late end may lie behind a wait of the stream.
            self.builder.traffic.compute(device, lane, span.without_tail(slice.early_by_ns()));
        }
    }

    /// Adds the entries of a batch of collectives, which share its time.
    pub(super) fn add_entries(&mut self, batch: Vec<Entry>, names: &Names) {
        let total: Option<u64> = batch.iter().map(|entry| entry.bytes).sum::<Option<u64>>().filter(|total| *total > 0);
        let count = batch.len().max(1) as f64;
        for entry in batch {
            let share = match (total, entry.bytes) {
                (Some(total), Some(bytes)) => bytes as f64 / total as f64,
                _ => 1.0 / count,
            };
            let slice = entry.slice();
            let place = if entry.in_replay { Place::Replays } else { Place::Streams };
            self.zone(&slice, place, &entry.rows(), Some(share));
            if let (Some(message), Some((device, at))) = (Message::read(&slice, share, names), entry.stream) {
                let (device, lane) = (self.device(device), Lane::from_stream(at as u32));
                let moved = moved(&message, share, slice.early_by_ns());
                self.builder.traffic.collective(device, lane, slice.span, &moved);
            }
        }
    }

    /// Adds a zone to the log of the critical path.
    pub(super) fn follow(&mut self, slice: &Slice<'_>, rows: &Rows) {
        let Some(on) = track(slice.row, rows) else { return };
        let launch = slice.launch.and_then(|(row, host)| Some((track(row, rows)?, host)));
        let launch = launch.as_ref().map(|((from, name), host)| (*from, &**name, *host));
        let span: (Span, i64) = (slice.span, slice.early_by_ns());
        self.builder.path().passed((on.0, &on.1), slice.name, span, launch);
    }
}

/// A collective for the sums of what was moved. `share` is its share of the slice's time, whose end may be earlier by
/// `early_by_ns`.
fn moved(message: &Message, share: f64, early_by_ns: i64) -> Moved<'_> {
    Moved { kind: message.kind, group: &message.group, bytes: message.bytes, bus: message.bus, share, early_by_ns }
}

/// The stream or thread of a row, and its name.
pub(super) fn track(row: usize, rows: &Rows) -> Option<(Track, Arc<str>)> {
    let row = rows.row(row)?;
    match row.place {
        trace::Place::Stream(at) => Some((Track::Stream(at as u32), rows.stream(at)?.name.clone())),
        trace::Place::Thread(id) if row.name.is_empty() => Some((Track::Thread(id), format!("thread {id}").into())),
        trace::Place::Thread(id) => Some((Track::Thread(id), row.name.clone())),
        trace::Place::Other => None,
    }
}

/// The value of a field as people read it: a text has no quotes.
pub(super) fn shown_value(value: &Value) -> Cow<'_, str> {
    value.as_str().map_or_else(|| value.to_string().into(), Cow::Borrowed)
}
