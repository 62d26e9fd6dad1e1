//! The step that asks SQL of the traces of the main job and of the programs of the test `equal`: `warpline query` hands
//! over to `warpline-ranks`, answers every query that is shipped, and its figures are those of `warpline report` on the
//! same trace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::needs;
use crate::shell::{Stop, line, target};

/// The figures of ranges by their names in the report and in SQL.
const OF_RANGES: [(&str, &str); 5] =
    [("count", "n"), ("total_ns", "total_ns"), ("self_ns", "self_ns"), ("min_ns", "min_ns"), ("max_ns", "max_ns")];

/// What is asked of the trace: the name of the file, and the query.
const QUESTIONS: [(&str, &str); 3] = [
    ("ranges.sql", "SELECT * FROM ranges"),
    ("streams.sql", "SELECT stream, used_ns - waiting_ns AS busy_ns, waiting_ns FROM streams"),
    (
        "collectives.sql",
        "SELECT kind, comm, COUNT(*) AS n, SUM(dur_ns) AS total_ns FROM collectives GROUP BY kind, comm",
    ),
];

/// The traces that the test `equal` leaves at the least.
const PROGRAMS: usize = 20;

/// The queries of a trace that must find something in the main job's. The others need what it has not: a GPU's kernels, collectives, steps.
const FIND: [&str; 5] = ["first_calls", "queue_delay", "launch_gaps", "stream_gaps", "streams_at_once"];

/// Records the main job, and compares. Returns how many figures were equal.
pub fn run() -> Result<u64, Stop> {
    let (command, reader, job) = (needs::command()?, needs::reader()?, needs::example("quickstart")?);
    let folder = target().join("query");
    let failed = |error| Stop::Failed(format!("cannot write to the folder `{}`: {error}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let trace = folder.join("quickstart.pftrace");
    line(&format!("{} --host --steps 12", job.display()))
        .with("WARPLINE", format!("perfetto={}", trace.display()))
        .run()?;
    // A command line has words without blanks.
    for (name, sql) in QUESTIONS {
        std::fs::write(folder.join(name), sql).map_err(failed)?;
    }
    let both = Both { command: &command, reader: &reader, folder: &folder };
    let mut equal = both.compare(&trace)?;
    for trace in programs(&folder.join("programs"))? {
        equal += both.compare(&trace)?;
    }
    for query in queries()? {
        let rows = both.ask(&trace, &format!("--name {query}"))?;
        if rows.is_empty() && FIND.contains(&query.as_str()) {
            return Err(Stop::Failed(format!("`{query}` finds nothing in `{}`", trace.display())));
        }
    }
    Ok(equal)
}

/// Records the programs of the test `equal`, each in both formats.
fn programs(folder: &Path) -> Result<Vec<PathBuf>, Stop> {
    let failed = |error| Stop::Failed(format!("cannot use the folder `{}`: {error}", folder.display()));
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(failed)?;
    }
    std::fs::create_dir_all(folder).map_err(failed)?;
    needs::everything("test --quiet", "--test cli -- equal::")
        .with("WARPLINE_EQUAL", folder.display().to_string())
        .run_tests()?;
    let traces = std::fs::read_dir(folder).map_err(failed)?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut traces: Vec<_> = traces.collect();
    traces.sort();
    if traces.len() < PROGRAMS {
        return Err(Stop::Failed(format!("the test `equal` left {} traces, not {PROGRAMS}", traces.len())));
    }
    Ok(traces)
}

/// The two that have figures of a trace.
struct Both<'a> {
    command: &'a Path,
    reader: &'a Path,
    /// Has the questions.
    folder: &'a Path,
}

