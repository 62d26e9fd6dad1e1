//! Runs a test again in a child process that finds the stub driver where a program looks for `libcuda.so.1`, and gives the
//! child the driver's functions.
//!
//! Each test has a process of its own, so no call of another one is in its journal. The child loads whatever driver it
//! finds under that name: `Stub` is the same library that warpline opens for itself.
#![allow(dead_code, reason = "not every test needs all of the driver")]

use std::ffi::{CString, OsString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs};

use libloading::Library;
pub use warpline_tests::tid;
use warpline_tests::{build_stub, is_child};

/// `CUstream`, `CUevent`, `CUcontext`, `CUgraph`.
pub type Handle = usize;

/// Codes of the driver.
pub const SUCCESS: u32 = 0;
pub const OUT_OF_MEMORY: u32 = 2;
pub const INVALID_CONTEXT: u32 = 201;
pub const INVALID_HANDLE: u32 = 400;
pub const NOT_READY: u32 = 600;
pub const ILLEGAL_ADDRESS: u32 = 700;
pub const CONTEXT_IS_DESTROYED: u32 = 709;
pub const LAUNCH_FAILED: u32 = 719;
pub const NOT_PERMITTED: u32 = 800;
pub const CAPTURE_UNSUPPORTED: u32 = 900;
pub const CAPTURE_INVALIDATED: u32 = 901;
pub const CAPTURE_UNJOINED: u32 = 904;
pub const CAPTURE_IMPLICIT: u32 = 906;
pub const GRAPH_EXEC_UPDATE_FAILURE: u32 = 910;

/// `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`.
pub const LEGACY: Handle = 1;
pub const PER_THREAD: Handle = 2;

/// `CU_EVENT_DISABLE_TIMING`.
pub const DISABLE_TIMING: u32 = 2;

/// Modes of a capture.
pub const GLOBAL: i32 = 0;
pub const THREAD_LOCAL: i32 = 1;
pub const RELAXED: i32 = 2;

/// What a child finds as `libcuda.so.1`.
#[derive(Clone, Copy, Debug)]
pub enum Driver {
    /// The stub.
    Current,
    /// The stub of a driver for CUDA 11, which lacks `cuStreamGetId` and `cuCtxGetId`.
    Old,
    /// The stub of a driver for CUDA 12.4, which lacks `cuEventElapsedTime_v2` and `cuStreamGetCtx_v2`.
    ElapsedV1,
    /// A file that is no library: as good as no driver, also where there is one.
    Unloadable,
}

/// Runs `body` in a process with the stub driver. `test` is the name of the calling test.
pub fn on_stub(test: &str, body: impl FnOnce(&Stub)) {
    in_child(test, Driver::Current, || body(&Stub::load()));
}

/// Runs `body` in a process with this driver. True when that process is over.
pub fn in_child(test: &str, driver: Driver, body: impl FnOnce()) -> bool {
    in_child_with(test, driver, None, body)
}

/// The same, in a process that finds the libraries of another folder, too.
pub fn in_child_with(test: &str, driver: Driver, more: Option<&Path>, body: impl FnOnce()) -> bool {
    // A child has the driver already, and builds nothing.
    let mut path = if is_child() { OsString::new() } else { folder(driver).into_os_string() };
    for more in more.map(Path::as_os_str).map(OsString::from).into_iter().chain(env::var_os("LD_LIBRARY_PATH")) {
        path.push(":");
        path.push(more);
    }
    warpline_tests::in_child(test, &[("LD_LIBRARY_PATH", path)], body).is_some()
}

/// A file for a test, not there yet.
pub fn scratch(test: &str) -> PathBuf {
    fs::create_dir_all(root()).unwrap();
    let _ = fs::remove_file(path_of(test));
    path_of(test)
}

/// Where the file of a test is.
pub fn path_of(test: &str) -> PathBuf {
    root().join(format!("{}.log", test.replace("::", "-")))
}

