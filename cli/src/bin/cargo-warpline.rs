//! `cargo warpline`: builds, then does what `warpline` does. Everything is in the library.

fn main() -> std::process::ExitCode {
    warpline_cli::cargo_warpline()
}
