//! A report as tables of values with units, for programs: `export` writes them as JSON, Markdown and CSV. `text` has its own tables,
//! which fit a terminal.

use super::table::{bounded, percent, rate, size, time};
use super::{MemoryHolder, MemoryStats, RangeStats, Report};
use crate::work::WorkStats;

/// A value of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(String),
    Count(u64),
    Ns(i64),
    Bytes(u64),
    Share(f64),
    BytesPerSecond(f64),
    FlopsPerSecond(f64),
    Number(f64),
    Flag(bool),
    /// An upper bound; a column of flags says so to programs.
    AtMost(Box<Cell>),
    /// A lower bound; a column of flags says so to programs.
    AtLeast(Box<Cell>),
    /// An upper bound for people where the value itself is unknown.
    Bound(i64),
    /// The value is unknown, or there is none.
    None,
}

/// A table. The keys of its columns are stable, and end with the unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    pub key: &'static str,
    pub title: &'static str,
    pub columns: &'static [&'static str],
    pub rows: Vec<Vec<Cell>>,
}

impl Cell {
    fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    fn or_none<T>(value: Option<T>, cell: impl FnOnce(T) -> Cell) -> Cell {
        value.map_or(Cell::None, cell)
    }

    fn at_most(is_bound: bool, cell: Cell) -> Cell {
        if is_bound { Cell::AtMost(Box::new(cell)) } else { cell }
    }

    fn at_least(is_bound: bool, cell: Cell) -> Cell {
        if is_bound { Cell::AtLeast(Box::new(cell)) } else { cell }
    }

    /// Returns the value as people read it.
    pub fn shown(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Count(count) => count.to_string(),
            Cell::Ns(ns) => time(*ns),
            Cell::Bytes(bytes) => size(*bytes),
            Cell::Share(share) => percent(*share),
            Cell::BytesPerSecond(speed) => rate(*speed, "B"),
            Cell::FlopsPerSecond(per_s) => rate(*per_s, "FLOP"),
            Cell::Number(number) => format!("{number:.2}"),
            Cell::Flag(is_so) => if *is_so { "yes" } else { "" }.to_owned(),
            Cell::AtMost(cell) => bounded(true, cell.shown()),
            Cell::AtLeast(cell) => format!("≥{}", cell.shown()),
            Cell::Bound(ns) => bounded(true, time(*ns)),
            Cell::None => String::new(),
        }
    }

    /// Returns the value as programs read it.
    pub fn exact(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Count(number) | Cell::Bytes(number) => number.to_string(),
            Cell::Ns(ns) => ns.to_string(),
            Cell::Share(number)
            | Cell::BytesPerSecond(number)
            | Cell::FlopsPerSecond(number)
            | Cell::Number(number) => number.to_string(),
            Cell::Flag(is_so) => is_so.to_string(),
            Cell::AtMost(cell) | Cell::AtLeast(cell) => cell.exact(),
            Cell::Bound(_) | Cell::None => String::new(),
        }
    }

    /// Returns whether it is a number, which tables align to the right.
    pub fn is_number(&self) -> bool {
        !matches!(self, Cell::Text(_))
    }
}

impl RangeStats {
    /// Returns where the times are: `stream`, `replay` or `thread`.
    fn place(&self) -> &'static str {
        match (self.on_stream, self.in_replays) {
            (true, true) => "replay",
            (true, false) => "stream",
            (false, _) => "thread",
        }
    }

    /// Returns a length of timed zones, or `bound` if there are none.
    fn length(&self, ns: i64, bound: Cell) -> Cell {
        if self.timed() > 0 || self.bounded == 0 { Cell::Ns(ns) } else { bound }
    }
}

const RANGES: &[&str] = &[
    "name",
    "on",
    "count",
    "seen",
    "failed",
    "total_ns",
    "total_error_ns",
    "recorded_ns",
    "self_ns",
    "share",
    "first_ns",
    "mean_ns",
    "min_ns",
    "p50_ns",
    "p99_ns",
    "max_ns",
    "mean_launch_ns",
    "bounded",
    "bounded_total_ns",
    "bounded_least_ns",
    "bounded_max_ns",
    "total_is_bound",
    "self_is_bound",
];

const RANGE_STEPS: &[&str] =
    &["name", "on", "steps", "zones_per_step", "mean_ns", "p50_ns", "p99_ns", "max_ns", "bounded_steps"];

const WORK: &[&str] = &[
    "name",
    "on",
    "device",
    "bytes_per_s",
    "bytes_share",
    "flops_per_s",
    "flops_share",
    "flops_per_byte",
    "peak_bytes_per_s",
    "peak_f16_flops_per_s",
    "peak_f32_flops_per_s",
    "peak_measured_on",
    "peak_driver",
];

