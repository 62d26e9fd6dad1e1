//! Asks `warpline-ranks`, and compares what it says with the truth of the hub. A rank that is blamed and was not late is a failure; a rank that the
//! machine held up was late, and may be blamed.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::hub::{Group, Hub, Met, Truth};
use crate::rank::{LATE, RANKS};

/// What two readings of two clocks may differ by, beside the error that the reader says.
const SLACK_NS: i64 = 200_000;

/// Steps that are compared at once where a slow device is said.
const BLOCK: usize = 400;

/// The reader, and the folder that it reads.
pub struct Judge {
    pub reader: PathBuf,
    pub folder: PathBuf,
    /// Single collectives that were compared, and those that differ.
    pub compared: usize,
    pub differ: usize,
}

impl Judge {
    fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.reader);
        command.arg(arguments[0]).arg(&self.folder).args(&arguments[1..]);
        let output = command.output().map_err(|error| format!("cannot run `{}`: {error}", self.reader.display()))?;
        match output.status.code() {
            Some(0 | 3) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            _ => Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr))),
        }
    }

    fn json(&self, arguments: &[&str]) -> Result<Value, String> {
        let text = self.ask(arguments)?;
        serde_json::from_str(&text).map_err(|error| format!("{arguments:?}: {error}: {text}"))
    }

    /// Nothing hangs, and nobody is named.
    pub fn nothing_hangs(&self, hub: &Hub) -> Result<(), String> {
        let hang = self.json(&["hang", "--json"])?;
        let names = |key: &str| hang[key].as_array().is_some_and(|all| !all.is_empty());
        if !["culprits", "cycles", "differences", "stale"].into_iter().any(names) {
            return Ok(());
        }
        // A machine that has held everybody up for the whole time of the reads makes the job hang.
        let since_s = (crate::clock::machine_ns() - hub.last().0) / 1_000_000_000;
        if since_s >= 3 { Ok(()) } else { Err(format!("nothing hangs, and `hang` says {}", hang["verdict"])) }
    }

    /// The rank that was killed is the one that all wait for, and nobody else is named.
    pub fn names_the_dead(&self, rank: u32) -> Result<(), String> {
        let hang = self.json(&["hang", "--json"])?;
        let culprits: Vec<_> = hang["culprits"].as_array().into_iter().flatten().collect();
        match culprits[..] {
            [one] if one["rank"] == rank && one["is_dead"] == true => Ok(()),
            _ => Err(format!("rank {rank} is dead, and `hang` says {}", hang["verdict"])),
        }
    }

    /// What a report says is true. Returns its verdict.
    pub fn report(&mut self, hub: &Hub) -> Result<(Value, Vec<String>), String> {
        let report = self.json(&["report", "--json"])?;
        let mut wrong = hub.truth(|truth| wrong_names(&report, truth));
        let sql = "SELECT comm, seq, rank, n, late, err FROM (SELECT comm, seq, rank, n, \
                   last_ns - (sum_ns - last_ns) / (n - 1) AS late, 2 * (clock_ns + read_ns) AS err FROM late WHERE n = size) l \
                   WHERE late > 2000000";
        let rows = self.ask(&["query", sql])?;
        let mut rows: Vec<_> = rows.lines().filter_map(row).collect();
        // The report also judges some of those without the rows of all ranks.
        rows.extend(report["events"].as_array().into_iter().flatten().filter_map(event));
        let differ: Vec<String> =
            hub.truth(|truth| rows.iter().filter_map(|(said, err_ns)| differs(said, *err_ns, truth)).collect());
        (self.compared, self.differ) = (rows.len(), differ.len());
        if !differ.is_empty() {
            let first: Vec<_> = differ.iter().take(8).cloned().collect();
            wrong.push(format!("{} of {} late arrivals are not true: {}", differ.len(), rows.len(), first.join("; ")));
        }
        Ok((report, wrong))
    }
}

/// A late arrival, as a report or a query says it.
struct Said {
    group: Group,
    seq: u64,
    rank: u32,
    /// How many ranks are in the tables.
    ranks: usize,
    /// How much later than the others on average.
    late_ns: i64,
}

