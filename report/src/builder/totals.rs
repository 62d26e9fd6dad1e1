//! The report of what was added up.

use std::borrow::Cow;

use super::ranges::RANGES;
use super::{Complete, Place, ReportBuilder};
use crate::Report;
use crate::figures::{HostWaitStats, KernelStats, RangeStats, RangeStepStats, SemaphoreStats, StreamStats};
use crate::lengths::Coverage;
use crate::names::{Name, Names};
use warpline_core::plural::counted;
use warpline_core::sorting;

impl ReportBuilder {
    /// Adds the figures to a report that has the counts. `complete` is what is complete of the recording that has not ended. `seen` returns how many
    /// zones of a range ran, if that is known, of which so many were recorded; and whether that number scales its total.
    pub fn add_to(
        &self,
        report: &mut Report,
        complete: Complete,
        names: &Names,
        seen: impl Fn(Name, u64) -> (Option<u64>, bool),
    ) {
        let text = |name: Name| names.text(name).to_string();
        let range = |range: Option<Name>| range.map(|range| Cow::Owned(text(range)));
        report.ranges = self.range_stats(names, seen);
        report.range_steps = self.range_steps(names);
        if self.has_steps() {
            let steps = self.steps.stats(Cow::Borrowed(""), Coverage::default());
            let all = &mut report.steps;
            (all.count, all.min_ns, all.max_ns) = (steps.count, steps.min_ns, steps.max_ns);
            all.mean_ns = steps.recorded_ns / steps.count.max(1) as i64;
            (all.p50_ns, all.p99_ns) = (steps.p50_ns, steps.p99_ns);
        }
        report.collectives = self.traffic.stats();
        report.top_kernels = self.kernels.rows(
            |(name, of), sum| KernelStats {
                name: text(name),
                range: range(of),
                count: sum.count,
                total_ns: sum.total_ns,
                max_ns: sum.max_ns,
            },
            |row| (row.name.clone(), row.range.clone()),
        );
        report.host_waits = self.host_waits.rows(
            |(thread, call, of), sum| HostWaitStats {
                thread: thread.to_string(),
                call: Cow::Owned(text(call)),
                range: range(of),
                count: sum.count,
                total_ns: sum.total_ns,
                max_ns: sum.max_ns,
            },
            |row| (row.thread.clone(), row.call.clone(), row.range.clone()),
        );
        report.semaphores = self.semaphores.rows(
            |name, sum| SemaphoreStats {
                name: text(name),
                waits: sum.count,
                waited_ns: sum.total_ns,
                waited_early_ns: sum.early_ns,
            },
            |row| row.name.clone(),
        );
        let ended = self.ended_streams.iter().map(|(_, stream)| stream.clone());
        report.streams = ended.chain(self.current.streams.stats(complete, names)).collect();
        report.ends = self.ends;
        report.critical_path = self.path.clone().or_else(|| self.current.path.path(None, names));
        report.notes.extend(self.notes());
    }

    /// Returns the streams of the recordings that have ended, each with the number of its recording.
    pub fn ended_streams(&self) -> &[(u32, StreamStats)] {
        &self.ended_streams
    }

    fn range_stats(&self, names: &Names, seen: impl Fn(Name, u64) -> (Option<u64>, bool)) -> Vec<RangeStats> {
        let windows = self.windows.map_or(0, |(first, last)| last - first + 1);
        let window_ns = self.window_ns + self.current.window.map_or(0, |window| window.duration_ns());
        let coverage = Coverage { window_ns: window_ns.max(1), windows, ..Coverage::default() };
        let stats = self.ranges.all.iter().map(|range| {
            // Zones that ran are counted per range, not separately for threads and streams, and zones of replays are not counted.
            let elsewhere = match range.place {
                Place::Threads => Some(Place::Streams),
                Place::Streams => Some(Place::Threads),
                Place::Replays => None,
            };
            let (seen, scales) = match elsewhere {
                Some(other) if !self.ranges.has(range.name, other) => seen(range.name, range.lengths.count()),
                _ => (None, false),
            };
            let coverage = Coverage { seen, scales, ..coverage };
            let name = Cow::Owned(names.text(range.name).to_string());
            let stats = RangeStats { work: range.work.stats(), ..range.lengths.stats(name, coverage) };
            match range.place {
                Place::Threads => stats,
                Place::Streams => RangeStats { on_stream: true, ..stats },
                Place::Replays => RangeStats { on_stream: true, in_replays: true, mean_launch_ns: 0, ..stats },
            }
        });
        let mut stats: Vec<_> = stats.collect();
        sorting::sort_by(&mut stats, |a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
        stats
    }

    fn range_steps(&self, names: &Names) -> Vec<RangeStepStats> {
        let mut sums = self.step_sums.clone();
        self.current.add_steps_to(&mut sums);
        let stats = sums.iter().filter_map(|(number, sums)| {
            let (name, place) = self.name_of(*number)?;
            let name = Cow::Owned(names.text(name).to_string());
            Some(RangeStepStats::new(name, place != Place::Threads, sums))
        });
        let mut stats: Vec<_> = stats.collect();
        sorting::sort_by(&mut stats, |a, b| (b.mean_ns, &a.name, a.on_stream).cmp(&(a.mean_ns, &b.name, b.on_stream)));
        stats
    }

    /// What a reader of the figures must know.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.ranges.more > 0 {
            notes.push(format!(
                "{} beyond {} counted together as `(more)`; record fewer names, with `WARPLINE=filter=…` or in fields",
                counted(self.ranges.more, "range"),
                format_args!("{RANGES} {}", if self.ranges.more == 1 { "is" } else { "are" }),
            ));
        }
        let late = self.late + self.current.per_step.late();
        if late > 0 {
            notes.push(format!(
                "no figure of steps counts {} that ended more than 256 steps late",
                counted(late, "zone")
            ));
        }
        notes
    }
}
