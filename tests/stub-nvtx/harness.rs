//! Runs a test again in a child process whose NVTX tool is the stub, and gives the child what the stub wrote down.
//!
//! A process looks for a tool once, so each case has a process of its own.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

use libloading::Library;
use warpline_tests::{build_stub, stub_library};

/// The stub's package.
const PACKAGE: &str = "warpline-stub-nvtx";

/// The variable that names a tool.
pub const PATH: &str = "NVTX_INJECTION64_PATH";

/// Says in a child which test it is there for, and which case of it.
const CHILD: &str = "WARPLINE_NVTX_CHILD";

thread_local! {
    /// How many cases this thread's test has had.
    static CASES: Cell<usize> = const { Cell::new(0) };
}

/// What a child prints when its test is over.
const DONE: &str = "the child is done";

/// What a child has said.
pub struct Output {
    pub stdout: String,
    pub stderr: String,
}

/// One call of the tool.
#[derive(Debug)]
pub struct Line {
    pub thread: i32,
    pub call: String,
    pub arguments: Vec<String>,
}

/// Runs `body` in a process with these variables: a case of the calling test, whose name is `test`. Gives what the process
/// said; in a child that is there for a later case, nothing.
pub fn in_child(test: &str, environment: &[(&str, OsString)], body: impl FnOnce()) -> Option<Output> {
    let case = format!("{test} {}", CASES.replace(CASES.get() + 1));
    if let Ok(mine) = env::var(CHILD) {
        if mine == case {
            // The line that the test runner has begun ends.
            println!();
            body();
            println!("{DONE}");
            std::process::exit(0);
        }
        return None;
    }
    let output = Command::new("timeout")
        .args(["100", env::current_exe().unwrap().to_str().unwrap()])
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, &case)
        .env_remove("WARPLINE")
        .env_remove(PATH)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{environment:?}: {}\n{stdout}\n{stderr}", output.status);
    assert!(stdout.contains(DONE), "is there a test `{test}`?\n{stdout}\n{stderr}");
    Some(Output { stdout, stderr })
}

/// Runs `body` in a process whose tool is the stub, as it behaves in this mode. Gives what the process said on standard
/// error, as [`in_child`] does.
pub fn with_tool(test: &str, mode: &str, more: &[(&str, &str)], body: impl FnOnce(&Tool)) -> Option<String> {
    let mut environment = vec![(PATH, library().into_os_string()), ("STUB_NVTX", mode.into())];
    environment.extend(more.iter().map(|(name, value)| (*name, value.into())));
    in_child(test, &environment, || body(&Tool::open(library().as_os_str()))).map(|output| output.stderr)
}

/// The stub, as the child has it loaded.
pub struct Tool(Library);

impl Tool {
    pub fn open(path: &OsStr) -> Tool {
        // SAFETY: the stub runs nothing when it is loaded.
        Tool(unsafe { Library::new(path) }.unwrap())
    }

    /// What the program has called until now, in order.
    pub fn log(&self) -> Vec<Line> {
        // SAFETY: the stub exports it with this signature, and writes no more than it may.
        let text = unsafe {
            let read = self.0.get::<unsafe extern "C" fn(*mut u8, usize) -> usize>(b"stub_nvtx_log\0").unwrap();
            let mut text = vec![0; read(std::ptr::null_mut(), 0)];
            read(text.as_mut_ptr(), text.len());
            String::from_utf8(text).unwrap()
        };
        let line = |line: &str| {
            let mut parts = line.split('\t').map(str::to_owned);
            let thread = parts.next().and_then(|thread| thread.parse().ok()).expect("a thread");
            Line { thread, call: parts.next().expect("a call"), arguments: parts.collect() }
        };
        text.lines().map(line).collect()
    }

    /// What `reenter` calls.
    pub fn call_back(&self, back: extern "C" fn()) {
        // SAFETY: the stub exports it with this signature.
        unsafe { self.0.get::<unsafe extern "C" fn(extern "C" fn())>(b"stub_nvtx_call_back\0").unwrap()(back) };
    }
}

/// `gettid` of this thread.
pub fn tid() -> i32 {
    let link = fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

/// The stub; the parent builds it.
pub fn library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    if env::var_os(CHILD).is_some() {
        return stub_library(PACKAGE, &root());
    }
    LIBRARY.get_or_init(|| build_stub(PACKAGE, &root(), &[])).clone()
}

/// A folder with the stub as the library of old toolkits.
pub fn as_old_library() -> PathBuf {
    let folder = root().join("as-libnvToolsExt");
    if env::var_os(CHILD).is_none() {
        fs::create_dir_all(&folder).unwrap();
        // Another process may have the file mapped: it is replaced, not written to.
        let fresh = folder.join(format!("libnvToolsExt.so.1.{}", std::process::id()));
        fs::copy(library(), &fresh).unwrap();
        fs::rename(&fresh, folder.join("libnvToolsExt.so.1")).unwrap();
    }
    folder
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("stub-nvtx")
}
