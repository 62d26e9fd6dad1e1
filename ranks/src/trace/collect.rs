//! Collects the slices of a trace that the asked tables need, and turns them into rows: which step and which call of its range a zone is, and
//! what of its time is in no zone within it, are known at the end. Calls no engine; keeps at most [`MOST_ROWS`] slices.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use warpline_annotate::trace::{Fact, Kind, Message, Name, Names, Place, Rows, Slice, Visitor};
use warpline_core::record::Span;
use warpline_core::report::nesting::{self, Nesting};

use super::tables::{Cell, Filling, TraceTable};

/// The most slices that are kept. They are in memory, with the rows that are made of them.
pub(super) const MOST_ROWS: usize = 16 << 20;

/// The row of a kernel that is on none.
const NO_ROW: usize = usize::MAX;

/// What was collected.
pub(super) struct Collected {
    wanted: BTreeSet<TraceTable>,
    zones: Vec<Zone>,
    /// Collectives, with the numbers of their zones.
    messages: Vec<(usize, Message)>,
    launches: Vec<Launch>,
    /// The launches whose zone has not come yet.
    open: HashMap<(usize, i64, i64), usize>,
    /// Kernels as GPU tools find them, and as slices on streams, where a trace has only those.
    stages: Vec<Work>,
    kernels: Vec<Work>,
    waits: Vec<Wait>,
    steps: Vec<(Option<u64>, Span)>,
    replays: Vec<(Name, usize, Span)>,
    facts: Vec<(String, i64)>,
    places: Vec<Option<Where>>,
    /// Names of devices.
    devices: BTreeMap<i64, Arc<str>>,
    /// Whether there were more slices than are kept.
    pub(super) is_full: bool,
    kept: usize,
}

/// Where a row is.
#[derive(Clone, Default)]
struct Where {
    device: Option<i64>,
    stream: Option<Arc<str>>,
    thread: Option<Arc<str>>,
}

struct Zone {
    name: Name,
    row: usize,
    span: Span,
    /// The row and the time of its launch.
    launch: Option<(usize, Span)>,
    is_collective: bool,
    is_replayed: bool,
    /// A part of a batch of collectives.
    is_entry: bool,
    has_failed: bool,
    sampled_ppm: u64,
    end_early_by_ns: i64,
    corrected_ns: Option<i64>,
    bytes: Option<u64>,
    flops: Option<u64>,
    /// The length: of a part of a batch, its share.
    ns: i64,
    self_ns: i64,
    step: Option<usize>,
    call: i64,
}

struct Launch {
    name: Name,
    row: usize,
    span: Span,
    zone: Option<usize>,
}

struct Work {
    name: Name,
    row: usize,
    stream: Option<Name>,
    zone: Option<Name>,
    is_kernel: bool,
    span: Span,
}

struct Wait {
    name: Name,
    row: usize,
    is_call: bool,
    zone: Option<Name>,
    signalled_by: Option<Name>,
    span: Span,
}

impl Collected {
    pub(super) fn new(wanted: BTreeSet<TraceTable>) -> Self {
        Self {
            wanted,
            zones: Vec::new(),
            messages: Vec::new(),
            launches: Vec::new(),
            open: HashMap::new(),
            stages: Vec::new(),
            kernels: Vec::new(),
            waits: Vec::new(),
            steps: Vec::new(),
            replays: Vec::new(),
            facts: Vec::new(),
            places: Vec::new(),
            devices: BTreeMap::new(),
            is_full: false,
            kept: 0,
        }
    }

    fn wants(&self, any: &[TraceTable]) -> bool {
        any.iter().any(|table| self.wanted.contains(table))
    }

    fn place(&mut self, row: usize, rows: &Rows) {
        if row == NO_ROW || self.places.get(row).is_some_and(Option::is_some) {
            return;
        }
        if self.places.len() <= row {
            self.places.resize(row + 1, None);
        }
        let Some(known) = rows.row(row) else { return };
        let mut place = Where::default();
        match known.place {
            Place::Stream(at) => {
                if let Some(stream) = rows.stream(at) {
                    let device = i64::from(stream.ordinal);
                    self.devices.entry(device).or_insert_with(|| stream.device.clone());
                    (place.device, place.stream) = (Some(device), Some(stream.name.clone()));
                }
            }
            Place::Thread(id) if known.name.is_empty() => place.thread = Some(format!("thread {id}").into()),
            Place::Thread(_) => place.thread = Some(known.name.clone()),
            Place::Other => {}
        }
        self.places[row] = Some(place);
    }

