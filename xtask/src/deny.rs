//! The step that checks what others wrote and we depend on: licenses, sources, duplicates and, where a database of advisories
//! can be had, known faults. It installs the tool that does so, once, into the target folder.

use std::path::PathBuf;
use std::time::Duration;

use crate::shell::{Stop, line, root, target};

/// `deny.toml` is written for this version.
const VERSION: &str = "0.20.2";

/// The two graphs of dependencies.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "fuzz/Cargo.toml"];

/// A network that lets nothing through may take for ever to say so.
const FETCH_WITHIN: Duration = Duration::from_secs(60);

/// Checks both graphs.
pub fn run() -> Result<u64, Stop> {
    let tool = install()?.display().to_string();
    check(&tool, "", "bans licenses sources")?;
    let is_fetched = line(&format!("{tool} --config deny.toml fetch db")).succeeds_within(FETCH_WITHIN);
    match (is_fetched, databases()) {
        (true, _) => check(&tool, "", "advisories")?,
        (false, Some(folder)) => {
            println!("the database of advisories in `{}` cannot be renewed; it is used as it is", folder.display());
            check(&tool, "--offline", "advisories")?;
        }
        (false, None) => {
            return Err(Stop::Skipped(
                "advisories were not checked: no database is on this machine, and none can be fetched from github.com"
                    .to_owned(),
            ));
        }
    }
    Ok(0)
}

fn check(tool: &str, options: &str, what: &str) -> Result<(), Stop> {
    let config = root().join("deny.toml");
    MANIFESTS.iter().try_for_each(|manifest| {
        let config = config.display();
        line(&format!(
            "{tool} {options} --manifest-path {manifest} --config {config} check --hide-inclusion-graph {what}"
        ))
        .run()
    })
}

/// Where the tool is, which is built if it is not there yet: a minute on two cores, without optimisation.
fn install() -> Result<PathBuf, Stop> {
    let folder = target().join("tools");
    let tool = folder.join("bin/cargo-deny");
    let version = line(&format!("{} --version", tool.display())).output();
    if version.is_none_or(|version| version.trim() != format!("cargo-deny {VERSION}")) {
        line(&format!(
            "cargo install cargo-deny --version {VERSION} --locked --debug --force --root {}",
            folder.display()
        ))
        .run()?;
    }
    Ok(tool)
}

/// The folder of databases that were fetched earlier, if there is one.
fn databases() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")))?;
    let folder = home.join("advisory-dbs");
    // A clone that failed leaves the folder, and in it one without a commit.
    let mut entries = std::fs::read_dir(&folder).ok()?.flatten();
    entries.any(|entry| entry.path().join("crates").is_dir()).then_some(folder)
}
