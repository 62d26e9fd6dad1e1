//! The parts of the self-test: each has traces written, and returns how many of them were judged rightly.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::needs;
use crate::shell::{Stop, line, root, target};

use super::tools::Ended;
use super::{Tools, check, pages, pass, report};

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
pub fn hand_made(tools: &Tools) -> Result<u64, Stop> {
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
pub fn of_pages(tools: &Tools) -> Result<u64, Stop> {
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
pub fn of_report(tools: &Tools) -> Result<u64, Stop> {
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
pub fn of_cuda(tools: &Tools) -> Result<u64, Stop> {
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
pub fn of_pieces(tools: &Tools) -> Result<u64, Stop> {
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
pub fn of_kernels(tools: &Tools) -> Result<u64, Stop> {
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
pub fn of_ranks(tools: &Tools) -> Result<u64, Stop> {
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
pub fn of_merged(tools: &Tools) -> Result<u64, Stop> {
    let folder = folder("merged")?;
    needs::ranks_crate("test --lib perfetto::tests").with("WARPLINE_GATE_DIR", folder.to_string_lossy()).run_tests()?;
    pass(tools, &folder.join("step.tar"), Some(&folder.join("step.expected.json")), Ended::Finished)?;
    Ok(1)
}

/// The trace of another tool, with annotations of a graph.
pub fn of_annotated(tools: &Tools) -> Result<u64, Stop> {
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
pub fn of_quickstart(tools: &Tools) -> Result<u64, Stop> {
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
pub fn of_outside(tools: &Tools) -> Result<u64, Stop> {
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
pub fn of_example_ranks(tools: &Tools) -> Result<u64, Stop> {
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
pub fn of_spans(tools: &Tools) -> Result<u64, Stop> {
    let (packets, json, settings) = traces(&folder("spans")?);
    let program = needs::example("tracing_spans")?;
    line(&program.display().to_string()).with("WARPLINE", settings).run()?;
    pass(tools, &packets, Some(&expected("spans")), Ended::Finished)?;
    pass(tools, &json, None, Ended::Finished)?;
    Ok(2)
}

/// What a backend outside of the workspace's libraries leaves in both formats.
pub fn of_backend(tools: &Tools) -> Result<u64, Stop> {
    let (packets, json, settings) = traces(&folder("backend")?);
    let program = needs::program("pool")?;
    line(&program.display().to_string()).with("WARPLINE", settings).run()?;
    pass(tools, &packets, Some(&expected("backend")), Ended::Finished)?;
    pass(tools, &json, None, Ended::Finished)?;
    Ok(2)
}

/// Traces of processes that were killed at any moment, in Chrome's format, and what `warpline recover` makes of them.
pub fn of_killed_chrome(tools: &Tools) -> Result<u64, Stop> {
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
pub fn of_killed(tools: &Tools) -> Result<u64, Stop> {
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
