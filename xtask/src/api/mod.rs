//! The step that compares the public API of `warpline` with the checked-in list, so that a change of the API shows in a review.
//! `cargo xtask api --bless` writes the list anew.
//!
//! rustdoc describes the API, as JSON: once with all features but `enable`, which is the list, and once with all. The two must be
//! equal, because features are additive. Where they are not yet, the differences are recorded in a second file, which may shrink and
//! must not grow. The JSON is unstable, so it is read loosely: what `lines` does not know is printed as it is.

mod lines;
mod types;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;

use crate::shell::{Stop, line, root, target};
use crate::{compiler, features};

/// The public API, a line for each item.
const LIST: &str = "runtime/public-api.txt";

/// The crate that users name, and those whose items it re-exports.
const CRATES: [&str; 8] = [
    "warpline",
    "warpline-core",
    "warpline-report",
    "warpline-trace",
    "warpline-cuda",
    "warpline-hip",
    "warpline-timeline",
    "warpline-macros",
];

/// How the API with `enable` differs from it: `+` for lines that only it has, `-` for lines that it lacks.
const DIFFERENCES: &str = "runtime/public-api.differences.txt";

/// Compares the API with the list.
///
/// # Errors
/// Each line that differs.
pub fn check() -> Result<u64, Stop> {
    let (list, differences) = current()?;
    let mut faults = changes(LIST, &read(LIST), &list);
    faults.extend(changes(DIFFERENCES, &read(DIFFERENCES), &differences));
    if faults.is_empty() { Ok(0) } else { Err(Stop::Failed(faults.join("\n"))) }
}

/// Runs `cargo xtask api` with these options.
///
/// # Errors
/// Options that it does not have, or an API that differs in more lines with `enable` than was recorded.
pub fn run(options: &[&str]) -> Result<ExitCode, String> {
    let result = match options {
        [] => check().map(drop),
        ["--bless"] => bless(),
        _ => return Err(format!("`api` does not know `{}`", options.join(" "))),
    };
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Stop::Failed(why) | Stop::Lacks(why) | Stop::Skipped(why)) => {
            println!("{why}");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn bless() -> Result<(), Stop> {
    let (list, differences) = current()?;
    write(LIST, &list)?;
    let recorded = root().join(DIFFERENCES).exists().then(|| read(DIFFERENCES));
    if let Some(recorded) = recorded.filter(|recorded| differences.len() > recorded.len()) {
        let mut faults = changes(DIFFERENCES, &recorded, &differences);
        faults.push("features are additive: make the API the same with `enable` and without it".to_owned());
        return Err(Stop::Failed(faults.join("\n")));
    }
    write(DIFFERENCES, &differences)
}

/// The API without `enable`, and how the one with it differs.
fn current() -> Result<(BTreeSet<String>, BTreeSet<String>), Stop> {
    let on = features::all(&["warpline"])?;
    let off: Vec<_> = on.split(',').filter(|feature| *feature != "warpline/enable").collect();
    let (off, on) = (documented(&off.join(","))?, documented(&on)?);
    let differences = difference(&off, &on).into_iter().collect();
    Ok((off, differences))
}

/// The API with these features.
fn documented(features: &str) -> Result<BTreeSet<String>, Stop> {
    let json = |name: &str| target().join("doc").join(format!("{}.json", name.replace('-', "_")));
    let packages = CRATES.map(|name| format!("-p {name}")).join(" ");
    // Both feature sets write the same files.
    CRATES.iter().for_each(|name| drop(std::fs::remove_file(json(name))));
    let line = line(&format!("cargo doc {packages} --lib --no-deps --features {features}"))
        .with("RUSTDOCFLAGS", "-Z unstable-options --output-format json --cap-lints allow");
    compiler::with_unstable_rustdoc(line).run()?;
    let crates: Vec<Value> = CRATES.iter().map(|name| parsed(&json(name))).collect::<Result<_, _>>()?;
    let lines = lines::lines(&crates);
    if lines.is_empty() {
        let version = &crates[0]["format_version"];
        let why = format!("no item in rustdoc's JSON is understood; its format_version is {version}");
        return Err(Stop::Failed(why));
    }
    Ok(lines)
}

fn parsed(json: &Path) -> Result<Value, Stop> {
    let failed = |error: &dyn std::fmt::Display| Stop::Failed(format!("`{}`: {error}", json.display()));
    let text = std::fs::read_to_string(json).map_err(|error| failed(&error))?;
    serde_json::from_str(&text).map_err(|error| failed(&error))
}

fn read(path: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join(path)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn write(path: &str, lines: &BTreeSet<String>) -> Result<(), Stop> {
    let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    std::fs::write(root().join(path), text).map_err(|error| Stop::Failed(format!("`{path}`: {error}")))
}

/// What has to be added to one list, with `+`, and taken from it, with `-`, to make the other one of it.
fn difference(from: &BTreeSet<String>, to: &BTreeSet<String>) -> Vec<String> {
    let removed = from.difference(to).map(|line| format!("- {line}"));
    removed.chain(to.difference(from).map(|line| format!("+ {line}"))).collect()
}

fn changes(path: &str, recorded: &BTreeSet<String>, current: &BTreeSet<String>) -> Vec<String> {
    difference(recorded, current).into_iter().map(|change| format!("{path}: {change}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_named_with_its_file() {
        let lines = |text: &str| text.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
        assert_eq!(changes("list", &lines("a b"), &lines("b c")), ["list: - a", "list: + c"]);
        assert_eq!(changes("list", &lines("a b"), &lines("b a")), [""; 0]);
    }
}
