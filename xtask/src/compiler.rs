//! Stands between Cargo and the compiler, where a setting must reach the crates of this workspace and no other. Cargo rebuilds everything
//! for another `RUSTFLAGS` or `RUSTC_BOOTSTRAP`; with this, the steps share what they have built of other crates. Cargo starts it, as
//! the command lines of the steps say.

use std::process::{Command, ExitCode};

use crate::shell::Line;

/// What Cargo starts this program as.
const ROLE: &str = "WARPLINE_XTASK_AS";

const RUSTDOC: &str = "rustdoc";
const SANITIZER: &str = "sanitizer";

/// Lets rustdoc take unstable flags, as it does on docs.rs.
pub fn with_unstable_rustdoc(line: Line) -> Line {
    line.with(ROLE, RUSTDOC).with("RUSTDOC", this_program())
}

/// Compiles the crates of this workspace for AddressSanitizer. The stable toolchain contains the library that this needs.
pub fn with_address_sanitizer(line: Line) -> Line {
    line.with(ROLE, SANITIZER).with("RUSTC_WORKSPACE_WRAPPER", this_program())
}

fn this_program() -> String {
    std::env::current_exe().map_or_else(|_| "xtask".to_owned(), |path| path.display().to_string())
}

/// Runs the compiler, if Cargo started this program in its place.
pub fn run() -> Option<ExitCode> {
    let role = std::env::var(ROLE).ok()?;
    let mut arguments = std::env::args_os().skip(1);
    let mut command = match role.as_str() {
        RUSTDOC => Command::new(RUSTDOC),
        SANITIZER => Command::new(arguments.next()?),
        _ => return None,
    };
    let arguments: Vec<_> = arguments.collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    // The compiler loads macros and Cargo runs build scripts; neither is tested here.
    if role == SANITIZER && has("--crate-name") && !has("proc-macro") && !has("build_script_build") {
        command.arg("-Zsanitizer=address");
    }
    let status = command.args(arguments).env("RUSTC_BOOTSTRAP", "1").status();
    let code = status.ok().and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
    Some(ExitCode::from(code.unwrap_or(1)))
}
