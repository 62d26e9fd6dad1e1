//! Turns the collected slices into the rows of tables. Rows are in the order of their begins.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use warpline_core::record::{Span, is_bound};
use warpline_report::stream_time::{StreamSums, StreamTime};
use warpline_trace::read::{Message, Name, Names};

use super::super::tables::{Cell, Filling, TraceTable};
use super::{Collected, Launch, Wait, Where, Work, Zone};

impl Collected {
    /// The rows of the tables that were asked for.
    pub(in super::super) fn tables(mut self, names: &Names) -> Result<Vec<(TraceTable, Vec<RecordBatch>)>, ArrowError> {
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
                TraceTable::Streams => self.stream_rows(&order, names, &mut rows)?,
                TraceTable::Account => {
                    for (name, value) in &self.facts {
                        rows.push(&[name.as_str().into(), (*value).into()])?;
                    }
                }
                TraceTable::Work | TraceTable::Ranges => {}
            }
            Ok((table, rows.finish()?))
        };
        wanted.into_iter().map(one).collect()
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
        let sampled = (zone.sampled_share > 0.0).then_some(zone.sampled_share);
        rows.push(&[
            number.into(),
            range.into(),
            self.zone_place(zone).into(),
            on.device.into(),
            on.stream.as_deref().into(),
            thread.as_deref().into(),
            zone.span.begin_ns.into(),
            zone.ns.into(),
            zone.is_bounded().into(),
            zone.self_ns.into(),
            (zone.is_bounded() || is_bound(zone.self_ns, zone.self_early_ns)).into(),
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
            zone.fields.as_deref().into(),
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
                zone.is_bounded().into(),
                self.step_number(zone.step),
            ])?;
        }
        Ok(())
    }

    fn kernel_rows(&self, names: &Names, rows: &mut Filling) -> Result<(), ArrowError> {
        let kernels = if self.stages.is_empty() { &self.kernels } else { &self.stages };
        let mut order: Vec<&Work> = kernels.iter().collect();
        order.sort_by_key(|work| work.span.begin_ns);
        // Kernels of a library may have any name.
        let collectives: HashSet<Name> =
            self.zones.iter().filter(|zone| zone.is_collective).map(|zone| zone.name).collect();
        for work in order {
            let on = self.on_of_work(work, names);
            let is_collective =
                work.is_kernel && (work.is_collective || work.zone.is_some_and(|zone| collectives.contains(&zone)));
            let name: &str = names.text(work.name);
            let range: Option<&str> = work.zone.map(|zone| &**names.text(zone));
            rows.push(&[
                name.into(),
                (if work.is_kernel { "kernel" } else { "copy" }).into(),
                on.device.into(),
                on.stream.as_deref().into(),
                range.into(),
                is_collective.into(),
                work.span.begin_ns.into(),
                work.span.duration_ns().into(),
                self.step_number(self.step_at(work.span.begin_ns)),
            ])?;
        }
        Ok(())
    }

    /// The stream of a kernel or a copy, even if its row does not name it.
    fn on_of_work(&self, work: &Work, names: &Names) -> Where {
        let mut on = self.on(work.row);
        if let Some((stream, device)) = work.stream.and_then(|stream| queue(names.text(stream))) {
            (on.stream, on.device) = (Some(stream.into()), Some(device));
        }
        on
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
                wait.end_early_by_ns.into(),
                is_bound(wait.span.duration_ns(), wait.end_early_by_ns).into(),
                self.step_number(self.step_at(wait.span.begin_ns)),
            ])?;
        }
        Ok(())
    }

    /// For each stream: the time in which it worked or waited, the time in which it was busy, the time in which it
    /// waited, and the uncertain part.
    fn stream_rows(&self, order: &[usize], names: &Names, rows: &mut Filling) -> Result<(), ArrowError> {
        let mut uses: BTreeMap<(i64, Arc<str>), Vec<Used>> = BTreeMap::new();
        let mut add = |on: Where, used: Used| {
            let Where { device: Some(device), stream: Some(stream), .. } = on else { return };
            uses.entry((device, stream)).or_default().push(used);
        };
        let on_streams = order.iter().map(|at| &self.zones[*at]).filter(|zone| !zone.is_replayed && !zone.is_entry);
        on_streams.for_each(|zone| {
            add(self.on(zone.row), Used { span: zone.span, early_by_ns: zone.end_early_by_ns, kind: Use::Zone });
        });
        let of_streams = self.waits.iter().filter(|wait| !wait.is_call);
        of_streams.for_each(|wait| {
            add(self.on(wait.row), Used { span: wait.span, early_by_ns: wait.end_early_by_ns, kind: Use::Wait });
        });
        let work = if self.kernels.is_empty() { &self.stages } else { &self.kernels };
        work.iter().for_each(|work| {
            add(self.on_of_work(work, names), Used { span: work.span, early_by_ns: 0, kind: Use::Work });
        });
        let is_work = |used: &Used| used.kind == Use::Work;
        let with_kernels: BTreeSet<i64> =
            uses.iter().filter(|(_, uses)| uses.iter().any(is_work)).map(|((device, _), _)| *device).collect();
        for ((device, stream), mut uses) in uses {
            // The sums are exact in this order.
            uses.sort_by_key(|used| used.span.begin_ns);
            let mut time = StreamTime::default();
            for Used { span, early_by_ns, kind } in &uses {
                match kind {
                    Use::Zone => time.add_zone(*span, *early_by_ns),
                    Use::Work => time.add_work(*span),
                    Use::Wait => time.add_wait(*span, *early_by_ns),
                }
            }
            let begin_ns = uses.first().map_or(0, |used| used.span.begin_ns);
            let end_ns = uses.iter().map(|used| used.span.end_ns).max().unwrap_or(0);
            let name = self.devices.get(&device).map_or("", |name| name);
            let StreamSums { used_ns, busy_ns, busy_early_ns, waiting_ns, waiting_early_ns } =
                time.sums(with_kernels.contains(&device));
            rows.push(&[
                device.into(),
                name.into(),
                (&*stream).into(),
                (uses.len() as i64).into(),
                begin_ns.into(),
                end_ns.into(),
                used_ns.into(),
                waiting_ns.into(),
                busy_early_ns.into(),
                busy_ns.into(),
                waiting_early_ns.into(),
            ])?;
        }
        Ok(())
    }
}

/// A zone, work or a wait on a stream.
struct Used {
    span: Span,
    early_by_ns: i64,
    kind: Use,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Zone,
    Work,
    Wait,
}

/// The stream and the number of the device, from `compute (NVIDIA H100, device 0)`.
fn queue(text: &str) -> Option<(&str, i64)> {
    let (rest, device) = text.strip_suffix(')')?.rsplit_once(", device ")?;
    Some((rest.rsplit_once(" (")?.0, device.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_names_its_stream_and_device() {
        assert_eq!(queue("compute (a) (NVIDIA H100, device 3)"), Some(("compute (a)", 3)));
        assert_eq!(queue("compute"), None);
    }
}
