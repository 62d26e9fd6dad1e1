//! `warpline`: shows and checks the ranges in binaries. Everything is in the library.

fn main() -> std::process::ExitCode {
    warpline_cli::warpline()
}