const COLLECTIVES: &[&str] = &[
    "name",
    "group",
    "count",
    "sized",
    "bytes",
    "total_ns",
    "busbw_p50_bytes_per_s",
    "busbw_p99_bytes_per_s",
    "hidden_share",
    "hidden_by_kernels",
    "bounded",
    "total_is_bound",
];

const KERNELS: &[&str] = &["name", "range", "count", "total_ns", "mean_ns", "max_ns"];

const HOST_WAITS: &[&str] = &["name", "thread", "range", "count", "total_ns", "mean_ns", "max_ns"];

const STREAMS: &[&str] = &[
    "name",
    "device",
    "streams",
    "busy_ns",
    "waiting_ns",
    "idle_ns",
    "not_recorded_ns",
    "uncertain_ns",
    "busy_is_bound",
    "rest_is_bound",
    "waiting_early_ns",
    "waiting_is_bound",
];

const STREAM_WAITS: &[&str] = &["name", "waited_for", "count", "total_ns", "total_is_bound"];

const SEMAPHORES: &[&str] = &["name", "count", "total_ns", "total_is_bound"];

const PATH: &[&str] = &["name", "on", "total_ns", "share"];

const STEPS: &[&str] =
    &["name", "count", "left_out", "cut", "dropped", "mean_ns", "min_ns", "p50_ns", "p99_ns", "max_ns"];

const MEMORY: &[&str] = &["name", "allocated", "freed", "bytes", "peak_bytes", "peak_at_ns"];

const MEMORY_HOLDERS: &[&str] = &["name", "device", "at", "bytes", "held_share", "allocations"];

const CLOCKS: &[&str] = &["name", "uncertainty_ns", "worst_uncertainty_ns", "bracket_ns", "busy_bracket_ns"];

impl Report {
    /// Returns the tables that have rows.
    #[doc(hidden)]
    pub fn tables(&self) -> Vec<Table> {
        let all = [
            self.of_ranges(),
            self.of_steps(),
            self.of_range_steps(),
            self.of_work(),
            self.of_collectives(),
            self.of_kernels(),
            self.of_host_waits(),
            self.of_streams(),
            self.of_stream_waits(),
            self.of_semaphores(),
            self.of_path(),
            self.of_memory(),
            self.of_memory_holders(),
            self.of_clocks(),
        ];
        all.into_iter().filter(|table| !table.rows.is_empty()).collect()
    }

    fn of_ranges(&self) -> Table {
        let row = |range: &RangeStats| {
            vec![
                Cell::text(&*range.name),
                Cell::text(range.place()),
                Cell::Count(range.count),
                Cell::Count(range.seen),
                Cell::Count(range.failed),
                Cell::at_most(range.total_is_bound(), Cell::Ns(range.total_ns)),
                Cell::Ns(range.total_error_ns),
                range.length(range.recorded_ns, Cell::None),
                Cell::at_most(range.self_is_bound(), range.length(range.self_ns, Cell::None)),
                Cell::at_most(range.total_is_bound(), Cell::Share(range.share)),
                Cell::or_none(range.first_ns, Cell::Ns),
                range.length(range.mean_ns, Cell::Bound(range.bounded_mean_ns())),
                range.length(range.min_ns, Cell::None),
                range.length(range.p50_ns, Cell::None),
                range.length(range.p99_ns, Cell::None),
                range.length(range.max_ns, Cell::Bound(range.bounded_max_ns)),
                if range.on_stream && !range.in_replays { Cell::Ns(range.mean_launch_ns) } else { Cell::None },
                Cell::Count(range.bounded),
                Cell::at_most(range.bounded > 0, Cell::Ns(range.bounded_total_ns)),
                Cell::at_least(range.bounded > 0, Cell::Ns(range.bounded_least_ns)),
                Cell::at_most(range.bounded > 0, Cell::Ns(range.bounded_max_ns)),
                Cell::Flag(range.total_is_bound()),
                Cell::Flag(range.self_is_bound()),
            ]
        };
        Table { key: "ranges", title: "Ranges", columns: RANGES, rows: self.ranges.iter().map(row).collect() }
    }

    fn of_steps(&self) -> Table {
        let steps = &self.steps;
        let row = vec![
            Cell::text("step"),
            Cell::Count(steps.count),
            Cell::Count(steps.left_out),
            Cell::Count(steps.cut),
            Cell::Count(steps.dropped),
            Cell::Ns(steps.mean_ns),
            Cell::Ns(steps.min_ns),
            Cell::Ns(steps.p50_ns),
            Cell::Ns(steps.p99_ns),
            Cell::Ns(steps.max_ns),
        ];
        let rows = if *steps == Default::default() { Vec::new() } else { vec![row] };
        Table { key: "steps", title: "Steps", columns: STEPS, rows }
    }

