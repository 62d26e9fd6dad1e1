//! The memory of one device by who holds it: the sums now, and those at the peak.
//!
//! The log of a session's memory keeps one for each device. Its memory is bounded.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use crate::catalog::RangeSpec;
use crate::memory::{MemoryHolder, MemoryStats};
use crate::record::{DeviceInfo, DeviceKind};
use crate::sorting;

/// The most holders that a device's memory is told apart by. The others share one.
const MOST_HOLDERS: usize = 256;

/// Who holds memory: the name of an allocation, or a range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    Named(Arc<str>),
    Range(&'static str),
    /// Neither is known.
    None,
    /// All that are beyond the bound.
    Rest,
}

impl Holder {
    pub(super) fn new(name: Option<&Arc<str>>, range: Option<&'static RangeSpec>) -> Holder {
        match (name, range) {
            (Some(name), _) => Holder::Named(Arc::clone(name)),
            (None, Some(range)) => Holder::Range(range.name()),
            (None, None) => Holder::None,
        }
    }

    fn name(&self) -> &str {
        match self {
            Holder::Named(name) => name,
            Holder::Range(name) => name,
            Holder::None => "",
            Holder::Rest => "…",
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct HolderAccount {
    bytes: u64,
    allocations: u64,
}

#[derive(Debug)]
pub(super) struct DeviceAccount {
    kind: DeviceKind,
    ordinal: u32,
    name: String,
    bytes: u64,
    peak_bytes: u64,
    peak_ns: i64,
    allocated: u64,
    freed: u64,
    holders: HashMap<Holder, HolderAccount>,
    /// The holders at the peak; at a peak that lasts, they are those of now.
    at_peak: Vec<MemoryHolder>,
    is_at_peak: bool,
}

impl DeviceAccount {
    pub(super) fn new(device: &DeviceInfo) -> DeviceAccount {
        DeviceAccount {
            kind: device.kind,
            ordinal: device.ordinal,
            name: device.label(),
            bytes: 0,
            peak_bytes: 0,
            peak_ns: 0,
            allocated: 0,
            freed: 0,
            holders: HashMap::new(),
            at_peak: Vec::new(),
            is_at_peak: false,
        }
    }

    pub(super) fn is_of(&self, device: &DeviceInfo) -> bool {
        (self.kind, self.ordinal) == (device.kind, device.ordinal)
    }

    /// Adds an allocation. Returns the bytes of the device and of the holder from then on, and the holder that it counts for.
    pub(super) fn allocate(&mut self, holder: Holder, bytes: u64, at_ns: i64) -> ((u64, u64), Holder) {
        let is_known = self.holders.contains_key(&holder) || self.holders.len() < MOST_HOLDERS;
        let holder = if is_known { holder } else { Holder::Rest };
        let held = self.holders.entry(holder.clone()).or_default();
        held.bytes = held.bytes.saturating_add(bytes);
        held.allocations += 1;
        let owner_bytes = held.bytes;
        self.allocated += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.peak_bytes {
            (self.peak_bytes, self.peak_ns, self.is_at_peak) = (self.bytes, at_ns, true);
        }
        ((self.bytes, owner_bytes), holder)
    }

    /// Adds the free of an allocation that counts for `holder`. Returns the bytes of the device and of the holder from then on.
    pub(super) fn free(&mut self, holder: &Holder, bytes: u64) -> (u64, u64) {
        if std::mem::take(&mut self.is_at_peak) {
            self.at_peak = self.largest_first();
        }
        self.freed += 1;
        self.bytes = self.bytes.saturating_sub(bytes);
        let Some(held) = self.holders.get_mut(holder) else { return (self.bytes, 0) };
        held.bytes = held.bytes.saturating_sub(bytes);
        held.allocations = held.allocations.saturating_sub(1);
        let left = *held;
        if left.allocations == 0 {
            self.holders.remove(holder);
        }
        (self.bytes, left.bytes)
    }

    fn largest_first(&self) -> Vec<MemoryHolder> {
        let held = |(holder, held): (&Holder, &HolderAccount)| MemoryHolder {
            name: holder.name().to_owned(),
            bytes: held.bytes,
            allocations: held.allocations,
        };
        let mut holders: Vec<_> = self.holders.iter().map(held).collect();
        sorting::sort_by(&mut holders, |a, b| (Reverse(a.bytes), &a.name).cmp(&(Reverse(b.bytes), &b.name)));
        holders
    }

    pub(super) fn stats(&self) -> MemoryStats {
        let now = self.largest_first();
        MemoryStats {
            device: self.name.clone(),
            allocated: self.allocated,
            freed: self.freed,
            bytes: self.bytes,
            peak_bytes: self.peak_bytes,
            peak_ns: self.peak_ns,
            at_peak: if self.is_at_peak { now.clone() } else { self.at_peak.clone() },
            not_freed: now,
        }
    }
}
