//! A marked function is linted as an unmarked one: the compiler and Clippy, with the lints of all its groups, say the same of the fixture
//! with marks and without.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The lints of all groups but `cargo`, which reads no functions.
const GROUPS: [&str; 8] =
    ["correctness", "suspicious", "style", "complexity", "perf", "pedantic", "nursery", "restriction"];

/// What no mark can keep: a marked function is not `const`.
const OTHER: [&str; 1] = ["clippy::missing_const_for_fn"];

/// What `cargo check` or `cargo clippy` says, as lints and lines.
fn findings(command: &str, features: &str) -> BTreeSet<(String, u64)> {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("lints");
    let versions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock");
    std::fs::copy(versions, fixture.join("Cargo.lock")).expect("the workspace has a lock file");
    let mut groups: Vec<String> = GROUPS.iter().map(|group| format!("-Wclippy::{group}")).collect();
    groups.insert(0, "--".to_owned());
    if command != "clippy" {
        groups.clear();
    }
    let output = Command::new(env!("CARGO"))
        .args([command, "--quiet", "--message-format=json", "--features", features, "--target-dir"])
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("lints"))
        .args(groups)
        .env_remove("RUSTFLAGS")
        .current_dir(&fixture)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("messages are text");
    let messages = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("messages are JSON"));
    messages
        .filter(|message| message["target"]["name"] == "lints_fixture")
        .filter_map(|message| {
            let message = &message["message"];
            let lint = message["code"]["code"].as_str()?.to_owned();
            let spans = message["spans"].as_array()?;
            let line = spans.iter().find(|span| span["is_primary"] == true)?["line_start"].as_u64()?;
            Some((lint, line))
        })
        .filter(|(lint, _)| !OTHER.contains(&lint.as_str()))
        .collect()
}

#[test]
fn a_marked_function_is_linted_as_an_unmarked_one() {
    let of_compiler = same("check");
    assert!(of_compiler.len() > 5, "{of_compiler:?}");
    let plain = same("clippy");
    let lints: BTreeSet<&str> = plain.iter().map(|(lint, _)| lint.as_str()).collect();
    let found = |lint: &str| assert!(lints.contains(lint), "the fixture has nothing for `{lint}`: {lints:#?}");
    for lint in
        ["todo", "print_stdout", "panic", "unimplemented", "useless_format", "missing_panics_doc", "needless_return"]
    {
        found(&format!("clippy::{lint}"));
    }
    for lint in ["unused_async", "semicolon_if_nothing_returned", "implicit_return", "cognitive_complexity"] {
        found(&format!("clippy::{lint}"));
    }
    ["unconditional_recursion", "unused_variables", "unreachable_code"].iter().for_each(|lint| found(lint));
    assert!(lints.len() > 50, "{} lints find something", lints.len());
}

/// What the command says of the fixture, which is the same with marks and without.
fn same(command: &str) -> BTreeSet<(String, u64)> {
    let (plain, marked) = (findings(command, ""), findings(command, "marked"));
    let fires: Vec<_> = marked.difference(&plain).collect();
    let silenced: Vec<_> = plain.difference(&marked).collect();
    assert!(
        fires.is_empty() && silenced.is_empty(),
        "{command}: fire on marks: {fires:#?}, silenced by marks: {silenced:#?}"
    );
    plain
}
