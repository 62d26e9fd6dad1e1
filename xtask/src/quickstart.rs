//! The step that does what a new user does first: it runs the quickstart, also with `| head`, and reads its catalog from the
//! binary.

use std::process::Command;

use crate::needs;
use crate::shell::{Stop, line, target};

/// Runs the main job, and compares the catalog that is read from its stripped binary with the one that it has as it runs.
pub fn run() -> Result<u64, Stop> {
    line("cargo run --release --example quickstart").little_optimized().run()?;
    let program = target().join("release/examples/quickstart");
    let stripped = target().join("quickstart.stripped");
    let (program, stripped) = (program.display(), stripped.display());
    line(&format!("strip -o {stripped} {program}")).run()?;
    let running = shown(&format!("{program} --catalog"))?;
    let read = shown(&format!("{} catalog {stripped} --format json", needs::command()?.display()))?;
    if running != read {
        return Err(Stop::Failed(
            "the last two commands print different catalogs; `diff` them: they must be the same, byte for byte"
                .to_owned(),
        ));
    }
    println!("$ {program} --host --steps 1 | head -n 0");
    if !ends_well_unread(&program.to_string()) {
        return Err(Stop::Failed(
            "the last command fails where nobody reads what it says; run it to see how".to_owned(),
        ));
    }
    Ok(0)
}

/// Whether the program ends as always where the reader of its output has gone away.
fn ends_well_unread(program: &str) -> bool {
    let Ok((reader, writer)) = std::io::pipe() else { return false };
    drop(reader);
    // What it writes into its folder is the trace that the first run has left.
    let status = Command::new(program).args(["--host", "--steps", "1"]).stdout(writer).status();
    status.is_ok_and(|status| status.success())
}

fn shown(command: &str) -> Result<String, Stop> {
    println!("$ {command}");
    line(command).output().ok_or_else(|| Stop::Failed(format!("`{command}` fails; run it to see why")))
}
