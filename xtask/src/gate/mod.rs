//! The trace gate: a trace passes only if Perfetto's own reader loses nothing of it.
//!
//! `cargo xtask gate TRACE` checks one trace, Perfetto's or Chrome's. `cargo xtask gate --self-test` has the sinks write one
//! of each, compares every row that a reader sees with `tests/gate/*.expected.json`, and shows that each trace of a corpus of
//! broken ones is refused for the right reason. It runs the SQL of every page over a trace with known numbers, and compares the figures of `warpline report` with those of SQL. Then it reads what zones on the streams of a stub driver, kernels of a stub
//! CUPTI and collectives of two ranks left and what `warpline annotate` made of another tool's trace, runs the quickstart, records it from outside, runs the
//! example with ranks, the one with spans and the one with a backend to their end, kills processes that write Chrome traces, and runs the quickstart until it is killed.
//! The steps `gate` and `gate-ranks` of `cargo xtask test` run the self-test.

mod check;
mod pages;
mod report;
mod tools;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::needs;
use crate::shell::{Stop, is_ci, line, root, target};

use tools::Ended;
pub use tools::Tools;

/// Runs `cargo xtask gate` with these options.
///
/// # Errors
/// Options that it does not have.
pub fn run(options: &[&str]) -> Result<ExitCode, String> {
    let result = match options {
        ["--self-test"] => self_test_of(|_| true).map(judged),
        ["--self-test", name] => match PARTS.iter().find(|(part, _)| part == name) {
            Some((_, part)) => Tools::ready().and_then(|tools| part(&tools)).map(judged),
            None => return Err(format!("`gate --self-test` has no part `{name}`; it has {}", part_names())),
        },
        [trace] => one(trace, None, Ended::Finished),
        [trace, "--expect", file] => one(trace, Some(file), Ended::Finished),
        [trace, "--killed"] => one(trace, None, Ended::Killed),
        [trace, "--pieces"] => one(trace, None, Ended::Pieces),
        [trace, "--foreign"] => one(trace, None, Ended::Foreign),
        _ => return Err(format!("`gate` does not know `{}`", options.join(" "))),
    };
    Ok(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Lacks(what)) if !is_ci() => {
            println!("skipped: {what}");
            ExitCode::SUCCESS
        }
        Err(Stop::Lacks(what) | Stop::Failed(what) | Stop::Skipped(what)) => {
            eprintln!("error: {what}");
            ExitCode::FAILURE
        }
    })
}

fn one(trace: &str, expected: Option<&str>, ended: Ended) -> Result<(), Stop> {
    let tools = Tools::ready()?;
    pass(&tools, Path::new(trace), expected.map(Path::new), ended)?;
    println!("{trace}: nothing is lost");
    Ok(())
}

/// A trace that must pass.
fn pass(tools: &Tools, trace: &Path, expected: Option<&Path>, ended: Ended) -> Result<(), Stop> {
    let faults = check::faults(tools, trace, expected, ended)?;
    if faults.is_empty() {
        return Ok(());
    }
    Err(Stop::Failed(format!("{} has {} faults:\n{}", trace.display(), faults.len(), faults.join("\n"))))
}

fn judged(traces: u64) {
    println!("{traces} traces were judged rightly");
}

/// A part of the self-test, which returns how many traces it judged.
type Part = fn(&Tools) -> Result<u64, Stop>;

/// The part that needs `warpline-ranks`, which takes minutes to build: a step of its own.
const OF_RANKS_CRATE: &str = "merged";

/// The parts of the self-test, in order.
const PARTS: &[(&str, Part)] = &[
    ("corpus", hand_made),
    ("pages", of_pages),
    ("report", of_report),
    ("cuda", of_cuda),
    ("kernels", of_kernels),
    ("ranks", of_ranks),
    ("merged", of_merged),
    ("annotated", of_annotated),
    ("pieces", of_pieces),
    ("quickstart", of_quickstart),
    ("outside", of_outside),
    ("example-ranks", of_example_ranks),
    ("spans", of_spans),
    ("backend", of_backend),
    ("killed-chrome", of_killed_chrome),
    ("killed", of_killed),
];

