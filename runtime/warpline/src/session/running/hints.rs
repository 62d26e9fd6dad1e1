//! Why a session has no zones: what a user who finds an empty trace would have to find out.
//!
//! The end of a session calls it. Only the most likely cause is named.

use std::time::Duration;

use warpline_core::dynamic;
use warpline_core::plural::counted;
use warpline_report::Report;

/// A session without zones that is dropped earlier was hardly meant to end there.
const BRIEF: Duration = Duration::from_millis(50);

/// Returns the note for a session without a zone or other record; none if it has one. `is_dropped` is whether the program did not finish it.
pub(super) fn of_no_zones(report: &Report, is_dropped: bool) -> Option<String> {
    let has_records = report.begun + report.spans.begun + report.kernels.recorded + report.waits.begun > 0
        || report.synchronizations.recorded + report.graph_timing.replays + report.not_sampled > 0;
    // A budget that opened no window has a note of its own.
    if has_records || report.windows.is_some() {
        return None;
    }
    let ranges = dynamic::all_ranges().count() as u64;
    let why = if ranges == 0 {
        "the program has no marked function; a library with marks must be linked, and its functions used".to_owned()
    } else if is_dropped && report.duration < BRIEF {
        let lasted = report.duration.as_secs_f64() * 1e3;
        format!(
            "the session was dropped {lasted:.1} ms after its start; bind it to a name, as in `let _session = …`, because `let _ = …` drops it"
        )
    } else if report.left_out.ranges >= ranges {
        format!("`filter` and `level` leave out all of the program's {}", counted(ranges, "range"))
    } else if report.steps.left_out > 0 {
        format!("`wait`, `warmup` and `active` leave out {}", counted(report.steps.left_out, "step"))
    } else if report.left_out.while_stopped {
        "no marked function was called before the session was stopped, or after it started again".to_owned()
    } else {
        format!("none of the program's {} began between the start of the session and its end", counted(ranges, "range"))
    };
    Some(format!("no zone was recorded: {why}"))
}
