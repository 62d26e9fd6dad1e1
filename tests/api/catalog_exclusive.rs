//! Exclusive namespaces: two crates that claim one do not link, and the linker names the namespace and both crates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::catalog_crates::programs::{root, run, target};

/// A library with an exclusive namespace and one range, which is in a module of its own. It forbids what an expansion may need.
const LIBRARY: &str = r#"#![forbid(unsafe_code, warnings)]
warpline::namespace!("NAMESPACE", "an exclusive namespace", exclusive);
pub mod deep {
    /// Runs.
    #[warpline::gpu_zone("NAMESPACE.CRATE")]
    pub fn run(stream: &warpline::HostStream) {
        let _ = stream.launch(|| ());
    }
}
"#;

/// It calls nothing of the libraries: naming them links their ranges. Its own namespace is exclusive, too.
const PROGRAM: &str = r#"use owner as _;
use other as _;
#[cfg(feature = "claimant")]
use claimant as _;

warpline::namespace!("exclusive.app", "a program", exclusive);

fn main() {
    for range in warpline::catalog() {
        println!("{}", range.name());
    }
}
"#;

fn write(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|written| written == text) {
        return;
    }
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("the target folder is writable");
    fs::write(path, text).expect("the target folder is writable");
}

fn manifest(name: &str, rest: &str) -> String {
    format!(
        "[package]\nname = {name:?}\nversion = \"1.0.0\"\nedition = \"2024\"\n{rest}\n[dependencies]\nwarpline = {{ path = {:?} }}\n",
        root().join("runtime/warpline")
    )
}

/// The workspace of the program and its libraries.
fn workspace() -> PathBuf {
    let folder = target().join("exclusive");
    for (name, namespace) in
        [("owner", "exclusive.shared"), ("claimant", "exclusive.shared"), ("other", "exclusive.other")]
    {
        write(&folder.join(name).join("Cargo.toml"), &manifest(name, ""));
        let source = LIBRARY.replace("NAMESPACE", namespace).replace("CRATE", name);
        write(&folder.join(name).join("src/lib.rs"), &source);
    }
    let dependencies = "owner = { path = \"../owner\" }\nother = { path = \"../other\" }\nclaimant = { path = \"../claimant\", optional = true }\n";
    let app = manifest("exclusive", "[features]\nclaimant = [\"dep:claimant\"]") + dependencies;
    write(&folder.join("app/Cargo.toml"), &app);
    write(&folder.join("app/src/main.rs"), PROGRAM);
    write(
        &folder.join("Cargo.toml"),
        "[workspace]\nresolver = \"3\"\nmembers = [\"app\", \"owner\", \"claimant\", \"other\"]\n[profile.dev]\ndebug = false\n",
    );
    // The same versions as everything else, so that nothing has to be fetched.
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).expect("the target folder is writable");
    folder
}

fn build(args: &[&str]) -> Output {
    Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "-p", "exclusive", "--target-dir"])
        .arg(target())
        .args(args)
        .current_dir(workspace())
        // `LC_ALL`: the linker's messages are translated.
        .env("LC_ALL", "C")
        .output()
        .expect("cargo runs")
}

#[test]
fn two_crates_with_one_exclusive_namespace_do_not_link() {
    let alone = build(&[]);
    assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stderr));
    let said = String::from_utf8(run(&target().join("debug/exclusive")).stdout).expect("text");
    let mut names: Vec<_> = said.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["exclusive.other.other", "exclusive.shared.owner"]);

    let both = build(&["--features", "claimant"]);
    let said = String::from_utf8_lossy(&both.stderr);
    assert!(!both.status.success(), "two crates share an exclusive namespace");
    assert!(said.contains("linking with"), "{said}");
    let symbol = "warpline_namespace_exclusive.shared_is_exclusive__give_each_crate_its_own";
    for part in [symbol, "libowner-", "libclaimant-"] {
        assert!(said.contains(part), "no `{part}` in\n{said}");
    }
    assert!(!said.contains("exclusive.other_is_exclusive"), "{said}");
}
