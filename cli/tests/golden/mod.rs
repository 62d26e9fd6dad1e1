//! The texts of the commands that read traces: of a program with steps, of replays of graphs, of two ranks, and of a GPU. Each is in `tests/golden/`, in the folder
//! of its command. `WARPLINE_BLESS=1` writes them; read the difference before it is committed.
//!
//! What a command prints is a file: standard output, then what it complains of, then its exit status unless it is 0. `open` prints an address with a
//! port, so only its refusals are here; `query` has its texts in `ranks/tests/api/query`.

mod runs;
mod traces;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::texts::{self, assert_golden};

/// A text, and the command line that prints it.
type Case = (&'static str, &'static [&'static str]);

const REPORT: [Case; 20] = [
    ("quickstart.txt", &["report", "quickstart.pftrace.gz"]),
    ("quickstart.json", &["report", "quickstart.pftrace.gz", "--format", "json"]),
    ("quickstart.md", &["report", "quickstart.pftrace.gz", "--format", "markdown"]),
    ("quickstart.csv", &["report", "quickstart.pftrace.gz", "--format", "csv"]),
    ("graph.txt", &["report", "graph.pftrace"]),
    ("graph.json", &["report", "graph.pftrace", "--format", "json"]),
    ("graph.md", &["report", "graph.pftrace", "--format", "markdown"]),
    ("graph.csv", &["report", "graph.pftrace", "--format", "csv"]),
    ("torch.txt", &["report", "torch"]),
    ("torch.json", &["report", "torch", "--format", "json"]),
    ("torch.md", &["report", "torch", "--format", "markdown"]),
    ("torch.csv", &["report", "torch", "--format", "csv"]),
    ("ranks.txt", &["report", "ranks"]),
    ("ranks.json", &["report", "ranks", "--format", "json"]),
    ("ranks.md", &["report", "ranks", "--format", "markdown"]),
    ("ranks.csv", &["report", "ranks", "--format", "csv"]),
    ("h100.txt", &["report", "h100.pftrace.gz"]),
    ("h100.json", &["report", "h100.pftrace.gz", "--format", "json"]),
    ("h100.md", &["report", "h100.pftrace.gz", "--format", "markdown"]),
    ("h100.csv", &["report", "h100.pftrace.gz", "--format", "csv"]),
];

const COMPARE: [Case; 10] = [
    ("versions.txt", &["compare", "old.pftrace", "new.pftrace"]),
    ("versions.md", &["compare", "old.pftrace", "new.pftrace", "--format", "markdown"]),
    ("limit.txt", &["compare", "old.pftrace", "new.pftrace", "--fail-above", "5%"]),
    ("limit.md", &["compare", "old.pftrace", "new.pftrace", "--fail-above", "5%", "--format", "markdown"]),
    ("limit.json", &["compare", "old.pftrace", "new.pftrace", "--fail-above", "5%", "--format", "json"]),
    ("quickstart.txt", &["compare", "quickstart.pftrace.gz", "quickstart.pftrace.gz"]),
    ("graph.txt", &["compare", "torch", "torch"]),
    ("ranks.md", &["compare", "ranks", "ranks", "--format", "markdown"]),
    ("h100.txt", &["compare", "--base", "h100.pftrace.gz", "--new", "h100.pftrace.gz", "h100.pftrace.gz"]),
    ("other_programs.txt", &["compare", "h100.pftrace.gz", "ranks"]),
];

const STRAGGLERS: [Case; 7] = [
    ("ranks.txt", &["stragglers", "ranks"]),
    ("ranks_top.txt", &["stragglers", "ranks", "--top", "2"]),
    ("ranks.json", &["stragglers", "ranks", "--format", "json", "--top", "2"]),
    ("one_rank.txt", &["stragglers", "ranks/rank0.pftrace.gz"]),
    ("graph.txt", &["stragglers", "graph.pftrace"]),
    ("torch.txt", &["stragglers", "torch/graph.json.gz"]),
    ("h100.txt", &["stragglers", "h100.pftrace.gz", "quickstart.pftrace.gz"]),
];

const CATALOG: [Case; 11] = [
    ("binary.txt", &["catalog", "program"]),
    ("quickstart.txt", &["catalog", "quickstart.pftrace.gz"]),
    ("quickstart.json", &["catalog", "quickstart.pftrace.gz", "--format", "json"]),
    ("quickstart.md", &["catalog", "quickstart.pftrace.gz", "--format", "markdown"]),
    ("quickstart.csv", &["catalog", "quickstart.pftrace.gz", "--format", "csv"]),
    ("quickstart.ncu.txt", &["catalog", "quickstart.pftrace.gz", "--format", "ncu"]),
    ("quickstart.nsys.txt", &["catalog", "quickstart.pftrace.gz", "--format", "nsys"]),
    ("graph.txt", &["catalog", "graph.pftrace"]),
    ("torch.txt", &["catalog", "torch"]),
    ("ranks.txt", &["catalog", "ranks"]),
    ("h100.txt", &["catalog", "h100.pftrace.gz"]),
];

const CHECK: [Case; 2] = [
    ("traces.txt", &["check", "quickstart.pftrace.gz", "graph.pftrace", "torch", "ranks", "h100.pftrace.gz"]),
    ("strict.txt", &["check", "--strict", "ranks"]),
];

const ANNOTATE: [Case; 6] = [
    ("torch.txt", &["annotate", "--trace", "torch/graph.json.gz", "--by", "order", "-o", "out.pftrace"]),
    (
        "before_after.txt",
        &["annotate", "--trace", "torch/graph.json.gz", "--by", "order", "--before-after", "-o", "out.json.gz"],
    ),
    ("by_id.txt", &["annotate", "--trace", "torch/graph.json.gz", "-o", "out.pftrace"]),
    ("no_annotations.txt", &["annotate", "--trace", "h100.pftrace.gz", "-o", "out.pftrace"]),
    (
        "ours.txt",
        &["annotate", "--annotations", "torch/graph.annotations.json", "--trace", "graph.pftrace", "-o", "out.pftrace"],
    ),
    (
        "folder.txt",
        &["annotate", "--annotations", "torch/graph.annotations.json", "--trace", "ranks", "-o", "out.pftrace"],
    ),
];

const RECOVER: [Case; 5] = [
    ("quickstart.txt", &["recover", "quickstart.flight.zst", "-o", "last.pftrace"]),
    ("report_of_it.txt", &["report", "last.pftrace"]),
    ("killed.txt", &["recover", "killed.json", "-o", "whole.json"]),
    ("h100.txt", &["recover", "h100.pftrace.gz", "-o", "last.pftrace"]),
    ("ranks.txt", &["recover", "ranks", "-o", "last.pftrace"]),
];

const OPEN: [Case; 2] = [
    ("two_chrome.txt", &["open", "--no-browser", "killed.json", "torch/graph.json.gz"]),
    ("flight.txt", &["open", "--no-browser", "h100.pftrace.gz", "quickstart.flight.zst"]),
];

/// Of the other tests with texts here.
const OTHERS: [&str; 3] = ["report/every_record.txt", "report/run_of_two_ranks.txt", "report/run_with_steps.txt"];

/// What a command prints, and how it ends.
fn printed(folder: &Path, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_warpline"))
        .args(args)
        .current_dir(folder)
        .env_remove("WARPLINE")
        // Where the measured peaks of the machine's devices are.
        .env("XDG_CACHE_HOME", folder)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let text = rounded(&text(output.stdout)) + &text(output.stderr);
    match output.status.code() {
        Some(0) => text,
        code => text + &format!("exit status {}\n", code.unwrap()),
    }
}

/// The text with at most nine digits behind the point of each number of JSON: logarithms differ in the last digits from system to system.
fn rounded(text: &str) -> String {
    let line = |line: &str| {
        let (begin, value) = line.trim_end().split_once(": ")?;
        let number = value.trim_end_matches(',');
        let is_long = number.split_once('.').is_some_and(|(_, digits)| digits.len() > 9);
        let rounded = number.parse::<f64>().ok().filter(|_| is_long)?;
        Some(format!("{begin}: {rounded:.9}{}\n", &value[number.len()..]))
    };
    text.split_inclusive('\n').map(|whole| line(whole).unwrap_or_else(|| whole.to_owned())).collect()
}

/// The texts of each command.
const ALL: [(&str, &[Case]); 8] = [
    ("report", &REPORT),
    ("compare", &COMPARE),
    ("stragglers", &STRAGGLERS),
    ("catalog", &CATALOG),
    ("check", &CHECK),
    ("annotate", &ANNOTATE),
    ("recover", &RECOVER),
    ("open", &OPEN),
];

/// Runs the command lines of a folder one after the other.
#[track_caller]
fn check(command: &str) {
    let (_, cases) = ALL.iter().find(|(name, _)| *name == command).unwrap();
    let folder = tempfile::tempdir().unwrap();
    traces::write(folder.path());
    for (name, args) in *cases {
        assert_golden(&format!("{command}/{name}"), &printed(folder.path(), args));
    }
}

#[test]
fn report() {
    check("report");
}

#[test]
fn compare() {
    check("compare");
}

#[test]
fn stragglers() {
    check("stragglers");
}

#[test]
fn catalog() {
    check("catalog");
}

#[test]
fn check_of_traces() {
    check("check");
}

#[test]
fn annotate() {
    check("annotate");
}

#[test]
fn recover() {
    check("recover");
}

#[test]
fn open() {
    check("open");
}

#[test]
fn each_text_is_printed_by_a_test() {
    let cases = ALL.iter().flat_map(|(command, cases)| cases.iter().map(move |(name, _)| format!("{command}/{name}")));
    let printed: BTreeSet<String> = cases.chain(OTHERS.map(str::to_owned)).collect();
    let texts = ALL.iter().flat_map(|(command, _)| {
        let files = fs::read_dir(texts::folder().join(command)).unwrap();
        files.map(move |file| format!("{command}/{}", file.unwrap().file_name().to_str().unwrap()))
    });
    assert_eq!(texts.collect::<BTreeSet<_>>(), printed);
}