fn part_names() -> String {
    PARTS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// What the gate can show of itself and of the sinks, without `warpline-ranks`. Returns how many traces it looked at.
///
/// # Errors
/// What the machine lacks, or the first trace that was judged wrongly.
pub fn self_test() -> Result<u64, Stop> {
    self_test_of(|part| part != OF_RANKS_CRATE)
}

/// What it can show of `warpline-ranks`.
///
/// # Errors
/// What the machine lacks, or the first trace that was judged wrongly.
pub fn self_test_of_ranks() -> Result<u64, Stop> {
    self_test_of(|part| part == OF_RANKS_CRATE)
}

/// Runs the chosen parts, two at a time with a reader each: a reader uses one core, and much of the rest is waiting.
fn self_test_of(is_chosen: impl Fn(&str) -> bool) -> Result<u64, Stop> {
    let parts: Vec<Part> = PARTS.iter().filter(|(name, _)| is_chosen(name)).map(|(_, part)| *part).collect();
    let (next, is_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let row = |tools: Tools| {
        let mut judged = 0;
        while !is_failed.load(Ordering::Relaxed)
            && let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed))
        {
            judged += part(&tools).inspect_err(|_| is_failed.store(true, Ordering::Relaxed))?;
        }
        Ok(judged)
    };
    // The first call installs what is missing.
    let (own, other) = (Tools::ready()?, Tools::ready()?);
    thread::scope(|scope| {
        let other = scope.spawn(|| row(other));
        let own = row(own);
        let other = other.join().unwrap_or_else(|_| Err(Stop::Failed("a part of the self-test panicked".to_owned())));
        Ok(own? + other?)
    })
}

/// A file of rows that a trace must give.
fn expected(name: &str) -> PathBuf {
    root().join("tests/gate").join(format!("{name}.expected.json"))
}

/// A folder for traces, with nothing in it from before.
fn folder(name: &str) -> Result<PathBuf, Stop> {
    let folder = root().join(".gate").join(name);
    let failed = |error| Stop::Failed(format!("cannot make the folder `{}`: {error}", folder.display()));
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(failed)?;
    }
    std::fs::create_dir_all(&folder).map_err(failed)?;
    Ok(folder)
}

/// The traces that the sinks write of hand-made records pass, and each broken copy of them is refused.
fn hand_made(tools: &Tools) -> Result<u64, Stop> {
    let folder = folder("corpus")?;
    needs::everything("test", "--lib write_gate_traces")
        .with("WARPLINE_GATE_DIR", folder.to_string_lossy())
        .run_tests()?;
    let (packets, json) = (folder.join("good.pftrace"), folder.join("good.json"));
    let (of_packets, of_json) = (expected("perfetto"), expected("chrome"));
    pass(tools, &packets, Some(&of_packets), Ended::Finished)?;
    pass(tools, &json, Some(&of_json), Ended::Finished)?;
    let mut judged = 2;
    for unfinished in unfinished(&folder, &json)? {
        pass(tools, &unfinished, Some(&of_json), Ended::Killed)?;
        judged += 1;
    }
    for (file, fault) in tools.break_traces(&packets, &json, &folder)? {
        let expected = if file.ends_with(".json") { &of_json } else { &of_packets };
        let faults = check::faults(tools, &folder.join(&file), Some(expected), Ended::Finished)?;
        let Some(found) = faults.iter().find(|text| text.contains(&fault)) else {
            let said = if faults.is_empty() { "nothing".to_owned() } else { faults.join("\n") };
            return Err(Stop::Failed(format!(
                ".gate/corpus/{file} must be refused because of `{fault}`; the gate said:\n{said}"
            )));
        };
        println!("refused, as it must be: {file}: {}", found.replace('\n', " "));
        judged += 1;
    }
    Ok(judged)
}

/// What the Chrome sink leaves at each moment at which it may be killed, from a trace that was not finished and one that was: between
/// two flushes, in the middle of an event, and while it finishes.
fn unfinished(folder: &Path, finished: &Path) -> Result<Vec<PathBuf>, Stop> {
    let failed = |error| Stop::Failed(format!("a trace in `{}`: {error}", folder.display()));
    let open = folder.join("unfinished.json");
    let (array, object) = (std::fs::read(&open).map_err(failed)?, std::fs::read(finished).map_err(failed)?);
    let end = &object[array.len()..];
    let moments: [(&str, &[u8]); 4] = [
        ("cut_event.json", b",\n{\"ph\":\"X\",\"cat\":\"gpu_user_annotation\",\"name\":\"demo.st"),
        ("end_begins.json", &end[..2]),
        ("end_cut.json", &end[..end.len() / 2]),
        ("end_written.json", end),
    ];
    let mut traces = vec![open];
    for (name, behind) in moments {
        let trace = folder.join(name);
        std::fs::write(&trace, [&array[..], behind].concat()).map_err(failed)?;
        traces.push(trace);
    }
    Ok(traces)
}

