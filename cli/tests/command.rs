//! The two commands as users run them: what they print where, and the status that scripts rely on.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use object::{Architecture, BinaryFormat, Endianness};

use crate::programs;
use crate::support::binaries;

fn warpline(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpline")).args(args).output().unwrap()
}

fn cargo_warpline(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cargo-warpline"))
        .arg("warpline")
        .args(args)
        .args(["--offline", "--target-dir", path(&programs::target())])
        .current_dir(programs::fixtures())
        .output()
        .unwrap()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn stdout(output: &Output) -> &str {
    str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    str::from_utf8(&output.stderr).unwrap()
}

fn status(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[test]
fn catalog_shows_a_table() {
    let output = warpline(&["catalog", path(&programs::dev("full"))]);
    assert_eq!((status(&output), stderr(&output)), (0, ""));
    let lines: Vec<&str> = stdout(&output).lines().map(str::trim).collect();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert_eq!(words(lines[0]), "range kind level lane fields crate declared what it is");
    assert_eq!(
        words(lines[2]),
        "full.app.copy gpu fine copies n, half full 0.3.0 apps/src/bin/full.rs:15 Copies `n` elements, and says: \"ß\", \\ and |."
    );
    assert_eq!(lines.last(), Some(&"6 ranges in 2 namespaces"));
    assert!(!stdout(&output).contains('\u{1b}'), "colors in a pipe");
}

#[test]
fn every_format_is_what_the_program_itself_would_write() {
    let program = programs::dev("full");
    let records = warpline_cli::binary::open(&program).unwrap();
    let said = String::from_utf8(programs::run(&program).stdout).unwrap();
    for (format, expected) in [
        ("json", said),
        ("markdown", records.to_markdown()),
        ("csv", records.to_csv()),
        ("ncu", records.to_ncu()),
        ("nsys", records.to_nsys()),
        ("html", records.to_html()),
        ("perfetto", records.to_perfetto()),
    ] {
        let output = warpline(&["catalog", path(&program), "--format", format]);
        assert_eq!((status(&output), stdout(&output), stderr(&output)), (0, &*expected, ""), "{format}");
    }
}

#[test]
fn catalog_writes_to_a_file_and_says_when_it_cannot() {
    let (dir, program) = (tempfile::tempdir().unwrap(), programs::dev("full"));
    let file = dir.path().join("catalog.json");
    let output = warpline(&["catalog", path(&program), "--format", "json", "-o", path(&file)]);
    assert_eq!((status(&output), stdout(&output)), (0, ""));
    assert_eq!(fs::read_to_string(&file).unwrap().as_bytes(), programs::run(&program).stdout);
    let output =
        warpline(&["catalog", path(&program), "--format", "json", "-o", path(&dir.path().join("{host}.{{.json"))]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let expanded = |name: &std::ffi::OsString| name.to_str().unwrap().ends_with(".{.json") && name != "{host}.{.json";
    assert!(names.len() == 2 && names.iter().any(expanded), "{names:?}");
    let output = warpline(&["catalog", path(&program), "-o", "{node}.json"]);
    let expected = "error: the name `{node}.json` has no placeholder `{node}`; there are `{pid}`, `{rank}` and `{host}`; write `{{` \
                    for a brace\n";
    assert_eq!((status(&output), stderr(&output)), (2, expected));
    let missing = dir.path().join("missing/catalog.json");
    let output = warpline(&["catalog", path(&program), "-o", path(&missing)]);
    assert_eq!(status(&output), 2);
    let expected = format!("error: cannot write {}: ", missing.display());
    assert!(stderr(&output).starts_with(&expected), "{}", stderr(&output));
    assert!(stderr(&output).ends_with("; choose another file with `-o`\n"), "{}", stderr(&output));
}

#[test]
fn check_passes_sound_binaries() {
    let (full, two) = (programs::dev("full"), programs::dev("two_versions"));
    let output = warpline(&["check", path(&full), path(&two)]);
    let expected = format!(
        "{}: 6 ranges in 2 namespaces, no faults\n{}: 4 ranges in 1 namespace, no faults\n",
        full.display(),
        two.display()
    );
    assert_eq!((status(&output), stdout(&output), stderr(&output)), (0, &*expected, ""));
}

#[test]
fn check_says_one_line_a_fault_and_ends_with_1() {
    let program = programs::dev("two_crates");
    let output = warpline(&["check", path(&program), path(&programs::dev("full"))]);
    assert_eq!((status(&output), stderr(&output)), (1, ""));
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].starts_with(&format!("{}: namespace `kernels` belongs to two crates: ", program.display())));
    assert!(lines[1].contains(": range `kernels.run` is declared twice: "));
    assert!(lines[2].ends_with("no faults"));
}

#[test]
fn check_looks_on_behind_a_file_that_it_cannot_read_and_ends_with_2() {
    let output = warpline(&["check", "no/such/file", path(&programs::dev("two_crates"))]);
    assert_eq!(status(&output), 2);
    assert!(stderr(&output).starts_with("error: no/such/file: "), "{}", stderr(&output));
    assert_eq!(stdout(&output).lines().count(), 2);
}

#[test]
fn what_cannot_be_read_ends_with_2_and_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let file = dir.path().join(name);
        fs::write(&file, bytes).unwrap();
        file
    };
    let empty = binaries::object(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little, &[]);
    let elf = binaries::elf();
    for (file, reason) in [
        (file("script", b"#!/bin/sh\necho here is no binary\n"), "neither a binary nor a trace; name an executable"),
        (file("unmarked", &empty), "no warpline catalog: nothing marked is linked into this binary. A dependency that"),
        (file("cut", &elf[..elf.len() - 100]), "the binary is damaged or truncated: "),
        (
            dir.path().to_owned(),
            "no file in the folder has a name that ends in `.pftrace` or `.perfetto-trace` or `.json`",
        ),
        (dir.path().join("missing"), "No such file or directory"),
    ] {
        for command in ["catalog", "check"] {
            let output = warpline(&[command, path(&file)]);
            assert_eq!((status(&output), stdout(&output)), (2, ""), "{file:?}");
            assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
            assert!(stderr(&output).contains(path(&file)) && stderr(&output).contains(reason), "{}", stderr(&output));
        }
    }
}

