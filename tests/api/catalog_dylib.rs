//! A program with warpline in a Rust library of type `dylib`: the library's slice lacks the ranges of the program.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::catalog_crates::programs::{root, target};

const WORKSPACE: &str = r#"[workspace]
members = ["shared", "app"]
resolver = "2"
[profile.dev]
debug = false
[workspace.dependencies]
warpline = { path = "ROOT/runtime/warpline", features = ["enable", "export"] }
"#;

const PACKAGE: &str = r#"[package]
name = "NAME"
version = "0.1.0"
edition = "2024"
[dependencies]
warpline.workspace = true
"#;

const LIBRARY: &str = r#"
warpline::namespace!("shared", "a library");
warpline::range! { WORK = "shared.work": "Works.", kind = host; }
pub fn work() { drop(WORK.host()); }
"#;

const PROGRAM: &str = r#"
warpline::namespace!("dynamic", "a program");
warpline::range! { KEPT = "dynamic.kept": "Stays.", kind = host; LEFT_OUT = "dynamic.left_out": "Is left out.", kind = host; }
fn main() {
    let zones = warpline::sink::MemorySink::new(100);
    let session = warpline::Session::builder().sink(zones.clone()).filter("!dynamic.left_out").start().unwrap();
    println!("catalog {:?}", warpline::catalog().iter().map(|range| range.name()).collect::<Vec<_>>());
    drop((KEPT.host(), LEFT_OUT.host()));
    shared::work();
    let report = session.finish();
    let mut names: Vec<_> = zones.take().iter().map(|zone| zone.range.name()).collect();
    names.sort_unstable();
    println!("recorded {names:?}");
    report.notes.iter().for_each(|note| println!("note {note}"));
}
"#;

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn filters_match_ranges_outside_of_the_catalog_and_the_report_names_them() {
    let folder = target().join("dylib");
    write(&folder.join("Cargo.toml"), &WORKSPACE.replace("ROOT", &root().to_string_lossy()));
    write(
        &folder.join("shared/Cargo.toml"),
        &(PACKAGE.replace("NAME", "shared") + "[lib]\ncrate-type = [\"dylib\"]\n"),
    );
    write(&folder.join("shared/src/lib.rs"), LIBRARY);
    write(&folder.join("app/Cargo.toml"), &(PACKAGE.replace("NAME", "app") + "shared.path = \"../shared\"\n"));
    write(&folder.join("app/src/main.rs"), PROGRAM);
    // The same versions as everything else, so that nothing has to be fetched.
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    // Cargo sets the path of the loader for the library.
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline", "--package", "app", "--target-dir"])
        .arg(folder.join("target"))
        .current_dir(&folder)
        .env("RUSTFLAGS", "-C prefer-dynamic")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("WARPLINE")
        .output()
        .unwrap();
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[..2], [r#"catalog ["shared.work"]"#, r#"recorded ["dynamic.kept", "shared.work"]"#]);
    let named = lines.iter().filter(|line| line.contains("`dynamic.kept`, `dynamic.left_out`")).count();
    assert_eq!(named, 1, "{said}");
    let filter = "no range of the catalog matches `!dynamic.left_out`; the catalog is that of `libshared.so`, and ranges outside of it match from \
                  their first zone on";
    assert!(told.contains(filter), "{told}");
}
