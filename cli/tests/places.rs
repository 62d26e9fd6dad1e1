//! What stands where a file is expected: pipes, folders, files that a killed program left empty, and files that decompress without an end. No command
//! waits for one, and each says what it is.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use warpline_report::Report;
use warpline_report::fixture::{ATTENTION, main_thread, session, span, stream, zone};
use warpline_report::sink::{Batch, Sink};
use warpline_trace::write::perfetto::PerfettoSink;

use crate::support::peak;

fn pipe(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    path
}

fn trace(path: &Path) {
    let mut sink = PerfettoSink::create(path).unwrap();
    sink.start(&session()).unwrap();
    let zones = [0, 1_000].map(|ns| {
        zone(
            &ATTENTION,
            Some(&stream(1, "compute")),
            &main_thread(),
            span(ns, ns + 100),
            Some(span(ns + 200, ns + 900)),
        )
    });
    sink.write(Batch::Zones(&zones)).unwrap();
    let duration = Duration::from_nanos(2_000);
    sink.finish(&Report { begun: 2, recorded: 2, duration, ..Report::default() }).unwrap();
}

/// Runs a command, which ends by itself: it would wait for a writer until the test is stopped.
fn complaint(args: &[&str]) -> String {
    let ran = peak::warpline(args);
    assert_eq!(ran.status, Some(2), "{args:?}: {}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.starts_with("error: "), "{args:?}: {}", ran.stderr);
    ran.stderr
}

#[test]
fn no_command_waits_for_a_pipe_or_reads_a_folder_as_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, whole) = (pipe(folder.path(), "p.pftrace"), folder.path().join("t.pftrace"));
    trace(&whole);
    let [pipe, whole] = [&pipe, &whole].map(|path| path.to_str().unwrap());
    let output = folder.path().join("out.pftrace");
    let output = output.to_str().unwrap();
    for command in ["report", "stragglers", "catalog", "check", "open", "recover"] {
        let args = [command, pipe, "-o", output];
        let said = complaint(if command == "recover" { &args } else { &args[..2] });
        assert!(said.contains("p.pftrace") && said.to_lowercase().contains("file"), "{command}: {said}");
    }
    for args in [&["compare", pipe, whole][..], &["compare", whole, pipe]] {
        assert!(complaint(args).contains("p.pftrace: not a file"), "{args:?}");
    }
    for (annotations, trace) in [(pipe, whole), (whole, pipe), ("/", whole)] {
        let said = complaint(&["annotate", "--annotations", annotations, "--trace", trace, "-o", output]);
        assert!(said.contains("not a file") || said.contains("folder"), "{said}");
    }
}

#[test]
fn a_file_that_a_killed_program_left_empty_is_named_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    fs::create_dir(&run).unwrap();
    trace(&run.join("rank0.pftrace"));
    let alone = peak::warpline(["report".as_ref(), run.as_os_str()]);
    fs::write(run.join("rank1.pftrace"), "").unwrap();
    for command in ["report", "catalog", "check"] {
        let ran = peak::warpline([command.as_ref(), run.as_os_str()]);
        // `check` finds faults in the catalog of these tests.
        assert_ne!(ran.status, Some(2), "{command}: {}", ran.stderr);
        let says = "rank1.pftrace: the file is empty, as a killed program leaves it; left out";
        assert!(ran.stderr.contains(says), "{command}: {}", ran.stderr);
        assert!(command != "report" || ran.stdout == alone.stdout, "{}", ran.stdout);
    }
    let sides = [run.to_str().unwrap(), run.to_str().unwrap()];
    assert!(!peak::warpline(["compare", sides[0], sides[1]]).stderr.contains("an empty file; name a trace"));
    // A file that the user names is asked for, and a folder of nothing else has no trace.
    let named = run.join("rank1.pftrace");
    assert!(complaint(&["report", named.to_str().unwrap()]).contains("an empty file; name a trace"));
    fs::remove_file(run.join("rank0.pftrace")).unwrap();
    assert!(complaint(&["report", run.to_str().unwrap()]).contains("an empty file; name a trace"));
}

#[test]
fn what_is_no_trace_beside_the_traces_of_a_folder_is_named_and_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    fs::create_dir(&run).unwrap();
    trace(&run.join("rank0.pftrace"));
    let alone = peak::warpline(["report".as_ref(), run.as_os_str()]);
    let of_session = peak::warpline(["report".as_ref(), run.as_os_str(), "--format".as_ref(), "json".as_ref()]);
    fs::write(run.join("report.json"), of_session.stdout).unwrap();
    fs::write(run.join("config.json"), r#"{"layers": 12, "nested": {"traceEvents": []}}"#).unwrap();
    for command in ["report", "catalog", "check"] {
        let ran = peak::warpline([command.as_ref(), run.as_os_str()]);
        assert_ne!(ran.status, Some(2), "{command}: {}", ran.stderr);
        for name in ["report.json", "config.json"] {
            let says = format!(
                "{name}: the file is JSON without `traceEvents`, such as settings or a report, and not a trace; left out"
            );
            assert!(ran.stderr.contains(&says), "{command}: {}", ran.stderr);
        }
        assert!(command != "report" || ran.stdout == alone.stdout, "{}", ran.stdout);
    }
    // A file that the user names is asked for.
    let named = run.join("config.json");
    assert!(complaint(&["report", named.to_str().unwrap()]).contains("JSON without `traceEvents`"));
}

/// A frame of zstd that decompresses to `begin`, and then to 128 KiB of `filling` for each of so many blocks of 4 bytes.
fn bomb(begin: u8, filling: u8, blocks: usize) -> Vec<u8> {
    let block = |kind: u32, size: u32| (size << 3 | kind << 1).to_le_bytes()[..3].to_vec();
    // A window of 128 KiB, and no length.
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x38];
    frame.extend(block(0, 1));
    frame.push(begin);
    for _ in 0..blocks {
        frame.extend(block(1, 128 << 10));
        frame.push(filling);
    }
    frame
}

#[test]
fn what_decompresses_without_an_end_is_refused_early() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.json.zst");
    // 2.4 GiB in 80 KB.
    fs::write(&trace, bomb(b'[', b' ', 20_000)).unwrap();
    for command in ["report", "catalog", "check", "compare"] {
        let mut args = vec![command, trace.to_str().unwrap()];
        if command == "compare" {
            args.push(args[1]);
        }
        let ran = peak::warpline(&args);
        assert_ne!(ran.status, Some(0), "{command}");
        let says = "1100 times as many bytes when it is decompressed, as no trace has; if it is one, decompress it";
        assert!(ran.stderr.contains(says), "{command}: {}", ran.stderr);
    }
}
