//! `warpline-ranks report` over the tables of a job, and `warpline stragglers` over its traces: one question, one answer.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline_core::catalog::{Kind, RangeSpec};
use warpline_ranks::clocks::Options;
use warpline_ranks::generate::{Late, Plan, Slow, Stage, generate};
use warpline_ranks::{Engine, Report};
use warpline_report::Report as Counts;
use warpline_report::fixture::{self, range, span, stream, thread, zone};
use warpline_report::sink::{Batch, SessionInfo, Sink};
use warpline_trace::write::perfetto::PerfettoSink;

static SYNC: RangeSpec = range("demo.sync\0", Kind::Collective, None, 1);
static RANGES: [&RangeSpec; 1] = [&SYNC];

/// The command that the other tests build: `cargo xtask test --only faults` says where it is.
const COMMAND: &str = "WARPLINE_COMMAND";

/// Writes the traces of the job whose tables the engine has, as sessions of the same ranks would: the same times of the same collectives.
fn write_traces(engine: &Engine, folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let groups =
        engine.query("groups", "SELECT comm, rank FROM comms GROUP BY comm, rank ORDER BY comm, rank").unwrap();
    let mut members: BTreeMap<Arc<str>, Vec<u32>> = BTreeMap::new();
    for (comm, rank) in groups.texts("comm").unwrap().into_iter().zip(groups.ints("rank").unwrap()) {
        members.entry(comm).or_default().push(rank as u32);
    }
    let sql = "SELECT rank, MIN(host) AS host, MIN(boot_id) AS boot_id, MIN(begin_ns) AS begin_ns, \
               MIN(realtime_offset_ns) AS ahead_ns FROM windows GROUP BY rank ORDER BY rank";
    let ranks = engine.query("ranks", sql).unwrap();
    let (rank, begin, ahead) =
        (ranks.ints("rank").unwrap(), ranks.ints("begin_ns").unwrap(), ranks.ints("ahead_ns").unwrap());
    let (host, boot) = (ranks.texts("host").unwrap(), ranks.texts("boot_id").unwrap());
    for at in 0..ranks.len() {
        let sql = format!(
            "SELECT comm, seq, kind, bytes, begin_ns, dur_ns FROM collectives WHERE rank = {} ORDER BY begin_ns",
            rank[at]
        );
        let rows = engine.query("calls", &sql).unwrap();
        let session = SessionInfo {
            begin_ns: begin[at],
            begin_unix_ns: begin[at] + ahead[at],
            process_id: 100 + rank[at] as u32,
            host: host[at].to_string(),
            boot_id: Some(boot[at].to_string()),
            ranges: Some(&RANGES),
            ..fixture::session()
        };
        let mut sink = PerfettoSink::create(folder.join(format!("rank{}.pftrace", rank[at]))).unwrap();
        sink.start(&session).unwrap();
        let (on, by) = (stream(1, "comm"), thread(1, None));
        let of: BTreeMap<&Arc<str>, ProcessGroup> = members
            .iter()
            .filter_map(|(comm, ranks)| {
                let own = ranks.iter().position(|other| i64::from(*other) == rank[at])?;
                Some((comm, ProcessGroup::new(&**comm, ranks.iter().copied(), own as u32)))
            })
            .collect();
        let (comm, kind) = (rows.texts("comm").unwrap(), rows.texts("kind").unwrap());
        let (seq, bytes) = (rows.ints("seq").unwrap(), rows.ints("bytes").unwrap());
        let (from, dur) = (rows.ints("begin_ns").unwrap(), rows.ints("dur_ns").unwrap());
        for row in 0..rows.len() {
            // Traces know no barrier: an all-reduce waits for all as well.
            let kind = CollectiveKind::ALL.into_iter().find(|known| known.as_str() == &*kind[row]);
            let message = Message::new(kind.unwrap_or(CollectiveKind::AllReduce)).count(bytes[row] as u64 / 4);
            let mut message = message.dtype(DataType::F32).group(&of[&comm[row]]);
            message.seq = Some(seq[row] as u64);
            let begin = from[row] - fixture::BEGIN_NS;
            let mut call = zone(&SYNC, Some(&on), &by, span(begin, begin + 1), Some(span(begin, begin + dur[row])));
            call.message = Some(Box::new(message));
            sink.write(Batch::Zones(&[call])).unwrap();
        }
        let n = rows.len() as u64;
        sink.finish(&Counts { begun: n, recorded: n, ..Counts::default() }).unwrap();
    }
}