/// A row of the table that a query prints.
fn row(line: &str) -> Option<(Said, i64)> {
    let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
    let [comm, seq, rank, ranks, late_ns, err_ns, ..] = cells[..] else { return None };
    let said = Said {
        group: group(comm)?,
        seq: seq.parse().ok()?,
        rank: rank.parse().ok()?,
        ranks: ranks.parse().ok()?,
        late_ns: late_ns.parse::<f64>().ok()? as i64,
    };
    // An uncertainty of clocks may be a fraction.
    Some((said, err_ns.parse::<f64>().ok()? as i64))
}

/// A late arrival of a report.
fn event(event: &Value) -> Option<(Said, i64)> {
    let said = Said {
        group: group(event["comm"].as_str()?)?,
        seq: event["seq"].as_u64()?,
        rank: event["rank"].as_u64()? as u32,
        ranks: event["ranks"].as_u64()? as usize,
        late_ns: event["late_ns"].as_i64()?,
    };
    Some((said, event["err_ns"].as_i64()?))
}

fn group(comm: &str) -> Option<Group> {
    let name = comm.split('#').next()?;
    match name.strip_prefix("tp") {
        Some(pair) => pair.parse().ok().map(Some),
        None => (name == "dp0").then_some(None),
    }
}

/// Why a late arrival is not true.
fn differs(said: &Said, err_ns: i64, truth: &Truth) -> Option<String> {
    let Said { group, seq, rank, ranks, late_ns } = *said;
    let name = format!("rank {rank} by {:.1} ms to number {seq} of {group:?}", late_ns as f64 / 1e6);
    let Some(met) = truth.met.get(&(group, seq)) else { return Some(format!("{name}, which never was")) };
    let (most_ns, may_ns) = (met.late_ns(rank), SLACK_NS + err_ns);
    let is_true = match ranks == met.ranks() {
        true => late_ns <= most_ns + may_ns && met.margin_ns(rank) >= -may_ns,
        // A rank that is not in the tables came before it, or soon after.
        false => late_ns / 2 <= most_ns + may_ns && met.margin_ns(rank) >= -may_ns - late_ns / 8,
    };
    (!is_true).then(|| format!("{name}, with {ranks} ranks, at most {:.1} ms", most_ns as f64 / 1e6))
}

/// The ranks that a report names without a reason.
fn wrong_names(report: &Value, truth: &Truth) -> Vec<String> {
    let mut wrong = Vec::new();
    let list = |key: &str| report[key].as_array().cloned().unwrap_or_default();
    for late in list("late") {
        let (Some(rank), Some(steps), Some(median_ns)) =
            (late["rank"].as_u64(), late["steps"].as_u64(), late["median_ns"].as_i64())
        else {
            wrong.push(format!("a late rank without figures: {late}"));
            continue;
        };
        let is_late = |met: &&Met| met.late_ns(rank as u32) >= median_ns / 3;
        let times = truth.met.values().filter(is_late);
        if (times.count() as u64) * 3 < steps {
            wrong.push(format!(
                "rank {rank} is said to be late by {:.1} ms in {steps} steps, and was not",
                median_ns as f64 / 1e6
            ));
        }
    }
    for slow in list("slow") {
        let (rank, share) = (slow["rank"].as_u64().unwrap_or(u64::MAX), slow["share"].as_f64().unwrap_or(0.0));
        let more = truth.worked.chunks(BLOCK).filter_map(|block| more_work(block, rank as usize)).fold(0.0, f64::max);
        if more * 3.0 < share {
            wrong.push(format!(
                "rank {rank} is said to be slow by {:.1} %, and was by {:.1} %",
                share * 100.0,
                more * 100.0
            ));
        }
    }
    wrong
}

/// By which share the device of a rank worked longer than that of the rank in the middle.
fn more_work(block: &[[i64; RANKS as usize]], rank: usize) -> Option<f64> {
    let mut sums = [0; RANKS as usize];
    for step in block {
        sums.iter_mut().zip(step).for_each(|(sum, worked)| *sum += worked);
    }
    let its = *sums.get(rank)?;
    sums.sort_unstable();
    let middle = sums[sums.len() / 2].max(1);
    Some((its - middle) as f64 / middle as f64)
}

/// The rank that was made late is named, with the range in which it took longer.
pub fn names_the_late(report: &Value) -> Result<(), String> {
    let late = report["late"].as_array().into_iter().flatten().find(|late| late["rank"] == LATE);
    match late {
        Some(late) if late["stage"] == "soak.load" => Ok(()),
        _ => Err(format!("rank {LATE} was late in `soak.load`, and the report says {}", report["verdict"])),
    }
}

/// The bytes below a folder.
pub fn bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}
