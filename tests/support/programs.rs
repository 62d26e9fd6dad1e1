//! Builds the programs under `tests/catalog/fixtures` and runs them, for every test that needs real binaries.
//!
//! They are built once a profile and process, with the versions of the main `Cargo.lock`, without the network.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::{env, fs};

/// The programs as they are developed: `dev` profile, feature `enable` on.
pub fn dev(program: &str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| build(&["--features", "enable"]));
    target().join("debug").join(program)
}

/// The programs as they are shipped: fat LTO, stripped, feature `enable` off.
#[allow(dead_code, reason = "not every test needs both")]
pub fn shipped(program: &str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    let wanted = ["--lib", "--bin", "full", "--bin", "two_versions", "--bin", "named"];
    BUILT.get_or_init(|| build(&[&["--profile", "fat"][..], &wanted].concat()));
    target().join("fat").join(program)
}

/// Runs a program; it must succeed.
#[allow(dead_code, reason = "not every test runs what it reads")]
pub fn run(program: &Path) -> Output {
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success(), "{program:?}: {output:?}");
    output
}

/// The workspace of the fixtures.
pub fn fixtures() -> PathBuf {
    root().join("tests/catalog/fixtures")
}

/// The folder that all fixtures are built in: one for all tests of the workspace.
pub fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("fixtures")
}

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Gives a package or a workspace the same versions as everything else, so that little or nothing has to be fetched.
pub fn share_versions(folder: &Path) {
    let (ours, theirs) = (root().join("Cargo.lock"), folder.join("Cargo.lock"));
    let age = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    if age(&theirs) < age(&ours) {
        fs::copy(&ours, &theirs).unwrap();
    }
}

fn build(args: &[&str]) {
    share_versions(&fixtures());
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--offline", "--manifest-path"])
        .arg(fixtures().join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target())
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
