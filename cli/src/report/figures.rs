//! The figures of traces: adds slices to the same values that a session's report is made of.
//!
//! One [`Figures`] reads any number of traces, one after another. Memory is bounded: it depends on the numbers of ranges, rows and
//! streams, and a row keeps its latest slices until they are in the order of their ends. `visitor` receives the slices, and `totals` makes the
//! report.

mod totals;
mod visitor;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use warpline_core::record::{DeviceKind, Span, is_bound};
use warpline_core::work::WorkSum;
use warpline_report::EndCounts;
use warpline_report::figures::{StreamStats, tell_devices_apart};
use warpline_report::lengths::{Length, Lengths};
use warpline_report::nesting::{self, Nesting};
use warpline_report::path::{CriticalPath, PathLog, Track};
use warpline_report::per_step::{PerStep, StepSums};
use warpline_report::stream_time::StreamTime;
use warpline_report::traffic::{Lane, Moved, Traffic, is_of_collective};

use super::account::Account;
use super::calls::Calls;
use super::memory::Memory;
use super::messages::Messages;
use super::steps::Steps;
use crate::trace::{Kind, Message, Name, Names, Place, Rows, Slice};

/// The slices of a row that wait until they can be put in the order of their ends.
const REORDERED: usize = 1 << 13;

/// The slices of all rows that wait.
const WAITING: usize = 1 << 21;

/// The most ranges, each in one place, that are counted separately: the histogram of one has some 10 KB.
const RANGES: usize = 8_192;

/// The most kernels, and the most waits of threads, that are counted separately.
const MOST: usize = 4_096;

/// The number of latest zones in which the critical path is found, as in a session.
const PATH: usize = 1 << 15;

/// Where a range's times are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Spot {
    Threads,
    Streams,
    Replays,
}

impl Spot {
    /// Returns the name that the tables of a report have for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Spot::Threads => "thread",
            Spot::Streams => "stream",
            Spot::Replays => "replay",
        }
    }
}

struct Entry {
    name: Name,
    spot: Spot,
    lengths: Lengths,
    work: WorkSum,
}

/// Numbers that are only counted and added.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    total_ns: i64,
    /// The time by which `total_ns` may be shorter, because no event times the ends of waits.
    early_ns: i64,
    max_ns: i64,
}

impl Sum {
    fn add(&mut self, ns: i64, early_by_ns: i64) {
        self.count += 1;
        self.total_ns += ns;
        self.early_ns += early_by_ns.clamp(0, ns.max(0));
        self.max_ns = self.max_ns.max(ns);
    }
}

/// The use of one stream's time.
#[derive(Default)]
struct Usage {
    name: Arc<str>,
    device: Arc<str>,
    ordinal: u32,
    time: StreamTime,
    waited_for: HashMap<Name, Sum>,
}

/// A row whose slices nest.
#[derive(Default)]
struct Nested {
    waiting: Vec<Waiting>,
    nesting: Nesting,
}

/// A slice with its place in the order of the trace, and the number of its range.
struct Waiting {
    span: Span,
    early_by_ns: i64,
    /// Of two equal spans, that which was launched first is around the other one.
    order: (i64, u64),
    number: u32,
}

/// The figures of the traces so far.
#[derive(Default)]
pub(crate) struct Figures {
    entries: Vec<Entry>,
    numbers: HashMap<(Name, Spot), u32>,
    /// The ranges that are counted together.
    more: u64,
    kernels: HashMap<(Name, Option<Name>), Sum>,
    /// Kernels of traces that have them only as slices.
    kernel_slices: HashMap<(Name, Option<Name>), Sum>,
    host_waits: HashMap<(Name, Arc<str>, Option<Name>), Sum>,
    semaphores: HashMap<Name, Sum>,
    traffic: Traffic,
    steps: Lengths,
    step_sums: HashMap<u32, StepSums>,
    late: u64,
    /// With the numbers of their traces.
    streams: Vec<(u32, StreamStats)>,
    path: Option<CriticalPath>,
    /// The trace that has the path.
    path_of: u32,
    window_ns: i64,
    /// The first and the last window of a budget.
    windows: Option<(u32, u32)>,
    memory: Memory,
    account: Account,
    ends: EndCounts,
    corrected: u64,
    correction_ns: i64,
    traces: u32,
    /// What traces are called beside one another.
    trace_names: Vec<String>,
    current: Current,
    for_page: Option<Box<ForPage>>,
}

/// What only the page shows.
#[derive(Default)]
pub(super) struct ForPage {
    pub(super) calls: Calls,
    pub(super) steps: Steps,
}

/// The state of the trace that is being read.
struct Current {
    window: Option<Span>,
    /// By the groups of rows.
    rows: HashMap<u64, Nested>,
    waiting: usize,
    order: u64,
    per_step: PerStep,
    usages: Vec<Usage>,
    used: Option<Span>,
    path: PathLog<Arc<str>>,
    messages: Messages,
}

