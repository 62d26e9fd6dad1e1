//! The checks of one trace: what a reader counts as lost, what it reads, and what the packets say.

use std::path::Path;

use serde_json::Value;

use super::tools::{Ended, Tools};
use crate::shell::Stop;

/// The only counters of the trace processor that may be other than zero: times, kinds and caches of a sound import.
const HARMLESS: [&str; 4] =
    ["guess_trace_type_duration_ns", "parse_trace_duration_ns", "clock_sync_cache_miss", "json_display_time_unit"];

const STATS: &str = "select name, idx, severity, value from stats where value != 0 order by name, idx";

const OPEN_SLICES: &str = "select count(*) from slice where dur < 0";

/// What no trace of ours has: the question, and what its rows mean.
const NEVER: [(&str, &str); 3] = [
    (
        "select 'process ' || pid, count(*) from process where pid > 0 group by pid having count(*) > 1",
        "a process is there more than once",
    ),
    (
        "select distinct t.id, coalesce(parent.name, '') from track t left join track parent on parent.id = t.parent_id \
         where coalesce(t.name, '') = '' and (t.id in (select parent_id from track) \
         or t.id in (select track_id from slice where track_id not in (select id from thread_track))) \
         and t.id not in (select id from thread_track)",
        "a row or group has no name",
    ),
    (
        "select name, count(*) from slice where category is null and id not in (select id from gpu_slice) group by name",
        "slices have no category",
    ),
];

/// A query and the rows that it must give.
struct Expected {
    what: String,
    sql: String,
    rows: Vec<Vec<Value>>,
}

/// Everything that is wrong with a trace; nothing if it is sound.
///
/// # Errors
/// A tool did not run, or the file of expectations is not one.
pub fn faults(tools: &Tools, trace: &Path, expected: Option<&Path>, ended: Ended) -> Result<Vec<String>, Stop> {
    let content = std::fs::read(trace).map_err(|error| Stop::Failed(format!("`{}`: {error}", trace.display())))?;
    let mut faults = if matches!(content.first(), Some(b'{' | b'[')) {
        document_fault(&content, ended).into_iter().collect()
    } else if trace.extension().is_some_and(|extension| extension == "tar") {
        // Its traces are checked one by one.
        Vec::new()
    } else {
        tools.packet_faults(trace, ended)?
    };
    let expected = expected.map_or(Ok(Vec::new()), read_expected)?;
    // Another tool's events are its own.
    let never = &NEVER[..if ended == Ended::Foreign { 2 } else { 3 }];
    let fixed = [STATS, OPEN_SLICES].into_iter().chain(never.iter().map(|(sql, _)| *sql)).map(str::to_owned);
    let queries: Vec<String> = fixed.chain(expected.iter().map(|one| one.sql.clone())).collect();
    let answers = tools.query(trace, &queries)?;
    faults.extend(answers.load_error.map(|error| format!("the trace processor refuses it: {error}")));
    let mut results = answers.results.into_iter();
    match results.next() {
        Some(Ok(rows)) => faults.extend(rows.iter().filter(|row| !is_harmless(row)).map(|row| stat(row))),
        other => faults.push(format!("the trace processor gives no statistics: {other:?}")),
    }
    match results.next() {
        Some(Ok(rows)) if rows == [[Value::from(0)]] || ended == Ended::Killed => {}
        other => faults.push(format!("slices that never end (or none at all): {other:?}")),
    }
    for ((_, meaning), result) in never.iter().zip(results.by_ref()) {
        match result {
            Ok(rows) => faults.extend(rows.into_iter().map(|row| format!("{meaning}: {}", Value::from(row)))),
            Err(error) => faults.push(format!("{meaning}: {error}")),
        }
    }
    for (one, result) in expected.iter().zip(results) {
        match result {
            Ok(rows) => faults.extend(difference(one, &rows)),
            Err(error) => faults.push(format!("{}: not as expected: {error}", one.what)),
        }
    }
    Ok(faults)
}

/// What is wrong with a JSON trace as a document. A session that was not finished leaves an array without its end, whose last event
/// may be cut; one that was killed while it finished leaves more behind the array.
fn document_fault(content: &[u8], ended: Ended) -> Option<String> {
    let is_document = |content: &[u8]| serde_json::from_slice::<Value>(content).map(drop);
    let whole = is_document(content);
    if ended != Ended::Killed || content.first() != Some(&b'[') {
        return whole.err().map(|error| format!("it is no JSON document: {error}"));
    }
    let text = String::from_utf8_lossy(content);
    let array = text.split_once("\n]").map_or(&*text, |(array, _)| array);
    let without_last = array.rsplit_once(",\n").map_or("[", |(events, _)| events);
    let closed = [array, without_last].map(|array| is_document(format!("{array}]").as_bytes()));
    let [Err(error), Err(_)] = closed else { return None };
    Some(format!("it is no JSON array without its end: {error}"))
}

