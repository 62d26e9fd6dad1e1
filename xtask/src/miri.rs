//! The step that looks for undefined behaviour: Miri interprets the tests of what has `unsafe` or is shared by threads, where a nightly
//! toolchain with Miri is installed. It installs nothing.

use crate::shell::{Stop, line};

/// What is run: some hundred times slower than on the machine, so not what makes zones by the thousand or compares times.
const TESTS: [&str; 2] = [
    // The slots of zones, their notes and their cuts; not what makes thousands of streams to see that they are forgotten.
    "-p warpline-core --features enable --lib -- stream:: zone:: fields:: --skip collector:: --skip waker:: --skip are_forgotten",
    // Semaphores and queues on in-process streams; not what has many threads wait, which takes minutes.
    "-p warpline-tests --no-default-features --features timeline --test api -- Test:: --skip SemaphoreThreadTest::Simultaneous --skip SemaphoreThreadTest::Wait",
];

/// Runs them.
pub fn run() -> Result<u64, Stop> {
    if line("rustup run nightly cargo miri --version").output().is_none() {
        return Err(Stop::Skipped(
            "nothing was run: no nightly toolchain with Miri is installed; `rustup toolchain install nightly --component miri,rust-src`"
                .to_owned(),
        ));
    }
    let mut passed = 0;
    for tests in TESTS {
        passed += line(&format!("rustup run nightly cargo miri test --target-dir target/miri {tests}"))
            // Clocks and files are the machine's.
            .with("MIRIFLAGS", "-Zmiri-disable-isolation")
            .run_tests()?;
    }
    Ok(passed)
}
