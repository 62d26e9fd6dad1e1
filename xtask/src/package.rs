//! The step that packs each published crate as it would be uploaded, unpacks the packages beside each other, and lets the compiler
//! check each one there: its files, its manifest and what it needs of the others are then complete. It uploads nothing.

use std::fs;
use std::path::Path;

use crate::markdown::pages;
use crate::shell::{Stop, line, root, target};

/// The published crates, each after those that it depends on.
pub const PUBLISHED: [&str; 11] = [
    "warpline-macros",
    "warpline-core",
    "warpline-report",
    "warpline-trace",
    "warpline-cuda",
    "warpline-hip",
    "warpline-timeline",
    "warpline",
    "warpline-annotate",
    "warpline-judge",
    "warpline-cli",
];

/// What every package must have in it.
const REQUIRED: [&str; 4] = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Packs and checks the published crates.
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
    // Together, so that each depends on the others as they are here. `--allow-dirty`: also before a commit.
    line(&format!("cargo package --no-verify --allow-dirty -p {}", PUBLISHED.join(" -p "))).run()?;
    let folder = target().join("package/unpacked");
    unpack(&folder)?;
    // One after the other: none is helped by a feature that another one turns on. Other crates are shared with the other steps.
    for name in PUBLISHED {
        let (manifest, target) = (folder.join("Cargo.toml"), target());
        line(&format!(
            "cargo check -p {name} --manifest-path {} --target-dir {}",
            manifest.display(),
            target.display()
        ))
        .run()?;
    }
    Ok(0)
}

/// Unpacks the packages into this folder, as a workspace in which each one depends on the others' packages.
fn unpack(folder: &Path) -> Result<(), Stop> {
    let failed = |error| Stop::Failed(format!("`{}`: {error}", folder.display()));
    // A file of an older package could hide that one is missing.
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::create_dir_all(folder).map_err(failed)?;
    for name in PUBLISHED {
        let package = folder.with_file_name(format!("{}.crate", unpacked(name)));
        line(&format!("tar -xzf {} -C {}", package.display(), folder.display())).run()?;
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml")).map_err(failed)?;
    fs::write(folder.join("Cargo.toml"), workspace(&manifest)).map_err(failed)?;
    // The versions that everything else is tested with.
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).map_err(failed)?;
    Ok(())
}

/// The folder in the package of a crate.
fn unpacked(name: &str) -> String {
    format!("{name}-{}", env!("CARGO_PKG_VERSION"))
}

/// The manifest of the workspace of packages, with the profiles of this one.
fn workspace(manifest: &str) -> String {
    let members = PUBLISHED.map(|name| format!("{:?}", unpacked(name))).join(", ");
    let patches = PUBLISHED.map(|name| format!("{name} = {{ path = {:?} }}\n", unpacked(name))).concat();
    let profiles = manifest.find("[profile.").map_or("", |at| &manifest[at..]);
    format!("[workspace]\nresolver = \"3\"\nmembers = [{members}]\n\n[patch.crates-io]\n{patches}\n{profiles}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_depend_on_packages_and_have_the_same_profiles() {
        let manifest = workspace("[workspace]\nmembers = [\"a\"]\n\n[profile.dev]\ndebug = 1\n");
        let core = unpacked("warpline-core");
        assert!(manifest.contains(&format!("warpline-core = {{ path = \"{core}\" }}\n")), "{manifest}");
        assert!(manifest.contains(&format!(", \"{core}\", ")), "{manifest}");
        assert!(manifest.ends_with("[profile.dev]\ndebug = 1\n") && !manifest.contains("\"a\""), "{manifest}");
    }
}