    fn zone(&mut self, slice: &Slice<'_>, names: &Names) {
        let args = slice.args;
        let number = self.zones.len();
        let is_collective = matches!(slice.kind, Kind::Collective | Kind::BatchEntry);
        if is_collective && let Some(message) = Message::read(slice, 1.0, names) {
            self.messages.push((number, message));
        }
        if let Some((row, span)) = slice.launch
            && let Some(launch) = self.open.remove(&(row, span.begin_ns, span.end_ns))
        {
            self.launches[launch].zone = Some(number);
        }
        let ns = slice.span.duration_ns();
        self.zones.push(Zone {
            name: slice.name,
            row: slice.row,
            span: slice.span,
            launch: slice.launch,
            is_collective,
            is_replayed: args.has_correlation && slice.kind != Kind::HostZone,
            is_entry: slice.kind == Kind::BatchEntry,
            has_failed: args.has_failed,
            sampled_ppm: args.sampled_ppm,
            end_early_by_ns: args.end_early_by_ns,
            corrected_ns: args.corrected_ns,
            bytes: args.work().bytes,
            flops: args.work().flops,
            ns,
            self_ns: ns,
            step: None,
            call: 0,
        });
    }

    /// The rows of the tables that were asked for.
    pub(super) fn tables(mut self, names: &Names) -> Result<Vec<(TraceTable, Vec<RecordBatch>)>, ArrowError> {
        self.steps.sort_by_key(|(_, span)| span.begin_ns);
        self.share_batches();
        self.subtract_inner();
        self.find_steps();
        self.count_calls();
        // Rows are in the order of their begins, and so are the numbers of zones.
        let mut order: Vec<usize> = (0..self.zones.len()).collect();
        order.sort_by_key(|at| (self.zones[*at].span.begin_ns, *at));
        let mut number = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, at)| number[*at] = place as i64);
        let wanted: Vec<TraceTable> = self.wanted.iter().copied().filter(|table| table.view().is_none()).collect();
        let one = |table: TraceTable| {
            let mut rows = Filling::new(table);
            match table {
                TraceTable::Zones => {
                    order.iter().try_for_each(|at| self.zone_row(*at, number[*at], names, &mut rows))?
                }
                TraceTable::Launches => self.launch_rows(&number, names, &mut rows)?,
                TraceTable::Collectives => self.collective_rows(&number, names, &mut rows)?,
                TraceTable::Kernels => self.kernel_rows(names, &mut rows)?,
                TraceTable::Waits => self.wait_rows(names, &mut rows)?,
                TraceTable::Steps => {
                    for (step, span) in &self.steps {
                        rows.push(&[(*step).into(), span.begin_ns.into(), span.duration_ns().into()])?;
                    }
                }
                TraceTable::Replays => {
                    for (name, row, span) in &self.replays {
                        let on = self.on(*row);
                        let graph: &str = names.text(*name);
                        let stream: Cell<'_> = on.stream.as_deref().into();
                        rows.push(&[
                            graph.into(),
                            on.device.into(),
                            stream,
                            span.begin_ns.into(),
                            span.duration_ns().into(),
                        ])?;
                    }
                }
                TraceTable::Streams => self.stream_rows(&order, &mut rows)?,
                TraceTable::Account => {
                    for (name, value) in &self.facts {
                        rows.push(&[name.as_str().into(), (*value).into()])?;
                    }
                }
                TraceTable::Ranges => {}
            }
            Ok((table, rows.finish()?))
        };
        wanted.into_iter().map(one).collect()
    }

    /// Shares the time of each batch of collectives among its parts, by their sizes where all are known.
    fn share_batches(&mut self) {
        let bytes: HashMap<usize, Option<u64>> =
            self.messages.iter().map(|(zone, message)| (*zone, message.bytes)).collect();
        let mut first = 0;
        while first < self.zones.len() {
            let of_batch = |zone: &Zone| zone.is_entry && zone.span == self.zones[first].span;
            let count = self.zones[first..].iter().take_while(|zone| of_batch(zone)).count();
            let sizes = (first..first + count).map(|at| bytes.get(&at).copied().flatten());
            let total = sizes.sum::<Option<u64>>().filter(|total| *total > 0);
            for at in first..first + count {
                let share = match (total, bytes.get(&at).copied().flatten()) {
                    (Some(total), Some(bytes)) => bytes as f64 / total as f64,
                    _ => 1.0 / count as f64,
                };
                let zone = &mut self.zones[at];
                zone.ns = if share == 1.0 { zone.ns } else { (zone.ns as f64 * share) as i64 };
                zone.self_ns = zone.ns;
            }
            first += count.max(1);
        }
        for (zone, message) in &mut self.messages {
            let (share, all) = (self.zones[*zone].ns as f64, self.zones[*zone].span.duration_ns() as f64);
            if self.zones[*zone].is_entry && share >= 1.0 {
                message.bus = message.bus.map(|bus| bus * all / share);
            }
        }
    }

    /// Takes the time of the zones within a zone from its own time.
    fn subtract_inner(&mut self) {
        let mut of_row: HashMap<usize, Vec<usize>> = HashMap::new();
        for (at, zone) in self.zones.iter().enumerate().filter(|(_, zone)| !zone.is_entry) {
            of_row.entry(zone.row).or_default().push(at);
        }
        for mut zones in of_row.into_values() {
            zones.sort_unstable_by_key(|at| nesting::key(self.zones[*at].span, *at as u64));
            let mut nesting = Nesting::default();
            for at in zones {
                let inner_ns = nesting.add(self.zones[at].span);
                self.zones[at].self_ns -= inner_ns;
            }
        }
    }

    /// The step in which something at this time was launched.
    fn step_at(&self, ns: i64) -> Option<usize> {
        let after = self.steps.partition_point(|(_, span)| span.begin_ns <= ns);
        let at = after.checked_sub(1)?;
        (ns < self.steps[at].1.end_ns).then_some(at)
    }

    fn find_steps(&mut self) {
        for at in 0..self.zones.len() {
            self.zones[at].step = self.step_at(self.zones[at].host().begin_ns);
        }
    }

    /// Numbers the zones of a range in the order of their launches, on each device apart.
    fn count_calls(&mut self) {
        let mut order: Vec<usize> = (0..self.zones.len()).collect();
        order.sort_by_key(|at| (self.zones[*at].host().begin_ns, *at));
        let mut counts: HashMap<(Name, bool, Option<i64>), i64> = HashMap::new();
        for at in order {
            let key = (self.zones[at].name, self.zones[at].is_replayed, self.on(self.zones[at].row).device);
            let count = counts.entry(key).or_default();
            *count += 1;
            self.zones[at].call = *count;
        }
    }

    fn on(&self, row: usize) -> Where {
        self.places.get(row).cloned().flatten().unwrap_or_default()
    }

    fn step_number(&self, step: Option<usize>) -> Cell<'static> {
        step.and_then(|at| self.steps[at].0).into()
    }

    fn zone_place(&self, zone: &Zone) -> &'static str {
        if zone.is_replayed {
            "replay"
        } else if self.on(zone.row).stream.is_some() {
            "stream"
        } else {
            "thread"
        }
    }

    fn zone_row(&self, at: usize, number: i64, names: &Names, rows: &mut Filling) -> Result<(), ArrowError> {
        let zone = &self.zones[at];
        let on = self.on(zone.row);
        let thread = zone.launch.map_or_else(|| on.thread.clone(), |(row, _)| self.on(row).thread);
        let range: &str = names.text(zone.name);
        let sampled = (zone.sampled_ppm > 0).then_some(zone.sampled_ppm as f64 / 1e6);
        rows.push(&[
            number.into(),
            range.into(),
            self.zone_place(zone).into(),
            on.device.into(),
            on.stream.as_deref().into(),
            thread.as_deref().into(),
            zone.span.begin_ns.into(),
            zone.ns.into(),
            zone.self_ns.into(),
            zone.corrected_ns.into(),
            zone.end_early_by_ns.into(),
            zone.launch.map(|(_, host)| host.begin_ns).into(),
            zone.launch.map(|(_, host)| host.duration_ns()).into(),
            zone.call.into(),
            self.step_number(zone.step),
            zone.is_collective.into(),
            zone.bytes.into(),
            zone.flops.into(),
            sampled.into(),
            zone.has_failed.into(),
        ])
    }

    fn launch_rows(&self, number: &[i64], names: &Names, rows: &mut Filling) -> Result<(), ArrowError> {
        let mut order: Vec<&Launch> = self.launches.iter().collect();
        order.sort_by_key(|launch| launch.span.begin_ns);
        for launch in order {
            let on = self.on(launch.row);
            // As Chrome traces of sessions name them.
            let range: &str = names.text(launch.name);
            let range = range.strip_prefix("launch of ").unwrap_or(range);
            rows.push(&[
                launch.zone.map(|at| number[at]).into(),
                range.into(),
                on.thread.as_deref().unwrap_or_default().into(),
                launch.span.begin_ns.into(),
                launch.span.duration_ns().into(),
                self.step_number(self.step_at(launch.span.begin_ns)),
            ])?;
        }
        Ok(())
    }

    fn collective_rows(&self, number: &[i64], names: &Names, rows: &mut Filling) -> Result<(), ArrowError> {
        let mut order: Vec<&(usize, Message)> = self.messages.iter().collect();
        order.sort_by_key(|(at, _)| number[*at]);
        for (at, message) in order {
            let zone = &self.zones[*at];
            let on = self.on(zone.row);
            let range: &str = names.text(zone.name);
            rows.push(&[
                number[*at].into(),
                range.into(),
                self.zone_place(zone).into(),
                message.kind.as_str().into(),
                message.group.as_str().into(),
                (message.size as i64).into(),
                message.seq.into(),
                message.bytes.into(),
                message.bus.map(|bus| bus * 1e-9).into(),
                on.device.into(),
                on.stream.as_deref().into(),
                zone.span.begin_ns.into(),
                zone.ns.into(),
                self.step_number(zone.step),
            ])?;
        }
        Ok(())
    }

    fn kernel_rows(&self, names: &Names, rows: &mut Filling) -> Result<(), ArrowError> {
        let kernels = if self.stages.is_empty() { &self.kernels } else { &self.stages };
        let mut order: Vec<&Work> = kernels.iter().collect();
        order.sort_by_key(|work| work.span.begin_ns);
        for work in order {
            let mut on = self.on(work.row);
            if let Some((stream, device)) = work.stream.and_then(|stream| queue(names.text(stream))) {
                (on.stream, on.device) = (Some(stream.into()), Some(device));
            }
            let name: &str = names.text(work.name);
            let range: Option<&str> = work.zone.map(|zone| &**names.text(zone));
            rows.push(&[
                name.into(),
                (if work.is_kernel { "kernel" } else { "copy" }).into(),
                on.device.into(),
                on.stream.as_deref().into(),
                range.into(),
                work.span.begin_ns.into(),
                work.span.duration_ns().into(),
            ])?;
        }
        Ok(())
    }

    fn wait_rows(&self, names: &Names, rows: &mut Filling) -> Result<(), ArrowError> {
        let mut order: Vec<&Wait> = self.waits.iter().collect();
        order.sort_by_key(|wait| wait.span.begin_ns);
        for wait in order {
            let on = self.on(wait.row);
            let kind = match (wait.is_call, &on.stream) {
                (false, _) => "semaphore",
                (true, None) => "call",
                (true, Some(_)) => "queued",
            };
            let name: &str = names.text(wait.name);
            let text = |name: Option<Name>| -> Option<&str> { name.map(|name| &**names.text(name)) };
            rows.push(&[
                name.into(),
                kind.into(),
                (if on.stream.is_some() { "stream" } else { "thread" }).into(),
                on.device.into(),
                on.stream.as_deref().into(),
                on.thread.as_deref().into(),
                text(wait.zone).into(),
                text(wait.signalled_by).into(),
                wait.span.begin_ns.into(),
                wait.span.duration_ns().into(),
                self.step_number(self.step_at(wait.span.begin_ns)),
            ])?;
        }
        Ok(())
    }

    /// What of its time each stream had a zone or a wait on it, and how much of that it waited.
    fn stream_rows(&self, order: &[usize], rows: &mut Filling) -> Result<(), ArrowError> {
        #[derive(Default)]
        struct Use {
            spans: Vec<Span>,
            waits: Vec<Span>,
        }
        let mut uses: BTreeMap<(i64, Arc<str>), Use> = BTreeMap::new();
        let mut add = |row: usize, span: Span, is_wait: bool| {
            let Where { device: Some(device), stream: Some(stream), .. } = self.on(row) else { return };
            let stream = uses.entry((device, stream)).or_default();
            stream.spans.push(span);
            if is_wait {
                stream.waits.push(span);
            }
        };
        let on_streams = order.iter().map(|at| &self.zones[*at]).filter(|zone| !zone.is_replayed && !zone.is_entry);
        on_streams.for_each(|zone| add(zone.row, zone.span, false));
        self.waits.iter().filter(|wait| !wait.is_call).for_each(|wait| add(wait.row, wait.span, true));
        for ((device, stream), Use { spans, waits }) in uses {
            let begin_ns = spans.iter().map(|span| span.begin_ns).min().unwrap_or(0);
            let end_ns = spans.iter().map(|span| span.end_ns).max().unwrap_or(0);
            let slices = spans.len() as i64;
            let name = self.devices.get(&device).map_or("", |name| name);
            rows.push(&[
                device.into(),
                name.into(),
                (&*stream).into(),
                slices.into(),
                begin_ns.into(),
                end_ns.into(),
                covered(spans).into(),
                covered(waits).into(),
            ])?;
        }
        Ok(())
    }
}

