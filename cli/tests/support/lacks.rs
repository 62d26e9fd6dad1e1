//! What a test needs and the machine may not have.

use std::io::Write;

/// The machine lacks something, so the test that calls this cannot run: `lack` says what, and how to have it.
///
/// Where nobody watches, in CI, that is a failure, as with the checks of `cargo xtask`. Elsewhere it is said past the
/// harness, which shows nothing of a test that passes.
pub fn skip(lack: &str) {
    let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false" && value != "0");
    assert!(!is_ci, "this cannot be tested here, and CI is set: {lack}");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "skipped `{test}`: {lack}");
}
