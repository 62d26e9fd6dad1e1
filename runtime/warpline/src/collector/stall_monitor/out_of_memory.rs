//! What the flight recorder says when an allocation has failed for lack of memory: who asked for how much, and who holds the memory.

use crate::collector::context::Context;
use warpline_core::catalog::RangeSpec;
use warpline_core::stream::memory::RefusedAllocation;
use warpline_report::MemoryStats;
use warpline_trace::flight::open::{Incident, Reason};

/// The most holders that are named for a device.
const HOLDERS: usize = 10;

/// Returns the incident of the allocations that have failed since the last call; none if none has.
pub(super) fn incident(cx: &Context) -> Option<Incident> {
    let refused = cx.recorder.memory().take_refused();
    let RefusedAllocation { what, bytes, range, thread, at_ns } = refused.first()?;
    let range = range.map(RangeSpec::name);
    let of = bytes.map(|bytes| format!(" of {bytes} bytes")).unwrap_or_default();
    let within = range.map(|range| format!(" in `{range}`")).unwrap_or_default();
    let thread = cx.recorder.thread(*thread);
    let on = thread.name.clone().unwrap_or_else(|| format!("thread {}", thread.id));
    let devices = cx.recorder.memory().stats();
    let title = match devices.iter().max_by_key(|device| device.bytes) {
        Some(device) => format!("out of memory: {what}{of}{within} failed; {}", held(device)),
        None => format!("out of memory: {what}{of}{within} failed"),
    };
    let mut args = vec![("call", what.clone()), ("thread", on)];
    args.extend(bytes.map(|bytes| ("bytes", bytes.to_string())));
    args.extend(range.map(|range| ("range", range.to_owned())));
    args.extend(devices.iter().map(|device| ("memory", held(device))));
    Some(Incident { reason: Reason::OutOfMemory, ns: *at_ns, title, args })
}

/// "NVIDIA H100 (device 0): 70 bytes, at most 90; kv cache 64, demo.step 6".
fn held(device: &MemoryStats) -> String {
    let name = |name: &str| if name.is_empty() { "(no zone)".to_owned() } else { name.to_owned() };
    let mut holders: Vec<String> = device
        .not_freed
        .iter()
        .take(HOLDERS)
        .map(|holder| format!("{} {}", name(&holder.name), holder.bytes))
        .collect();
    if device.not_freed.len() > HOLDERS {
        holders.push(format!("{} more", device.not_freed.len() - HOLDERS));
    }
    let held = if holders.is_empty() { "nobody that the session knows".to_owned() } else { holders.join(", ") };
    format!("{}: {} bytes, at most {}; {held}", device.device, device.bytes, device.peak_bytes)
}
