//! The driver calls that stamps need besides those for kernels: memory that the device writes, and a small graph for measurements.
//!
//! Every symbol exists since CUDA 12.0. They are loaded when a session with stamps first uses a context. Callers must have the right
//! context current, and must ensure that the thread's calls break no capture.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};

use super::super::driver::{Code, CudaError, Driver, StreamPtr};
use warpline_core::backend::BackendError;

/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const MAPPED: c_uint = 3;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

/// A `CUgraph` or `CUgraphExec`.
type Ptr = *mut c_void;

table! {
    host_register: b"cuMemHostRegister_v2\0" fn(*mut c_void, usize, c_uint);
    host_device_pointer: b"cuMemHostGetDevicePointer_v2\0" fn(*mut u64, *mut c_void, c_uint);
    begin_capture: b"cuStreamBeginCapture_v2\0" fn(StreamPtr, c_int);
    end_capture: b"cuStreamEndCapture\0" fn(StreamPtr, *mut Ptr);
    instantiate: b"cuGraphInstantiateWithFlags\0" fn(*mut Ptr, Ptr, u64);
    launch_graph: b"cuGraphLaunch\0" fn(Ptr, StreamPtr);
    exec_destroy: b"cuGraphExecDestroy\0" fn(Ptr);
    graph_destroy: b"cuGraphDestroy\0" fn(Ptr);
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

    /// Maps memory of this process for writing by the devices. Returns its address in the current context.
    pub(super) fn map(&self, memory: &'static [u8]) -> Result<u64, CudaError> {
        let start = memory.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: the memory is never freed, and the process accesses it only through atomics.
        let code = unsafe { (self.symbols.host_register)(start, memory.len(), MAPPED) };
        self.driver.check("cuMemHostRegister", code)?;
        // SAFETY: a valid out-pointer; the memory has just been registered.
        let ask = |there| unsafe { (self.symbols.host_device_pointer)(there, start, 0) };
        self.driver.ask("cuMemHostGetDevicePointer", 0, ask)
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
