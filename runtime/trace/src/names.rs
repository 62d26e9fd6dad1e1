//! The names that traces give to fields, figures and changes. All formats use the same names.

use warpline_core::record::{SAMPLED, WINDOW, ZoneRecord};
use warpline_report::Report;
use warpline_report::sink::{Change, SessionChange};

/// The bandwidth of a collective in GB (1e9 bytes) per second, as NCCL's tests define it.
pub(super) const ALGBW: &str = "algbw_gb_per_s";
pub(super) const BUSBW: &str = "busbw_gb_per_s";

/// The declared work of a zone, and its rates in GB (1e9 bytes) and 1e12 operations per second.
pub(super) const BYTES: &str = "bytes";
pub(super) const FLOPS: &str = "flops";
pub(super) const GB_PER_S: &str = "gb_per_s";
pub(super) const TFLOP_PER_S: &str = "tflop_per_s";

/// What a zone on a stream is, in Chrome traces, whose categories are those of PyTorch's profiler: [`COLLECTIVE`] or [`BATCH_ENTRY`].
pub(super) const ZONE_KIND: &str = "zone_kind";
pub(super) const COLLECTIVE: &str = "collective";
pub(super) const BATCH_ENTRY: &str = "batch_entry";

/// The name of a kernel in a Chrome trace begins with this if it stands for a collective: readers recognize communication by it.
pub(super) const NCCL_KERNEL: &str = "ncclDevKernel_";

/// The end of the name of a row in a Chrome trace that has what overlaps on the row of the name before it.
pub(super) const OVERLAPPING: &str = " (overlapping)";

/// Returns the name under which a trace shows a field of this zone. A field with a name that a sink itself uses becomes `field.…`.
pub(super) fn arg_name(record: &ZoneRecord, field: &'static str) -> &'static str {
    match field {
        BYTES if record.work().bytes.is_some() => "field.bytes",
        GB_PER_S if record.work().bytes.is_some() => "field.gb_per_s",
        FLOPS if record.work().flops.is_some() => "field.flops",
        TFLOP_PER_S if record.work().flops.is_some() => "field.tflop_per_s",
        "dtype" if record.message.is_some() => "field.dtype",
        "op" if record.message.is_some() => "field.op",
        "Rank" if record.message.is_some() => "field.Rank",
        "Seq" if record.message.is_some() => "field.Seq",
        other => plain_arg_name(other),
    }
}

/// Like [`arg_name`], for zones that are not collectives and for spans of `tracing`.
pub(super) fn plain_arg_name(field: &'static str) -> &'static str {
    renamed(field).unwrap_or(field)
}

/// Returns the name under which a trace shows a field that has the name of what a session itself says of every zone.
fn renamed(field: &str) -> Option<&'static str> {
    Some(match field {
        ALGBW => "field.algbw_gb_per_s",
        BUSBW => "field.busbw_gb_per_s",
        "begin_late_by_ns" => "field.begin_late_by_ns",
        "correlation" => "field.correlation",
        "description" => "field.description",
        "device" => "field.device",
        "end" => "field.end",
        "end_early_by_ns" => "field.end_early_by_ns",
        "error" => "field.error",
        "gpu_ns_corrected" => "field.gpu_ns_corrected",
        "label" => "field.label",
        "launch_wait_ns" => "field.launch_wait_ns",
        "parent" => "field.parent",
        "parent_id" => "field.parent_id",
        SAMPLED => "field.sampled_share",
        "span_id" => "field.span_id",
        "status" => "field.status",
        WINDOW => "field.window",
        ZONE_KIND => "field.zone_kind",
        "stream" => "field.stream",
        _ => return None,
    })
}

/// Returns the field or label that a trace shows under this name; none for what else a session itself says of every zone.
#[cfg(feature = "read")]
pub(crate) fn field_of(arg: &str) -> Option<&str> {
    match arg.strip_prefix("field.") {
        Some(field) => Some(field),
        None => Some(arg).filter(|arg| *arg == "label" || renamed(arg).is_none()),
    }
}

/// Returns the name under which a trace shows how many items a list or a map had that was cut. No field's own name has a dot.
pub fn len_name(field: &str) -> String {
    format!("{field}.len")
}

/// Returns the name of a change in traces.
pub fn change_name(change: &Change) -> &'static str {
    match change {
        Change::Stopped => "session stopped",
        Change::Started => "session started",
        Change::Filter(_) => "filter changed",
        Change::Level(_) => "level changed",
        Change::Sample(_) => "sample changed",
        Change::WindowOpened => "window opened",
        Change::WindowClosed => "window closed",
        Change::More(_) => "more changes",
        _ => "changed",
    }
}

/// Returns the arguments of a change in traces.
pub fn change_args(change: &SessionChange) -> Vec<(&'static str, String)> {
    let value = match &change.what {
        Change::Filter(filter) => Some(("filter", filter.clone())),
        Change::Level(level) => Some(("level", level.as_str().to_owned())),
        Change::Sample(share) => Some(("sample", format!("{share}"))),
        Change::More(count) => Some(("count", count.to_string())),
        _ => None,
    };
    let name = change.thread.name.as_deref();
    let thread = [Some(("thread_id", change.thread.id.to_string())), name.map(|name| ("thread", name.to_owned()))];
    value.into_iter().chain(thread.into_iter().flatten()).collect()
}

/// Returns a report's counts, in groups with the names under which traces show them.
pub(super) fn accounts(report: &Report) -> [(&'static str, Vec<(String, u64)>); 9] {
    let named =
        |counts: Vec<(&'static str, u64)>| counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    [
        ("fields", named(report.fields.to_args())),
        ("event_pool", named(report.event_pool.to_args())),
        ("memory", named(report.memory_counts.to_args())),
        ("spans", named(report.spans.to_args())),
        ("kernels", named(report.kernels.to_args())),
        ("synchronizations", named(report.synchronizations.to_args())),
        ("kernel_timing", named(report.kernel_timing.to_args())),
        ("replays", named(report.graph_timing.to_args())),
        ("waits", report.waits.to_args()),
    ]
}
