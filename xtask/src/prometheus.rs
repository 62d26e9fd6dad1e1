//! The step that asks Prometheus itself: it scrapes a running session, answers the dashboard's queries, and `promtool` checks the names.
//!
//! Debian's package is unpacked into `target/`, not installed: its service would start.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::needs;
use crate::shell::{Stop, target};

/// The tests that need it are the ignored ones among these.
const TESTS: &str = "metrics_prometheus::";

/// Gets Prometheus if it is not there, and runs the tests.
pub fn run() -> Result<u64, Stop> {
    let test = needs::everything("test", &format!("--test api -- --ignored {TESTS}"));
    let test = match programs()? {
        Some(folder) => test.with("WARPLINE_TEST_PROMETHEUS", folder.display().to_string()),
        None => test,
    };
    test.run_tests()
}

/// Returns the folder of `prometheus` and `promtool`; none if the shell finds them.
fn programs() -> Result<Option<PathBuf>, Stop> {
    let are_there = |at: &Path| ["prometheus", "promtool"].iter().all(|name| runs(&at.join(name)));
    if are_there(Path::new("")) {
        return Ok(None);
    }
    let folder = target().join("prometheus");
    let programs = folder.join("usr/bin");
    if !are_there(&programs) {
        let failed = |error| Stop::Failed(format!("cannot make the folder `{}`: {error}", folder.display()));
        fs::create_dir_all(&folder).map_err(failed)?;
        let download = || succeeds(&folder, "apt-get", &["-q", "download", "prometheus"]);
        // The lists of packages may be missing or old.
        let _ = download() || succeeds(&folder, "apt-get", &["-q", "update"]) && download();
        for package in fs::read_dir(&folder).map_err(failed)?.filter_map(|entry| Some(entry.ok()?.path())) {
            if package.extension().is_some_and(|extension| extension == "deb") {
                succeeds(&folder, "dpkg-deb", &["--extract", &package.display().to_string(), "."]);
            }
        }
    }
    if are_there(&programs) {
        return Ok(Some(programs));
    }
    Err(Stop::Lacks(
        "`prometheus` and `promtool` of Prometheus 2.42 or newer: `apt-get install prometheus`, or put those of \
         https://prometheus.io/download on the PATH"
            .to_owned(),
    ))
}

fn runs(program: &Path) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn succeeds(folder: &Path, program: &str, arguments: &[&str]) -> bool {
    println!("$ {program} {}", arguments.join(" "));
    Command::new(program).args(arguments).current_dir(folder).status().is_ok_and(|status| status.success())
}