impl Both<'_> {
    /// Asks SQL of a trace.
    fn ask(&self, trace: &Path, query: &str) -> Result<Vec<Value>, Stop> {
        rows(&format!("{} query {} {query} --json", self.command.display(), trace.display()), self.reader)
    }

    /// Compares the figures of a trace. Returns how many were equal.
    fn compare(&self, trace: &Path) -> Result<u64, Stop> {
        let said = said(&format!("{} report {} --format json", self.command.display(), trace.display()), self.reader)?;
        let report: Value =
            serde_json::from_str(&said).map_err(|error| Stop::Failed(format!("the report: {error}")))?;
        let asked =
            |number: usize| self.ask(trace, &format!("--file {}", self.folder.join(QUESTIONS[number].0).display()));
        let failed = |why: &str| Stop::Failed(format!("`ranges` of {} {why}", trace.display()));
        let mut equal = 0;
        let found = by(&asked(0)?, "range", "place");
        let told = by(report["ranges"].as_array().into_iter().flatten(), "name", "on");
        if told.is_empty() || !told.keys().eq(found.keys()) {
            return Err(Stop::Failed(format!("the report has {:?}, and SQL has {:?}", told.keys(), found.keys())));
        }
        for (range, told) in &told {
            for (in_report, in_sql) in OF_RANGES {
                // Of a sample, the report estimates the total of all zones.
                let is_sampled = found[range]["sampled"].as_u64().ok_or_else(|| failed("has no column `sampled`"))? > 0;
                let in_report = if in_report == "total_ns" && is_sampled { "recorded_ns" } else { in_report };
                equal += same(&format!("{in_report} of {range:?}"), &told[in_report], &found[range][in_sql])?;
            }
        }
        let of_stream = |row: &Value| row["stream"].to_string();
        let streams: BTreeMap<_, _> = asked(1)?.into_iter().map(|row| (of_stream(&row), row)).collect();
        for told in report["streams"].as_array().into_iter().flatten() {
            let found = streams.get(&told["name"].to_string()).cloned().unwrap_or_default();
            for figure in ["busy_ns", "waiting_ns"] {
                equal += same(&format!("{figure} of {}", told["name"]), &told[figure], &found[figure])?;
            }
        }
        let found = by(&asked(2)?, "kind", "comm");
        for (collective, told) in by(report["collectives"].as_array().into_iter().flatten(), "name", "group") {
            let found = found.get(&collective).cloned().unwrap_or_default();
            for (in_report, in_sql) in [("count", "n"), ("total_ns", "total_ns")] {
                equal += same(&format!("{in_report} of {collective:?}"), &told[in_report], &found[in_sql])?;
            }
        }
        Ok(equal)
    }
}

fn same(what: &str, told: &Value, found: &Value) -> Result<u64, Stop> {
    if told.is_number() && told == found {
        return Ok(1);
    }
    Err(Stop::Failed(format!("{what} is {told} in the report, and {found} in SQL")))
}

/// What a command prints that finds `warpline-ranks` on its PATH.
fn said(command: &str, reader: &Path) -> Result<String, Stop> {
    println!("$ {command}");
    let folder = reader.parent().map(Path::display).map(|folder| folder.to_string()).unwrap_or_default();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let said = line(command).with("PATH", &path).output();
    said.ok_or_else(|| Stop::Failed(format!("`{command}` fails; run it to see why")))
}

fn rows(command: &str, reader: &Path) -> Result<Vec<Value>, Stop> {
    let rows: Result<Vec<_>, _> = said(command, reader)?.lines().map(serde_json::from_str).collect();
    rows.map_err(|error| Stop::Failed(format!("`{command}` prints what is no JSON: {error}")))
}

fn by<'a>(rows: impl IntoIterator<Item = &'a Value>, name: &str, place: &str) -> BTreeMap<(String, String), Value> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    rows.into_iter().map(|row| ((text(&row[name]), text(&row[place])), row.clone())).collect()
}

/// The names of the queries that are shipped.
fn queries() -> Result<Vec<String>, Stop> {
    let folder = crate::shell::root().join("ranks/queries");
    let failed = |error| Stop::Failed(format!("cannot read the folder `{}`: {error}", folder.display()));
    let files = std::fs::read_dir(&folder).map_err(failed)?.filter_map(|entry| Some(entry.ok()?.path()));
    let queries = files.filter(|path| path.extension().is_some_and(|ending| ending == "sql"));
    let mut names: Vec<_> = queries.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
    names.sort();
    Ok(names)
}
