//! The table of device memory in a report: the peak of each device, who held it, and what was not freed.

use std::fmt;

use super::super::table::{NONE, Row, percent, shortened, size, table};
use super::super::{MemoryCounts, MemoryHolder, MemoryStats};
use warpline_core::plural::{counted, counted_are, counted_as};
use warpline_core::text::printable;

/// The maximum number of devices that are printed.
const DEVICES: usize = 16;

/// The maximum number of holders that are printed for a device at its peak.
const HOLDERS: usize = 10;

/// Writes the devices, and below them who held the memory of their peaks.
pub(super) fn memory(f: &mut fmt::Formatter<'_>, devices: &[MemoryStats]) -> fmt::Result {
    let head = Row::new("memory", ["allocations", "peak", "not freed"].map(str::to_owned));
    let head = Row { text: Some("not freed by".to_owned()), ..head };
    let row = |device: &MemoryStats| {
        let cells = [device.allocated.to_string(), size(device.peak_bytes), size(device.bytes)];
        Row { text: Some(largest(&device.not_freed)), ..Row::new(&device.device, cells) }
    };
    let rows: Vec<_> = devices.iter().take(DEVICES).map(row).collect();
    table(f, head, &rows)?;
    if devices.len() > DEVICES {
        writeln!(f, "… and {}", counted((devices.len() - DEVICES) as u64, "more device"))?;
    }
    for device in devices.iter().take(DEVICES).filter(|device| !device.at_peak.is_empty()) {
        writeln!(f)?;
        holders(f, device)?;
    }
    Ok(())
}

fn holders(f: &mut fmt::Formatter<'_>, device: &MemoryStats) -> fmt::Result {
    let head =
        Row::new(format!("at the peak of {}", device.device), ["bytes", "share", "allocations"].map(str::to_owned));
    let row = |holder: &MemoryHolder| {
        let share = percent(holder.bytes as f64 / device.peak_bytes.max(1) as f64);
        Row::new(name(holder), [size(holder.bytes), share, holder.allocations.to_string()])
    };
    let rows: Vec<_> = device.at_peak.iter().take(HOLDERS).map(row).collect();
    table(f, head, &rows)?;
    match device.at_peak.len().saturating_sub(HOLDERS) {
        0 => Ok(()),
        more => writeln!(f, "… and {}", counted(more as u64, "more holder")),
    }
}

fn name(holder: &MemoryHolder) -> &str {
    if holder.name.is_empty() { "(no zone)" } else { &holder.name }
}

/// Returns those who hold most.
fn largest(holders: &[MemoryHolder]) -> String {
    const NAMED: usize = 2;
    const LONGEST: usize = 20;
    let named: Vec<_> =
        holders.iter().take(NAMED).map(|holder| shortened(&printable(name(holder)), LONGEST).to_string()).collect();
    if named.is_empty() { NONE.to_owned() } else { named.join(", ") }
}

/// Writes how many allocations and frees were recorded, and which were not.
pub(super) fn memory_counts(f: &mut fmt::Formatter<'_>, counts: MemoryCounts) -> fmt::Result {
    let MemoryCounts { begun, recorded, dropped, untracked, unknown, within, refused, .. } = counts;
    if begun > 0 {
        let begun = counted_as(begun, "allocation or free", "allocations and frees");
        write!(f, "\n{begun} of device memory, {recorded} recorded, {dropped} dropped")?;
    }
    if untracked > 0 {
        let untracked = counted_are(untracked, "allocation");
        write!(f, "\n{untracked} not counted: too many were known, or their device was unknown")?;
    }
    if unknown > 0 {
        let unknown = counted_are(unknown, "free");
        write!(f, "\n{unknown} not counted: the session does not know the allocation")?;
    }
    if within > 0 {
        let within = counted_are(within, "allocation");
        write!(f, "\n{within} not counted, as parts of others that CUPTI reported")?;
    }
    if refused > 0 {
        let refused = counted_as(refused, "allocation", "allocations");
        write!(f, "\n{refused} failed for lack of device memory")?;
    }
    Ok(())
}
