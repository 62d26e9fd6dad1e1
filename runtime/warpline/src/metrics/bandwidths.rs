//! Bus bandwidths of collectives, by group, kind and size, and their means over the last seconds under the names of NCCL's Inspector.

use std::collections::HashMap;

use super::histogram::Histogram;
use warpline_core::collective::{CollectiveKind, Message};
use warpline_core::record::ZoneRecord;

/// The most combinations of group, kind and size that have series, and whose figures are kept.
const MOST_SERIES: usize = 4;
const MOST_KEYS: usize = 256;

/// The time after which the window of the means is closed. They cover the last closed window and the open one: 15 to 30 seconds.
const WINDOW_NS: i64 = 15_000_000_000;

/// What a series of bandwidths is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BandwidthKey {
    /// The group's name and a hash of its members.
    pub(super) group: String,
    pub(super) kind: CollectiveKind,
    /// The power of 1024 and the multiple of it: `(2, 4)` is 4 to 5 MiB.
    size: (u32, u64),
    pub(super) ranks: usize,
    /// The number of the device.
    pub(super) device: u32,
}

impl BandwidthKey {
    fn new(group: &str, message: &Message, bytes: u64, ranks: usize, device: u32) -> BandwidthKey {
        let unit = if bytes == 0 { 0 } else { (bytes.ilog2() / 10).min(4) };
        let size = (unit, bytes >> (10 * unit));
        BandwidthKey { group: group.to_owned(), kind: message.kind, size, ranks, device }
    }

    /// Returns the range of sizes as NCCL's Inspector writes it: `4-5MB`, in powers of 1024.
    pub(super) fn message_size(&self) -> String {
        let (unit, from) = self.size;
        match from {
            0 => "0B".to_owned(),
            from => format!("{from}-{}{}", from + 1, ["B", "KB", "MB", "GB", "TB"][unit as usize]),
        }
    }
}

/// Sums for the means of a window.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: u64,
    ns: i64,
    /// Of bus bandwidth times length, for the mean over the time.
    moved: f64,
    /// Of the logarithms of the bandwidths, in GB/s, for the geometric mean.
    logarithms: f64,
}

impl Sums {
    fn add(&mut self, other: Sums) {
        self.count += other.count;
        self.ns += other.ns;
        self.moved += other.moved;
        self.logarithms += other.logarithms;
    }
}

/// The means of the last seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Means {
    /// The bus bandwidth over the time of all collectives, in bytes per second.
    pub(super) bus: f64,
    /// The geometric mean of the bus bandwidths, in GB/s, as NCCL's Inspector has it.
    pub(super) bus_gbs: f64,
    /// The mean length, in µs.
    pub(super) length_us: f64,
}

/// The bandwidths of one group, kind and size.
#[derive(Clone, Debug)]
pub(super) struct BandwidthSeries {
    pub(super) key: BandwidthKey,
    /// Bus bandwidths, in bytes per second.
    pub(super) bus: Histogram,
    open: Sums,
    closed: Sums,
    opened_ns: i64,
    /// What was sent, by which series are given: it is the same on all ranks of a group, and times are not.
    bytes: u64,
    has_series: bool,
}

impl BandwidthSeries {
    /// Closes the window if its time is over.
    fn roll(&mut self, now_ns: i64) {
        let age_ns = now_ns - self.opened_ns;
        if age_ns < WINDOW_NS {
            return;
        }
        let open = std::mem::take(&mut self.open);
        self.closed = if age_ns < 2 * WINDOW_NS { open } else { Sums::default() };
        self.opened_ns = now_ns;
    }

    /// Returns the means of the last seconds; none if no collective ended in them.
    pub(super) fn means(&self) -> Option<Means> {
        let mut sums = self.open;
        sums.add(self.closed);
        let count = sums.count as f64;
        (sums.count > 0 && sums.ns > 0).then(|| Means {
            bus: sums.moved / sums.ns as f64,
            bus_gbs: (sums.logarithms / count).exp(),
            length_us: sums.ns as f64 / count / 1e3,
        })
    }
}

/// The bandwidths of all collectives.
#[derive(Default)]
pub(super) struct Bandwidths {
    places: HashMap<BandwidthKey, usize>,
    all: Vec<BandwidthSeries>,
    is_full: bool,
}

impl Bandwidths {
    /// Adds a zone, if it is a collective with a known bus bandwidth.
    pub(super) fn add(&mut self, zone: &ZoneRecord, now_ns: i64) {
        let bus = zone.bandwidth().and_then(|bandwidth| bandwidth.bus);
        let (Some(bus), Some(message), Some(stream)) = (bus, &zone.message, &zone.stream) else { return };
        let (Some(group), Some(bytes)) = (&message.group, message.bytes()) else { return };
        let key = BandwidthKey::new(group.comm(), message, bytes, group.size(), stream.device.ordinal);
        let at = match self.places.get(&key) {
            Some(at) => *at,
            None if self.all.len() == MOST_KEYS => {
                self.is_full = true;
                return;
            }
            None => {
                let (open, closed) = <(Sums, Sums)>::default();
                let bus = Histogram::default();
                self.all.push(BandwidthSeries {
                    key: key.clone(),
                    bus,
                    open,
                    closed,
                    opened_ns: now_ns,
                    bytes: 0,
                    has_series: false,
                });
                self.places.insert(key, self.all.len() - 1);
                self.all.len() - 1
            }
        };
        let share = zone.entry.map_or(1.0, |entry| entry.share);
        let ns = (zone.gpu_ns_corrected().unwrap_or(0) as f64 * share) as i64;
        let series = &mut self.all[at];
        series.roll(now_ns);
        series.bus.add(bus);
        series.bytes = series.bytes.saturating_add(bytes);
        series.open.add(Sums { count: 1, ns, moved: bus * ns as f64, logarithms: (bus / 1e9).ln() });
    }

    /// Gives the free series to the groups, kinds and sizes with the most bytes.
    pub(super) fn give_series(&mut self, now_ns: i64) {
        self.all.iter_mut().for_each(|series| series.roll(now_ns));
        let free = MOST_SERIES - self.all.iter().filter(|series| series.has_series).count();
        let mut waiting: Vec<&mut BandwidthSeries> = self.all.iter_mut().filter(|series| !series.has_series).collect();
        waiting.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.key.cmp(&b.key)));
        waiting.into_iter().take(free).for_each(|series| series.has_series = true);
    }

    pub(super) fn series(&self) -> impl Iterator<Item = &BandwidthSeries> {
        self.all.iter().filter(|series| series.has_series)
    }

    /// Returns the number of groups, kinds and sizes without a series; those that are not kept count as one.
    pub(super) fn left_out(&self) -> u64 {
        self.all.iter().filter(|series| !series.has_series).count() as u64 + u64::from(self.is_full)
    }
}
