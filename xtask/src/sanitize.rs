//! The step that looks for memory errors: with AddressSanitizer where a nightly toolchain is installed, with valgrind
//! elsewhere. It installs valgrind itself where it may; it never installs a toolchain.

use crate::shell::{Line, Stop, line};

/// The tests of what has `unsafe`, alone and in whole sessions.
const TESTS: [&str; 2] = ["--lib --", "--test api -- recording:: collectives::"];

/// What they are built from, as one.
const PACKAGES: &str =
    "-p warpline -p warpline-core -p warpline-trace -p warpline-cuda -p warpline-tests --features warpline/enable";

/// Runs the tests of what has `unsafe` under a tool that sees memory errors.
pub fn run() -> Result<u64, Stop> {
    let host = host().ok_or_else(|| Stop::Failed("`rustc -vV` names no host; repair the Rust toolchain".to_owned()))?;
    if has_nightly() && host.contains("linux") { address_sanitizer(&host) } else { valgrind(&host) }
}

fn address_sanitizer(host: &str) -> Result<u64, Stop> {
    // With `--target`, build scripts and macros stay as they are; with a folder of its own, so do the other builds.
    let build = format!("rustup run nightly cargo test {PACKAGES} --target {host} --target-dir target/sanitize");
    run_each(|tests| {
        line(&format!("{build} {tests}"))
            .with("RUSTFLAGS", "-Zsanitizer=address")
            // Looking for leaks needs ptrace, which containers often forbid.
            .with("ASAN_OPTIONS", "detect_leaks=0")
    })
}

fn valgrind(host: &str) -> Result<u64, Stop> {
    if !has("valgrind") {
        install_valgrind()?;
    }
    let runner = format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace(['-', '.'], "_"));
    run_each(|tests| {
        line(&format!("cargo test {PACKAGES} {tests} --skip ten_million"))
            .with(runner.as_str(), "valgrind --quiet --error-exitcode=1 --leak-check=no")
            // It runs everything about thirty times slower: fewer cases say as much about memory.
            .with("PROPTEST_CASES", "16")
    })
}

fn run_each(command: impl Fn(&str) -> Line) -> Result<u64, Stop> {
    TESTS.iter().map(|tests| command(tests).run_tests()).sum()
}

fn install_valgrind() -> Result<(), Stop> {
    let is_root = line("id -u").output().is_some_and(|id| id.trim() == "0");
    if !(is_root && has("apt-get")) {
        let remedy = "`rustup toolchain install nightly`, or valgrind (Debian: `apt-get install valgrind`)";
        return Err(Stop::Lacks(format!("neither a nightly toolchain nor valgrind is here; install {remedy}")));
    }
    let install = || apt("apt-get install --yes --no-install-recommends valgrind").run();
    // A new machine's lists of packages may be missing or old.
    install().or_else(|_| apt("apt-get update").run().and_then(|()| install()))
}

fn apt(words: &str) -> Line {
    line(words).with("DEBIAN_FRONTEND", "noninteractive")
}

fn has(program: &str) -> bool {
    line(&format!("{program} --version")).output().is_some()
}

fn has_nightly() -> bool {
    let toolchains = line("rustup toolchain list").output();
    toolchains.is_some_and(|list| list.lines().any(|toolchain| toolchain.starts_with("nightly-")))
}

fn host() -> Option<String> {
    let version = line("rustc -vV").output()?;
    version.lines().find_map(|text| text.strip_prefix("host: ")).map(str::to_owned)
}
