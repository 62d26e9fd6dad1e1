//! The command `warpline-ranks`. It parses, calls the library and prints; the library judges.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    warpline_ranks::command::main()
}
