//! The step that looks for memory errors: AddressSanitizer, in the tests of what has `unsafe`. It installs nothing.

use crate::compiler;
use crate::shell::{Stop, line};

/// The tests of what has `unsafe`, alone and in whole sessions.
const TESTS: [&str; 2] = ["--lib --", "--test api -- recording:: collectives::"];

/// What they are built from, as one. The last package shares other crates with the other tests.
const PACKAGES: &str = "-p warpline -p warpline-core -p warpline-cuda -p warpline-tests -p warpline-third-party \
                        --features warpline/enable";

/// Runs the tests.
pub fn run() -> Result<u64, Stop> {
    let tests = TESTS.iter().map(|tests| {
        let line = line(&format!("cargo test {PACKAGES} {tests}"));
        // Looking for leaks needs ptrace, which containers often forbid.
        compiler::with_address_sanitizer(line.with("ASAN_OPTIONS", "detect_leaks=0")).run_tests()
    });
    tests.sum()
}
