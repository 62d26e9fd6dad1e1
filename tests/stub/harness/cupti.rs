//! Runs a test again in a child process with the stub driver, which finds the stub CUPTI where a session with `kernels` looks
//! for it, and gives the child both.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use libloading::Library;
use warpline_tests::{build_stub, is_child, stub_library};

#[path = "../../stub-cupti/src/launch.rs"]
mod launch;

pub use launch::{Launch, Memory, Sync};

use crate::harness::driver::{self, Handle, Stub, on_stub};

/// The stub's package.
const PACKAGE: &str = "warpline-stub-cupti";

/// The variable that names the library.
pub const PATH: &str = "WARPLINE_CUPTI";

pub const MEMCPY: u32 = 1;
pub const MEMSET: u32 = 2;
pub const KERNEL: u32 = 10;
pub const MEMCPY2: u32 = 22;

/// A kernel of 10 µs on stream 7, long ago.
pub fn kernel(name: &'static CStr) -> Launch {
    Launch {
        kind: KERNEL,
        device: 0,
        context: 1,
        stream: 7,
        graph: 0,
        is_pending: 0,
        is_more: 0,
        is_unreported: 0,
        node: 0,
        begin_ns: 1_000_000_000,
        end_ns: 1_000_010_000,
        bytes: 0,
        name: name.as_ptr(),
    }
}

/// What does not apply to a synchronisation.
pub const NOT_APPLICABLE: u32 = u32::MAX;

/// cuStreamSynchronize on a stream, for so many µs from now on.
pub fn stream_sync(stream: u32, us: u64) -> Sync {
    let begin_ns = crate::harness::zones::boot_ns().cast_unsigned();
    Sync {
        sync_type: 3,
        call: 126,
        is_of_runtime: 0,
        context: 1,
        stream,
        event: NOT_APPLICABLE,
        is_incomplete: 0,
        begin_ns,
        end_ns: begin_ns + us * 1_000,
    }
}

/// cuMemAlloc of a plain piece of memory of device 0, now.
pub fn allocation(address: u64, bytes: u64) -> Memory {
    Memory {
        call: 243,
        returned: 0,
        operation: 1,
        memory: 3,
        device: 0,
        context: 1,
        stream: NOT_APPLICABLE,
        address,
        bytes,
        begin_ns: crate::harness::zones::boot_ns().cast_unsigned(),
    }
}

/// cuMemFree of it, now.
pub fn release(address: u64) -> Memory {
    Memory { call: 245, operation: 2, ..allocation(address, 0) }
}

/// Runs `body` in a process with the stub driver and the stub CUPTI. `test` is the name of the calling test.
pub fn with_cupti(test: &str, body: impl FnOnce(&Stub, &Cupti)) {
    let path = library();
    on_stub(test, |driver| {
        name_library(&path);
        let cupti = Cupti::open(&path);
        driver.stub_trace(cupti.driver_call());
        body(driver, &cupti);
    });
}

/// Runs `body` in a process with the stub driver that finds the stub CUPTI where the loader looks, as two libraries: `libcupti.so.13` and
/// `libcupti.so.12`. Nothing names one.
pub fn with_two(test: &str, body: impl FnOnce(&Stub)) {
    if !is_child() {
        two_libraries();
    }
    driver::in_child_with(test, driver::Driver::Current, Some(&two_libraries_folder()), || body(&Stub::load()));
}

/// The stub's copy of this name, which the caller finds in [`with_two`].
pub fn of_name(name: &str) -> Cupti {
    Cupti::open(name.as_ref())
}

fn two_libraries_folder() -> PathBuf {
    root().join("as-libcupti")
}

/// Two files: one file would be one library, whatever its names.
fn two_libraries() {
    static COPIED: OnceLock<()> = OnceLock::new();
    COPIED.get_or_init(|| {
        let folder = two_libraries_folder();
        fs::create_dir_all(&folder).unwrap();
        for name in ["libcupti.so.13", "libcupti.so.12"] {
            // Another process may have the file mapped: it is replaced, not written to.
            let fresh = folder.join(format!("{name}.{}", std::process::id()));
            fs::copy(library(), &fresh).unwrap();
            fs::rename(&fresh, folder.join(name)).unwrap();
        }
    });
}

/// Names the library for this process, before it looks.
pub fn name_library(path: &Path) {
    // SAFETY: the child has begun its one test, and no other thread reads the environment yet.
    unsafe { env::set_var(PATH, path) };
}

/// CUPTI's number of a stream of the stub driver.
pub fn number(stream: Handle) -> u32 {
    stream as u32
}

/// The stub, as the child has it loaded.
pub struct Cupti(Library);

