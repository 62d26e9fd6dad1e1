//! The driver calls that stamps need: a module of our own, memory that the device writes, and a small graph for measurements.
//!
//! Every symbol exists since CUDA 12.0. They are loaded when a session with stamps first uses a context. Callers must have the right
//! context current, and must ensure that the thread's calls break no capture.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::super::driver::{Code, CudaError, Driver, StreamPtr};
use warpline_core::backend::BackendError;

/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const MAPPED: c_uint = 3;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`.
const CAPABILITY_MAJOR: c_int = 75;

/// A `CUfunction`, `CUgraph` or `CUgraphExec`.
pub(super) type Ptr = *mut c_void;

table! {
    module_load: b"cuModuleLoadData\0" fn(*mut Ptr, *const c_void);
    module_function: b"cuModuleGetFunction\0" fn(*mut Ptr, Ptr, *const c_char);
    launch_kernel: b"cuLaunchKernel\0" fn(
        Ptr, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, StreamPtr, *mut *mut c_void, *mut *mut c_void
    );
    host_register: b"cuMemHostRegister_v2\0" fn(*mut c_void, usize, c_uint);
    host_device_pointer: b"cuMemHostGetDevicePointer_v2\0" fn(*mut u64, *mut c_void, c_uint);
    begin_capture: b"cuStreamBeginCapture_v2\0" fn(StreamPtr, c_int);
    end_capture: b"cuStreamEndCapture\0" fn(StreamPtr, *mut Ptr);
    instantiate: b"cuGraphInstantiateWithFlags\0" fn(*mut Ptr, Ptr, u64);
    launch_graph: b"cuGraphLaunch\0" fn(Ptr, StreamPtr);
    exec_destroy: b"cuGraphExecDestroy\0" fn(Ptr);
    graph_destroy: b"cuGraphDestroy\0" fn(Ptr);
    device_attribute: b"cuDeviceGetAttribute\0" fn(*mut c_int, c_int, c_int);
}

/// The calls, for one driver.
pub(super) struct Calls {
    driver: &'static Driver,
    symbols: Symbols,
}

impl Calls {
    pub(super) fn new(driver: &'static Driver) -> Result<Calls, BackendError> {
        Ok(Calls { driver, symbols: Symbols::load(&driver.library)? })
    }

    /// Loads PTX text into the current context. The module is unloaded only with the context.
    pub(super) fn load(&self, ptx: &CStr) -> Result<Ptr, CudaError> {
        let mut module = std::ptr::null_mut();
        // SAFETY: a valid out-pointer, and text that ends in NUL.
        let code = unsafe { (self.symbols.module_load)(&raw mut module, ptx.as_ptr().cast()) };
        self.driver.check("cuModuleLoadData", code).map(|()| module)
    }

    /// Returns a device's major compute capability.
    pub(super) fn capability(&self, device: c_int) -> Option<c_int> {
        let mut major = 0;
        // SAFETY: a valid out-pointer.
        let code = unsafe { (self.symbols.device_attribute)(&raw mut major, CAPABILITY_MAJOR, device) };
        self.driver.check("cuDeviceGetAttribute", code).ok().map(|()| major)
    }

    pub(super) fn function(&self, module: Ptr, name: &CStr) -> Result<Ptr, CudaError> {
        let mut function = std::ptr::null_mut();
        // SAFETY: a valid out-pointer, a module of ours that is never unloaded, and a NUL-terminated name.
        let code = unsafe { (self.symbols.module_function)(&raw mut function, module, name.as_ptr()) };
        self.driver.check("cuModuleGetFunction", code).map(|()| function)
    }

    /// Launches one thread of a warpline kernel with these parameters on a stream of the current context. If the stream is being captured,
    /// the launch is captured.
    pub(super) fn launch<const N: usize>(
        &self,
        function: Ptr,
        stream: StreamPtr,
        mut numbers: [u64; N],
    ) -> Result<(), CudaError> {
        let mut parameters = numbers.each_mut().map(|number| std::ptr::from_mut(number).cast::<c_void>());
        let no_extra = std::ptr::null_mut();
        // SAFETY: every warpline kernel takes as many `u64` as its callers pass; the driver copies them before it returns.
        let code = unsafe {
            (self.symbols.launch_kernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters.as_mut_ptr(), no_extra)
        };
        self.driver.check("cuLaunchKernel", code)
    }

    /// Maps memory of this process for writing by the devices. Returns its address in the current context.
    pub(super) fn map(&self, memory: &'static [u8]) -> Result<u64, CudaError> {
        let start = memory.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: the memory is never freed, and the process accesses it only through atomics.
        let code = unsafe { (self.symbols.host_register)(start, memory.len(), MAPPED) };
        self.driver.check("cuMemHostRegister", code)?;
        let mut there = 0;
        // SAFETY: a valid out-pointer; the memory has just been registered.
        let code = unsafe { (self.symbols.host_device_pointer)(&raw mut there, start, 0) };
        self.driver.check("cuMemHostGetDevicePointer", code).map(|()| there)
    }

    /// Captures `work` on a stream of ours, and calls `with` with the instantiated graph. Destroys the graph and its instance afterwards.
    pub(super) fn with_graph<T>(
        &self,
        stream: StreamPtr,
        work: impl FnOnce() -> Result<(), CudaError>,
        with: impl FnOnce(Ptr) -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        let symbols = &self.symbols;
        // SAFETY: a stream of ours.
        let code = unsafe { (symbols.begin_capture)(stream, RELAXED) };
        self.driver.check("cuStreamBeginCapture", code)?;
        let worked = work();
        let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: as above, and a valid out-pointer.
        let code = unsafe { (symbols.end_capture)(stream, &raw mut graph) };
        self.driver.check("cuStreamEndCapture", code)?;
        // SAFETY: a valid out-pointer, and a graph of ours.
        let code = unsafe { (symbols.instantiate)(&raw mut exec, graph, 0) };
        let instantiated = self.driver.check("cuGraphInstantiate", code);
        let result = worked.and(instantiated).and_then(|()| with(exec));
        if !exec.is_null() {
            // SAFETY: the instance is ours and is not used again; running work is not interrupted.
            let _ = unsafe { (symbols.exec_destroy)(exec) };
        }
        // SAFETY: as above.
        let _ = unsafe { (symbols.graph_destroy)(graph) };
        result
    }

    pub(super) fn launch_graph(&self, exec: Ptr, stream: StreamPtr) -> Result<(), CudaError> {
        // SAFETY: both are ours and live.
        let code = unsafe { (self.symbols.launch_graph)(exec, stream) };
        self.driver.check("cuGraphLaunch", code)
    }
}
