//! The JSON replies of the control server, built from the engine's state. The connections call it; nothing here blocks or sends.

use std::time::Instant;

use serde_json::{Value as Json, json};

use crate::collector::Outcome;
use crate::collector::engine::Engine;
use crate::flight::Flight;
use warpline_core::catalog::catalog;
use warpline_core::fields::Value;
use warpline_core::if_feature;
use warpline_core::profile::error::ProfileError;
use warpline_core::record::ZoneRecord;
use warpline_core::sorting;
use warpline_core::stream::context::Account;
use warpline_report::Dropped;
use warpline_report::export::json_object;
use warpline_trace::control::figures::Figures;
use warpline_trace::control::protocol::{Refusal, VERSION};
use warpline_trace::json::json_value;
use warpline_trace::names::len_name;

/// The maximum number of namespaces in a status reply.
const MOST_NAMES: usize = 64;

/// Returns the status reply: the process, its catalog, the session's state, and the numbers of active recordings and watchers.
pub(super) fn status(current: Option<&Engine>, recordings: usize, watchers: usize) -> Json {
    let program = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
    let mut namespaces: Vec<_> = catalog().namespaces().map(|space| space.name).collect();
    sorting::sort(&mut namespaces);
    namespaces.dedup();
    namespaces.truncate(MOST_NAMES);
    let state = match current {
        None => "idle",
        Some(current) if current.is_held => "held",
        Some(current) if current.is_on() => "recording",
        Some(_) => "stopped",
    };
    json!({
        "is": "status",
        "protocol": VERSION,
        "version": env!("CARGO_PKG_VERSION"),
        "process": std::process::id(),
        "program": program,
        "ranges": catalog().len(),
        "namespaces": namespaces,
        "state": state,
        "recordings": recordings,
        "watchers": watchers,
        "zones": current.map(|current| account(&current.recorder.account())),
        "flight": current.and_then(|current| current.flight.as_deref()).map(recorder),
    })
}

/// Returns the flight recorder's file and its problems.
fn recorder(flight: &Flight) -> Json {
    json!({"file": flight.path().display().to_string(), "problems": flight.problems()})
}

pub(super) fn started(session: &Engine, notes: &[String]) -> Json {
    let of = if session.is_held { "held" } else { "own" };
    json!({"is": "started", "protocol": VERSION, "session": of, "notes": notes})
}

/// Returns the reply to a dump request: the descriptor of the recorder's file, which the client reads through `/proc`.
pub(super) fn flight(flight: &Flight, is_fresh: bool) -> Json {
    let mut answer = recorder(flight);
    answer["is"] = "flight".into();
    answer["protocol"] = VERSION.into();
    answer["fd"] = flight.ring.fd().into();
    answer["is_fresh"] = is_fresh.into();
    answer
}

/// Returns what the rank is doing: the contents of its progress file, as they would be now. A disk that stalls, or that is full, does not hold it
/// up.
///
/// # Errors
/// No session writes tables of many ranks.
pub(super) fn progress(current: Option<&Engine>) -> Result<Json, Refusal> {
    let current = current.filter(|current| !current.is_held && current.recorder.limits().watch);
    let standing = if_feature!("ranks", current.map(crate::ranks::standing), current.and(None));
    let mut answer: Json = standing.ok_or_else(|| {
        let text = "it has no session that writes tables of its rank; start it with `control,ranks=FOLDER`";
        Refusal::new("no_ranks", text)
    })?;
    answer["is"] = "progress".into();
    answer["protocol"] = VERSION.into();
    Ok(answer)
}

/// Returns the last reply of a recording: why it ended, and its counts.
pub(super) fn ended(why: &str, over: &Outcome) -> Json {
    let report = &over.report;
    json!({
        "is": "ended",
        "why": why,
        "begun": report.begun,
        "recorded": report.recorded,
        "captured": report.captured,
        "dropped": dropped(&report.dropped),
        "spans": report.spans.recorded,
        "kernels": report.kernels.recorded,
        "kernels_lost": report.kernels.lost(),
        "lost": over.lost,
        "seconds": report.duration.as_secs_f64(),
        "notes": report.notes,
        "figures": Figures::from_report(report).to_json(),
    })
}