    fn of_range_steps(&self) -> Table {
        let rows = self.range_steps.iter().map(|range| {
            let ns = |ns: i64| if range.steps > 0 { Cell::Ns(ns) } else { Cell::None };
            vec![
                Cell::text(&*range.name),
                Cell::text(if range.on_stream { "stream" } else { "thread" }),
                Cell::Count(range.steps),
                Cell::Number(range.zones as f64 / range.steps.max(1) as f64),
                ns(range.mean_ns),
                ns(range.p50_ns),
                ns(range.p99_ns),
                ns(range.max_ns),
                Cell::Count(range.bounded_steps),
            ]
        });
        Table { key: "range_steps", title: "Ranges in a step", columns: RANGE_STEPS, rows: rows.collect() }
    }

    fn of_work(&self) -> Table {
        let row = |(range, work): (&RangeStats, &WorkStats)| {
            let peak = work.peak.as_ref();
            let measured = peak.and_then(|peak| peak.measured.as_ref());
            vec![
                Cell::text(&*range.name),
                Cell::text(range.place()),
                Cell::text(&work.device),
                Cell::or_none(work.rates.bytes_per_s, Cell::BytesPerSecond),
                Cell::or_none(work.bytes_share(), Cell::Share),
                Cell::or_none(work.rates.flops_per_s, Cell::FlopsPerSecond),
                Cell::or_none(work.flops_share(), Cell::Share),
                Cell::or_none(work.flops_per_byte(), Cell::Number),
                Cell::or_none(peak.map(|peak| peak.bytes_per_s), Cell::BytesPerSecond),
                Cell::or_none(peak.and_then(|peak| peak.f16_flops_per_s), Cell::FlopsPerSecond),
                Cell::or_none(peak.and_then(|peak| peak.f32_flops_per_s), Cell::FlopsPerSecond),
                Cell::or_none(measured, |measured| Cell::text(&measured.date)),
                Cell::or_none(measured, |measured| Cell::text(&measured.driver)),
            ]
        };
        let rows = self.ranges.iter().filter_map(|range| Some(row((range, range.work.as_ref()?)))).collect();
        Table { key: "work", title: "Declared work", columns: WORK, rows }
    }

    fn of_collectives(&self) -> Table {
        let rows = self.collectives.iter().map(|stats| {
            vec![
                Cell::text(stats.kind.to_string()),
                Cell::text(&stats.group),
                Cell::Count(stats.count),
                Cell::Count(stats.sized),
                if stats.sized > 0 { Cell::Bytes(stats.bytes) } else { Cell::None },
                Cell::at_most(stats.total_is_bound(), Cell::Ns(stats.total_ns)),
                Cell::or_none(stats.bus_p50, Cell::BytesPerSecond),
                Cell::or_none(stats.bus_p99, Cell::BytesPerSecond),
                if stats.bounded < stats.count { Cell::Share(stats.hidden) } else { Cell::None },
                Cell::Flag(stats.hidden_by_kernels),
                Cell::Count(stats.bounded),
                Cell::Flag(stats.total_is_bound()),
            ]
        });
        Table { key: "collectives", title: "Collectives", columns: COLLECTIVES, rows: rows.collect() }
    }

    fn of_kernels(&self) -> Table {
        let rows = self.top_kernels.iter().map(|stats| {
            vec![
                Cell::text(&stats.name),
                Cell::or_none(stats.range.as_deref(), Cell::text),
                Cell::Count(stats.count),
                Cell::Ns(stats.total_ns),
                Cell::Ns(stats.total_ns / stats.count.max(1) as i64),
                Cell::Ns(stats.max_ns),
            ]
        });
        Table { key: "kernels", title: "Kernels and copies", columns: KERNELS, rows: rows.collect() }
    }

    fn of_host_waits(&self) -> Table {
        let rows = self.host_waits.iter().map(|stats| {
            vec![
                Cell::text(&*stats.call),
                Cell::text(&stats.thread),
                Cell::or_none(stats.range.as_deref(), Cell::text),
                Cell::Count(stats.count),
                Cell::Ns(stats.total_ns),
                Cell::Ns(stats.total_ns / stats.count.max(1) as i64),
                Cell::Ns(stats.max_ns),
            ]
        });
        Table { key: "host_waits", title: "Waits of threads for the device", columns: HOST_WAITS, rows: rows.collect() }
    }

