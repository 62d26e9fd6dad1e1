//! Device memory, from the counters that traces have of it: the bytes of each device, and of each range or name that
//! holds some.
//!
//! A device's counter has a value for each allocation and free, and that of the holder follows it. For allocations
//! whose holder has no counter, only the rest that the other counters leave is known.

use std::cmp::Reverse;
use std::collections::HashMap;

use warpline_report::{MemoryHolder, MemoryStats};

/// The most devices of a trace, and the most holders of a device.
const DEVICES: usize = 256;
const HOLDERS: usize = 4_096;

/// The number of holders for which a session writes counters. The holders of the rest are not known.
const WRITTEN: usize = 64;

/// The name of the holders that have no counter.
const OTHERS: &str = "…";

/// The memory in the traces so far.
#[derive(Default)]
pub(super) struct Memory {
    done: Vec<MemoryStats>,
    /// The devices of the trace that is being read.
    devices: Vec<Device>,
}

#[derive(Default)]
struct Device {
    stats: MemoryStats,
    holders: HashMap<String, HolderUsage>,
    /// The allocations that there are.
    allocations: u64,
    /// Whether the holders of the peak are the current ones.
    is_at_peak: bool,
}

#[derive(Clone, Copy, Default)]
struct HolderUsage {
    bytes: u64,
    allocations: u64,
}

impl Memory {
    /// Adds the value of a counter. Its name is `memory NVIDIA H100 (device 0)`, or has the holder behind it:
    /// `memory … (device 0): demo.step`.
    pub(super) fn counter(&mut self, name: &str, at_ns: i64, bytes: u64) {
        let Some(of) = name.strip_prefix("memory ") else { return };
        let (device, holder) = match of.split_once("): ") {
            Some((device, holder)) => (&of[..device.len() + 1], Some(holder)),
            None => (of, None),
        };
        let at = match self.devices.iter().position(|known| known.stats.device == device) {
            Some(at) => at,
            None if self.devices.len() < DEVICES => {
                let mut added = Device::default();
                device.clone_into(&mut added.stats.device);
                self.devices.push(added);
                self.devices.len() - 1
            }
            None => return,
        };
        match holder {
            None => self.devices[at].all(at_ns, bytes),
            Some(holder) => self.devices[at].held(holder, bytes),
        }
    }

    pub(super) fn end_trace(&mut self) {
        self.done.extend(self.devices.drain(..).map(Device::end));
    }

    /// Returns the figures of each device of each trace.
    pub(super) fn stats(&self) -> Vec<MemoryStats> {
        self.done.clone()
    }
}

impl Device {
    fn all(&mut self, at_ns: i64, bytes: u64) {
        let before = self.stats.bytes;
        if bytes < before {
            if std::mem::take(&mut self.is_at_peak) {
                self.stats.at_peak = self.largest_first();
            }
            self.stats.freed += 1;
            self.allocations = self.allocations.saturating_sub(1);
        } else {
            self.stats.allocated += 1;
            self.allocations += 1;
        }
        self.stats.bytes = bytes;
        if bytes > self.stats.peak_bytes {
            (self.stats.peak_bytes, self.stats.peak_ns, self.is_at_peak) = (bytes, at_ns, true);
        }
    }

    fn held(&mut self, holder: &str, bytes: u64) {
        if bytes == 0 {
            // Its counter is known, whoever has it next.
            if let Some(held) = self.holders.get_mut(holder) {
                *held = HolderUsage::default();
            }
            return;
        }
        if !self.holders.contains_key(holder) {
            if self.holders.len() >= HOLDERS {
                return;
            }
            self.holders.insert(holder.to_owned(), HolderUsage::default());
        }
        let Some(held) = self.holders.get_mut(holder) else { return };
        held.allocations = if bytes < held.bytes { held.allocations.saturating_sub(1) } else { held.allocations + 1 };
        held.bytes = bytes;
    }

    fn largest_first(&self) -> Vec<MemoryHolder> {
        let holder = |name: &str, held: HolderUsage| {
            let mut holder = MemoryHolder::default();
            (holder.name, holder.bytes, holder.allocations) = (name.to_owned(), held.bytes, held.allocations);
            holder
        };
        let known = self.holders.iter().filter(|(_, held)| held.bytes > 0);
        let mut holders: Vec<_> = known.map(|(name, held)| holder(name, *held)).collect();
        let of_known: u64 = holders.iter().map(|holder| holder.bytes).sum();
        let allocations: u64 = holders.iter().map(|holder| holder.allocations).sum();
        let rest = self.stats.bytes.saturating_sub(of_known);
        if rest > 0 {
            let name = if self.holders.len() < WRITTEN { "" } else { OTHERS };
            let allocations = self.allocations.saturating_sub(allocations);
            holders.push(holder(name, HolderUsage { bytes: rest, allocations }));
        }
        holders.sort_by(|a, b| (Reverse(a.bytes), &a.name).cmp(&(Reverse(b.bytes), &b.name)));
        holders
    }

    fn end(self) -> MemoryStats {
        let now = self.largest_first();
        let at_peak = if self.is_at_peak { now.clone() } else { self.stats.at_peak.clone() };
        let mut stats = self.stats;
        (stats.at_peak, stats.not_freed) = (at_peak, now);
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(holders: &[MemoryHolder]) -> Vec<(&str, u64, u64)> {
        holders.iter().map(|holder| (holder.name.as_str(), holder.bytes, holder.allocations)).collect()
    }

    #[test]
    fn the_counters_tell_the_peak_who_held_it_and_what_is_left() {
        let mut memory = Memory::default();
        let device = "memory NVIDIA H100 (device 0)";
        let mut change = |at, all, holder: Option<(&str, u64)>| {
            memory.counter(device, at, all);
            if let Some((name, bytes)) = holder {
                memory.counter(&format!("{device}: {name}"), at, bytes);
            }
        };
        change(1, 100, Some(("demo.step", 100)));
        change(2, 400, Some(("weights (a): b", 300)));
        change(3, 450, None);
        change(4, 350, Some(("demo.step", 0)));
        change(5, 400, Some(("demo.step", 50)));
        memory.counter("queue depth", 6, 1);
        memory.end_trace();
        memory.counter("memory other (device 1)", 7, 8);
        memory.end_trace();
        let [one, other] = &memory.stats()[..] else { panic!("two devices") };
        assert_eq!((one.device.as_str(), one.allocated, one.freed), ("NVIDIA H100 (device 0)", 4, 1));
        assert_eq!((one.bytes, one.peak_bytes, one.peak_ns), (400, 450, 3));
        assert_eq!(held(&one.at_peak), [("weights (a): b", 300, 1), ("demo.step", 100, 1), ("", 50, 1)]);
        assert_eq!(held(&one.not_freed), [("weights (a): b", 300, 1), ("", 50, 1), ("demo.step", 50, 1)]);
        assert_eq!((other.device.as_str(), held(&other.at_peak)), ("other (device 1)", vec![("", 8, 1)]));
    }
}