/// The folder that has the driver as `libcuda.so.1`, as NCCL, and as cuBLAS.
fn folder(driver: Driver) -> PathBuf {
    static CURRENT: OnceLock<PathBuf> = OnceLock::new();
    static OLD: OnceLock<PathBuf> = OnceLock::new();
    static ELAPSED_V1: OnceLock<PathBuf> = OnceLock::new();
    static UNLOADABLE: OnceLock<PathBuf> = OnceLock::new();
    let place = |name: &str, library: &dyn Fn(&Path) -> PathBuf| {
        let target = root().join(name);
        let folder = target.join("as-libcuda");
        fs::create_dir_all(&folder).unwrap();
        let library = library(&target);
        // One file for each library, whatever name a binding opens: a second file would be a second driver in the process.
        for (file, link) in
            [("libcuda.so.1", "libcuda.so"), ("libnccl.so.2", "libnccl.so"), ("libcublas.so.12", "libcublas.so")]
        {
            // Another process may have the file mapped: it is replaced, not written to.
            let fresh = folder.join(format!("{file}.{}", std::process::id()));
            fs::copy(&library, &fresh).unwrap();
            fs::rename(&fresh, folder.join(file)).unwrap();
            std::os::unix::fs::symlink(file, &fresh).unwrap();
            fs::rename(&fresh, folder.join(link)).unwrap();
        }
        folder
    };
    match driver {
        Driver::Current => {
            CURRENT.get_or_init(|| place("current", &|target| build_stub("warpline-stub-driver", target, &[])))
        }
        Driver::Old => OLD
            .get_or_init(|| place("old", &|target| build_stub("warpline-stub-driver", target, &["--features", "old"]))),
        Driver::ElapsedV1 => ELAPSED_V1.get_or_init(|| {
            place("elapsed-v1", &|target| build_stub("warpline-stub-driver", target, &["--features", "elapsed-v1"]))
        }),
        Driver::Unloadable => UNLOADABLE.get_or_init(|| {
            place("unloadable", &|target| {
                let file = target.join("no-library");
                fs::write(&file, "this is no library").unwrap();
                file
            })
        }),
    }
    .clone()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("stub-driver")
}

/// The driver that the child has found.
pub struct Stub(Library);