/// Whom each of the two names first, and what they say.
fn named(plan: &Plan) -> ([Option<i64>; 2], [String; 2]) {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), plan).unwrap();
    let engine = Engine::open(folder.path(), None).unwrap();
    let report = Report::of(&engine, Options::default()).unwrap();
    let (rank, said) = of_traces(&engine);
    ([report.late.first().map(|late| late.rank), rank], [report.verdict.join(" "), said])
}

/// Whom `warpline stragglers` names of the job whose tables the engine has, and what it says.
fn of_traces(engine: &Engine) -> (Option<i64>, String) {
    let folder = tempfile::tempdir().unwrap();
    let traces = folder.path().join("traces");
    write_traces(engine, &traces);
    let command = std::env::var_os(COMMAND).unwrap_or_else(|| panic!("{COMMAND} does not say where `warpline` is"));
    let output = Command::new(command).args(["stragglers", "--format", "json"]).arg(&traces).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let found: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (found["verdict"]["rank"].as_i64(), found["summary"].as_str().unwrap_or_default().to_owned())
}

/// Jobs of 8 ranks, on one host and on two, with few steps and with many.
fn plan(seed: u64, hosts: u32, steps: u32) -> Plan {
    let step_ns = if seed.is_multiple_of(2) { 150_000_000 } else { 1_000_000_000 };
    Plan { ranks: 8, hosts, steps, seed, step_ns, ranks_per_file: 8, ..Plan::default() }
}

/// Hosts and steps, of which each seed has two.
fn sizes(seed: u64) -> impl Iterator<Item = (u32, u32)> {
    [(1, 12), (2, 12), (2, 120), (1, 120)].into_iter().skip(seed as usize % 2).step_by(2)
}

