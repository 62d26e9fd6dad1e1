//! The one build of all tests that need no GPU, and the check that no feature of the tests is missing in it: a test that needs a new
//! feature is then also run, or the step says why not.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use crate::features;
use crate::shell::{Line, Stop, line, target};

/// All packages, with every feature that tests need but `tracy`. Steps that share it share what is built.
const EVERYTHING: &str = "--workspace --features warpline/enable,warpline-ui-tests/enable,warpline-tests/cupti,warpline-tests/hip,\
                              warpline-tests/otlp,warpline-tests/prometheus,warpline-tests/ranks,warpline-cli/hip,warpline-tests/tracing,warpline-example-tensor/cuda,\
                              warpline-examples/hip,warpline-examples/tracing";

/// The tests of Tracy, apart: its client starts with each program that has it, with threads and descriptors of its own, which other tests
/// count. The other features and packages are there to share what is built of `EVERYTHING`.
pub const TRACY: &str = "-p warpline -p warpline-tests -p warpline-example-tensor -p warpline-third-party \
                         --features warpline/enable,warpline-tests/cupti,warpline-tests/hip,warpline-tests/otlp,\
                         warpline-tests/prometheus,warpline-tests/ranks,warpline-tests/tracing,warpline-tests/tracy,warpline-example-tensor/cuda --lib --test stub -- tracy::";

/// Packages that turn on no feature of `warpline`: Cargo would turn it on for all that are built together. The last one turns on the
/// features of other crates that the whole workspace turns on, so that those crates are shared with `EVERYTHING`.
pub const OFF: &str = "-p warpline -p warpline-core -p warpline-macros -p warpline-report -p warpline-example-tensor -p warpline-example-transformer \
                       -p warpline-ui-tests -p warpline-edition-2015 -p warpline-edition-2018 -p warpline-edition-2021 \
                       -p warpline-edition-2024 -p warpline-third-party";

/// Features of the tests that other features turn on, and the one that is on from the start.
const IMPLIED: [&str; 4] = ["default", "enable", "timeline", "cuda"];

/// The tests with this feature run on another machine: `cargo xtask gpu`.
const ON_A_GPU: &str = "gpu";

/// A command of Cargo's for all packages with these features, such as `test`, and what stands behind them.
pub fn everything(command: &str, rest: &str) -> Line {
    linted(line(&format!("cargo {command} {EVERYTHING} {rest}")))
}

/// The test programs of `tests/`, in which most tests wait for a session: another row of tests runs beside them.
const WAITING: [&str; 5] = ["allocator", "api", "catalog", "signals", "stub"];

/// The test program with traces of a million slices: a step of its own.
pub const LARGE: &str = "report_large";

/// Returns the options that choose the tests of [`everything`] in two rows, which together are all but [`LARGE`] and the tests in the
/// documentation: the tests that wait, and the others.
///
/// # Errors
/// Cargo does not describe the workspace.
pub fn rows() -> Result<[String; 2], Stop> {
    Ok(rows_of(&features::metadata("--no-deps")?))
}

fn rows_of(metadata: &Value) -> [String; 2] {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    // Some examples have tests.
    let is_run = |target: &&Value| {
        let mut features = target["required-features"].as_array().into_iter().flatten();
        target["test"] == true && features.all(|feature| feature != ON_A_GPU)
    };
    let option = |target: &Value| match target["kind"][0].as_str()? {
        "test" if target["name"] == LARGE => None,
        kind @ ("test" | "example") => Some(format!(" --{kind} {}", target["name"].as_str()?)),
        _ => None,
    };
    let options: BTreeSet<_> = targets.filter(is_run).filter_map(option).collect();
    let is_waiting = |option: &String| WAITING.iter().any(|name| option.strip_prefix(" --test ") == Some(name));
    let (waiting, others): (Vec<_>, Vec<_>) = options.into_iter().partition(is_waiting);
    [waiting.concat(), format!("--lib --bins{}", others.concat())]
}

/// Builds the command `warpline` as the tests have it, and says where it is.
///
/// # Errors
/// It does not build.
pub fn command() -> Result<PathBuf, Stop> {
    // A program is built with the tests of its package.
    everything("test --quiet", "--test cli --no-run").run()?;
    Ok(target().join("debug/warpline"))
}

/// Builds an example as the tests have it, and says where it is.
///
/// # Errors
/// It does not build.
pub fn example(name: &str) -> Result<PathBuf, Stop> {
    everything("build --quiet", &format!("--example {name}")).run()?;
    Ok(target().join("debug/examples").join(name))
}

