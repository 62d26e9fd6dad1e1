//! The driver calls that load and launch warpline's own kernels: stamps, and those of measurements.
//!
//! They are looked up when one of these is first used. Callers must have the right context current, and must ensure that the thread's calls
//! break no capture.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use super::driver::{Code, CudaError, Driver, StreamPtr};
use warpline_core::backend::BackendError;

/// A `CUmodule`.
pub(super) type ModulePtr = *mut c_void;

table! {
    load: b"cuModuleLoadData\0" fn(*mut ModulePtr, *const c_void);
    function: b"cuModuleGetFunction\0" fn(*mut *mut c_void, ModulePtr, *const c_char);
    launch: b"cuLaunchKernel\0" fn(
        *mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, StreamPtr, *mut *mut c_void, *mut *mut c_void
    );
    attribute: b"cuDeviceGetAttribute\0" fn(*mut c_int, c_int, c_int);
}

/// A warpline kernel, a `CUfunction` of the context that was current when it was loaded.
#[derive(Clone, Copy)]
pub(super) struct Kernel(*mut c_void);

// SAFETY: the driver takes the handle from any thread.
unsafe impl Send for Kernel {}

impl Kernel {
    pub(super) fn address(self) -> usize {
        self.0 as usize
    }
}

/// The calls, for one driver.
pub(super) struct Kernels {
    driver: &'static Driver,
    symbols: Symbols,
}

impl Kernels {
    pub(super) fn new(driver: &'static Driver) -> Result<Kernels, BackendError> {
        Ok(Kernels { driver, symbols: Symbols::load(&driver.library)? })
    }

    /// Loads PTX text into the current context. It stays loaded as long as the context, unless the caller unloads it: the driver may make
    /// its unloading wait for the application's work.
    pub(super) fn load(&self, ptx: &CStr) -> Result<ModulePtr, CudaError> {
        let text = ptx.as_ptr().cast();
        // SAFETY: a valid out-pointer, and text that ends in NUL.
        self.driver.ask("cuModuleLoadData", null_mut(), |module| unsafe { (self.symbols.load)(module, text) })
    }

    /// Returns a kernel of a module that is loaded.
    pub(super) fn function(&self, module: ModulePtr, name: &CStr) -> Result<Kernel, CudaError> {
        // SAFETY: a valid out-pointer, a module of ours, and a NUL-terminated name.
        let function = |function| unsafe { (self.symbols.function)(function, module, name.as_ptr()) };
        self.driver.ask("cuModuleGetFunction", null_mut(), function).map(Kernel)
    }

    /// Launches a kernel with these parameters, as blocks of threads, on a stream of the current context. If the stream is being captured,
    /// the launch is captured.
    pub(super) fn launch<const N: usize>(
        &self,
        kernel: Kernel,
        (blocks, threads): (u32, u32),
        stream: StreamPtr,
        mut numbers: [u64; N],
    ) -> Result<(), CudaError> {
        let mut parameters = numbers.each_mut().map(|number| std::ptr::from_mut(number).cast::<c_void>());
        let (place, no_extra) = (parameters.as_mut_ptr(), null_mut());
        // SAFETY: every warpline kernel takes as many `u64` as its callers pass; the driver copies them before it returns.
        let code = unsafe { (self.symbols.launch)(kernel.0, blocks, 1, 1, threads, 1, 1, 0, stream, place, no_extra) };
        self.driver.check("cuLaunchKernel", code)
    }

    /// Returns an attribute of a device, a `CUdevice_attribute`.
    pub(super) fn attribute(&self, attribute: c_int, device: c_int) -> Result<c_int, CudaError> {
        // SAFETY: a valid out-pointer.
        let ask = |value| unsafe { (self.symbols.attribute)(value, attribute, device) };
        self.driver.ask("cuDeviceGetAttribute", 0, ask)
    }
}