/// The trace that the SQL of the pages is written for, and that SQL.
fn of_pages(tools: &Tools) -> Result<u64, Stop> {
    let folder = folder("pages")?;
    needs::everything("test", "--lib write_gate_traces_of_docs")
        .with("WARPLINE_GATE_DIR", folder.to_string_lossy())
        .run_tests()?;
    pass(tools, &folder.join("docs.pftrace"), None, Ended::Finished)?;
    pages::check(tools, &folder)?;
    Ok(1)
}

/// The figures of `warpline report` are those of SQL: on handmade records of every shape, on the trace of the pages, with kernels and replays on
/// the stub driver, and on a real session.
fn of_report(tools: &Tools) -> Result<u64, Stop> {
    let folder = folder("report")?;
    needs::everything("test", "--lib write_gate_traces")
        .with("WARPLINE_GATE_DIR", folder.to_string_lossy())
        .run_tests()?;
    needs::everything("test", "--test stub cupti_trace::")
        .with("WARPLINE_GATE_DIR", folder.to_string_lossy())
        .run_tests()?;
    let (packets, _, settings) = traces(&folder);
    line("cargo run --release --example quickstart -- --steps 4")
        .little_optimized()
        .with("WARPLINE", settings)
        .run()?;
    let command = needs::command()?;
    let all = ["good", "docs", "kernels", "replays"].map(|name| folder.join(format!("{name}.pftrace")));
    for trace in all.iter().chain([&packets]) {
        let equal = report::check(tools, &command, trace)?;
        println!("{}: {equal} figures of the report are those of SQL", trace.display());
    }
    Ok(all.len() as u64 + 1)
}

/// Zones on CUDA streams, on the stub driver: with ends that are events, with ends that are found, and in the replays of a
/// graph, timed by stamps.
fn of_cuda(tools: &Tools) -> Result<u64, Stop> {
    let folder = folder("cuda")?;
    needs::everything("test", "--test stub cuda_trace::")
        .with("WARPLINE_GATE_DIR", folder.to_string_lossy())
        .run_tests()?;
    for ends in ["eager", "lazy"] {
        pass(
            tools,
            &folder.join(format!("{ends}.pftrace")),
            Some(&expected(&format!("cuda_{ends}"))),
            Ended::Finished,
        )?;
        pass(tools, &folder.join(format!("{ends}.json")), None, Ended::Finished)?;
    }
    pass(tools, &folder.join("stamps.pftrace"), Some(&expected("stamps")), Ended::Finished)?;
    pass(tools, &folder.join("stamps.json"), None, Ended::Finished)?;
    Ok(6)
}

/// The tests that leave traces in files that follow one another, and traces of flight recorders.
const OF_PIECES: [&str; 5] = [
    "kill_9_leaves_the_last_zones_and_those_that_were_open",
    "a_panic_that_ends_the_program_leaves_a_trace",
    "a_stream_that_stands_still_is_told_and_the_zone_is_named",
    "each_file_is_complete_in_itself_and_the_account_is_exact",
    "what_was_changed_of_a_session_is_in_its_traces",
];

/// Traces in files that follow one another, and those of flight recorders.
fn of_pieces(tools: &Tools) -> Result<u64, Stop> {
    let folder = folder("pieces")?;
    needs::everything("test", &format!("--test api -- {}", OF_PIECES.join(" ")))
        .with("WARPLINE_GATE_DIR", folder.to_string_lossy())
        .run_tests()?;
    let traces = ["rotated_first", "rotated_last", "rotated_all", "killed", "dump", "panic", "stall", "changes"];
    for name in traces {
        let rows = ["killed", "stall"].contains(&name).then(|| expected(name));
        pass(tools, &folder.join(format!("{name}.pftrace")), rows.as_deref(), Ended::Pieces)?;
    }
    Ok(traces.len() as u64)
}

/// Kernels beside their zones, on the stub driver and the stub CUPTI.
fn of_kernels(tools: &Tools) -> Result<u64, Stop> {
    let folder = folder("kernels")?;
    needs::everything("test", "--test stub cupti_trace::")
        .with("WARPLINE_GATE_DIR", folder.to_string_lossy())
        .run_tests()?;
    for name in ["kernels", "replays"] {
        pass(tools, &folder.join(format!("{name}.pftrace")), Some(&expected(name)), Ended::Finished)?;
        pass(tools, &folder.join(format!("{name}.json")), None, Ended::Finished)?;
    }
    Ok(4)
}