fn is_harmless(stat: &[Value]) -> bool {
    stat.first().and_then(Value::as_str).is_some_and(|name| HARMLESS.contains(&name))
}

fn stat(row: &[Value]) -> String {
    let [name, index, severity, value] = row else { return format!("a statistic of another shape: {row:?}") };
    let index = if index.is_null() { String::new() } else { format!("[{index}]") };
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    format!("the trace processor counts {}{index} = {value} ({})", text(name), text(severity))
}

/// Reads a file of expectations: an array of `{"what", "sql": [lines], "rows"}`.
fn read_expected(path: &Path) -> Result<Vec<Expected>, Stop> {
    let wrong = |why: &str| Stop::Failed(format!("`{}` holds no expectations: {why}", path.display()));
    let content = std::fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))?;
    let entries: Value = serde_json::from_str(&content).map_err(|error| wrong(&error.to_string()))?;
    let entries = entries.as_array().ok_or_else(|| wrong("it is no array"))?;
    let read = |entry: &Value| {
        let lines = entry["sql"].as_array()?.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?;
        let rows = entry["rows"].as_array()?.iter().map(|row| row.as_array().cloned()).collect::<Option<_>>()?;
        Some(Expected { what: entry["what"].as_str()?.to_owned(), sql: lines.join("\n"), rows })
    };
    entries.iter().map(|entry| read(entry).ok_or_else(|| wrong("an entry lacks `what`, `sql` or `rows`"))).collect()
}

/// The rows that are missing and those that are too many, ready to be pasted.
fn difference(expected: &Expected, rows: &[Vec<Value>]) -> Option<String> {
    if expected.rows == rows {
        return None;
    }
    let line = |sign: char, row: &[Value]| format!("\n  {sign} {}", Value::from(row.to_vec()));
    let mut lines = String::new();
    for row in expected.rows.iter().filter(|row| !rows.contains(row)) {
        lines.push_str(&line('-', row));
    }
    for row in rows.iter().filter(|row| !expected.rows.contains(row)) {
        lines.push_str(&line('+', row));
    }
    if lines.is_empty() {
        lines =
            format!("\n  the rows are right, their order or number is not: {} and {}", expected.rows.len(), rows.len());
    }
    Some(format!("{}: not as expected{lines}", expected.what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_killed_trace_may_lack_its_end() {
        let fault = |text: &str, ended| document_fault(text.as_bytes(), ended).is_some();
        let open = "[    \n{\"ph\":\"M\"},\n{\"ph\":\"X\"}";
        for killed in
            [open, &open[..open.len() - 3], &format!("{open}\n],\n\"otherD"), &format!("{{\"traceEvents\":{open}]}}")]
        {
            assert!(!fault(killed, Ended::Killed), "{killed}");
        }
        for text in [open, &open[..open.len() - 3], &format!("{{\"traceEvents\":{open}")] {
            assert!(fault(text, Ended::Finished), "{text}");
        }
        assert!(
            fault(&format!("{{\"traceEvents\":{open}"), Ended::Killed),
            "no reader accepts an object without its end"
        );
        assert!(fault("[{\"ph\":]\n{},\n{}", Ended::Killed));
    }

    fn expected(rows: &[&[i64]]) -> Expected {
        let rows = rows.iter().map(|row| row.iter().copied().map(Value::from).collect()).collect();
        Expected { what: "slices".to_owned(), sql: String::new(), rows }
    }

    #[test]
    fn a_difference_shows_the_rows() {
        let one = expected(&[&[1, 2], &[3, 4]]);
        assert_eq!(difference(&one, &one.rows), None);
        let other = expected(&[&[1, 2], &[3, 5]]);
        let text = difference(&one, &other.rows).expect("they differ");
        assert_eq!(text, "slices: not as expected\n  - [3,4]\n  + [3,5]");
        let swapped = expected(&[&[3, 4], &[1, 2]]);
        assert!(difference(&one, &swapped.rows).is_some_and(|text| text.contains("their order")));
    }

    #[test]
    fn only_listed_statistics_are_harmless() {
        let row = |name: &str| vec![Value::from(name), Value::Null, Value::from("info"), Value::from(3)];
        assert!(is_harmless(&row("parse_trace_duration_ns")));
        assert!(!is_harmless(&row("flow_end_without_start")));
        assert_eq!(stat(&row("x")), "the trace processor counts x = 3 (info)");
    }
}
