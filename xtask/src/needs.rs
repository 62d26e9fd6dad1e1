//! Which tests need which feature, as `tests/Cargo.toml` has it. The step of the tests asks, so that a test that is added there
//! is also run, or the step says why not.

use serde_json::Value;

use crate::shell::{Stop, line};

/// What the tests of a whole workspace have anyway.
const ALWAYS: [&str; 2] = ["enable", "timeline"];

/// Where a test runs, by the feature that it needs above all others.
const RUNS: [(&str, Run); 5] = [
    ("gpu", Run::OnAGpu),
    ("tracing", Run::Guests),
    ("tracy", Run::Guests),
    ("cupti", Run::Cupti),
    ("cuda", Run::Cuda),
];

/// One command of the step, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// With feature `cuda`, on the stub driver.
    Cuda,
    /// With feature `cupti`, on the stub CUPTI.
    Cupti,
    /// With features `tracing` and `tracy`.
    Guests,
    /// On another machine: `cargo xtask gpu`.
    OnAGpu,
}

/// The tests that a run of the whole workspace leaves out for want of a feature, and where they run instead.
pub struct Needy(Vec<(String, Run)>);

impl Needy {
    /// Reads the manifests.
    ///
    /// # Errors
    /// A test needs a feature that no command turns on.
    pub fn read() -> Result<Needy, Stop> {
        let command = "cargo metadata --no-deps --format-version 1";
        let told = line(command).output().and_then(|text| serde_json::from_str(&text).ok());
        Needy::of(&told.ok_or_else(|| Stop::Failed(format!("`{command}` fails; run it to see why")))?)
    }

    fn of(metadata: &Value) -> Result<Needy, Stop> {
        let packages = list(&metadata["packages"]).filter(|package| package["name"] == "warpline-tests");
        let targets = packages.flat_map(|package| list(&package["targets"]));
        let tests = targets.filter(|target| list(&target["kind"]).any(|kind| kind == "test"));
        let mut found = Vec::new();
        for test in tests {
            let name = test["name"].as_str().unwrap_or_default();
            let needs: Vec<_> = list(&test["required-features"]).filter_map(Value::as_str).collect();
            let needs: Vec<_> = needs.into_iter().filter(|feature| !ALWAYS.contains(feature)).collect();
            if let Some(unknown) = needs.iter().find(|feature| RUNS.iter().all(|(known, _)| known != *feature)) {
                return Err(Stop::Failed(format!(
                    "the test `{name}` needs the feature `{unknown}`, which no command of the step turns on: add it to `RUNS` in \
                     xtask/src/needs.rs"
                )));
            }
            let run = RUNS.iter().find(|(feature, _)| needs.contains(feature));
            found.extend(run.map(|(_, run)| (name.to_owned(), *run)));
        }
        Ok(Needy(found))
    }

    /// The tests of one command, as Cargo's options.
    pub fn of_run(&self, run: Run) -> String {
        let names = self.0.iter().filter(|(_, of)| *of == run);
        names.map(|(name, _)| format!("--test {name}")).collect::<Vec<_>>().join(" ")
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(features: &[&str]) -> Result<Needy, Stop> {
        let target = json!({"name": "some", "kind": ["test"], "required-features": features});
        let lib = json!({"name": "lib", "kind": ["lib"]});
        Needy::of(&json!({"packages": [{"name": "warpline-tests", "targets": [lib, target]}]}))
    }

    #[test]
    fn a_test_runs_where_its_features_are_on() -> Result<(), String> {
        let read = |features: &[&str]| read(features).map_err(|_| format!("{features:?}"));
        for run in [Run::Cuda, Run::Cupti, Run::Guests, Run::OnAGpu] {
            assert_eq!(read(&["enable", "timeline"])?.of_run(run), "");
        }
        assert_eq!(read(&["enable", "cuda"])?.of_run(Run::Cuda), "--test some");
        assert_eq!(read(&["cuda", "cupti"])?.of_run(Run::Cupti), "--test some");
        assert_eq!(read(&["cuda", "cupti"])?.of_run(Run::Cuda), "");
        assert_eq!(read(&["tracing"])?.of_run(Run::Guests), "--test some");
        assert_eq!(read(&["gpu"])?.of_run(Run::OnAGpu), "--test some");
        Ok(())
    }

    #[test]
    fn a_test_that_no_command_runs_is_named() {
        let stopped = read(&["enable", "rocm"]).err();
        assert!(matches!(stopped, Some(Stop::Failed(why)) if why.contains("`some` needs the feature `rocm`")));
    }
}
