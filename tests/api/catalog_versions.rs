//! Two versions of warpline in one program: it links and runs, each version has its own catalog and records its own zones, and the
//! command reads the ranges of both from the binary.
//!
//! The later version is a copy of this repository, changed as RELEASING.md says for a new version.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::catalog_crates::programs::{fixtures, root, run, target};

/// The crate `warpline` and those that it may depend on.
const MEMBERS: [&str; 8] = [
    "macros",
    "report",
    "runtime/core",
    "runtime/cuda",
    "runtime/hip",
    "runtime/timeline",
    "runtime/trace",
    "runtime/warpline",
];

const MANIFEST: &str = r#"[package]
name = "versions"
version = "0.3.0"
edition = "2024"
[workspace]
[profile.dev]
debug = false
[dependencies]
warpline = { path = "ROOT/runtime/warpline", features = ["enable", "export"] }
later = { package = "warpline", path = "../later/runtime/warpline", features = ["enable", "export"] }
kernels = { path = "ROOT/tests/catalog/fixtures/crates/kernels-1" }
kernels2 = { package = "kernels", path = "../kernels" }
"#;

const PROGRAM: &str = r#"fn main() {
    let session = warpline::Session::builder().start().unwrap();
    let later = later::Session::builder().start().unwrap();
    kernels::run(&warpline::HostStream::new("compute"), 3);
    for _ in 0..2 {
        kernels2::run(&later::HostStream::new("compute"), 3);
    }
    for range in warpline::catalog() {
        println!("this {} {}", range.name(), range.version());
    }
    for range in later::catalog() {
        println!("later {} {}", range.name(), range.version());
    }
    println!("namespaces {} {}", warpline::catalog().namespaces().len(), later::catalog().namespaces().len());
    println!("recorded {} {}", session.finish().recorded, later.finish().recorded);
}
"#;

#[test]
fn two_versions_of_warpline_record_in_one_program_and_both_are_read_from_the_binary() {
    let folder = target().join("versions");
    make_later_version(&folder.join("later"));
    let kernels = fixtures().join("crates/kernels-2");
    copy(&kernels, &folder.join("kernels"), &|text| {
        text.replace("../../../../../runtime/warpline", "../later/runtime/warpline")
    });
    let app = folder.join("app");
    write(&app.join("Cargo.toml"), MANIFEST.replace("ROOT", &root().to_string_lossy()).as_bytes());
    write(&app.join("src/main.rs"), PROGRAM.as_bytes());
    // The same versions as everything else, so that nothing has to be fetched.
    fs::copy(root().join("Cargo.lock"), app.join("Cargo.lock")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--target-dir"])
        .arg(target())
        .current_dir(&app)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let binary = target().join("debug/versions");
    let said = String::from_utf8(run(&binary).stdout).unwrap();
    let mut lines: Vec<_> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "later kernels.reduce.sum 2.0.0",
            "later kernels.run 2.0.0",
            "namespaces 1 1",
            "recorded 1 2",
            "this kernels.reduce.sum 1.0.0",
            "this kernels.run 1.0.0"
        ]
    );
    let records = warpline_cli::binary::open(&binary).unwrap();
    let read: Vec<_> = records.ranges.iter().map(|range| (range.name.as_str(), range.version.as_str())).collect();
    let expected = ["kernels.reduce.sum", "kernels.run"].map(|name| [(name, "1.0.0"), (name, "2.0.0")]);
    assert_eq!(read, expected.concat());
    assert_eq!((records.namespaces.len(), records.unreadable), (2, 0));
    assert!(records.faults().is_empty());
}

/// Copies the crates and makes a later version of them.
fn make_later_version(folder: &Path) {
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    let (slices, renamed) = (format!("V{major}_{minor}"), format!("V{major}_{minor}99"));
    for member in MEMBERS {
        copy(&root().join(member), &folder.join(member), &|text| text.replace(&slices, &renamed));
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (head, rest) = manifest.split_once("members = [").unwrap();
    let (_, tail) = rest.split_once(']').unwrap();
    let tail = tail.replace(&format!("{}\"", env!("CARGO_PKG_VERSION")), &format!("{major}.{minor}99.0\""));
    write(&folder.join("Cargo.toml"), format!("{head}members = {MEMBERS:?}{tail}").as_bytes());
}

/// Copies a folder, and what its links lead to, with each text changed.
fn copy(from: &Path, to: &Path, change: &impl Fn(&str) -> String) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to, change);
            continue;
        }
        let bytes = fs::read(&from).unwrap();
        match std::str::from_utf8(&bytes) {
            Ok(text) => write(&to, change(text).as_bytes()),
            Err(_) => write(&to, &bytes),
        }
    }
}

/// Writes a file unless it is there already: Cargo builds again what is newer than its last build.
fn write(path: &Path, bytes: &[u8]) {
    if fs::read(path).is_ok_and(|written| written == bytes) {
        return;
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}
