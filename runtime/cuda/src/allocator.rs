//! The driver's calls that allocate and free memory in the order of a stream.
//!
//! The memory comes from the device's default pool. The symbols are optional: a driver or a device without memory pools is an error that names
//! the reason. `memory` calls this with the stream's context current and outside of captures.
#![allow(unsafe_code)]

use std::ffi::c_int;

use super::driver::{Code, ContextPtr, CudaError, Driver, StreamPtr};
use super::symbols::missing;

/// `CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED`.
const POOLS_SUPPORTED: c_int = 115;

type AllocAsync = unsafe extern "C" fn(*mut u64, usize, StreamPtr) -> Code;
type FreeAsync = unsafe extern "C" fn(u64, StreamPtr) -> Code;
type GetAttribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Code;

/// The calls, for the device of one context.
#[derive(Clone, Copy)]
pub(super) struct Allocator {
    allocate: AllocAsync,
    free: FreeAsync,
    /// The device's ordinal.
    pub(super) device: u32,
}

impl Allocator {
    /// Looks the calls up for the device of a context. The error says what the driver or the device lacks.
    #[cold]
    pub(super) fn find(driver: &Driver, context: ContextPtr) -> Result<Allocator, String> {
        macro_rules! symbol {
            ($type:ty, $symbol:literal) => {{
                // SAFETY: the type is the one that CUDA's headers declare for this symbol since CUDA 11.2.
                let symbol = unsafe { driver.library.get::<$type>($symbol) };
                *symbol.map_err(|_| missing($symbol).0)?
            }};
        }
        let told = |error: CudaError| driver.describe(error).0;
        let device = driver.with_context(context, || driver.device()).map_err(told)?;
        let allocate = symbol!(AllocAsync, b"cuMemAllocAsync\0");
        let free = symbol!(FreeAsync, b"cuMemFreeAsync\0");
        let attribute = symbol!(GetAttribute, b"cuDeviceGetAttribute\0");
        let mut has_pools = 0;
        // SAFETY: a valid out-pointer.
        let code = unsafe { attribute(&raw mut has_pools, POOLS_SUPPORTED, device) };
        driver.check("cuDeviceGetAttribute", code).map_err(told)?;
        if has_pools == 0 {
            return Err(format!(
                "device {device} has no memory pools (CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED is 0): allocate outside of the queue, \
                 with cuMemAlloc"
            ));
        }
        Ok(Allocator { allocate, free, device: device.cast_unsigned() })
    }

    /// Allocates from the pool of the current context's device, for work that is put on the stream from now on.
    pub(super) fn allocate(&self, driver: &Driver, stream: StreamPtr, bytes: usize) -> Result<u64, CudaError> {
        let mut address = 0;
        // SAFETY: a valid out-pointer, and a stream of the current context whose owner vouches for it.
        let code = unsafe { (self.allocate)(&raw mut address, bytes, stream) };
        driver.check("cuMemAllocAsync", code).map(|()| address)
    }

    /// Frees memory behind the work that is on the stream now.
    pub(super) fn free(&self, driver: &Driver, stream: StreamPtr, address: u64) -> Result<(), CudaError> {
        // SAFETY: `allocate` returned the address, whose only owner frees it once; the stream is as above. The driver refuses an address that
        // is none of its allocations.
        let code = unsafe { (self.free)(address, stream) };
        driver.check("cuMemFreeAsync", code)
    }
}
