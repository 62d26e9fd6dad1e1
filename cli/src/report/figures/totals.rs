//! The report of what was added up.

use std::borrow::Cow;
use std::collections::HashSet;

use warpline_report::figures::{HostWaitStats, KernelStats, RangeStepStats, StreamStats, WaitedFor};
use warpline_report::lengths::Coverage;
use warpline_report::{RangeStats, Report};

use super::{Figures, RANGES, Spot, Sum, Usage};
use crate::trace::{Name, Names};

impl Figures {
    /// Returns the report.
    pub(crate) fn report(&self, names: &Names) -> Report {
        let mut report = Report::default();
        let zones = self.entries.iter().filter(|entry| entry.spot != Spot::Replays).map(|entry| entry.lengths.count());
        self.account.add_to(&mut report, zones.sum());
        report.ranges = self.ranges(names);
        report.range_steps = self.range_steps(names);
        if self.steps.count() > 0 {
            let steps = self.steps.stats(Cow::Borrowed(""), Coverage::default());
            let all = &mut report.steps;
            (all.count, all.min_ns, all.max_ns) = (steps.count, steps.min_ns, steps.max_ns);
            all.mean_ns = steps.recorded_ns / steps.count.max(1) as i64;
            (all.p50_ns, all.p99_ns) = (steps.p50_ns, steps.p99_ns);
        }
        report.collectives = self.traffic.stats();
        let kernels = if self.kernels.is_empty() { &self.kernel_slices } else { &self.kernels };
        report.top_kernels = kernels
            .iter()
            .map(|((name, range), sum)| KernelStats {
                name: names.text(*name).to_string(),
                range: range.map(|range| Cow::Owned(names.text(range).to_string())),
                count: sum.count,
                total_ns: sum.total_ns,
                max_ns: sum.max_ns,
            })
            .collect();
        report.top_kernels.sort_by(|a, b| (b.total_ns, &a.name, &a.range).cmp(&(a.total_ns, &b.name, &b.range)));
        report.host_waits = self
            .host_waits
            .iter()
            .map(|((call, thread, range), sum)| HostWaitStats {
                thread: thread.to_string(),
                call: Cow::Owned(names.text(*call).to_string()),
                range: range.map(|range| Cow::Owned(names.text(range).to_string())),
                count: sum.count,
                total_ns: sum.total_ns,
                max_ns: sum.max_ns,
            })
            .collect();
        report.host_waits.sort_by(|a, b| (b.total_ns, &a.thread, &a.call).cmp(&(a.total_ns, &b.thread, &b.call)));
        let semaphores = self.semaphores.iter().map(|(name, sum)| (names.text(*name).to_string(), sum));
        report.semaphores = semaphores
            .map(|(name, sum)| warpline_report::SemaphoreStats {
                name,
                waits: sum.count,
                waited_ns: sum.total_ns,
                waited_early_ns: sum.early_ns,
            })
            .collect();
        report.semaphores.sort_by(|a, b| (b.waited_ns, &a.name).cmp(&(a.waited_ns, &b.name)));
        report.streams = self.streams();
        report.ends = self.ends;
        report.memory = self.memory.stats();
        report.critical_path = self.path.clone();
        report.notes.extend(self.notes());
        report
    }

    /// The streams of all traces. A stream whose name another trace has, too, also has the name of its trace.
    fn streams(&self) -> Vec<StreamStats> {
        let is_same = |(trace, a): &(u32, StreamStats), (other, b): &(u32, StreamStats)| {
            trace != other && (&a.device, &a.name) == (&b.device, &b.name)
        };
        let mut by_name: Vec<_> = self.streams.iter().collect();
        by_name.sort_by_key(|(_, stream)| (&stream.device, &stream.name));
        let shared: HashSet<_> = by_name
            .windows(2)
            .filter(|pair| is_same(pair[0], pair[1]))
            .map(|pair| (&pair[0].1.device, &pair[0].1.name))
            .collect();
        let named = self.streams.iter().map(|(trace, stream)| {
            let of = self.trace_names.get(*trace as usize);
            let of = of.filter(|_| shared.contains(&(&stream.device, &stream.name)));
            let name = of.map_or_else(|| stream.name.clone(), |of| format!("{} of {of}", stream.name));
            StreamStats { name, ..stream.clone() }
        });
        named.collect()
    }