impl Default for Current {
    fn default() -> Current {
        Current {
            window: None,
            rows: HashMap::new(),
            waiting: 0,
            order: 0,
            per_step: PerStep::default(),
            usages: Vec::new(),
            used: None,
            path: PathLog::new(PATH),
            messages: Messages::default(),
        }
    }
}

impl Figures {
    /// Returns figures that also collect what the page shows beside the report.
    pub(super) fn for_page() -> Figures {
        Figures { for_page: Some(Box::default()), ..Figures::default() }
    }

    /// Sets what the traces are called beside one another, in their order.
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
        let batch = self.current.messages.take_batch();
        self.add_entries(batch, names);
        let mut current = std::mem::take(&mut self.current);
        for (at, row) in &mut current.rows {
            settle(*at, row, usize::MAX, &mut self.entries, self.for_page.as_deref_mut());
        }
        if let Some(page) = &mut self.for_page {
            page.calls.end_trace();
        }
        self.window_ns += current.window.map_or(0, |window| window.duration_ns());
        for (number, sums) in current.per_step.figures() {
            match self.step_sums.get_mut(&number) {
                Some(known) => known.merge(&sums),
                None => drop(self.step_sums.insert(number, sums)),
            }
        }
        self.late += current.per_step.late();
        self.memory.end_trace();
        let (zones, kernels) = self.account.end_trace(is_whole, is_ours);
        let all_ns = current.used.map_or(0, |used| used.duration_ns());
        let with_kernels: HashSet<u32> =
            current.usages.iter().filter(|usage| usage.time.has_work()).map(|usage| usage.ordinal).collect();
        let stats = |usage: &Usage| {
            let has_kernels = with_kernels.contains(&usage.ordinal);
            let stats = usage.stats(all_ns, has_kernels, if has_kernels { kernels } else { zones }, names)?;
            Some((usage.ordinal, stats))
        };
        let mut streams: Vec<_> = current.usages.iter().filter_map(stats).collect();
        tell_devices_apart(&mut streams);
        streams.sort_by(|(_, a), (_, b)| (&a.device, &a.name).cmp(&(&b.device, &b.name)));
        self.streams.extend(streams.into_iter().map(|(_, stream)| (self.traces, stream)));
        let path = current.path.path(None);
        let length = |path: &CriticalPath| path.to_ns - path.from_ns;
        if path.as_ref().map_or(0, length) > self.path.as_ref().map_or(0, length) {
            (self.path, self.path_of) = (path, self.traces);
        }
        self.traces += 1;
    }

    /// Returns what was collected for the page, once.
    pub(super) fn take_for_page(&mut self) -> ForPage {
        self.for_page.take().map_or_else(ForPage::default, |page| *page)
    }

    /// Returns the name and the place of a range.
    pub(super) fn range(&self, number: u32) -> Option<(Name, Spot)> {
        self.entries.get(number as usize).map(|entry| (entry.name, entry.spot))
    }

    /// Returns the lengths of each range in each place.
    pub(super) fn lengths(&self) -> impl Iterator<Item = (Name, Spot, &Lengths)> {
        self.entries.iter().map(|entry| (entry.name, entry.spot, &entry.lengths))
    }

    /// Returns the number of the trace that has the critical path.
    pub(super) fn path_of(&self) -> u32 {
        self.path_of
    }

    /// Whether there is nothing to report.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.kernels.is_empty() && self.kernel_slices.is_empty() && self.steps.count() == 0
    }

    /// Returns a device of the current trace among those of all traces.
    fn device(&self, ordinal: u32) -> (DeviceKind, u32) {
        (DeviceKind::Cuda, self.traces << 12 | ordinal)
    }

    /// Returns the number of a range in a place; beyond [`RANGES`], that of all further ones there.
    fn number(&mut self, name: Name, spot: Spot) -> u32 {
        if let Some(number) = self.numbers.get(&(name, spot)) {
            return *number;
        }
        let is_further = self.entries.len() >= RANGES && name != Name::MORE;
        let number = if is_further { self.number(Name::MORE, spot) } else { self.entries.len() as u32 };
        if is_further {
            self.more += 1;
        } else {
            self.entries.push(Entry { name, spot, lengths: Lengths::default(), work: WorkSum::default() });
        }
        self.numbers.insert((name, spot), number);
        number
    }

    fn zone(&mut self, slice: &Slice<'_>, spot: Spot, rows: &Rows, share: f64) {
        let part = |ns: i64| if share == 1.0 { ns } else { (ns as f64 * share) as i64 };
        let ns = part(slice.span.duration_ns());
        let window = self.current.window.get_or_insert(slice.span);
        let host = slice.launch.map_or(slice.span, |(_, host)| host);
        window.begin_ns = window.begin_ns.min(slice.span.begin_ns).min(host.begin_ns);
        window.end_ns = window.end_ns.max(slice.span.end_ns).max(host.end_ns);
        let place = rows.row(slice.row).map(|row| row.place);
        let device = match place {
            Some(Place::Stream(at)) => rows.stream(at).map(|stream| self.device(stream.ordinal)),
            _ => None,
        };
        if slice.args.window > 0 {
            let (first, last) = self.windows.get_or_insert((slice.args.window, slice.args.window));
            (*first, *last) = ((*first).min(slice.args.window), (*last).max(slice.args.window));
        }
        let number = self.number(slice.name, spot);
        let launch_ns = match (spot, slice.launch) {
            (Spot::Threads, _) => Some(ns),
            (_, launch) => launch.map(|(_, host)| host.duration_ns()),
        };
        let zone = Length {
            ns,
            early_by_ns: part(slice.early_by_ns()),
            launch_ns,
            begin_ns: host.begin_ns,
            weight: if slice.args.sampled_share > 0.0 { 1.0 / slice.args.sampled_share } else { 1.0 },
            window: slice.args.window,
            device,
            has_failed: slice.args.has_failed,
        };
        let entry = &mut self.entries[number as usize];
        entry.lengths.add(&zone, || false);
        let work = slice.args.work();
        if !work.is_none() && !slice.is_bounded() {
            let on = rows.stream_of(slice.row).map_or("", |(_, stream)| &*stream.device);
            entry.work.add(work, slice.args.corrected_ns.unwrap_or(ns), on);
        }
        if share == 1.0 && slice.kind != Kind::BatchEntry {
            self.nest(slice, rows.group(slice.row), number);
            if spot != Spot::Replays {
                self.current.per_step.zone(number, host.begin_ns, ns, slice.early_by_ns());
            }
        }
        if spot == Spot::Streams {
            self.ends.add(slice.span.duration_ns(), slice.args.end_early_by_ns);
            if let Some(corrected_ns) = slice.args.corrected_ns {
                self.corrected += 1;
                self.correction_ns += slice.span.duration_ns() - corrected_ns;
            }
        }
    }

    /// Puts the slice among those of its row.
    fn nest(&mut self, slice: &Slice<'_>, group: u64, number: u32) {
        let Current { rows, waiting, order, .. } = &mut self.current;
        *order += 1;
        let row = rows.entry(group).or_default();
        let host = slice.launch.map_or(slice.span, |(_, host)| host);
        let (span, early_by_ns) = (slice.span, slice.early_by_ns());
        row.waiting.push(Waiting { span, early_by_ns, order: (host.begin_ns, *order), number });
        *waiting += 1;
        if row.waiting.len() >= REORDERED {
            *waiting -= settle(group, row, REORDERED / 2, &mut self.entries, self.for_page.as_deref_mut());
        } else if *waiting >= WAITING {
            for (at, row) in rows {
                settle(*at, row, usize::MAX, &mut self.entries, self.for_page.as_deref_mut());
            }
            *waiting = 0;
        }
    }

    fn on_stream(&mut self, slice: &Slice<'_>, rows: &Rows, names: &Names) {
        let Some((at, stream)) = rows.stream_of(slice.row) else { return };
        let Current { usages, used, .. } = &mut self.current;
        if usages.len() <= at {
            usages.resize_with(at + 1, Usage::default);
        }
        let usage = &mut usages[at];
        if usage.name.is_empty() {
            (usage.name, usage.device, usage.ordinal) = (stream.name.clone(), stream.device.clone(), stream.ordinal);
        }
        let span = slice.span;
        match slice.kind {
            Kind::Kernel | Kind::Copy => usage.time.add_work(span),
            Kind::Collective if slice.args.is_kernel => usage.time.add_work(span),
            Kind::Wait => {
                usage.time.add_wait(span, slice.early_by_ns());
                let by = slice.args.signalled_by.unwrap_or_default();
                Self::count_in(&mut usage.waited_for, by, || Name::MORE, slice);
            }
            _ => usage.time.add_zone(span, slice.early_by_ns()),
        }
        let all = used.get_or_insert(span);
        all.begin_ns = all.begin_ns.min(span.begin_ns);
        all.end_ns = all.end_ns.max(span.end_ns);
        let (ordinal, lane) = (stream.ordinal, Lane::from_stream(at as u32));
        match slice.kind {
            Kind::Kernel => {
                let computes = !is_of_collective(names.text(slice.name));
                self.traffic.kernel(self.device(ordinal), lane, span, computes);
            }
            Kind::Zone | Kind::Collective => {
                if slice.args.is_kernel {
                    self.traffic.kernel(self.device(ordinal), lane, span, false);
                }
                self.traffic(slice, ordinal, lane, names);
            }
            _ => {}
        }
    }

    /// Adds a zone of a replay. Each stream that was captured has a row, and counts as a stream.
    fn in_replay(&mut self, slice: &Slice<'_>, rows: &Rows, names: &Names) {
        let Some((at, stream)) = rows.stream_of(slice.row) else { return };
        self.traffic(slice, stream.ordinal, Lane::from_replay(at as u32, slice.row as u64), names);
    }

    /// Adds what a zone moved, or that it computed.
    fn traffic(&mut self, slice: &Slice<'_>, ordinal: u32, lane: Lane, names: &Names) {
        let (device, span) = (self.device(ordinal), slice.span);
        if slice.kind == Kind::Collective {
            if let Some(message) = Message::read(slice, 1.0, names) {
                self.traffic.collective(device, lane, span, &moved(&message, 1.0, slice.early_by_ns()));
            }
        } else {
            // A late end may lie behind a wait of the stream.
            self.traffic.compute(device, lane, span.without_tail(slice.early_by_ns()));
        }
    }

    /// Adds the entries of a batch of collectives, which share its time.
    fn add_entries(&mut self, batch: Vec<super::messages::Entry>, names: &Names) {
        let total: Option<u64> = batch.iter().map(|entry| entry.bytes).sum::<Option<u64>>().filter(|total| *total > 0);
        let count = batch.len().max(1) as f64;
        for entry in batch {
            let share = match (total, entry.bytes) {
                (Some(total), Some(bytes)) => bytes as f64 / total as f64,
                _ => 1.0 / count,
            };
            let slice = entry.slice();
            self.zone(&slice, if entry.in_replay { Spot::Replays } else { Spot::Streams }, &entry.rows(), share);
            if let (Some(message), Some((device, at))) = (Message::read(&slice, share, names), entry.stream) {
                let lane = Lane::from_stream(at as u32);
                self.traffic.collective(
                    self.device(device),
                    lane,
                    slice.span,
                    &moved(&message, share, slice.early_by_ns()),
                );
            }
        }
    }

    fn follow(&mut self, slice: &Slice<'_>, rows: &Rows, names: &Names) {
        let Some(on) = track(slice.row, rows) else { return };
        let launch = slice.launch.and_then(|(row, host)| Some((track(row, rows)?, host)));
        let launch = launch.as_ref().map(|((from, name), host)| (*from, &**name, *host));
        let span = (slice.span, slice.early_by_ns());
        self.current.path.passed((on.0, &on.1), names.text(slice.name).clone(), span, launch);
    }

    /// Counts a slice in the sum of its key, or of `more` if there are too many keys.
    fn count_in<K: std::hash::Hash + Eq>(
        table: &mut HashMap<K, Sum>,
        key: K,
        more: impl FnOnce() -> K,
        slice: &Slice<'_>,
    ) {
        let key = if table.len() < MOST || table.contains_key(&key) { key } else { more() };
        table.entry(key).or_default().add(slice.span.duration_ns(), slice.early_by_ns());
    }
}

