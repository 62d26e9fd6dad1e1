//! `warpline ranks` is `warpline-ranks`, wherever it is, and `warpline query` is `warpline-ranks query`.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The right to write programs and to start them, until it is dropped. A child that another thread starts at that moment has the
/// program open for writing until it runs a program itself; no such program starts ("Text file busy").
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that prints its name, each of its arguments in a line, and ends with 3.
fn program(folder: &Path, says: &str) {
    fs::create_dir_all(folder).expect("a folder");
    let path = folder.join("warpline-ranks");
    fs::write(&path, format!("#!/bin/sh\necho {says}\nprintf '<%s>\\n' \"$@\"\nexit 3\n")).expect("a program");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
}

/// A copy of the command, beside which nothing is.
fn warpline(folder: &Path) -> PathBuf {
    fs::create_dir_all(folder).expect("a folder");
    let path = folder.join("warpline");
    fs::copy(env!("CARGO_BIN_EXE_warpline"), &path).expect("a copy");
    path
}

fn run(warpline: &Path, path: &str, arguments: &[&str]) -> Output {
    Command::new(warpline).args(arguments).env("PATH", path).output().expect("it runs")
}

#[test]
fn arguments_and_status_go_through() {
    let _turn = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let command = warpline(&dir.path().join("bin"));
    program(&dir.path().join("path"), "path");
    let path = format!("/nowhere:{}:/usr/bin:/bin", dir.path().join("path").display());
    let output = run(&command, &path, &["ranks", "query", "DIR", "SELECT 'a b'", "--json", "--", "-x", ""]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(said, "path\n<query>\n<DIR>\n<SELECT 'a b'>\n<--json>\n<-->\n<-x>\n<>\n");
    let output = run(&command, &path, &["query", "T.pftrace", "SELECT 1", "--format", "csv"]);
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(said, "path\n<query>\n<T.pftrace>\n<SELECT 1>\n<--format>\n<csv>\n");
    let said = String::from_utf8(run(&command, &path, &["query", "--help"]).stdout).expect("UTF-8");
    assert_eq!(said, "path\n<query>\n<--help>\n");
    // Its own help, and not one that knows none of its commands.
    for help in ["--help", "-h", "--version"] {
        let said = String::from_utf8(run(&command, &path, &["ranks", help]).stdout).expect("UTF-8");
        assert_eq!(said, format!("path\n<{help}>\n"));
    }
}

#[test]
fn the_one_beside_the_command_comes_first() {
    let _turn = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let command = warpline(&dir.path().join("bin"));
    program(&dir.path().join("bin"), "beside");
    program(&dir.path().join("path"), "path");
    let path = format!("{}:/usr/bin:/bin", dir.path().join("path").display());
    let said = |command: &Path| String::from_utf8(run(command, &path, &["ranks", "hang"]).stdout).expect("UTF-8");
    assert_eq!(said(&command), "beside\n<hang>\n");
    // As package managers install it: by a link.
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&command, &link).expect("a link");
    assert_eq!(said(&link), "beside\n<hang>\n");
}

#[test]
fn where_it_is_missing_the_way_to_build_it_is_said() {
    let _turn = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let command = warpline(&dir.path().join("bin"));
    for arguments in [&["ranks", "report", "DIR"], &["query", "T.pftrace", "SELECT 1"]] {
        let output = run(&command, "/nowhere", arguments);
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains("cargo build --release --manifest-path ranks/Cargo.toml"), "{said}");
    }
    // The manifest that it names is there.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    assert!(root.join("ranks/Cargo.toml").is_file() || !root.join("xtask").is_dir(), "ranks/Cargo.toml is not there");
}

#[test]
fn where_it_is_missing_help_still_lists_what_there_is() {
    let _turn = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let command = warpline(&dir.path().join("bin"));
    let said = |arguments: &[&str]| {
        let output = run(&command, "/nowhere", arguments);
        let [list, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8"));
        assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
        assert!(error.contains("`warpline-ranks` is not in the folder of `warpline`, and not on the PATH"), "{error}");
        list
    };
    for arguments in
        [&["ranks", "--help"][..], &["ranks", "-h"], &["ranks"], &["ranks", "help"], &["ranks", "report", "--help"]]
    {
        let list = said(arguments);
        assert!(list.starts_with("Reads the tables") && list.contains("\n  hang "), "{arguments:?}: {list}");
    }
    for arguments in [&["query", "--help"][..], &["query", "-h"], &["ranks", "query", "--help"]] {
        let list = said(arguments);
        assert!(list.starts_with("Answers SQL") && list.contains("  zones, launches,"), "{arguments:?}: {list}");
        assert!(list.lines().all(|line| line.len() <= 100));
    }
    assert_eq!(said(&["query", "T.pftrace", "SELECT 1"]), "");
}

#[test]
fn a_file_that_does_not_start_is_named() {
    let _turn = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let command = warpline(&dir.path().join("bin"));
    fs::write(dir.path().join("bin/warpline-ranks"), "no program").expect("a file");
    let output = run(&command, "/nowhere", &["ranks", "report", "DIR"]);
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("bin/warpline-ranks` does not start"), "{said}");
}