/// Collectives of two ranks, each alone and both in an archive, as docs/collectives.md recommends. The later one stands first:
/// the order of the traces is no matter.
fn of_ranks(tools: &Tools) -> Result<u64, Stop> {
    let folder = folder("ranks")?;
    needs::everything("test", "--test api collectives_trace::")
        .with("WARPLINE_GATE_DIR", folder.to_string_lossy())
        .run_tests()?;
    let folder_text = folder.display();
    line(&format!("tar -cf {folder_text}/ranks.tar -C {folder_text} rank1.pftrace rank0.pftrace")).run()?;
    pass(tools, &folder.join("ranks.tar"), Some(&expected("ranks")), Ended::Finished)?;
    for rank in ["rank0", "rank1"] {
        pass(tools, &folder.join(format!("{rank}.pftrace")), None, Ended::Finished)?;
        pass(tools, &folder.join(format!("{rank}.json")), Some(&expected("ranks_chrome")), Ended::Finished)?;
    }
    Ok(5)
}

/// The traces of ranks on two hosts, as `warpline-ranks perfetto` merges them for a step: each collective lies where truth says.
fn of_merged(tools: &Tools) -> Result<u64, Stop> {
    let folder = folder("merged")?;
    needs::ranks_crate("test --lib perfetto::tests").with("WARPLINE_GATE_DIR", folder.to_string_lossy()).run_tests()?;
    pass(tools, &folder.join("step.tar"), Some(&folder.join("step.expected.json")), Ended::Finished)?;
    Ok(1)
}

/// The trace of another tool, with annotations of a graph.
fn of_annotated(tools: &Tools) -> Result<u64, Stop> {
    let folder = folder("annotated")?;
    needs::everything("test", "--test torch --test cli write_gate_trace")
        .with("WARPLINE_GATE_DIR", folder.to_string_lossy())
        .run_tests()?;
    for trace in ["annotated", "torch"] {
        pass(tools, &folder.join(format!("{trace}.pftrace")), Some(&expected(trace)), Ended::Foreign)?;
    }
    Ok(2)
}

/// What the sinks write while the quickstart runs, in both formats.
fn traces(folder: &Path) -> (PathBuf, PathBuf, String) {
    let (packets, json) = (folder.join("trace.pftrace"), folder.join("trace.json"));
    let settings = format!("perfetto={},chrome={}", packets.display(), json.display());
    (packets, json, settings)
}

/// A whole session of real zones.
fn of_quickstart(tools: &Tools) -> Result<u64, Stop> {
    let (packets, json, settings) = traces(&folder("quickstart")?);
    line("cargo run --release --example quickstart -- --steps 4")
        .little_optimized()
        .with("WARPLINE", settings)
        .run()?;
    pass(tools, &packets, Some(&expected("quickstart")), Ended::Finished)?;
    pass(tools, &json, None, Ended::Finished)?;
    Ok(2)
}

/// A recording from outside of the quickstart while it runs; it works on, and checks its numbers.
fn of_outside(tools: &Tools) -> Result<u64, Stop> {
    let folder = folder("outside")?;
    let (program, warpline) = (target().join("release/examples/quickstart"), needs::command()?);
    println!("$ WARPLINE=control {} --host --seconds 10   (and record it)", program.display());
    let failed = |error| Stop::Failed(format!("`{}`: {error}", program.display()));
    let mut child = Command::new(&program)
        .args(["--host", "--seconds", "10"])
        .env("WARPLINE", "control")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let trace = folder.join("trace.pftrace");
    let recorded = wait_until_it_listens(&warpline, child.id()).and_then(|()| {
        let (warpline, process, trace) = (warpline.display(), child.id(), trace.display());
        line(&format!("{warpline} record {process} --for 2s -o {trace}")).run()
    });
    if recorded.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    recorded?;
    if !status.success() {
        return Err(Stop::Failed(format!("`{}` did not end well after it was recorded: {status}", program.display())));
    }
    pass(tools, &trace, None, Ended::Finished)?;
    let answers = tools.query(&trace, &["select count(*) from slice where dur >= 0".to_owned()])?;
    match answers.results.first() {
        Some(Ok(rows)) if rows.first().and_then(|row| row.first()?.as_u64()).is_some_and(|count| count > 100) => Ok(1),
        other => Err(Stop::Failed(format!("too little was recorded from outside in {}: {other:?}", trace.display()))),
    }
}

