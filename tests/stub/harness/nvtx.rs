//! Runs a test again in a child process whose NVTX tool is the stub, and gives the child what the stub wrote down.
//!
//! A process looks for a tool once, so each case has a process of its own.
#![allow(dead_code, unused_imports, reason = "not every test needs all of it")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;
use warpline_tests::{build_stub, is_child, stub_library};
pub use warpline_tests::{in_child, tid};

/// The stub's package.
const PACKAGE: &str = "warpline-stub-nvtx";

/// The variable that names a tool.
pub const PATH: &str = "NVTX_INJECTION64_PATH";

/// One call of the tool.
#[derive(Debug)]
pub struct Line {
    pub thread: i32,
    pub call: String,
    pub arguments: Vec<String>,
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

/// The stub; the parent builds it.
pub fn library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    if is_child() {
        return stub_library(PACKAGE, &root());
    }
    LIBRARY.get_or_init(|| build_stub(PACKAGE, &root(), &[])).clone()
}

/// A folder with the stub as the library of old toolkits, under this name and with these features.
pub fn as_old_library(name: &str, feature: Option<&str>) -> PathBuf {
    let folder = root().join(format!("as-{name}-{}", feature.unwrap_or("all")));
    if !is_child() {
        let library = match feature {
            None => library(),
            Some("broken") => {
                fs::create_dir_all(root()).unwrap();
                fs::write(root().join("broken"), "this is no library").unwrap();
                root().join("broken")
            }
            Some(feature) => build_stub(PACKAGE, &root().join(feature), &["--features", feature]),
        };
        fs::create_dir_all(&folder).unwrap();
        // Another process may have the file mapped: it is replaced, not written to.
        let fresh = folder.join(format!("{name}.{}", std::process::id()));
        fs::copy(library, &fresh).unwrap();
        fs::rename(&fresh, folder.join(name)).unwrap();
    }
    folder
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("stub-nvtx")
}