    fn ranges(&self, names: &Names) -> Vec<RangeStats> {
        let windows = self.windows.map_or(0, |(first, last)| last - first + 1);
        let coverage = Coverage { window_ns: self.window_ns.max(1), windows, ..Coverage::default() };
        let stats = self.entries.iter().map(|entry| {
            let name = names.text(entry.name);
            let (seen, scales) = if entry.spot == Spot::Replays { (None, false) } else { self.account.seen(name) };
            let coverage = Coverage { seen, scales, ..coverage };
            let name = Cow::Owned(name.to_string());
            let stats = RangeStats { work: entry.work.stats(), ..entry.lengths.stats(name, coverage) };
            match entry.spot {
                Spot::Threads => stats,
                Spot::Streams => RangeStats { on_stream: true, ..stats },
                Spot::Replays => RangeStats { on_stream: true, in_replays: true, mean_launch_ns: 0, ..stats },
            }
        });
        let mut stats: Vec<_> = stats.collect();
        stats.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
        stats
    }

    fn range_steps(&self, names: &Names) -> Vec<RangeStepStats> {
        let stats = self.step_sums.iter().filter_map(|(number, sums)| {
            let entry = self.entries.get(*number as usize)?;
            let name = Cow::Owned(names.text(entry.name).to_string());
            Some(RangeStepStats::new(name, entry.spot != Spot::Threads, sums))
        });
        let mut stats: Vec<_> = stats.collect();
        stats.sort_by(|a, b| (b.mean_ns, &a.name, a.on_stream).cmp(&(a.mean_ns, &b.name, b.on_stream)));
        stats
    }

    /// What a reader of the figures must know.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.more > 0 {
            notes.push(format!(
                "{} beyond {} counted together as `(more)`; record fewer names, with `WARPLINE=filter=…` or in fields",
                crate::output::counted(self.more, "range"),
                format_args!("{RANGES} {}", if self.more == 1 { "is" } else { "are" }),
            ));
        }
        if self.corrected > 0 {
            notes.push(format!(
                "lengths of {} contain the time of events, {} on average; `gpu_ns_corrected` in the trace is without it",
                crate::output::counted(self.corrected, "zone"),
                crate::output::time(self.correction_ns as f64 / self.corrected as f64)
            ));
        }
        if self.late > 0 {
            notes.push(format!(
                "no figure of steps counts {} that ended more than 256 steps late",
                crate::output::counted(self.late, "zone")
            ));
        }
        if self.traces > 1 && self.path.is_some() {
            let of = self.trace_names.get(self.path_of as usize).map_or("a trace", |name| name);
            notes.push(format!("the critical path is that of {of}: the longest of all traces"));
        }
        notes
    }
}

impl Usage {
    /// Returns the figures of the stream; none if nothing is on it. `is_complete`: all kernels are in the trace, or, on a device without kernels, all
    /// zones.
    pub(super) fn stats(
        &self,
        all_ns: i64,
        has_kernels: bool,
        is_complete: bool,
        names: &Names,
    ) -> Option<StreamStats> {
        let sums = self.time.sums(has_kernels);
        let rest_ns = (all_ns - sums.used_ns).max(0);
        let whom = |(by, sum): (&Name, &Sum)| WaitedFor {
            by: names.text(*by).to_string(),
            count: sum.count,
            ns: sum.total_ns,
            early_ns: sum.early_ns,
        };
        let mut waited_for: Vec<_> = self.waited_for.iter().map(whom).collect();
        waited_for.sort_by(|a, b| (b.ns, &a.by).cmp(&(a.ns, &b.by)));
        (self.time.until_ns() > i64::MIN).then(|| StreamStats {
            name: self.name.to_string(),
            device: self.device.to_string(),
            streams: 1,
            busy_ns: sums.busy_ns,
            uncertain_ns: sums.busy_early_ns,
            waiting_ns: sums.waiting_ns,
            waiting_early_ns: sums.waiting_early_ns,
            idle_ns: is_complete.then_some(rest_ns),
            not_recorded_ns: if is_complete { 0 } else { rest_ns },
            waited_for,
        })
    }
}