warpline_tests::exports! {
    Stub:

    fn cuInit(flags: u32) -> u32;
    fn cuDriverGetVersion(version: &mut i32) -> u32;
    fn cuDeviceGetCount(count: &mut i32) -> u32;
    fn cuDevicePrimaryCtxRetain(context: &mut Handle, device: i32) -> u32;
    fn cuDevicePrimaryCtxRelease_v2(device: i32) -> u32;
    fn cuDevicePrimaryCtxReset_v2(device: i32) -> u32;
    fn cuCtxCreate_v2(context: &mut Handle, flags: u32, device: i32) -> u32;
    fn cuCtxDestroy_v2(context: Handle) -> u32;
    fn cuCtxGetCurrent(context: &mut Handle) -> u32;
    fn cuCtxSetCurrent(context: Handle) -> u32;
    fn cuCtxPushCurrent_v2(context: Handle) -> u32;
    fn cuCtxPopCurrent_v2(context: Option<&mut Handle>) -> u32;
    fn cuCtxGetDevice(device: &mut i32) -> u32;
    fn cuCtxGetId(context: Handle, id: &mut u64) -> u32;
    fn cuCtxSynchronize() -> u32;
    fn cuGreenCtxCreate(green: &mut Handle, resources: Handle, device: i32, flags: u32) -> u32;
    fn cuGreenCtxDestroy(green: Handle) -> u32;
    fn cuCtxFromGreenCtx(context: &mut Handle, green: Handle) -> u32;
    fn cuGreenCtxStreamCreate(stream: &mut Handle, green: Handle, flags: u32, priority: i32) -> u32;
    fn cuStreamCreate(stream: &mut Handle, flags: u32) -> u32;
    fn cuStreamDestroy_v2(stream: Handle) -> u32;
    fn cuStreamGetCtx(stream: Handle, context: &mut Handle) -> u32;
    fn cuStreamGetId(stream: Handle, id: &mut u64) -> u32;
    fn cuStreamIsCapturing(stream: Handle, status: &mut i32) -> u32;
    fn cuStreamBeginCapture_v2(stream: Handle, mode: i32) -> u32;
    fn cuStreamBeginCaptureToGraph(stream: Handle, graph: Handle, deps: *const Handle, edges: *const c_void, count: usize, mode: i32) -> u32;
    fn cuStreamEndCapture(stream: Handle, graph: &mut Handle) -> u32;
    fn cuStreamSynchronize(stream: Handle) -> u32;
    fn cuStreamQuery(stream: Handle) -> u32;
    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) -> u32;
    fn cuThreadExchangeStreamCaptureMode(mode: &mut i32) -> u32;
    fn cuEventCreate(event: &mut Handle, flags: u32) -> u32;
    fn cuEventDestroy_v2(event: Handle) -> u32;
    fn cuEventRecord(event: Handle, stream: Handle) -> u32;
    fn cuEventQuery(event: Handle) -> u32;
    fn cuEventSynchronize(event: Handle) -> u32;
    fn cuEventElapsedTime(ms: &mut f32, start: Handle, end: Handle) -> u32;
    fn cuLaunchHostFunc(stream: Handle, function: extern "C" fn(*mut c_void), data: *mut c_void) -> u32;
    fn cuGraphCreate(graph: &mut Handle, flags: u32) -> u32;
    fn cuGraphAddKernelNode_v2(node: &mut Handle, graph: Handle, deps: *const Handle, count: usize, params: *const c_void) -> u32;
    fn cuGraphConditionalHandleCreate(handle: &mut u64, graph: Handle, context: Handle, value: u32, flags: u32) -> u32;
    fn cuGraphAddNode_v2(node: &mut Handle, graph: Handle, deps: *const Handle, edges: *const c_void, count: usize, params: *mut c_void) -> u32;
    fn cuGraphChildGraphNodeGetGraph(node: Handle, graph: &mut Handle) -> u32;
    fn cuGraphDestroyNode(node: Handle) -> u32;
    fn cuGraphDestroy(graph: Handle) -> u32;
    fn cuGraphClone(clone: &mut Handle, graph: Handle) -> u32;
    fn cuGraphAddChildGraphNode(node: &mut Handle, graph: Handle, deps: *const Handle, count: usize, child: Handle) -> u32;
    fn cuGraphInstantiateWithFlags(exec: &mut Handle, graph: Handle, flags: u64) -> u32;
    fn cuGraphLaunch(exec: Handle, stream: Handle) -> u32;
    fn cuGraphExecUpdate_v2(exec: Handle, graph: Handle, info: *mut c_void) -> u32;
    fn cuGraphExecDestroy(exec: Handle) -> u32;
    fn cuGraphExecGetId(exec: Handle, id: &mut u32) -> u32;
    fn cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: &mut usize) -> u32;
    fn cuGetErrorName(code: u32, name: &mut *const c_char) -> u32;

    /// A kernel that takes `ns` of the stream's time.
    fn stub_launch(stream: Handle, ns: u64) -> u32;
    /// A node whose body runs on a condition.
    fn stub_conditional(stream: Handle) -> u32;
    /// Behind each of the next `times` questions where a stream stands in its capture, another thread captures a kernel with the
    /// stream before the answer is read: the array that was handed out is gone.
    fn stub_overtake(times: u64) -> ();
    /// Whether the driver is one for 13.1, which tells ids of graphs and nodes.
    fn stub_tells_ids(tells: bool) -> ();
    /// Whether the driver is one for 13.2, which tells the parameters of every node.
    fn stub_tells_bodies(tells: bool) -> ();
    /// A kernel that breaks the device with `code` after `ns`.
    fn stub_launch_fault(stream: Handle, ns: u64, code: u32) -> u32;
    /// A kernel that hangs; gives what `stub_release` takes.
    fn stub_hold(stream: Handle) -> u64;
    /// The next other thread that calls the symbol stops there until `stub_go_on`.
    fn stub_stop_at(symbol: *const c_char) -> ();
    fn stub_is_stopped() -> bool;
    fn stub_go_on() -> ();
    /// The next stream that is made begins with a kernel that hangs; gives what `stub_release` takes.
    fn stub_hold_next() -> u64;
    /// The device hangs, on all streams that there are; gives what `stub_release` takes.
    fn stub_hold_device() -> u64;
    fn stub_release(hold: u64) -> ();
    /// From now on a profiler is told where some calls begin (0) and end (1), by their numbers.
    fn stub_trace(tracer: extern "C" fn(u32, i32)) -> ();
    /// What comes behind a timed event on a stream that waits for no other comes so much later: behind `in_ten` of ten events
    /// `busy_ns`, behind the others `quiet_ns`.
    fn stub_events_take(quiet_ns: i64, busy_ns: i64, in_ten: u64) -> ();
    fn stub_reset() -> ();
    /// Breaks the device: nearly every call returns `code` from now on; 0 mends it.
    fn stub_break(code: u32) -> ();
    fn stub_driver_version(version: i32) -> ();
    fn stub_devices(count: i32) -> ();
    fn stub_drift(ppm: i64) -> ();
    /// When the event was reached, in ns of CLOCK_BOOTTIME; -1 if it was not.
    fn stub_event_ns(event: Handle) -> i64;
    fn stub_live_events() -> u64;
    fn stub_peak_events() -> u64;
    fn stub_live_streams() -> u64;
    fn stub_live_contexts() -> u64;
    /// Streams and events that were live when their context ended.
    fn stub_leaked() -> u64;
    /// Uses of handles that were destroyed or never made, driver calls of host functions, and green contexts that were made current to a
    /// second thread.
    fn stub_misuse() -> u64;
    /// Uses of streams and events whose context is gone.
    fn stub_orphan_uses() -> u64;
    fn stub_captured_records() -> u64;
    /// Whether the devices have memory pools.
    fn stub_memory_pools(has: bool) -> ();
    /// The bytes that are allocated in the order of streams.
    fn stub_memory() -> u64;
    fn stub_graph_nodes(graph: Handle) -> u64;
    fn stub_launch_edges(graph: Handle) -> u64;
    /// From now on stamps are kept back, or those that were are written, in the order of their times.
    fn stub_hold_stamps(hold: bool) -> ();
    fn stub_stamps() -> u64;
    fn stub_calls(symbol: *const c_char) -> u64;
    fn stub_calls_on(symbol: *const c_char, tid: i32) -> u64;
    fn stub_log(buffer: *mut u8, len: usize) -> usize;
    fn stub_mark(text: *const c_char) -> ();
    fn stub_log_to(path: *const c_char) -> u32;
    fn stub_fail(symbol: *const c_char, skip: u64, times: u64, code: u32) -> ();
}

