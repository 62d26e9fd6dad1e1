//! Figures per kernel, for the report's table of kernels: by the kernel's name and the range in which it ran.
//!
//! The collector adds the kernels and copies that CUPTI delivers. The memory is bounded.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use warpline_core::catalog::RangeSpec;
use warpline_core::kernel::KernelRecord;
use warpline_report::figures::KernelStats;

/// The largest number of pairs of a range and a kernel that are counted separately. Later ones are counted under the name [`MORE`].
const MOST: usize = 4_096;
const MORE: &str = "…";

#[derive(Default)]
pub(crate) struct KernelTable {
    /// By the range's number and the address of the name, which the row keeps alive. CUPTI's reader creates most names once.
    rows: HashMap<(Option<u32>, usize), Row>,
}

struct Row {
    range: Option<&'static RangeSpec>,
    name: Arc<str>,
    count: u64,
    total_ns: i64,
    max_ns: i64,
}

impl KernelTable {
    /// Adds a kernel that ran in a range.
    pub(crate) fn add(&mut self, kernel: &KernelRecord, range: Option<&'static RangeSpec>) {
        let key = |name: &Arc<str>| (range.map(RangeSpec::number), Arc::as_ptr(name).cast::<u8>() as usize);
        let is_full = self.rows.len() >= MOST;
        let row = match self.rows.get_mut(&key(&kernel.name)) {
            Some(row) => row,
            None if is_full => {
                let name = Arc::from(MORE);
                self.rows.entry((None, 0)).or_insert(Row { range: None, name, count: 0, total_ns: 0, max_ns: 0 })
            }
            None => {
                let name = Arc::clone(&kernel.name);
                let row = Row { range, name, count: 0, total_ns: 0, max_ns: 0 };
                self.rows.entry(key(&kernel.name)).or_insert(row)
            }
        };
        let ns = kernel.gpu.duration_ns();
        row.count += 1;
        row.total_ns += ns;
        row.max_ns = row.max_ns.max(ns);
    }

    /// Returns the figures, with the largest total first.
    pub(crate) fn stats(&self) -> Vec<KernelStats> {
        let mut by_name: HashMap<(Option<&'static str>, &str), KernelStats> = HashMap::new();
        for row in self.rows.values() {
            let range = row.range.map(RangeSpec::name);
            let stats = by_name.entry((range, &row.name)).or_insert_with(|| KernelStats {
                name: row.name.to_string(),
                range: range.map(Cow::Borrowed),
                count: 0,
                total_ns: 0,
                max_ns: 0,
            });
            stats.count += row.count;
            stats.total_ns += row.total_ns;
            stats.max_ns = stats.max_ns.max(row.max_ns);
        }
        let mut stats: Vec<_> = by_name.into_values().collect();
        stats.sort_by(|a, b| {
            let names = || (&a.name, &a.range).cmp(&(&b.name, &b.range));
            b.total_ns.cmp(&a.total_ns).then_with(names)
        });
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_core::kernel::KernelWork;
    use warpline_core::record::{Span, StreamInfo};
    use warpline_report::fixture::{COPY, STEP, span, stream};

    fn kernel(name: &str, stream: &Arc<StreamInfo>, gpu: Span) -> KernelRecord {
        KernelRecord {
            name: name.into(),
            work: KernelWork::Memset { bytes: 4, value: 0, memory: "Device" },
            stream: Arc::clone(stream),
            gpu,
            correlation: 1,
            context: 1,
            cuda_stream: 1,
            graph: None,
            zone: None,
            launch: None,
        }
    }

    #[test]
    fn kernels_are_counted_by_name_and_range_whoever_made_the_name() {
        let stream = stream(1, "compute");
        let mut table = KernelTable::default();
        for n in 0..4 {
            // Each record has a name of its own, with the same text.
            let record = kernel("scale", &stream, span(100 * n, 100 * n + 10 + n));
            table.add(&record, Some(if n < 3 { &STEP } else { &COPY }));
        }
        table.add(&kernel("scale", &stream, span(0, 5)), None);
        let stats: Vec<_> =
            table.stats().into_iter().map(|row| (row.range, row.count, row.total_ns, row.max_ns)).collect();
        let (step, copy) = (Some(STEP.name().into()), Some(COPY.name().into()));
        assert_eq!(stats, [(step, 3, 33, 12), (copy, 1, 13, 13), (None, 1, 5, 5)]);
    }

    #[test]
    fn ever_new_kernels_are_counted_together_beyond_the_bound() {
        let (stream, mut table) = (stream(1, "compute"), KernelTable::default());
        for n in 0..2 * MOST {
            table.add(&kernel(&format!("kernel {n}"), &stream, span(0, 10)), None);
        }
        let stats = table.stats();
        assert_eq!((stats.len(), stats[0].name.as_str(), stats[0].count), (MOST + 1, MORE, MOST as u64));
        assert_eq!(stats.iter().map(|row| row.count).sum::<u64>(), 2 * MOST as u64);
    }
}