warpline_tests::exports! {
    Cupti:

    fn stub_cupti_launch(launch: *const Launch) -> u32;
    fn stub_cupti_sync(sync: *const Sync) -> u32;
    fn stub_cupti_memory(memory: *const Memory) -> u32;
    fn stub_cupti_name(context: u32, stream: u32, name: *const c_char) -> ();
    fn stub_cupti_complete() -> ();
    fn stub_cupti_runtime(runtime: u32) -> ();
    fn stub_cupti_launch_calls(driver: u32, runtime: u32) -> ();
    fn stub_cupti_drop(records: u64) -> ();
    fn stub_cupti_fail(symbol: *const c_char, code: i32) -> ();
    fn stub_cupti_asks(ask: extern "C" fn()) -> ();
    fn stub_cupti_set_back(ns: u64) -> ();
    fn stub_cupti_calls(symbol: *const c_char) -> u64;
    fn stub_cupti_version(version: u32) -> ();
    fn stub_cupti_on() -> u64;
    fn stub_cupti_is_on(kind: u32) -> bool;
    fn stub_cupti_most_lent() -> u64;
    fn stub_cupti_lent() -> u64;
    fn stub_cupti_depth() -> u64;
    fn stub_cupti_is_attached() -> bool;
}

impl Cupti {
    pub fn open(path: &Path) -> Cupti {
        // SAFETY: the stub runs nothing when it is loaded.
        Cupti(unsafe { Library::new(path) }.unwrap())
    }

    /// This thread launches; gives the launch's correlation.
    pub fn launch(&self, launch: Launch) -> u32 {
        self.stub_cupti_launch(&raw const launch)
    }

    /// This thread allocates or frees.
    pub fn memory(&self, memory: Memory) {
        self.stub_cupti_memory(&raw const memory);
    }

    /// This thread synchronises; gives the call's correlation. Returns when the call has ended, so that a zone around it lasts longer.
    pub fn sync(&self, sync: Sync) -> u32 {
        let correlation = self.stub_cupti_sync(&raw const sync);
        while crate::harness::zones::boot_ns().cast_unsigned() < sync.end_ns {
            std::hint::spin_loop();
        }
        correlation
    }

    /// This thread launches a graph of so many kernels, which begin 10 µs apart; `exec` is CUPTI's number of the executable one.
    pub fn replay(&self, stream: Handle, exec: u32, kernels: u64, from_ns: u64, kernel_ns: u64) {
        for node in 0..kernels {
            let begin_ns = from_ns + node * 10_000;
            self.launch(Launch {
                stream: number(stream),
                graph: exec,
                node: u64::from(exec) << 32 | node,
                is_more: u32::from(node > 0),
                begin_ns,
                end_ns: begin_ns + kernel_ns,
                ..kernel(c"node")
            });
        }
    }

    /// Holds the collector's thread where it next calls CUPTI to turn something on or off or to flush, until what this returns is dropped.
    /// `is_off` says that kernels are off by then: the collector has paused CUPTI.
    #[must_use]
    pub fn hold_collector(&self, is_off: bool) -> Hold {
        // SAFETY: the stub has it, with this type, and stays loaded as long as the test's process.
        let is_on = unsafe { *self.0.get::<extern "C" fn(u32) -> bool>("stub_cupti_is_on").unwrap() };
        *HOLD.lock().unwrap() = Some((is_on, is_off));
        self.stub_cupti_asks(hold);
        Hold
    }

    /// What the driver tells of its calls.
    fn driver_call(&self) -> extern "C" fn(u32, i32) {
        // SAFETY: the stub has it, with this type, and stays loaded as long as the test's process.
        unsafe { *self.0.get::<extern "C" fn(u32, i32)>("stub_cupti_driver_call").unwrap() }
    }

    pub fn fail(&self, symbol: &str, code: i32) {
        self.stub_cupti_fail(CString::new(symbol).unwrap().as_ptr(), code);
    }

    pub fn calls(&self, symbol: &str) -> u64 {
        self.stub_cupti_calls(CString::new(symbol).unwrap().as_ptr())
    }
}

/// Whether kernels are on, and whether they are off where the collector is held; none where it is not held.
static HOLD: Mutex<Option<(extern "C" fn(u32) -> bool, bool)>> = Mutex::new(None);
static IS_HELD: AtomicBool = AtomicBool::new(false);

extern "C" fn hold() {
    let holds = || HOLD.lock().unwrap().is_some_and(|(is_on, is_off)| !is_off || !is_on(KERNEL));
    while holds() {
        IS_HELD.store(true, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(1));
    }
    IS_HELD.store(false, Ordering::SeqCst);
}

/// The collector's thread is held, or will be.
pub struct Hold;

impl Hold {
    /// Waits until it is held.
    pub fn wait(&self) {
        let since = Instant::now();
        while !IS_HELD.load(Ordering::SeqCst) {
            assert!(since.elapsed() < Duration::from_secs(20), "the collector does not call CUPTI");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        *HOLD.lock().unwrap() = None;
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

fn root() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("stub-cupti")
}