/// The same, for people.
impl Stub {
    /// What `libcuda.so.1` is in this process.
    pub fn load() -> Stub {
        // SAFETY: the stub driver runs nothing when it is loaded.
        Stub(unsafe { Library::new("libcuda.so.1") }.unwrap())
    }

    /// What `libnccl.so.2` is in this process: the same file again, with a log of its own.
    pub fn of_nccl() -> Stub {
        // SAFETY: as above.
        Stub(unsafe { Library::new("libnccl.so.2") }.unwrap())
    }

    /// Whether the driver exports it.
    pub fn has(&self, symbol: &str) -> bool {
        // SAFETY: the symbol is not used.
        unsafe { self.0.get::<*const c_void>(symbol) }.is_ok()
    }

    /// Initializes the driver and makes the primary context of device 0 current.
    pub fn start(&self) -> Handle {
        assert_eq!(self.cuInit(0), SUCCESS);
        let context = made(|context| self.cuDevicePrimaryCtxRetain(context, 0));
        assert_eq!(self.cuCtxSetCurrent(context), SUCCESS);
        context
    }

    /// A stream of the current context.
    pub fn stream(&self) -> Handle {
        made(|stream| self.cuStreamCreate(stream, 0))
    }

    /// An event with timing.
    pub fn event(&self) -> Handle {
        made(|event| self.cuEventCreate(event, 0))
    }