impl Zone {
    /// Its launch, or itself on a thread.
    fn host(&self) -> Span {
        self.launch.map_or(self.span, |(_, host)| host)
    }
}

/// How much time is in any of the spans.
fn covered(mut spans: Vec<Span>) -> i64 {
    spans.sort_unstable_by_key(|span| span.begin_ns);
    let (mut ns, mut until_ns) = (0, i64::MIN);
    for span in spans {
        ns += (span.end_ns - span.begin_ns.max(until_ns)).max(0);
        until_ns = until_ns.max(span.end_ns);
    }
    ns
}

/// The stream and the number of the device, from `compute (NVIDIA H100, device 0)`.
fn queue(text: &str) -> Option<(&str, i64)> {
    let (rest, device) = text.strip_suffix(')')?.rsplit_once(", device ")?;
    Some((rest.rsplit_once(" (")?.0, device.parse().ok()?))
}

impl Visitor for Collected {
    fn slice(&mut self, slice: &Slice<'_>, rows: &Rows, names: &Names) {
        use TraceTable::{Collectives, Kernels, Launches, Ranges, Replays, Streams, Waits, Zones};
        let is_wanted = match slice.kind {
            Kind::Zone | Kind::Collective | Kind::BatchEntry | Kind::HostZone => {
                self.wants(&[Zones, Launches, Collectives, Streams, Ranges])
            }
            Kind::Launch => self.wants(&[Launches]),
            Kind::Kernel | Kind::Copy => self.wants(&[Kernels]),
            Kind::Wait => self.wants(&[Waits, Streams]),
            Kind::Sync => self.wants(&[Waits]),
            Kind::Replay => self.wants(&[Replays]),
            Kind::Step => true,
            Kind::Signal | Kind::Session | Kind::Other => false,
        };
        if !is_wanted || self.is_full {
            return;
        }
        self.kept += 1;
        self.is_full = self.kept > MOST_ROWS;
        self.place(slice.row, rows);
        if let Some((row, _)) = slice.launch {
            self.place(row, rows);
        }
        let Slice { kind, name, row, span, args, .. } = *slice;
        match kind {
            Kind::Launch => {
                self.open.insert((row, span.begin_ns, span.end_ns), self.launches.len());
                self.launches.push(Launch { name, row, span, zone: None });
            }
            Kind::Kernel | Kind::Copy => {
                let work =
                    Work { name, row, stream: args.stream, zone: args.zone, is_kernel: kind == Kind::Kernel, span };
                if row == NO_ROW { self.stages.push(work) } else { self.kernels.push(work) }
            }
            Kind::Wait | Kind::Sync => self.waits.push(Wait {
                name: args.semaphore.filter(|_| kind == Kind::Wait).unwrap_or(name),
                row,
                is_call: kind == Kind::Sync,
                zone: args.zone,
                signalled_by: args.signalled_by,
                span,
            }),
            Kind::Step => self.steps.push((args.step, span)),
            Kind::Replay => self.replays.push((name, row, span)),
            _ => self.zone(slice, names),
        }
    }

    fn fact(&mut self, fact: Fact) {
        if let Fact::Number(name, value) = fact {
            self.facts.push((name, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_spans_share_counts_once() {
        let span = |begin_ns, end_ns| Span { begin_ns, end_ns };
        assert_eq!(covered(vec![span(20, 30), span(0, 10), span(5, 12), span(6, 7)]), 22);
        assert_eq!(covered(Vec::new()), 0);
    }

    #[test]
    fn a_queue_names_its_stream_and_device() {
        assert_eq!(queue("compute (a) (NVIDIA H100, device 3)"), Some(("compute (a)", 3)));
        assert_eq!(queue("compute"), None);
    }
}