    fn of_streams(&self) -> Table {
        let rows = self.streams.iter().map(|stats| {
            vec![
                Cell::text(&stats.name),
                Cell::text(&stats.device),
                Cell::Count(stats.streams),
                Cell::at_most(stats.busy_is_bound(), Cell::Ns(stats.busy_ns)),
                Cell::at_most(stats.waiting_is_bound(), Cell::Ns(stats.waiting_ns)),
                Cell::or_none(stats.idle_ns, |ns| Cell::at_least(stats.rest_is_bound(), Cell::Ns(ns))),
                Cell::at_least(stats.rest_is_bound() && stats.idle_ns.is_none(), Cell::Ns(stats.not_recorded_ns)),
                Cell::Ns(stats.uncertain_ns),
                Cell::Flag(stats.busy_is_bound()),
                Cell::Flag(stats.rest_is_bound()),
                Cell::Ns(stats.waiting_early_ns),
                Cell::Flag(stats.waiting_is_bound()),
            ]
        });
        Table { key: "streams", title: "Streams", columns: STREAMS, rows: rows.collect() }
    }

    fn of_stream_waits(&self) -> Table {
        let rows = self.streams.iter().flat_map(|stream| {
            stream.waited_for.iter().map(|on| {
                vec![
                    Cell::text(&stream.name),
                    Cell::text(&on.by),
                    Cell::Count(on.count),
                    Cell::at_most(on.is_bound(), Cell::Ns(on.ns)),
                    Cell::Flag(on.is_bound()),
                ]
            })
        });
        Table { key: "stream_waits", title: "Waits of streams", columns: STREAM_WAITS, rows: rows.collect() }
    }

    fn of_semaphores(&self) -> Table {
        let rows = self.semaphores.iter().map(|stats| {
            vec![
                Cell::text(&stats.name),
                Cell::Count(stats.waits),
                Cell::at_most(stats.is_bound(), Cell::Ns(stats.waited_ns)),
                Cell::Flag(stats.is_bound()),
            ]
        });
        Table { key: "semaphores", title: "Semaphores", columns: SEMAPHORES, rows: rows.collect() }
    }

    fn of_path(&self) -> Table {
        let parts = self.critical_path.iter().flat_map(|path| &path.parts);
        let rows = parts
            .map(|part| vec![Cell::text(&part.name), Cell::text(&part.on), Cell::Ns(part.ns), Cell::Share(part.share)]);
        Table { key: "critical_path", title: "Critical path", columns: PATH, rows: rows.collect() }
    }

    fn of_memory(&self) -> Table {
        let rows = self.memory.iter().map(|stats| {
            vec![
                Cell::text(&stats.device),
                Cell::Count(stats.allocated),
                Cell::Count(stats.freed),
                Cell::Bytes(stats.bytes),
                Cell::Bytes(stats.peak_bytes),
                Cell::Ns(stats.peak_ns),
            ]
        });
        Table { key: "memory", title: "Device memory", columns: MEMORY, rows: rows.collect() }
    }

    /// Who held the memory of each device at its peak, and who at the end.
    fn of_memory_holders(&self) -> Table {
        let row = |device: &MemoryStats, at: &str, all: u64, holder: &MemoryHolder| {
            vec![
                Cell::text(if holder.name.is_empty() { "(no zone)" } else { holder.name.as_str() }),
                Cell::text(&device.device),
                Cell::text(at),
                Cell::Bytes(holder.bytes),
                Cell::Share(holder.bytes as f64 / all.max(1) as f64),
                Cell::Count(holder.allocations),
            ]
        };
        let rows = self.memory.iter().flat_map(|device| {
            let at_peak = device.at_peak.iter().map(move |holder| row(device, "peak", device.peak_bytes, holder));
            at_peak.chain(device.not_freed.iter().map(move |holder| row(device, "end", device.bytes, holder)))
        });
        Table { key: "memory_holders", title: "Who held device memory", columns: MEMORY_HOLDERS, rows: rows.collect() }
    }

    fn of_clocks(&self) -> Table {
        let rows = self.clocks.iter().map(|clock| {
            vec![
                Cell::text(&clock.device),
                Cell::Ns(clock.uncertainty_ns),
                // Earlier traces do not say it.
                Cell::or_none(Some(clock.worst_uncertainty_ns).filter(|ns| *ns > 0), Cell::Ns),
                Cell::Ns(clock.bracket_ns),
                Cell::Ns(clock.busy_bracket_ns),
            ]
        });
        Table { key: "clocks", title: "Clocks", columns: CLOCKS, rows: rows.collect() }
    }
}
