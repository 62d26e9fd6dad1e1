//! The step that packs each published crate as it would be uploaded, and builds it from there. It uploads nothing.

use std::env;
use std::fs;
use std::path::PathBuf;

use crate::markdown::pages;
use crate::shell::{Stop, line};

/// The published crates, each after those that it depends on.
const PUBLISHED: [&str; 8] = [
    "warpline-macros",
    "warpline-core",
    "warpline-trace",
    "warpline-cuda",
    "warpline-timeline",
    "warpline",
    "warpline-annotate",
    "warpline-cli",
];

/// What every package must have in it.
const REQUIRED: [&str; 4] = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Packs and builds the published crates.
pub fn run() -> Result<u64, Stop> {
    for name in PUBLISHED {
        let command = format!("cargo package -p {name} --allow-dirty --list");
        let files =
            line(&command).output().ok_or_else(|| Stop::Failed(format!("`{command}` fails; run it to see why")))?;
        // The guide is made of the pages.
        let pages = if name == "warpline" { pages()? } else { Vec::new() };
        for file in REQUIRED.into_iter().chain(pages.iter().map(String::as_str)) {
            if !files.lines().any(|packed| packed == file) {
                return Err(Stop::Failed(format!(
                    "the package of {name} has no {file}; link it into the crate's folder"
                )));
            }
        }
    }
    forget_unpacked();
    // Together, so that each is built against the others as they are here. `--allow-dirty`: also before a commit.
    line(&format!("cargo package --allow-dirty -p {}", PUBLISHED.join(" -p "))).run()?;
    Ok(0)
}

/// Cargo unpacks the packages to build one against the other, and takes what it unpacked from an earlier package of the same
/// version and folder for it. Such caches of packages without a registry have no host in their names.
fn forget_unpacked() {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let Some(home) = home.or_else(|| Some(env::home_dir()?.join(".cargo"))) else { return };
    let Ok(caches) = fs::read_dir(home.join("registry/src")) else { return };
    for cache in caches.flatten().filter(|cache| cache.file_name().to_string_lossy().starts_with('-')) {
        for name in PUBLISHED {
            // What is not there is forgotten.
            let _ = fs::remove_dir_all(cache.path().join(format!("{name}-{}", env!("CARGO_PKG_VERSION"))));
        }
    }
}