/// Returns the last reply of a request that has no counts to report.
pub(super) fn over(why: &str) -> Json {
    json!({"is": "ended", "why": why})
}

/// Returns the zone counts so far. Zones in flight are counted neither as recorded nor as dropped.
pub(super) fn account(account: &Account) -> Json {
    json!({
        "begun": account.begun,
        "recorded": account.recorded,
        "captured": account.captured,
        "dropped": dropped(&Dropped { unfinished: 0, ..account.dropped }),
        "on_their_way": account.dropped.unfinished,
    })
}

fn dropped(dropped: &Dropped) -> Json {
    json_object(dropped.reasons())
}

/// Returns an armed zone as JSON, or the reason why it is missing.
pub(super) fn zone(zone: &Result<ZoneRecord, ProfileError>) -> Json {
    let zone = match zone {
        Ok(zone) => zone,
        Err(error) => return json!({"is": "no_zone", "text": error.to_string()}),
    };
    let field = |(name, value): (&str, &Value)| {
        let len = value.cut_len().map(|len| (len_name(name), len.into()));
        std::iter::once((name.to_owned(), json_value(value))).chain(len)
    };
    let fields = json_object(zone.fields.iter().flat_map(field));
    json!({
        "is": "zone",
        "range": zone.range.name(),
        "status": zone.status.as_str(),
        "stream": zone.stream.as_ref().map(|stream| &stream.name),
        "device": zone.stream.as_ref().map(|stream| &stream.device.name),
        "thread": zone.thread.id,
        "thread_name": zone.thread.name,
        "host_begin_ns": zone.host.begin_ns,
        "host_ns": zone.host.duration_ns(),
        "gpu_begin_ns": zone.gpu.map(|gpu| gpu.begin_ns),
        "gpu_ns": zone.gpu_ns(),
        "gpu_ns_corrected": zone.gpu_ns_corrected(),
        "end_early_by_ns": zone.gpu.filter(|_| zone.end_early_by_ns > 0).map(|_| zone.end_early_by_ns),
        "label": zone.fields.label(),
        "lane": zone.lane(),
        "fields": fields,
        "error": zone.error,
    })
}

/// Returns a machine-readable code for the reason why zones are missing at the deadline.
pub(super) fn why_not(error: &ProfileError) -> &'static str {
    match error {
        ProfileError::TimedOut { has_begun: true, .. } => "under_way",
        ProfileError::TimedOut { captured: 1.., .. } => "captured",
        ProfileError::TimedOut { .. } => "none_began",
        _ => "failed",
    }
}

/// Returns the time from `then` to `now` in ns.
pub(super) fn since_ns(then: Instant, now: Instant) -> i64 {
    i64::try_from(now.duration_since(then).as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_report::fixture;

    #[test]
    fn an_answer_has_lists_and_maps_and_the_lane() {
        let mut record = fixture::zone(&fixture::COPY, None, &fixture::main_thread(), fixture::span(0, 1), None);
        record.fields.push("shape", [4, 128]);
        record.fields.push("sizes", vec![0.5; 100]);
        record.fields.push("tile", [("rows", 8)]);
        record.fields.push("nan", f64::NAN);
        let answer = zone(&Ok(record.clone()));
        let fields = &answer["fields"];
        assert_eq!((&fields["shape"], &fields["tile"]), (&json!([4, 128]), &json!({"rows": 8})));
        assert_eq!((fields["sizes"].as_array().map(Vec::len), &fields["sizes.len"]), (Some(64), &json!(100)));
        assert_eq!((&fields["nan"], &answer["lane"]), (&json!("NaN"), &json!("copies")));
        record.fields.set_lane("loader 3");
        assert_eq!(zone(&Ok(record))["lane"], json!("loader 3"));
    }
}
