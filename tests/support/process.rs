//! Runs a test again in a process of its own: what belongs to a whole process (signal handlers, limits, the environment, libraries that
//! are looked for once) is then no other test's, and how the process ends can be seen.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::process::Command;
use std::time::Duration;
use std::{env, thread};

/// Says in a process which case of which test it is there for.
const CHILD: &str = "WARPLINE_TEST_CHILD_CASE";

/// What a process prints when its case is over.
const DONE: &str = "the child is done";

/// A call that blocks for ever ends the process after this time. No test takes as long, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(600);

/// The name of the test in whose body this stands, as the test runner knows it.
#[macro_export]
macro_rules! this_test {
    () => {{
        fn here() {}
        $crate::test_around(here)
    }};
}

/// The test around a function that stands in its body.
pub fn test_around<F>(_: F) -> &'static str {
    let path = std::any::type_name::<F>();
    let path = path.strip_suffix("::here").unwrap_or(path);
    let path = path.split_once("::").map_or(path, |(_, path)| path);
    path.split("::{{closure}}").next().unwrap_or(path)
}

/// This test again, in a process of its own, which knows by this variable what it is there for. What the program's user would
/// have set is not set.
pub fn again(test: &str, variable: &str, value: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(env::current_exe().expect("the test's own path"));
    command.args(["--exact", test, "--include-ignored", "--nocapture", "--test-threads=1"]);
    command.env(variable, value).env_remove("WARPLINE").env_remove("NVTX_INJECTION64_PATH");
    command
}

/// What a process has said.
pub struct Said {
    /// On standard output.
    pub stdout: String,
    /// On standard error.
    pub stderr: String,
}

/// Runs `body` in a process of its own with these variables: a case of the test of this name. Gives what the process said; in a
/// process that is there for a later case, nothing.
pub fn in_child(test: &str, environment: &[(&str, OsString)], body: impl FnOnce()) -> Option<Said> {
    let case = next_case(test);
    if let Ok(mine) = env::var(CHILD) {
        if mine == case {
            thread::spawn(|| {
                thread::sleep(LIMIT);
                eprintln!("the child takes longer than {LIMIT:?}");
                std::process::abort();
            });
            // The line that the test runner has begun ends.
            println!();
            body();
            println!("{DONE}");
            std::process::exit(0);
        }
        return None;
    }
    let environment = environment.iter().map(|(name, value)| (name, value));
    let output = again(test, CHILD, &case).envs(environment).output().expect("the test can run itself");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{case}: {}\n{stdout}\n{stderr}", output.status);
    // A name that is wrong runs no test, and succeeds.
    assert!(stdout.contains(DONE), "is there a test `{test}`?\n{stdout}\n{stderr}");
    Some(Said { stdout, stderr })
}

/// Whether this is a process that has been started for this test alone. Otherwise it starts one, and waits until the test has passed
/// there.
pub fn in_a_process_of_its_own(test: &str) -> bool {
    const ALONE: &str = "WARPLINE_TEST_ALONE";
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let output = again(test, ALONE, test).output().expect("the test can run itself");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    // A name that is wrong runs no test, and succeeds.
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    print!("{said}");
    false
}

/// Whether this is a process that is there for a case of a test.
pub fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Numbers the cases of a test, which is all on one thread; the thread may have had other tests.
fn next_case(test: &str) -> String {
    thread_local!(static LAST: RefCell<(String, usize)> = RefCell::default());
    LAST.with_borrow_mut(|(last, count)| {
        if last != test {
            (*last, *count) = (test.to_owned(), 0);
        }
        *count += 1;
        format!("{test} {count}")
    })
}
