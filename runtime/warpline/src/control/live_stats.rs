//! Figures of what runs, for somebody who watches: per range since the last look, and how busy each device was.
//!
//! A sink fills them on the collector's thread, the server's thread reads them. Its memory depends on the number of ranges
//! and devices, not of zones.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use warpline_core::catalog::RangeSpec;
use warpline_core::lock::lock;
use warpline_core::record::{DeviceKind, Span, Status, ZoneRecord};
use warpline_core::sink::{Batch, Sink};

/// Zones that ended so shortly before a look may not have come yet.
const LATE_NS: i64 = 200_000_000;

/// The longest stretch that is looked back on.
const BACK_NS: i64 = 10_000_000_000;

/// So many stretches are kept apart before those that touch are joined.
const APART: usize = 8_192;

/// The most ranges that are told at once.
const MOST_RANGES: usize = 2_000;

#[derive(Default)]
pub(super) struct LiveStats {
    ranges: HashMap<usize, Figures>,
    devices: BTreeMap<(DeviceKind, u32), Load>,
}

struct Figures {
    range: &'static RangeSpec,
    /// Since the last look.
    latest: Taken,
    max_ns: i64,
    /// Since somebody watches.
    all: Taken,
    failed: u64,
    /// A record stood for more than itself.
    is_sampled: bool,
}

/// Zones of a range that were recorded, and what they stand for: more than themselves where only a sample is.
#[derive(Clone, Copy, Default)]
struct Taken {
    count: u64,
    ns: i64,
    scaled_count: f64,
    scaled_ns: f64,
}

impl Taken {
    fn add(&mut self, ns: i64, weight: f64) {
        self.count += 1;
        self.ns += ns;
        self.scaled_count += weight;
        self.scaled_ns += weight * ns as f64;
    }
}

struct Load {
    name: String,
    busy: Coverage,
    collectives: Coverage,
}

impl LiveStats {
    fn add(&mut self, record: &ZoneRecord) {
        let figures = self.ranges.entry(std::ptr::from_ref(record.range).addr()).or_insert_with(|| Figures {
            range: record.range,
            latest: Taken::default(),
            max_ns: 0,
            all: Taken::default(),
            failed: 0,
            is_sampled: false,
        });
        // An entry of a batch has its share of the batch's time.
        let ns = record.entry.map_or(record.duration_ns(), |entry| (record.duration_ns() as f64 * entry.share) as i64);
        let weight = 1.0 / f64::from(record.sample_share).clamp(f64::MIN_POSITIVE, 1.0);
        figures.latest.add(ns, weight);
        figures.all.add(ns, weight);
        figures.is_sampled |= weight > 1.0;
        figures.max_ns = figures.max_ns.max(ns);
        figures.failed += u64::from(record.status != Status::Complete);
        let (Some(stream), Some(gpu)) = (&record.stream, record.gpu) else { return };
        let load = self.devices.entry((stream.device.kind, stream.device.ordinal)).or_insert_with(|| Load {
            name: stream.device.name.clone(),
            busy: Coverage::default(),
            collectives: Coverage::default(),
        });
        load.busy.add(gpu);
        if record.message.is_some() {
            load.collectives.add(gpu);
        }
    }