#[test]
fn what_a_newer_warpline_wrote_is_said() {
    let mut notes = binaries::notes(Endianness::Little);
    notes[8] = 200;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("newer.o");
    fs::write(&file, binaries::object(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little, &notes)).unwrap();
    let output = warpline(&["catalog", path(&file), "--format", "csv"]);
    assert_eq!(status(&output), 0);
    assert!(stderr(&output).starts_with("warning: "), "{}", stderr(&output));
    assert!(stderr(&output).ends_with("was written by a newer warpline and left out; update warpline-cli\n"));
}

#[test]
fn a_hostile_catalog_cannot_steer_the_terminal() {
    let mut notes = binaries::notes(Endianness::Little);
    for (good, bad) in [(&b"Adds."[..], &b"\x1b[2J\n"[..]), (b"demo.add", b"demo.\x1bc\n"), (b"copy", b"\x1b[1m")] {
        let at = notes.windows(good.len()).position(|window| window == good).unwrap();
        notes[at..at + bad.len()].copy_from_slice(bad);
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hostile.o");
    fs::write(&file, binaries::object(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little, &notes)).unwrap();
    for (args, lines) in [(["catalog", path(&file)], 4), (["check", path(&file)], 1)] {
        let output = warpline(&args);
        assert!(!output.stdout.contains(&0x1b) && stdout(&output).contains("demo.\\u{1b}c\\n"), "{output:?}");
        assert_eq!(stdout(&output).lines().count(), lines, "{output:?}");
    }
}

/// `warpline … | head -0`: the reader is gone before the first byte.
#[test]
fn a_reader_that_goes_away_is_no_error() {
    let program = programs::dev("full");
    for (args, expected) in [
        (vec!["catalog", path(&program)], 0),
        (vec!["check", path(&program)], 0),
        (vec!["check", path(&programs::dev("two_crates"))], 1),
        (vec!["--help"], 0),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
        let output = command.args(&args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((status(&output), stderr(&output)), (expected, ""), "{args:?}");
    }
}

#[test]
fn wrong_usage_ends_with_2() {
    for args in [&["catalog"][..], &["check"], &["catalog", "x", "--format", "xml"], &["catalogue"], &[]] {
        assert_eq!(status(&warpline(args)), 2, "{args:?}");
    }
    assert_eq!(status(&warpline(&["--version"])), 0);
}

#[test]
fn cargo_warpline_builds_and_shows() {
    let program = programs::dev("full");
    let expected = String::from_utf8(programs::run(&program).stdout).unwrap();
    let output = cargo_warpline(&["catalog", "--bin", "full", "--features", "enable", "--format", "json"]);
    assert_eq!((status(&output), stdout(&output)), (0, &*expected), "{}", stderr(&output));
}

#[test]
fn cargo_warpline_asks_which_of_several() {
    let output = cargo_warpline(&["catalog", "--features", "enable"]);
    assert_eq!((status(&output), stdout(&output)), (2, ""));
    assert!(
        stderr(&output).contains("error: the build produced 6 binaries; choose one with `--bin`, "),
        "{}",
        stderr(&output)
    );
}

#[test]
fn cargo_warpline_checks_all_of_several() {
    let output = cargo_warpline(&["check", "--features", "enable"]);
    // One of the six has no marks, and that cannot be checked.
    assert_eq!(status(&output), 2, "{}", stderr(&output));
    assert!(stderr(&output).contains("unnamed: no warpline catalog"), "{}", stderr(&output));
    assert_eq!(stdout(&output).matches("no faults").count(), 4, "{}", stdout(&output));
    assert_eq!(stdout(&output).matches("two_crates: ").count(), 2, "{}", stdout(&output));
}

#[test]
fn cargo_warpline_finds_the_library_and_only_that() {
    let output = cargo_warpline(&["catalog", "--lib", "--features", "enable", "-p", "apps", "--format", "csv"]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("\r\nplugin.step,plugin,"), "{}", stdout(&output));
    assert!(!stdout(&output).contains("full.app"));
}

#[test]
fn cargo_warpline_says_why_there_is_nothing() {
    let output = cargo_warpline(&["catalog", "--bin", "no_such_binary"]);
    assert_eq!((status(&output), stdout(&output)), (2, ""));
    assert!(stderr(&output).contains("no bin target named `no_such_binary`"), "{}", stderr(&output));
    assert!(stderr(&output).ends_with("error: `cargo build` failed; see its messages above\n"), "{}", stderr(&output));
    let output = cargo_warpline(&["check", "-p", "no_such_package"]);
    assert_eq!(status(&output), 2);
    assert!(stderr(&output).contains("no_such_package"), "{}", stderr(&output));
}
