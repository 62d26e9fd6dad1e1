//! `warpline arm PID RANGE`: prints the next zones of a range as they complete.

use std::time::Duration;

use serde_json::Value;
use warpline_core::record::is_bound;

use super::client::{Client, Reply};
use super::error::{ControlError, MOST_BYTES};
use crate::output::{self, time};
use crate::runtime::protocol::ControlRequest;

/// How much longer than the program this process waits.
const GRACE: Duration = Duration::from_secs(5);

/// Calls `show` with each zone. Returns whether all zones came in time.
pub(crate) fn arm(
    process: u32,
    range: &str,
    zones: u32,
    within: Duration,
    json: bool,
    mut show: impl FnMut(&str),
) -> Result<bool, ControlError> {
    if range.contains(['*', '!', ',', '?']) {
        return Err(ControlError::Pattern { process, range: range.to_owned() });
    }
    let for_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    let mut client = Client::ask(process, &ControlRequest::Arm { range: range.to_owned(), zones, for_ms })?;
    let _: Value = client.expect("armed")?;
    client.bound(Some(within + GRACE), MOST_BYTES);
    loop {
        let Reply::Json(reply) = client.next()? else { continue };
        let is_short = reply["to_come"].as_u64().is_some();
        match reply["is"].as_str() {
            Some("zone" | "no_zone") if json => show(&output::json_line(&reply)),
            Some("zone") => show(&line(&reply)),
            Some("no_zone") => show(&format!("none: {}\n", output::printable(reply["text"].as_str().unwrap_or("")))),
            Some("ended") => {
                if is_short && json {
                    show(&output::json_line(&reply));
                } else if is_short {
                    output::complain(missing(&reply, range, zones, within));
                }
                return Ok(reply["why"] == "done");
            }
            _ => {}
        }
    }
}

/// The message for zones that did not come in time.
fn missing(ended: &Value, range: &str, zones: u32, within: Duration) -> String {
    let (to_come, within) = (ended["to_come"].as_u64().unwrap_or(0), within.as_secs_f64());
    let of = if to_come == u64::from(zones) {
        format!("no zone of `{range}`")
    } else {
        format!("{to_come} of {zones} zones of `{range}` did not come:")
    };
    match ended["code"].as_str() {
        Some("none_began") if to_come == u64::from(zones) => {
            format!("{of} began within {within} s; it may not run now: try a longer `--within`")
        }
        Some("none_began") => format!("{of} no further one began within {within} s; try a longer `--within`"),
        _ if to_come == u64::from(zones) => {
            format!("{of} came within {within} s: {}", ended["text"].as_str().unwrap_or(""))
        }
        _ => format!("{of} {}", ended["text"].as_str().unwrap_or("")),
    }
}

/// The line of a zone.
fn line(zone: &Value) -> String {
    let text = |key: &str| zone[key].as_str().map(output::printable);
    let ns = |key: &str| zone[key].as_f64().map(time);
    let mut line = text("range").unwrap_or_default();
    match (ns("gpu_ns"), text("stream")) {
        (Some(gpu), Some(stream)) => {
            // An end that is not timed leaves a bound.
            let number = |key: &str| zone[key].as_i64().unwrap_or(0);
            let gpu = if is_bound(number("gpu_ns"), number("end_early_by_ns")) { format!("≤{gpu}") } else { gpu };
            line += &format!("  {gpu:>9} on `{stream}`");
        }
        _ => line += &format!("  {:>9} on its thread", ns("host_ns").unwrap_or_default()),
    }
    if let (Some(_), Some(launch)) = (zone["gpu_ns"].as_f64(), ns("host_ns")) {
        line += &format!(", launched in {launch}");
    }
    let thread = text("thread_name").unwrap_or_else(|| zone["thread"].to_string());
    line += &format!(" by `{thread}`");
    if let Some(label) = text("label") {
        line += &format!(", {label}");
    }
    for (name, value) in zone["fields"].as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        line += &format!(", {}", output::printable(&format!("{name} {value}")));
    }
    if zone["status"] != "complete" {
        line += &format!(", {}", text("status").unwrap_or_default());
    }
    if let Some(error) = text("error") {
        line += &format!(": {error}");
    }
    line + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_length_that_is_only_a_bound_is_shown_as_one() {
        let zone = |early_by_ns: i64| {
            json!({"range": "demo.copy", "stream": "compute", "thread_name": "main", "gpu_ns": 3_720_000, "host_ns": 500,
                   "end_early_by_ns": early_by_ns, "status": "complete"})
        };
        let [exact, a_little, late] = [0, 100_000, 3_680_000].map(|early_by_ns| line(&zone(early_by_ns)));
        assert_eq!(exact, "demo.copy    3.72 ms on `compute`, launched in 500 ns by `main`\n");
        assert_eq!((a_little, late), (exact.clone(), exact.replace("  3.72 ms", " ≤3.72 ms")));
    }
}