/// A collective for the sums of what was moved. `share` is its share of the slice's time, whose end may be earlier by `early_by_ns`.
fn moved(message: &Message, share: f64, early_by_ns: i64) -> Moved<'_> {
    Moved { kind: message.kind, group: &message.group, bytes: message.bytes, bus: message.bus, share, early_by_ns }
}

/// The stream or thread of a row, and its name.
pub(super) fn track(row: usize, rows: &Rows) -> Option<(Track, Arc<str>)> {
    let row = rows.row(row)?;
    match row.place {
        Place::Stream(at) => Some((Track::Stream(at as u32), rows.stream(at)?.name.clone())),
        Place::Thread(id) if row.name.is_empty() => Some((Track::Thread(id), format!("thread {id}").into())),
        Place::Thread(id) => Some((Track::Thread(id), row.name.clone())),
        Place::Other => None,
    }
}

/// Finds what is within what among the earliest slices of a row. Returns how many it took.
fn settle(at: u64, row: &mut Nested, count: usize, entries: &mut [Entry], mut for_page: Option<&mut ForPage>) -> usize {
    row.waiting.sort_unstable_by_key(|waiting| nesting::key(waiting.span, waiting.order));
    let count = count.min(row.waiting.len());
    for Waiting { span, early_by_ns, number, .. } in row.waiting.drain(..count) {
        let inner = row.nesting.add(span, early_by_ns);
        let is_bounded = is_bound(span.duration_ns(), early_by_ns);
        if let Some(entry) = entries.get_mut(number as usize) {
            entry.lengths.subtract_inner(inner, is_bounded);
        }
        if let Some(page) = &mut for_page {
            page.calls.add(at, span, number, inner.most_ns, if is_bounded { early_by_ns } else { 0 });
        }
    }
    count
}
