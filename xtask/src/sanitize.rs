//! The step that looks for memory errors and leaks: AddressSanitizer with LeakSanitizer, in the tests of what has `unsafe`. It installs nothing.

use crate::compiler;
use crate::shell::{Stop, line};

/// The tests of what has `unsafe`, alone and in whole sessions. The one of how fast zones come is left out: code for the sanitizer is many times
/// slower.
const TESTS: [&str; 2] =
    ["--lib", "--test api -- recording:: collectives:: --skip a_budget_pays_for_a_sample_of_what_is_frequent"];

/// What they are built from, as one. The last package shares other crates with the other tests.
const PACKAGES: &str = "-p warpline -p warpline-core -p warpline-cuda -p warpline-tests -p warpline-third-party \
                        --features warpline/enable";

/// Runs the tests.
pub fn run() -> Result<u64, Stop> {
    let tests = TESTS
        .iter()
        .map(|tests| compiler::with_address_sanitizer(line(&format!("cargo test {PACKAGES} {tests}"))).run_tests());
    tests.sum()
}
