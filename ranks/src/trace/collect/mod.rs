//! Collects the slices of a trace that the asked tables need. At the end, the step and the call of each zone are known,
//! and the part of its time that is in no zone within it; `rows` makes the tables. Calls no engine; keeps at most
//! [`MOST_ROWS`] slices.

mod rows;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use warpline_core::record::{Span, is_bound};
use warpline_report::nesting::{self, Nesting};
use warpline_report::traffic::is_of_collective;
use warpline_trace::read::{Args, Fact, Kind, Message, Name, Names, Place, Rows, Slice, Visitor};

use super::tables::TraceTable;

/// The most slices that are kept. They are in memory, with the rows that are made of them.
pub(super) const MOST_ROWS: usize = 16 << 20;

/// The row of a kernel that is on none.
const NO_ROW: usize = usize::MAX;

/// The collected slices.
pub(super) struct Collected {
    wanted: BTreeSet<TraceTable>,
    wants_fields: bool,
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
    /// The group of its row.
    group: u64,
    span: Span,
    /// The row and the time of its launch.
    launch: Option<(usize, Span)>,
    is_collective: bool,
    is_replayed: bool,
    /// A part of a batch of collectives.
    is_entry: bool,
    has_failed: bool,
    sampled_share: f64,
    end_early_by_ns: i64,
    corrected_ns: Option<i64>,
    bytes: Option<u64>,
    flops: Option<u64>,
    /// The fields and the label as JSON.
    fields: Option<Box<str>>,
    /// The length: of a part of a batch, its share.
    ns: i64,
    self_ns: i64,
    /// By how much `self_ns` may be shorter, because ends of zones within it are not timed.
    self_early_ns: i64,
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
    is_collective: bool,
    span: Span,
}

struct Wait {
    name: Name,
    row: usize,
    is_call: bool,
    zone: Option<Name>,
    signalled_by: Option<Name>,
    span: Span,
    end_early_by_ns: i64,
}

impl Collected {
    /// Returns what is to be collected for these tables. `wants_fields`: the fields of zones, too.
    pub(super) fn new(wanted: BTreeSet<TraceTable>, wants_fields: bool) -> Self {
        Self {
            wants_fields: wants_fields && wanted.contains(&TraceTable::Zones),
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

    fn zone(&mut self, slice: &Slice<'_>, group: u64, names: &Names) {
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
            group,
            span: slice.span,
            launch: slice.launch,
            is_collective,
            is_replayed: args.has_correlation && slice.kind != Kind::HostZone,
            is_entry: slice.kind == Kind::BatchEntry,
            has_failed: args.has_failed,
            sampled_share: args.sampled_share,
            end_early_by_ns: slice.early_by_ns(),
            corrected_ns: args.corrected_ns,
            bytes: args.work().bytes,
            flops: args.work().flops,
            fields: self.wants_fields.then(|| json(args, names)).flatten(),
            ns,
            self_ns: ns,
            self_early_ns: 0,
            step: None,
            call: 0,
        });
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
                let part = |ns: i64| if share == 1.0 { ns } else { (ns as f64 * share) as i64 };
                (zone.ns, zone.end_early_by_ns) = (part(zone.ns), part(zone.end_early_by_ns));
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
        let mut of_row: HashMap<u64, Vec<usize>> = HashMap::new();
        for (at, zone) in self.zones.iter().enumerate().filter(|(_, zone)| !zone.is_entry) {
            of_row.entry(zone.group).or_default().push(at);
        }
        for mut zones in of_row.into_values() {
            // If two spans are equal, the one that was launched first contains the other one.
            zones.sort_unstable_by_key(|at| {
                let zone = &self.zones[*at];
                nesting::key(zone.span, (zone.host().begin_ns, *at))
            });
            let mut nesting = Nesting::default();
            for at in zones {
                let zone = &mut self.zones[at];
                let inner = nesting.add(zone.span, zone.end_early_by_ns);
                zone.self_ns -= inner.least_ns;
                zone.self_early_ns = inner.most_ns - inner.least_ns;
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
}

impl Zone {
    fn is_bounded(&self) -> bool {
        is_bound(self.ns, self.end_early_by_ns)
    }

    /// Its launch, or itself on a thread.
    fn host(&self) -> Span {
        self.launch.map_or(self.span, |(_, host)| host)
    }
}

/// Returns the fields and the label of a zone as a JSON object; none if it has none.
fn json(args: &Args, names: &Names) -> Option<Box<str>> {
    let fields: serde_json::Map<_, _> =
        args.fields(names).map(|(name, value)| (name.to_owned(), value.clone())).collect();
    (!fields.is_empty()).then(|| serde_json::Value::from(fields).to_string().into())
}

impl Visitor for Collected {
    fn wants_fields(&self) -> bool {
        self.wants_fields
    }

    fn slice(&mut self, slice: &Slice<'_>, rows: &Rows, names: &mut Names) {
        use TraceTable::{Collectives, Kernels, Launches, Ranges, Replays, Streams, Waits, Zones};
        let is_wanted = match slice.kind {
            Kind::Zone | Kind::Collective | Kind::BatchEntry | Kind::HostZone => {
                self.wants(&[Zones, Launches, Collectives, Streams, Ranges]) || slice.args.is_kernel
            }
            Kind::Launch => self.wants(&[Launches]),
            Kind::Kernel | Kind::Copy => self.wants(&[Kernels, Streams]),
            Kind::Wait => self.wants(&[Waits, Streams]),
            Kind::Sync => self.wants(&[Waits]),
            Kind::Replay => self.wants(&[Replays]),
            Kind::Step => true,
            Kind::Signal | Kind::Session | Kind::Call | Kind::GraphZone | Kind::Other => false,
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
                let is_kernel = kind == Kind::Kernel;
                let is_collective = is_kernel && is_of_collective(names.text(name));
                let work = Work { name, row, stream: args.stream, zone: args.zone, is_kernel, is_collective, span };
                if row == NO_ROW { self.stages.push(work) } else { self.kernels.push(work) }
            }
            Kind::Wait | Kind::Sync => self.waits.push(Wait {
                name: args.semaphore.filter(|_| kind == Kind::Wait).unwrap_or(name),
                row,
                is_call: kind == Kind::Sync,
                zone: args.zone,
                signalled_by: args.signalled_by,
                span,
                end_early_by_ns: slice.early_by_ns(),
            }),
            Kind::Step => self.steps.push((args.step, span)),
            Kind::Replay => self.replays.push((name, row, span)),
            _ => {
                // A collective of PyTorch's profiler is its kernel.
                if args.is_kernel {
                    let (zone, stream) = (args.zone, args.stream);
                    self.kernels.push(Work { name, row, stream, zone, is_kernel: true, is_collective: true, span });
                }
                self.zone(slice, rows.group(row), names);
            }
        }
    }

    fn fact(&mut self, fact: Fact) {
        if let Fact::Number(name, value) = fact {
            self.facts.push((name, value));
        }
    }
}