fn wait_until_it_listens(warpline: &Path, process: u32) -> Result<(), Stop> {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        let mut status = Command::new(warpline);
        status.args(["status", &process.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        if status.status().is_ok_and(|status| status.success()) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err(Stop::Failed(format!("process {process} did not listen within a minute")))
}

/// The ranks of an example: as threads in one trace, and as processes in one each.
fn of_example_ranks(tools: &Tools) -> Result<u64, Stop> {
    let folder = folder("example_ranks")?;
    let run = |how: &str, trace: &Path| {
        let trace = trace.display();
        line(&format!("cargo run --release --example nccl_all_reduce -- --host --steps 4 {how} --trace {trace}"))
            .little_optimized()
            .run()
    };
    let threads = folder.join("threads.pftrace");
    run("--ranks 2", &threads)?;
    pass(tools, &threads, Some(&expected("example_ranks")), Ended::Finished)?;
    run("--processes 2", &folder.join("rank{rank}.pftrace"))?;
    for rank in ["rank0.pftrace", "rank1.pftrace"] {
        pass(tools, &folder.join(rank), Some(&expected("example_rank")), Ended::Finished)?;
    }
    Ok(3)
}

/// Spans and events of `tracing` beside zones, each under its parent.
fn of_spans(tools: &Tools) -> Result<u64, Stop> {
    let (packets, json, settings) = traces(&folder("spans")?);
    let program = needs::example("tracing_spans")?;
    line(&program.display().to_string()).with("WARPLINE", settings).run()?;
    pass(tools, &packets, Some(&expected("spans")), Ended::Finished)?;
    pass(tools, &json, None, Ended::Finished)?;
    Ok(2)
}

/// What a backend outside of the workspace's libraries leaves in both formats.
fn of_backend(tools: &Tools) -> Result<u64, Stop> {
    let (packets, json, settings) = traces(&folder("backend")?);
    let program = needs::program("pool")?;
    line(&program.display().to_string()).with("WARPLINE", settings).run()?;
    pass(tools, &packets, Some(&expected("backend")), Ended::Finished)?;
    pass(tools, &json, None, Ended::Finished)?;
    Ok(2)
}

/// Traces of processes that were killed at any moment, in Chrome's format, and what `warpline recover` makes of them.
fn of_killed_chrome(tools: &Tools) -> Result<u64, Stop> {
    let folder = folder("killed_chrome")?;
    needs::everything("test", "--test api killed_chrome::")
        .with("WARPLINE_GATE_DIR", folder.to_string_lossy())
        .run_tests()?;
    let warpline = needs::command()?;
    let failed = |error| Stop::Failed(format!("the folder `{}`: {error}", folder.display()));
    let mut judged = 0;
    let traces: Vec<_> = std::fs::read_dir(&folder).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
    for trace in traces.iter().map(std::fs::DirEntry::path) {
        pass(tools, &trace, None, Ended::Killed)?;
        judged += 1;
        // One that was killed while it finished may be whole.
        if !trace.to_string_lossy().contains("-finishing-") {
            let (trace, whole) = (trace.display(), trace.with_extension("whole.json"));
            line(&format!("{} recover {trace} -o {}", warpline.display(), whole.display())).run()?;
            pass(tools, &whole, None, Ended::Finished)?;
            judged += 1;
        }
    }
    match judged {
        0 => Err(Stop::Failed("no killed process left a trace".to_owned())),
        judged => Ok(judged),
    }
}

/// A process that is killed while it records leaves traces that load, with what it had flushed.
fn of_killed(tools: &Tools) -> Result<u64, Stop> {
    let (packets, json, settings) = traces(&folder("killed")?);
    let program = target().join("release/examples/quickstart");
    println!("$ WARPLINE='{settings}' {} --steps 1000000   (and kill it)", program.display());
    let failed = |error| Stop::Failed(format!("`{}`: {error}", program.display()));
    let mut child = Command::new(&program)
        .args(["--steps", "1000000"])
        .env("WARPLINE", settings)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let wait = wait_for_content(&packets);
    child.kill().and_then(|()| child.wait()).map_err(failed)?;
    wait?;
    pass(tools, &packets, None, Ended::Killed)?;
    pass(tools, &json, None, Ended::Killed)?;
    let answers = tools.query(&packets, &["select count(*) from slice where dur >= 0".to_owned()])?;
    match answers.results.first() {
        Some(Ok(rows)) if rows.first().and_then(|row| row.first()?.as_u64()).is_some_and(|count| count > 1_000) => {
            Ok(2)
        }
        other => Err(Stop::Failed(format!("a killed process left too few slices in {}: {other:?}", packets.display()))),
    }
}

/// Until a trace has grown to what takes several flushes.
fn wait_for_content(trace: &Path) -> Result<(), Stop> {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        if std::fs::metadata(trace).is_ok_and(|file| file.len() > 200_000) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Err(Stop::Failed(format!("{} did not grow within a minute; is anything flushed?", trace.display())))
}