    /// What came since the last look, and how busy devices were for the `length_ns` before `now_ns`.
    pub(super) fn look(&mut self, now_ns: i64, length_ns: i64) -> (Value, Value) {
        let end_ns = now_ns - LATE_NS;
        let window = Span { begin_ns: end_ns - length_ns.clamp(1, BACK_NS), end_ns };
        let share = |coverage: &mut Coverage| coverage.within(window) as f64 / window.duration_ns() as f64;
        let devices: Vec<_> = self
            .devices
            .iter_mut()
            .map(|((kind, ordinal), load)| {
                let kind = if *kind == DeviceKind::Cuda { "cuda" } else { "host" };
                let (busy, collectives) = (share(&mut load.busy), share(&mut load.collectives));
                json!({"name": load.name, "kind": kind, "ordinal": ordinal, "busy": busy, "collectives": collectives})
            })
            .collect();
        let mut ranges: Vec<_> = self.ranges.values_mut().collect();
        ranges.sort_by(|a, b| b.all.scaled_ns.total_cmp(&a.all.scaled_ns));
        let ranges: Vec<_> = ranges
            .into_iter()
            .take(MOST_RANGES)
            .map(|figures| {
                let value = json!({
                    "name": figures.range.name(),
                    "kind": figures.range.kind().as_str(),
                    "count": figures.latest.count,
                    "total_ns": figures.latest.ns,
                    "scaled_count": figures.latest.scaled_count,
                    "scaled_ns": figures.latest.scaled_ns,
                    "max_ns": figures.max_ns,
                    "all": figures.all.count,
                    "all_ns": figures.all.ns,
                    "all_scaled_ns": figures.all.scaled_ns,
                    "is_sampled": figures.is_sampled,
                    "failed": figures.failed,
                });
                (figures.latest, figures.max_ns) = (Taken::default(), 0);
                value
            })
            .collect();
        (devices.into(), ranges.into())
    }
}

/// The end that a session writes to.
pub(super) struct LiveStatsSink(pub(super) Arc<Mutex<LiveStats>>);

impl Sink for LiveStatsSink {
    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        let mut watch = lock(&self.0);
        batch.zones().iter().for_each(|record| watch.add(record));
        Ok(())
    }
}

/// Which stretches of the last seconds something covers.
#[derive(Default)]
struct Coverage {
    /// In order and apart, but for the last ones, which come as they come.
    stretches: Vec<(i64, i64)>,
    /// How many are in order and apart.
    joined: usize,
}

impl Coverage {
    fn add(&mut self, span: Span) {
        self.stretches.push((span.begin_ns, span.end_ns));
        if self.stretches.len() - self.joined >= APART {
            self.join();
        }
    }

    /// Joins those that touch; forgets those that end long before the newest.
    fn join(&mut self) {
        self.stretches.sort_unstable();
        let newest = self.stretches.iter().map(|stretch| stretch.1).max().unwrap_or(i64::MIN);
        let oldest = newest.saturating_sub(2 * BACK_NS);
        let mut apart: Vec<(i64, i64)> = Vec::new();
        for &(begin, end) in self.stretches.iter().filter(|stretch| stretch.1 > oldest) {
            match apart.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => apart.push((begin, end)),
            }
        }
        // Of more than can be kept the older half is forgotten: it is long ago then.
        if apart.len() > 8 * APART {
            apart.drain(..apart.len() / 2);
        }
        self.joined = apart.len();
        self.stretches = apart;
    }

    /// How much of the window is covered, in ns.
    fn within(&mut self, window: Span) -> i64 {
        self.join();
        let part = |&(begin, end): &(i64, i64)| (end.min(window.end_ns) - begin.max(window.begin_ns)).max(0);
        self.stretches.iter().map(part).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(begin_ns: i64, end_ns: i64) -> Span {
        Span { begin_ns, end_ns }
    }

    #[test]
    fn what_several_zones_cover_counts_once() {
        let mut coverage = Coverage::default();
        for (begin, end) in [(10, 20), (12, 15), (18, 30), (40, 50), (50, 60), (0, 5)] {
            coverage.add(span(begin, end));
        }
        assert_eq!(coverage.within(span(0, 100)), 5 + 20 + 20);
        assert_eq!(coverage.within(span(15, 45)), 15 + 5);
        coverage.add(span(0, 100));
        assert_eq!(coverage.within(span(15, 45)), 30, "a zone around others comes last");
        assert_eq!(coverage.within(span(200, 300)), 0);
    }

    #[test]
    fn millions_of_zones_take_bounded_memory() {
        let mut coverage = Coverage::default();
        for n in 0..2_000_000_i64 {
            coverage.add(span(n * 2_000, n * 2_000 + 1_000));
        }
        assert!(coverage.stretches.len() <= 9 * APART, "{}", coverage.stretches.len());
        let end = 2_000_000 * 2_000;
        assert_eq!(coverage.within(span(end - 10_000_000, end)), 5_000_000);
    }
}