    /// A new event that is put on the stream.
    pub fn record(&self, stream: Handle) -> Handle {
        let event = self.event();
        assert_eq!(self.cuEventRecord(event, stream), SUCCESS);
        event
    }

    /// A stream's id.
    pub fn id(&self, stream: Handle) -> u64 {
        let mut id = 0;
        assert_eq!(self.cuStreamGetId(stream, &mut id), SUCCESS);
        id
    }

    /// The calling thread's context.
    pub fn current(&self) -> Handle {
        made(|context| self.cuCtxGetCurrent(context))
    }

    /// The time between two events that are complete.
    pub fn elapsed_ms(&self, start: Handle, end: Handle) -> f32 {
        let mut ms = 0.0;
        assert_eq!(self.cuEventElapsedTime(&mut ms, start, end), SUCCESS);
        ms
    }

    /// How often it was called.
    pub fn calls(&self, symbol: &str) -> u64 {
        self.stub_calls(text(symbol).as_ptr())
    }

    /// How often it was called on a thread.
    pub fn calls_on(&self, symbol: &str, tid: i32) -> u64 {
        self.stub_calls_on(text(symbol).as_ptr(), tid)
    }

    /// How often any was called.
    pub fn all_calls(&self) -> u64 {
        self.stub_calls(std::ptr::null())
    }

    /// The lines `symbol tid` and `# mark`.
    pub fn log(&self) -> Vec<String> {
        let mut text = vec![0; self.stub_log(std::ptr::null_mut(), 0) + (64 << 10)];
        let len = self.stub_log(text.as_mut_ptr(), text.len()).min(text.len() - 1);
        String::from_utf8_lossy(&text[..len]).lines().map(str::to_owned).collect()
    }

    /// Puts the line `# text` into the log.
    pub fn mark(&self, line: &str) {
        self.stub_mark(text(line).as_ptr());
    }

    /// The symbols that a thread has called since the last mark of this text.
    pub fn since(&self, mark: &str, tid: i32) -> Vec<String> {
        let (log, mark) = (self.log(), format!("# {mark}"));
        let begin = log.iter().rposition(|line| *line == mark).unwrap_or_else(|| panic!("no mark `{mark}`"));
        let calls = log[begin + 1..].iter().filter_map(|line| line.strip_suffix(&format!(" {tid}")));
        calls.filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    /// The last lines of the log, the last one first.
    pub fn last_calls(&self, count: usize) -> Vec<String> {
        self.log().into_iter().rev().take(count).collect()
    }

    /// Appends every line to a file, too.
    pub fn log_to(&self, path: &Path) {
        assert_eq!(self.stub_log_to(text(path.to_str().unwrap()).as_ptr()), SUCCESS);
    }

    /// The next other thread that calls it stops there until `stub_go_on`.
    pub fn stop_at(&self, symbol: &str) {
        assert!(self.has(symbol), "the driver has no `{symbol}`");
        self.stub_stop_at(text(symbol).as_ptr());
    }

    /// Lets `times` calls fail with `code`, after `skip` that do not.
    pub fn fail(&self, symbol: &str, skip: u64, times: u64, code: u32) {
        assert!(self.has(symbol), "the driver has no `{symbol}`");
        self.stub_fail(text(symbol).as_ptr(), skip, times, code);
    }
}

/// The handle that a call of the driver gives.
pub fn made(make: impl FnOnce(&mut Handle) -> u32) -> Handle {
    let mut handle = 0;
    assert_eq!(make(&mut handle), SUCCESS);
    handle
}

fn text(text: &str) -> CString {
    CString::new(text).unwrap()
}