#[test]
#[ignore = "needs the command `warpline`: `cargo xtask test --only faults`"]
fn both_commands_name_the_rank_that_is_late() {
    let mut wrong = Vec::new();
    for seed in 0..20 {
        for (hosts, steps) in sizes(seed) {
            let rank = seed as u32 * 3 % 8;
            let stage = [Stage::Load, Stage::Forward, Stage::Backward, Stage::Optimizer][seed as usize % 4];
            let plan = plan(seed, hosts, steps);
            let late = Late { rank, stage, ns: plan.step_ns / 15, from: steps / 3, to: 2 * steps / 3 };
            let (named, said) = named(&Plan { late: vec![late], ..plan });
            if named != [Some(i64::from(rank)); 2] {
                wrong.push(format!("seed {seed}, {hosts} hosts, {steps} steps: rank {rank}, {named:?}: {said:#?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of 40:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
#[ignore = "needs the command `warpline`: `cargo xtask test --only faults`"]
fn both_commands_name_nobody_in_clean_jobs() {
    let mut wrong = Vec::new();
    for seed in 0..20 {
        for (hosts, steps) in sizes(seed) {
            let (named, said) = named(&plan(seed, hosts, steps));
            if named != [None; 2] {
                wrong.push(format!("seed {seed}, {hosts} hosts, {steps} steps: {named:?}: {said:#?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of 40:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
#[ignore = "needs the command `warpline`: `cargo xtask test --only faults`"]
fn both_commands_name_the_same_of_two() {
    let mut wrong = Vec::new();
    for seed in 0..20 {
        for (hosts, steps) in sizes(seed) {
            let (first, second) = (seed as u32 % 8, (seed as u32 + 3) % 8);
            let plan = plan(seed, hosts, steps);
            let load = Late { rank: first, stage: Stage::Load, ns: plan.step_ns / 15, from: steps / 4, to: steps / 2 };
            let slow = Slow { rank: second, percent: 6.0, from: steps / 2 };
            let (named, said) = named(&Plan { late: vec![load], slow: vec![slow], ..plan });
            // Where most of twelve calls are late, nothing shows what is usual.
            if named[0] != named[1] || steps > 12 && named[0].is_none() {
                wrong.push(format!("seed {seed}, {hosts} hosts, {steps} steps: {named:?}: {said:#?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of 40:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
#[ignore = "needs the command `warpline`: `cargo xtask test --only faults`"]
fn both_commands_name_nobody_in_place_of_a_rank_whose_rows_are_lost() {
    for (seed, hosts) in [2, 4].into_iter().cycle().take(4).enumerate() {
        let late = Late { rank: 3, stage: Stage::Load, ns: 60_000_000, from: 66, to: 110 };
        let plan = Plan { ranks: 8, hosts, steps: 120, late: vec![late], seed: seed as u64, ..Plan::default() };
        assert_eq!(named(&plan).0, [Some(3); 2], "seed {seed}, {hosts} hosts");
        let (named, said) = named(&Plan { missing: vec![(3, 1)], ..plan });
        assert_eq!(named, [None; 2], "seed {seed}, {hosts} hosts: {said:#?}");
    }
}

/// Jobs that `ranks/tests/truth/score.py --keep FOLDER` has left there, of the classes that traces can have: all of their collectives are in the tables, and
/// the job ran once.
const OF_TRACES: [&str; 22] = [
    "late",
    "large",
    "overlapped",
    "slow",
    "few",
    "constant",
    "spread",
    "pipelines",
    "host",
    "link",
    "several",
    "tails",
    "partway",
    "wandering",
    "steady_after_start",
    "clean_plain",
    "clean_pauses",
    "clean_tails",
    "clean_batches",
    "clean_drain",
    "clean_pair",
    "clean_leave",
];

#[test]
#[ignore = "needs the command `warpline`, and in WARPLINE_TRUTH the folder of jobs that are made in Python"]
fn both_commands_say_the_same_of_jobs_with_known_truth() {
    let Some(folder) = std::env::var_os("WARPLINE_TRUTH") else { return };
    let (mut jobs, mut wrong, mut innocent) = (0, Vec::new(), Vec::new());
    for job in std::fs::read_dir(folder).unwrap().flatten() {
        let name = job.file_name().into_string().unwrap();
        if !OF_TRACES.contains(&name.rsplit_once('-').unwrap_or_default().0) {
            continue;
        }
        let engine = Engine::open(&job.path(), None).unwrap();
        let report = Report::of(&engine, Options::default()).unwrap();
        let (rank, said) = of_traces(&engine);
        // A host, a rank, or the group of a slow link: the words with which the two sentences begin.
        let what = |sentence: &str| sentence.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let first = report.verdict.first().cloned().unwrap_or_default();
        let is_named = |rank: i64| report.late.iter().any(|late| late.rank == rank);
        if !rank.is_none_or(is_named) {
            innocent.push(format!("{name}: {said}; {first}"));
        }
        let is_one_of_several = rank.is_some() && what(&said).starts_with("rank") && what(&first).starts_with("rank");
        jobs += 1;
        if what(&said) != what(&first) && !is_one_of_several {
            wrong.push(format!("{name}: {said}; {first}"));
        }
    }
    println!("{} of {jobs}, and {} ranks that the report clears", jobs - wrong.len(), innocent.len());
    assert!(innocent.is_empty(), "`stragglers` names ranks that the report clears:\n{}", innocent.join("\n"));
    assert!(20 * wrong.len() <= jobs, "{} of {jobs}:\n{}", wrong.len(), wrong.join("\n"));
}
