//! Asks `warpline-ranks` about a case, and compares its verdict with what was injected. Of a run that has ended, `warpline stragglers` is
//! asked as well: it must name the same rank from the traces.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::case::{COUNT, Case, Fault, Size};
use crate::catalog;
use crate::options::Options;

/// A machine without GPUs delays ranks by itself, by less than this.
const NOISE_NS: i64 = 300_000_000;

/// `warpline-ranks` and `warpline`, and what is asked of their verdicts.
pub struct Judge {
    command: PathBuf,
    of_traces: PathBuf,
    ranks: u32,
    /// Ranks that were late by less may be named beside the one with the fault. Zero where ranks have GPUs.
    pub noise_ns: i64,
    size: Size,
}

/// What was said about a case.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub is_right: bool,
    /// The rank that was named.
    pub rank: Option<u32>,
    /// The group and number of the collective.
    pub number: Option<String>,
    /// The mark and its place in the source.
    pub place: Option<String>,
    /// By how much it was late: once, or in most steps.
    pub late_ns: Option<i64>,
    /// The verdict in sentences, or why there is none.
    pub said: Vec<String>,
}

impl Verdict {
    pub fn failed(why: &str) -> Verdict {
        Verdict { said: vec![why.to_owned()], ..Verdict::default() }
    }

    /// Whether somebody was named.
    pub fn names(&self) -> bool {
        self.rank.is_some()
    }
}

impl Judge {
    pub fn new(options: &Options, ranks: u32, host: bool) -> Result<Judge, String> {
        let find = |named: &Option<PathBuf>, name: &str, option: &str| {
            let beside = || Some(std::env::current_exe().ok()?.parent()?.join(name));
            let command = named.clone().or_else(beside).unwrap_or_default();
            match command.is_file() {
                true => Ok(command),
                false => Err(format!("there is no `{}`; name `{name}` with `{option} FILE`", command.display())),
            }
        };
        Ok(Judge {
            command: find(&options.judge, "warpline-ranks", "--judge")?,
            of_traces: find(&options.stragglers, "warpline", "--stragglers")?,
            ranks,
            noise_ns: if host { NOISE_NS } else { 0 },
            size: Size::of(host),
        })
    }

    /// What `warpline stragglers` says of the traces of a run: the rank, by how much it was late at worst, and the sentence.
    fn of_traces(&self, folder: &Path) -> Result<(Option<(u32, i64)>, String), String> {
        let command = &self.of_traces;
        let output = Command::new(command).args(["stragglers", "--format", "json"]).arg(traces(folder)).output();
        let output = output.map_err(|error| format!("`{}`: {error}", command.display()))?;
        let found: Value = serde_json::from_slice(&output.stdout).map_err(|error| {
            format!("`warpline stragglers`: {error}: {}", String::from_utf8_lossy(&output.stderr).trim())
        })?;
        let verdict = &found["verdict"];
        let named = number(&verdict["rank"]).zip(verdict["late_by_ns"].as_i64());
        let said = format!("stragglers: {}", found["summary"].as_str().unwrap_or_default());
        Ok((named.map(|(rank, late_ns)| (rank as u32, late_ns)), said))
    }

    fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(&self.command).args(arguments).output();
        let output = output.map_err(|error| format!("`{}`: {error}", self.command.display()))?;
        // 3: something hangs.
        match output.status.code() {
            Some(0 | 3) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            _ => Err(format!(
                "`warpline-ranks {}`: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            )),
        }
    }

    fn json(&self, arguments: &[&str]) -> Result<Value, String> {
        let text = self.ask(arguments)?;
        serde_json::from_str(&text).map_err(|error| format!("`warpline-ranks {}`: {error}", arguments.join(" ")))
    }

    /// About a run that has ended.
    pub fn report(&self, case: &Case, folder: &Path) -> Verdict {
        let report = self.json(&["report", &folder.display().to_string(), "--json"]);
        match report.and_then(|report| Ok((report, self.of_traces(folder)?))) {
            Ok((report, (named, said))) => {
                let mut verdict = self.of_report(case, folder, &report);
                let is_noise = |late_ns: i64| case.fault == Fault::Clean && late_ns < self.noise_ns;
                let named = named.filter(|(_, late_ns)| !is_noise(*late_ns)).map(|(rank, _)| rank);
                // It knows no device: a rank that is slow and late to nothing is none of its.
                let is_late = !list(&report["late"]).is_empty();
                verdict.is_right &= named == verdict.rank.filter(|_| is_late);
                verdict.said.push(said);
                verdict
            }
            Err(error) => Verdict::failed(&error),
        }
    }

    fn of_report(&self, case: &Case, folder: &Path, report: &Value) -> Verdict {
        // The most costly first.
        let (late, mut slow) = (list(&report["late"]), list(&report["slow"]));
        let counts = |late: &&Value| late["worst_ns"].as_i64().unwrap_or(i64::MAX) >= self.noise_ns;
        let others = |late: &&Value| number(&late["rank"]) != Some(u64::from(case.rank));
        let others = late.iter().filter(counts).filter(others).count();
        let mut first = late.first();
        if self.noise_ns > 0 && case.fault == Fault::Clean {
            first = first.filter(counts);
        }
        if self.noise_ns > 0 && case.fault != Fault::SlowGpu {
            slow = &[];
        }
        let rank = first.or(slow.first()).and_then(|named| number(&named["rank"])).map(|rank| rank as u32);
        let event = list(&report["events"]).first();
        let number_of = |event: &Value| Some((event["comm"].as_str()?.to_owned(), number(&event["seq"])?));
        let at = event.and_then(number_of);
        let stage = first.and_then(|late| late["stage"].as_str()).unwrap_or_default();
        let place = match case.fault {
            // What it was late to.
            Fault::Late => at.as_ref().and_then(|(comm, seq)| self.range_of(folder, comm, *seq)),
            _ => Some(stage.to_owned()).filter(|stage| !stage.is_empty()),
        };
        let is_its = |slow: &Value| number(&slow["rank"]) == Some(u64::from(case.rank));
        let is_named = rank == Some(case.rank) && others == 0 && (self.noise_ns > 0 || slow.iter().all(is_its));
        let is_at = |seq: u64| at.as_ref().is_some_and(|(comm, is)| is_of(comm, "dp") && *is == seq);
        let begins = first.and_then(|late| number(&late["first_step"])).unwrap_or(u64::MAX);
        let is_right = match case.fault {
            Fault::Clean => {
                rank.is_none() && number(&report["size"]["collectives_judged"]) >= Some(2 * self.size.steps)
            }
            Fault::Late => is_named && is_at(case.seq(&self.size)) && place.as_deref() == Some("faults.sync"),
            // The thread is a step ahead of the device.
            Fault::SlowStage | Fault::Restart => {
                is_named && stage == "faults.load" && (self.noise_ns > 0 || begins.abs_diff(case.step) <= 2)
            }
            Fault::SlowGpu => is_named && ["faults.forward", "faults.backward"].contains(&stage),
            _ => false,
        };
        Verdict {
            is_right,
            rank,
            number: at.filter(|_| rank.is_some()).map(|(comm, seq)| format!("{comm} {seq}")),
            place: place.and_then(|range| placed(&range)),
            // A single delay is the worst; one of each step is the median.
            late_ns: first
                .and_then(|late| late[if case.fault == Fault::Late { "worst_ns" } else { "median_ns" }].as_i64()),
            said: sentences(report),
        }
    }

    /// The range of a collective, as the tables have it.
    fn range_of(&self, folder: &Path, comm: &str, seq: u64) -> Option<String> {
        let sql = format!("SELECT MIN(range) AS range FROM collectives WHERE comm = '{comm}' AND seq = {seq}");
        let text = self.ask(&["query", &folder.display().to_string(), &sql]).ok()?;
        // A table with one cell below its head.
        let cells: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")).collect();
        Some(cells.get(1)?.trim().to_owned())
    }

    /// About ranks that stand still.
    pub fn hang(&self, case: &Case, folder: &Path) -> Verdict {
        match self.json(&["hang", &folder.display().to_string(), "--between", "0", "--json"]) {
            Ok(hang) => self.of_hang(case, folder, &hang),
            Err(error) => Verdict::failed(&error),
        }
    }

    fn of_hang(&self, case: &Case, folder: &Path, hang: &Value) -> Verdict {
        let (culprits, cycles, differences) =
            (list(&hang["culprits"]), list(&hang["cycles"]), list(&hang["differences"]));
        let said = sentences(hang);
        let in_data = |of: &Value| of["comm"].as_str().is_some_and(|comm| is_of(comm, "dp"));
        let in_norm = |of: &Value| of["comm"].as_str().is_some_and(|comm| is_of(comm, "norm"));
        let text = |of: &Value| Some(format!("{} {}", of["comm"].as_str()?, number(&of["seq"])?));
        match case.fault {
            Fault::Hang => {
                let first = culprits.first();
                let wait = first.and_then(|culprit| list(&culprit["chain"]).last());
                // The others wait for it in both groups.
                let is_at = wait.is_some_and(|wait| {
                    let (size, seq) = (&self.size, number(&wait["seq"]));
                    in_data(wait) && seq == Some(case.first_seq(size))
                        || in_norm(wait) && seq == Some(case.norm_seq(size))
                });
                let open = first.map_or(&Value::Null, |culprit| &culprit["open"]);
                let rank = first.and_then(|culprit| number(&culprit["rank"])).map(|rank| rank as u32);
                let is_only = culprits.len() == 1 && cycles.is_empty() && differences.is_empty();
                let is_right = is_only && rank == Some(case.rank) && is_at && is_place(open, "faults.load");
                Verdict { is_right, rank, number: wait.and_then(text), place: placed_open(open), late_ns: None, said }
            }
            Fault::Mismatch => {
                let first = differences.first();
                let others = first.map_or(&[][..], |first| list(&first["others"]));
                let called = |of: &Value| Some((number(of.get(0)?)? as u32, of.get(1)?.as_str()?.to_owned()));
                let called = others.first().and_then(called);
                let (wrong, right) = (format!("of {} f32", COUNT / 2), format!("of {COUNT} f32"));
                let most = first.and_then(|first| first["most_called"].as_str()).unwrap_or_default();
                // Of two ranks, none is in the majority: both calls are named, each with one of the ranks.
                let is_named = called.as_ref().is_some_and(|(rank, call)| {
                    let is_it = *rank == case.rank && call.ends_with(&wrong) && most.ends_with(&right);
                    is_it || self.ranks == 2 && *rank != case.rank && call.ends_with(&right) && most.ends_with(&wrong)
                });
                let is_at =
                    first.is_some_and(|first| in_data(first) && number(&first["seq"]) == Some(case.seq(&self.size)));
                let open = open_of(folder, case.rank);
                let is_only = differences.len() == 1 && cycles.is_empty() && others.len() == 1;
                Verdict {
                    is_right: is_only && is_named && is_at && is_place(&open, "faults.sync"),
                    rank: called.filter(|_| is_named).map(|_| case.rank),
                    number: first.and_then(text),
                    place: placed_open(&open),
                    late_ns: None,
                    said,
                }
            }
            _ => {
                let waits = cycles.first().map_or(&[][..], |cycle| list(&cycle["waits"]));
                let its = |wait: &&Value| number(&wait["rank"]) == Some(u64::from(case.rank));
                let (own, others) = (waits.iter().find(its), waits.iter().find(|wait| !its(wait)));
                let is_at = own
                    .is_some_and(|wait| in_norm(wait) && number(&wait["seq"]) == Some(case.norm_seq(&self.size)))
                    && others
                        .is_some_and(|wait| in_data(wait) && number(&wait["seq"]) == Some(case.last_seq(&self.size)));
                let has_it = |cycle: &Value| list(&cycle["waits"]).iter().any(|wait| its(&wait));
                let open = open_of(folder, case.rank);
                let is_only = culprits.is_empty() && differences.is_empty() && cycles.iter().all(has_it);
                Verdict {
                    is_right: !cycles.is_empty() && is_only && is_at && is_place(&open, "faults.clip"),
                    rank: own.map(|_| case.rank),
                    number: own.and_then(text),
                    place: placed_open(&open),
                    late_ns: None,
                    said,
                }
            }
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64()
}

fn sentences(of: &Value) -> Vec<String> {
    list(&of["verdict"]).iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// Where the ranks of a run write their traces.
pub fn traces(folder: &Path) -> PathBuf {
    folder.join("traces")
}

/// Whether a communicator is of this group: its name is followed by a hash.
fn is_of(comm: &str, group: &str) -> bool {
    comm.split('#').next() == Some(group)
}

/// The open zone of a rank, from its progress file.
fn open_of(folder: &Path, rank: u32) -> Value {
    let file = folder.join(format!("progress/run=faults/rank-{rank:05}.json"));
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut progress: Value = serde_json::from_str(&text).unwrap_or_default();
    progress["open"].take()
}

/// Whether an open zone is of this range, at its own line.
fn is_place(open: &Value, range: &str) -> bool {
    open["name"] == range && placed_open(open) == placed(range)
}

fn placed_open(open: &Value) -> Option<String> {
    let file = open["file"].as_str()?;
    Some(format!("{} {}:{}", open["name"].as_str()?, file.rsplit('/').next()?, open["line"].as_u64()?))
}

/// A range and its place, by the program's catalog.
fn placed(range: &str) -> Option<String> {
    Some(format!("{range} {}", catalog::place(range)?))
}