/// Builds a program other than the command as the tests have it, and says where it is.
///
/// # Errors
/// It does not build.
pub fn program(name: &str) -> Result<PathBuf, Stop> {
    everything("build --quiet", &format!("--bin {name}")).run()?;
    Ok(target().join("debug").join(name))
}

/// Builds `warpline-ranks` as its tests have it, and says where it is.
///
/// # Errors
/// It does not build.
pub fn reader() -> Result<PathBuf, Stop> {
    // `cargo build` would have other features, and build DataFusion once more.
    ranks_crate("test --quiet --no-run").run()?;
    Ok(target().join("ranks-crate/debug/warpline-ranks"))
}

/// A command of Cargo's for `ranks/`. It has a folder of its own, which is kept: DataFusion takes minutes to build, and shares no crate with
/// the others.
pub fn ranks_crate(command: &str) -> Line {
    let folder = target().join("ranks-crate");
    // Behind `--` is what the tests get.
    let (command, of_tests) = command.split_at(command.find(" -- ").unwrap_or(command.len()));
    linted(line(&format!(
        "cargo {command} --manifest-path ranks/Cargo.toml --locked --target-dir {}{of_tests}",
        folder.display()
    )))
}

/// A build in which Clippy compiles the crates of a workspace in place of rustc, and a warning is an error: `cargo clippy` would check what they
/// depend on besides what is built of it. The compiler that Cargos have which the tests start is rustc.
pub fn linted(line: Line) -> Line {
    line.with_config("build.rustc-workspace-wrapper=\"clippy-driver\"")
        .with("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__")
}

/// Checks the manifest of the tests.
///
/// # Errors
/// A feature of the tests is off in the one build.
pub fn check() -> Result<(), Stop> {
    check_in(&features::metadata("--no-deps")?)
}

fn check_in(metadata: &Value) -> Result<(), Stop> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let tests = packages.filter(|package| package["name"] == "warpline-tests");
    let features = tests.flat_map(|package| package["features"].as_object().into_iter().flatten());
    for (feature, _) in features {
        let is_on = IMPLIED.contains(&feature.as_str())
            || [EVERYTHING, TRACY]
                .iter()
                .flat_map(|command| command.split([',', ' ']))
                .any(|on| on.strip_prefix("warpline-tests/") == Some(feature));
        if !is_on && feature != ON_A_GPU {
            return Err(Stop::Failed(format!(
                "the tests have the feature `{feature}`, which no command of the step turns on: add it to `EVERYTHING` in xtask/src/needs.rs"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check_of(features: &[&str]) -> Result<(), Stop> {
        let features: serde_json::Map<_, _> = features.iter().map(|name| ((*name).to_owned(), json!([]))).collect();
        check_in(
            &json!({"packages": [{"name": "other", "features": {"rocm": []}}, {"name": "warpline-tests", "features": features}]}),
        )
    }

    #[test]
    fn a_test_runs_where_its_features_are_on() {
        assert!(
            check_of(&["default", "enable", "timeline", "cuda", "cupti", "hip", "tracing", "tracy", "gpu"]).is_ok()
        );
    }

    #[test]
    fn each_test_program_is_in_one_row_but_for_those_that_need_a_gpu_or_much_time() {
        let targets = json!([
            {"name": "warpline", "kind": ["lib"], "test": true},
            {"name": "api", "kind": ["test"], "test": true},
            {"name": "gpu", "kind": ["test"], "test": true, "required-features": ["gpu"]},
            {"name": "shell", "kind": ["test"], "test": true, "required-features": ["enable"]},
            {"name": LARGE, "kind": ["test"], "test": true},
            {"name": "graph", "kind": ["example"], "test": true},
            {"name": "quickstart", "kind": ["example"], "test": false},
            {"name": "speed", "kind": ["bench"], "test": false},
        ]);
        let rows = rows_of(
            &json!({"packages": [{"targets": targets}, {"targets": [{"name": "ui", "kind": ["test"], "test": true}]}]}),
        );
        assert_eq!(rows, [" --test api", "--lib --bins --example graph --test shell --test ui"]);
    }

    #[test]
    fn a_test_that_no_command_runs_is_named() {
        let stopped = check_of(&["enable", "rocm"]).err();
        assert!(matches!(stopped, Some(Stop::Failed(why)) if why.contains("the feature `rocm`")));
    }
}
