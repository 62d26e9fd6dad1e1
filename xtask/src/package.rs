//! The step that packs each published crate as it would be uploaded, and builds it from there. It uploads nothing.

use crate::shell::{Stop, line};

/// The published crates, each after those that it depends on.
const PUBLISHED: [&str; 3] = ["warpline-macros", "warpline", "warpline-cli"];

/// What every package must have in it.
const REQUIRED: [&str; 4] = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Packs and builds the published crates.
pub fn run() -> Result<u64, Stop> {
    for name in PUBLISHED {
        let command = format!("cargo package -p {name} --allow-dirty --list");
        let files =
            line(&command).output().ok_or_else(|| Stop::Failed(format!("`{command}` fails; run it to see why")))?;
        for file in REQUIRED {
            if !files.lines().any(|packed| packed == file) {
                return Err(Stop::Failed(format!(
                    "the package of {name} has no {file}; link it into the crate's folder"
                )));
            }
        }
    }
    // Together, so that each is built against the others as they are here. `--allow-dirty`: also before a commit.
    line(&format!("cargo package --allow-dirty -p {}", PUBLISHED.join(" -p "))).run()?;
    Ok(0)
}
