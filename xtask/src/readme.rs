//! The step that starts as the README says: its first program, with the dependency that stands beside it, in a package of its own.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::markdown::blocks_of;
use crate::shell::{LITTLE_OPTIMIZED, Stop, build_settings, root, target};

/// Where the README says that the checkout is.
const CHECKOUT: &str = "../warpline/";

/// The zone of the program, and what its length can be, in µs: the README says that it takes about a millisecond.
const ZONE: &str = "demo.sum";
const LENGTH_US: std::ops::Range<f64> = 100.0..1_000_000.0;

/// Builds the program as it stands, runs it with its own settings and with a trace that can be read here, and looks at the
/// length of its zone.
pub fn run() -> Result<u64, Stop> {
    let folder = target().join("readme");
    make_package(&folder)?;
    let program = target().join("release/readme");
    println!("$ cargo build --release   (in {}, the first program of README.md)", folder.display());
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--quiet", "--target-dir"]).arg(target()).current_dir(&folder);
    // The program is optimised as a user's is. What it depends on is shared with the other steps, which optimise it little.
    build.args(["--config", "profile.release.package.readme.opt-level=3"]);
    build.envs(build_settings()).envs(LITTLE_OPTIMIZED);
    succeed(&mut build)?;

    println!("$ {}", program.display());
    let (trace, json) = (folder.join("trace.pftrace"), folder.join("trace.json"));
    let _ = std::fs::remove_file(&trace);
    succeed(Command::new(&program).current_dir(&folder).env_remove("WARPLINE"))?;
    if std::fs::metadata(&trace).map_or(0, |file| file.len()) == 0 {
        return Err(Stop::Failed("README.md's first program writes no `trace.pftrace`".to_owned()));
    }

    let settings = format!("chrome={}", json.display());
    println!("$ WARPLINE='{settings}' {}", program.display());
    succeed(Command::new(&program).current_dir(&folder).env("WARPLINE", settings))?;
    let wrong = |why: String| Stop::Failed(format!("{}: {why}", json.display()));
    let text = std::fs::read(&json).map_err(|error| wrong(error.to_string()))?;
    let document: Value = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    let lengths = lengths_us(&document);
    let [length] = lengths[..] else {
        return Err(wrong(format!("there must be one zone `{ZONE}` on a stream, and there are {}", lengths.len())));
    };
    println!("`{ZONE}` took {length} us");
    if !LENGTH_US.contains(&length) {
        return Err(Stop::Failed(format!(
            "the zone `{ZONE}` of README.md's first program takes {length} us, and {LENGTH_US:?} are plausible; does the compiler \
             fold its work?"
        )));
    }
    Ok(0)
}

/// The lengths of the zones on streams: the launches beside them have another category.
fn lengths_us(document: &Value) -> Vec<f64> {
    let events = document["traceEvents"].as_array().into_iter().flatten();
    let zones = events.filter(|event| event["name"] == ZONE && event["cat"] == "gpu_user_annotation");
    zones.filter_map(|event| event["dur"].as_f64()).collect()
}

/// A package of the first program and the first dependencies in the README.
fn make_package(folder: &Path) -> Result<(), Stop> {
    let blocks = blocks_of("README.md")?;
    let first = |language: &str| {
        let found = blocks.iter().find(|block| block.language() == language);
        found
            .map(|block| block.code.as_str())
            .ok_or_else(|| Stop::Failed(format!("README.md has no block of {language}")))
    };
    let (program, dependencies) = (first("rust")?, first("toml")?);
    if !dependencies.contains(CHECKOUT) {
        return Err(Stop::Failed(format!(
            "the first dependency in README.md must be a path in `{CHECKOUT}`, a checkout"
        )));
    }
    let dependencies = dependencies.replace(CHECKOUT, &format!("{}/", root().display()));
    // It is no member of the workspace that it lies in.
    let manifest = format!(
        "[package]\nname = \"readme\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n[workspace]\n\n{dependencies}"
    );
    let write = |path: &str, text: &str| {
        let path = folder.join(path);
        std::fs::write(&path, text).map_err(|error| Stop::Failed(format!("`{}`: {error}", path.display())))
    };
    let failed = |error| Stop::Failed(format!("`{}`: {error}", folder.display()));
    std::fs::create_dir_all(folder.join("src")).map_err(failed)?;
    // The versions that everything else is tested with.
    std::fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).map_err(failed)?;
    write("Cargo.toml", &manifest)?;
    write("src/main.rs", program)
}

fn succeed(command: &mut Command) -> Result<(), Stop> {
    let status = command.stdin(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Stop::Failed(format!("{command:?} ended with {status}"))),
        Err(error) => Err(Stop::Failed(format!("{command:?} did not start: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zones_on_streams_have_the_length_of_the_work() {
        let document = serde_json::json!({"traceEvents": [
            {"name": ZONE, "cat": "user_annotation", "dur": 3.5},
            {"name": ZONE, "cat": "gpu_user_annotation", "dur": 1_234.5},
            {"name": "other", "cat": "gpu_user_annotation", "dur": 7.0},
        ]});
        assert_eq!(lengths_us(&document), [1_234.5]);
    }
}
