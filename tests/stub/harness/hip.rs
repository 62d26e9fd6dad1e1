//! Runs a test again in a child process that finds the stub where a program looks for the HIP runtime or for roctx, and gives the child the
//! stub's functions.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::ffi::{CString, OsString, c_char, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;
use warpline::HipStream;
pub use warpline_tests::in_child;
use warpline_tests::{build_stub, is_child};

/// `hipStream_t`.
pub type Handle = usize;

pub const OUT_OF_MEMORY: i32 = 2;
pub const ILLEGAL_ADDRESS: i32 = 700;

/// `hipStreamPerThread`.
pub const PER_THREAD: Handle = 2;

/// What a child finds as `libamdhip64.so`.
#[derive(Clone, Copy, Debug)]
pub enum Runtime {
    /// The stub.
    Current,
    /// The stub of ROCm 5.0, under the name of that release alone.
    Old,
    /// The stub as two libraries: that of ROCm 6, which the child has loaded, and one without a version; and as two libraries of markers.
    Two,
    /// Files that are no libraries: as good as no runtime, also where there is one.
    Unloadable,
}

/// The names of the runtime's library.
const NAMES: [&str; 4] = ["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"];

/// Runs `body` in a process with the stub, and a device whose queue is empty.
pub fn on_stub(test: &str, body: impl FnOnce(&Stub)) {
    with(test, Runtime::Current, |stub| body(stub.expect("the stub is there")));
}

/// Runs `body` in a process with this runtime.
pub fn with(test: &str, runtime: Runtime, body: impl FnOnce(Option<&Stub>)) {
    in_child(test, &[("LD_LIBRARY_PATH", library_path(runtime))], || {
        let name = match runtime {
            Runtime::Old => NAMES[3],
            Runtime::Two => NAMES[2],
            Runtime::Current | Runtime::Unloadable => NAMES[0],
        };
        // SAFETY: the stub runs nothing when it is loaded.
        body(unsafe { Library::new(name) }.ok().map(Stub).as_ref());
    });
}

/// The folders in which a child looks for libraries.
pub fn library_path(runtime: Runtime) -> OsString {
    // A child has the stub already, and builds nothing.
    let mut path = if is_child() { OsString::new() } else { folder(runtime).into_os_string() };
    if let Some(inherited) = std::env::var_os("LD_LIBRARY_PATH") {
        path.push(":");
        path.push(inherited);
    }
    path
}

fn folder(runtime: Runtime) -> PathBuf {
    static FOLDERS: [OnceLock<PathBuf>; 4] = [const { OnceLock::new() }; 4];
    let place = || {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stub-hip").join(format!("{runtime:?}"));
        let (features, names): (&[&str], &[&str]) = match runtime {
            Runtime::Old => (&["--features", "old"], &NAMES[3..]),
            _ => (&[], &NAMES),
        };
        let library = match runtime {
            Runtime::Unloadable => {
                fs::create_dir_all(&target).unwrap();
                fs::write(target.join("no-library"), "this is no library").unwrap();
                target.join("no-library")
            }
            _ => build_stub("warpline-stub-hip", &target, features),
        };
        let folder = target.join("as-rocm");
        fs::create_dir_all(&folder).unwrap();
        // A file of its own for each: one file would be one library, whatever its names.
        let others: &[&str] = match runtime {
            Runtime::Current => &["libroctx64.so.4"],
            Runtime::Two => &[NAMES[2], "librocprofiler-sdk-roctx.so.1", "libroctx64.so.4"],
            Runtime::Old | Runtime::Unloadable => &[],
        };
        for name in names[..1].iter().chain(others) {
            // Another process may have the file mapped: it is replaced, not written to.
            let fresh = folder.join(format!("{name}.{}", std::process::id()));
            fs::copy(&library, &fresh).unwrap();
            fs::rename(&fresh, folder.join(name)).unwrap();
        }
        if matches!(runtime, Runtime::Unloadable) {
            for name in &names[1..] {
                fs::copy(&library, folder.join(name)).unwrap();
            }
        }
        folder
    };
    FOLDERS[runtime as usize].get_or_init(place).clone()
}

/// The stub, as the child has loaded it.
pub struct Stub(Library);

warpline_tests::exports! {
    Stub:

    fn hipSetDevice(device: i32) -> i32;
    fn hipGetDevice(device: &mut i32) -> i32;
    fn hipStreamCreateWithFlags(stream: &mut Handle, flags: u32) -> i32;
    fn hipStreamDestroy(stream: Handle) -> i32;
    fn stub_hip_launch(stream: Handle, length_ns: i64) -> ();
    fn stub_hip_capture(stream: Handle, on: bool) -> u64;
    fn stub_hip_fail(name: *const c_char, calls: u64, code: i32, here: bool) -> ();
    fn stub_hip_calls(name: *const c_char) -> u64;
    fn stub_hip_live_events() -> u64;
    fn stub_hip_live_streams() -> u64;
    fn stub_hip_misuses() -> u64;
    fn stub_hip_broken_captures() -> u64;
}

impl Stub {
    /// A new stream of this thread's device.
    pub fn stream(&self) -> Handle {
        let mut stream = 0;
        assert_eq!(self.hipStreamCreateWithFlags(&mut stream, 1), 0);
        stream
    }

    /// Lets the next calls of a function fail.
    pub fn fail(&self, name: &str, calls: u64, code: i32) {
        let name = CString::new(name).unwrap();
        self.stub_hip_fail(name.as_ptr(), calls, code, false);
    }

    /// Lets the next calls of a function fail on this thread only; the collector's calls succeed.
    pub fn fail_here(&self, name: &str, calls: u64, code: i32) {
        let name = CString::new(name).unwrap();
        self.stub_hip_fail(name.as_ptr(), calls, code, true);
    }

    pub fn calls(&self, name: &str) -> u64 {
        let name = CString::new(name).unwrap();
        self.stub_hip_calls(name.as_ptr())
    }
}

pub fn raw(stream: Handle) -> HipStream {
    // SAFETY: the stub treats handles as numbers; the test destroys no stream on which a zone is open.
    unsafe { HipStream::from_ptr(stream as *mut c_void) }
}

/// The stub as the marker library, which this loads.
pub struct Markers(Library);

impl Markers {
    pub fn load() -> Markers {
        // SAFETY: the stub runs nothing when it is loaded.
        Markers(unsafe { Library::new("libroctx64.so.4") }.unwrap())
    }

    /// What the program has called until now, in order.
    pub fn log(&self) -> Vec<String> {
        // SAFETY: the stub exports it with this signature, and writes no more than it may.
        let text = unsafe {
            let read = self.0.get::<unsafe extern "C" fn(*mut u8, usize) -> usize>(b"stub_roctx_log\0").unwrap();
            let mut text = vec![0; read(std::ptr::null_mut(), 0)];
            read(text.as_mut_ptr(), text.len());
            String::from_utf8(text).unwrap()
        };
        text.lines().map(str::to_owned).collect()
    }
}
