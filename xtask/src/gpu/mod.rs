//! `cargo xtask gpu`: one folder for a host with an NVIDIA driver and no Rust: the GPU tests, the GPU benches, the examples,
//! the commands `warpline` and `warpline-ranks`, the job into which faults are injected, and `run.sh`, which runs them there. Nothing of it runs
//! here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::shell::{Stop, line, root, target};

/// Where the bundle goes if no folder is given; git ignores it.
const FOLDER: &str = ".gpu-bundle";

/// What the bundle may weigh: so much travels to a lent GPU host in one go.
const MOST_BYTES: u64 = 64 << 20;

const RUN: &str = include_str!("run.sh");

/// A bundle is complete with these, by their names in it.
const TESTS: &str = "gpu-tests";
const BENCH: &str = "warpline-gpu-bench";
const EXAMPLES: [&str; 4] = ["quickstart", "cuda_streams", "cuda_graph", "nccl_all_reduce"];
const COMMAND: &str = "warpline";
const FAULTS: &str = "faults";
const RANKS: &str = "warpline-ranks";

/// Where the small build of `warpline-ranks` is kept: DataFusion takes minutes, and another optimization shares nothing with other builds.
const RANKS_TARGET: &str = "ranks-small";

/// Runs `cargo xtask gpu` with these options.
///
/// # Errors
/// Options that it does not have.
pub fn run(options: &[&str]) -> Result<ExitCode, String> {
    let folder = match options {
        [] => root().join(FOLDER),
        [folder] if !folder.starts_with('-') => {
            std::path::absolute(folder).map_err(|error| format!("`{folder}`: {error}"))?
        }
        _ => return Err(format!("`gpu` does not know `{}`", options.join(" "))),
    };
    match bundle(&folder) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Stop::Failed(why) | Stop::Lacks(why) | Stop::Skipped(why)) => {
            eprintln!("error: {why}");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn bundle(folder: &Path) -> Result<(), Stop> {
    let tests = build_tests()?;
    // Each package alone: Cargo gives all that it builds together the same features.
    line("cargo build --release -p warpline-gpu-bench --bin warpline-gpu-bench").run()?;
    let examples: Vec<String> = EXAMPLES.iter().map(|name| format!("--example {name}")).collect();
    line(&format!("cargo build --release -p warpline-examples --features cupti {}", examples.join(" "))).run()?;
    line("cargo build --release -p warpline-cli --bin warpline").run()?;
    line("cargo build --release -p warpline-faults --bin faults").run()?;
    let ranks = target().join(RANKS_TARGET);
    // Optimized for size: it reads tables of some MiB there, and the bundle has a limit.
    line(&format!("cargo build --release --locked --manifest-path ranks/Cargo.toml --target-dir {}", ranks.display()))
        .with("CARGO_PROFILE_RELEASE_OPT_LEVEL", "s")
        .with("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .run()?;
    make_empty(folder)?;
    let release = target().join("release");
    strip(&tests, &folder.join(TESTS))?;
    strip(&release.join(BENCH), &folder.join(BENCH))?;
    strip(&release.join(COMMAND), &folder.join(COMMAND))?;
    strip(&release.join(FAULTS), &folder.join(FAULTS))?;
    strip(&ranks.join("release").join(RANKS), &folder.join(RANKS))?;
    // DataFusion is large; `run.sh` unpacks it.
    line(&format!("gzip -9 -n {}", folder.join(RANKS).display())).run()?;
    for name in EXAMPLES {
        strip(&release.join("examples").join(name), &folder.join(name))?;
    }
    // For Nsight Compute there: `ncu @quickstart.ncu ./quickstart --steps 1`.
    let (example, filters) = (folder.join("quickstart"), folder.join("quickstart.ncu"));
    let (example, filters) = (example.display(), filters.display());
    let command = folder.join(COMMAND);
    line(&format!("{} catalog {example} --format ncu --output {filters}", command.display())).run()?;
    write(&folder.join("run.sh"), RUN)?;
    fs::set_permissions(folder.join("run.sh"), fs::Permissions::from_mode(0o755))
        .map_err(|error| Stop::Failed(format!("run.sh cannot be made executable: {error}")))?;
    write(&folder.join("commit"), &commit())?;
    let bytes = size(folder)?;
    let mib = bytes as f64 / f64::from(1 << 20);
    println!("\n{}: {mib:.1} MiB; on the GPU host: bash {}/run.sh", folder.display(), folder.display());
    if bytes > MOST_BYTES {
        return Err(Stop::Failed(format!("the bundle is over {} MiB; leave something out", MOST_BYTES >> 20)));
    }
    Ok(())
}

/// Builds the GPU tests, and returns where Cargo put them: their file has a hash in its name.
fn build_tests() -> Result<PathBuf, Stop> {
    let command = "cargo test --release -p warpline-tests --features gpu --test gpu --no-run";
    line(command).run()?;
    let json = line(&format!("{command} --message-format=json")).output().unwrap_or_default();
    let messages = json.lines().filter_map(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    let executables = messages.filter(|message| message["target"]["name"] == "gpu");
    let path = executables.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    path.ok_or_else(|| Stop::Failed(format!("`{command}` names no executable; run it to see what it builds")))
}

/// A bundle holds nothing of an earlier one. What is no bundle is not emptied.
fn make_empty(folder: &Path) -> Result<(), Stop> {
    let failed = |error: std::io::Error| Stop::Failed(format!("the folder `{}`: {error}", folder.display()));
    if folder.is_dir() && fs::read_dir(folder).map_err(failed)?.next().is_some() {
        if !folder.join("run.sh").is_file() {
            let name = folder.display();
            return Err(Stop::Failed(format!(
                "`{name}` has files and is no bundle; name an empty folder or a new one"
            )));
        }
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::create_dir_all(folder).map_err(failed)
}

fn strip(from: &Path, to: &Path) -> Result<(), Stop> {
    line(&format!("strip -o {} {}", to.display(), from.display())).run()
}

fn write(path: &Path, text: &str) -> Result<(), Stop> {
    fs::write(path, text).map_err(|error| Stop::Failed(format!("`{}`: {error}", path.display())))
}

/// What was built: the commit, and whether files differed from it.
fn commit() -> String {
    let described = line("git describe --always --dirty --abbrev=12").output();
    described.unwrap_or_else(|| "unknown\n".to_owned())
}

fn size(folder: &Path) -> Result<u64, Stop> {
    let failed = |error: std::io::Error| Stop::Failed(format!("the folder `{}`: {error}", folder.display()));
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(failed)? {
        bytes += entry.and_then(|entry| entry.metadata()).map_err(failed)?.len();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_runs_what_the_bundle_has() {
        for name in [TESTS, BENCH, COMMAND, FAULTS, RANKS].iter().chain(&EXAMPLES) {
            assert!(RUN.contains(name), "run.sh does not run {name}");
        }
    }

    #[test]
    fn the_script_knows_every_bench() {
        let main = include_str!("../../../benches/gpu/src/main.rs");
        let names = main.split("const BENCHES").nth(1).into_iter().flat_map(|list| list.split("(\"").skip(1));
        let names: Vec<&str> = names.filter_map(|rest| rest.split_once("\", ").map(|(name, _)| name)).collect();
        assert!(names.len() > 5 && RUN.contains(&format!("every=({})", names.join(" "))), "{names:?}");
    }

    #[test]
    fn a_folder_that_is_no_bundle_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("warpline-xtask-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("letter.txt"), "dear reader").expect("a file");
        assert!(matches!(make_empty(&folder), Err(Stop::Failed(why)) if why.contains("is no bundle")));
        assert!(folder.join("letter.txt").is_file());
        fs::write(folder.join("run.sh"), RUN).expect("a file");
        assert!(make_empty(&folder).is_ok());
        assert!(!folder.join("letter.txt").exists());
        fs::remove_dir_all(&folder).expect("removed");
    }
}
