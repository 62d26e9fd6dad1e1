//! The step that does what a new user does first: it runs the quickstart, and reads its catalog from the binary.

use crate::shell::{Stop, line, target};

/// Runs the main job, and compares the catalog that is read from its stripped binary with the one that it has as it runs.
pub fn run() -> Result<u64, Stop> {
    line("cargo run --release --example quickstart").run()?;
    let program = target().join("release/examples/quickstart");
    let stripped = target().join("quickstart.stripped");
    let (program, stripped) = (program.display(), stripped.display());
    line(&format!("strip -o {stripped} {program}")).run()?;
    let running = shown(&format!("{program} --catalog"))?;
    let read = shown(&format!("cargo run --quiet -p warpline-cli --bin warpline -- catalog {stripped} --format json"))?;
    if running != read {
        return Err(Stop::Failed(
            "the last two commands print different catalogs; `diff` them: they must be the same, byte for byte"
                .to_owned(),
        ));
    }
    Ok(0)
}

fn shown(command: &str) -> Result<String, Stop> {
    println!("$ {command}");
    line(command).output().ok_or_else(|| Stop::Failed(format!("`{command}` fails; run it to see why")))
}
