//! The figures of `warpline report` against those of SQL in Perfetto's trace processor, on the same trace.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::tools::Tools;
use crate::shell::Stop;

/// Zones on streams, on threads and in replays: count, total, own time, shortest, longest, median and 99th percentile. The own time is without
/// the zones of the same place whose innermost zone it is.
const RANGES: &str = "
with zones as (
  select id, name, dur, case
    when category = 'host_zone' then 'thread'
    when extract_arg(arg_set_id, 'debug.correlation') is not null then 'replay'
    else 'stream' end as place
  from slice where category in ('zone', 'collective', 'host_zone')
), around as (
  select zones.id, zones.dur, (
    select enclosing.id from ancestor_slice(zones.id) enclosing
    where enclosing.category in ('zone', 'collective', 'host_zone') order by enclosing.depth desc limit 1
  ) as outer_id
  from zones
), inside as (
  select outer_id, sum(dur) as dur from around where outer_id is not null group by outer_id
), ranked as (
  select zones.*, coalesce(inside.dur, 0) as inner_dur,
    row_number() over (partition by name, place order by zones.dur) as rank,
    count(*) over (partition by name, place) as n
  from zones left join inside on inside.outer_id = zones.id
)
select name, place, count(*), sum(dur), sum(dur - inner_dur), min(dur), max(dur),
  max(iif(rank = (n + 1) / 2, dur, 0)), max(iif(rank = (n * 99 + 99) / 100, dur, 0))
from ranked group by name, place order by name, place";

const STEPS: &str =
    "select 'step', '', count(*), sum(dur), min(dur), max(dur) from slice where category = 'step' having count(*) > 0";

const KERNELS: &str = "
select name, coalesce(extract_arg(arg_set_id, 'zone'), ''), count(*), sum(dur), max(dur)
from gpu_slice group by 1, 2 order by 1, 2";

const COLLECTIVES: &str = "
select extract_arg(arg_set_id, 'debug.Process Group Name'), '', count(*), sum(dur)
from slice where category = 'collective' and extract_arg(arg_set_id, 'debug.Collective name') is not null
group by 1 order by 1";

/// Compares the figures of a trace. Returns how many were equal.
///
/// # Errors
/// The command or the trace processor does not run, or a figure differs.
pub fn check(tools: &Tools, command: &Path, trace: &Path) -> Result<usize, Stop> {
    let failed = |what: String| Stop::Failed(format!("{}: {what}", trace.display()));
    let output = Command::new(command)
        .args(["report", "--format", "json"])
        .arg(trace)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let report: Value = serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
    let queries = [RANGES, STEPS, KERNELS, COLLECTIVES].map(str::to_owned);
    let answers = tools.query(trace, &queries)?;
    let mut results = answers.results.into_iter().map(|result| result.map_err(|error| failed(format!("SQL: {error}"))));
    let mut next = || results.next().unwrap_or_else(|| Ok(Vec::new()));
    let mut compared = 0;
    let exact = ["count", "total_ns", "self_ns", "min_ns", "max_ns"];
    let (ranges, steps, kernels, collectives) = (next()?, next()?, next()?, next()?);
    for (what, rows, keys, table) in [
        ("ranges", ranges, [&exact[..], &["p50_ns", "p99_ns"]].concat(), by(&report["ranges"], "name", "on")),
        ("steps", steps, vec!["count", "", "min_ns", "max_ns"], by(&report["steps"], "name", "")),
        ("kernels", kernels, vec!["count", "total_ns", "max_ns"], by(&report["kernels"], "name", "range")),
    ] {
        let mut known: BTreeMap<_, _> = table;
        for row in &rows {
            let key = (text(&row[0]), text(&row[1]));
            let told = known.remove(&key).ok_or_else(|| failed(format!("{what}: the report lacks {key:?}")))?;
            for (name, value) in keys.iter().zip(&row[2..]).filter(|(name, _)| !name.is_empty()) {
                // A first call that is set apart is in no percentile.
                if name.starts_with('p') && !told["first_ns"].is_null() {
                    continue;
                }
                let (ours, theirs) = (told[*name].as_i64(), number(value));
                let tolerance = if name.starts_with('p') { theirs.unwrap_or(0) / 100 + 1 } else { 0 };
                if ours.zip(theirs).is_none_or(|(ours, theirs)| (ours - theirs).abs() > tolerance) {
                    return Err(failed(format!(
                        "{what} {key:?}: {name} is {ours:?} in the report and {theirs:?} in SQL"
                    )));
                }
                compared += 1;
            }
        }
        if let Some(key) = known.keys().next() {
            return Err(failed(format!("{what}: SQL finds no {key:?}")));
        }
    }
    // The report names groups with their ranks.
    for row in &collectives {
        let group = text(&row[0]);
        let rows = report["collectives"].as_array().into_iter().flatten();
        let of_group = rows.filter(|told| text(&told["group"]).split(' ').next() == Some(&group));
        let (count, total) = of_group.fold((0, 0), |(count, total), told| {
            (count + told["count"].as_i64().unwrap_or(0), total + told["total_ns"].as_i64().unwrap_or(0))
        });
        if (Some(count), Some(total)) != (number(&row[2]), number(&row[3])) {
            return Err(failed(format!("collectives of {group}: {count} of {total} ns in the report, {row:?} in SQL")));
        }
        compared += 2;
    }
    Ok(compared)
}

/// The rows of a table by one or two of their members.
fn by<'a>(table: &'a Value, first: &str, second: &str) -> BTreeMap<(String, String), &'a Value> {
    let rows = table.as_array().into_iter().flatten();
    rows.map(|row| ((text(&row[first]), if second.is_empty() { String::new() } else { text(&row[second]) }), row))
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Numbers that are not exact as a JSON number are texts.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}
