//! The driver's calls that allocate and free memory in the order of a stream.
//!
//! The memory comes from the device's default pool. The symbols are optional: a driver or a device without memory pools is an error that names
//! the reason. `memory` calls this with the stream's context current and outside of captures.
#![allow(unsafe_code)]

use std::ffi::c_int;

use super::driver::{Code, ContextPtr, CudaError, Driver, StreamPtr};

/// `CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED`.
const POOLS_SUPPORTED: c_int = 115;

table! {
    allocate: b"cuMemAllocAsync\0" fn(*mut u64, usize, StreamPtr);
    free: b"cuMemFreeAsync\0" fn(u64, StreamPtr);
    attribute: b"cuDeviceGetAttribute\0" fn(*mut c_int, c_int, c_int);
}

/// The calls, for the device of one context.
pub(super) struct Allocator {
    symbols: Symbols,
    /// The device's ordinal.
    pub(super) device: u32,
}

impl Allocator {
    /// Looks the calls up for the device of a context. The error says what the driver or the device lacks.
    #[cold]
    pub(super) fn find(driver: &Driver, context: ContextPtr) -> Result<Allocator, String> {
        let told = |error: CudaError| driver.describe(error).0;
        let device = driver.with_context(context, || driver.device()).map_err(told)?;
        let symbols = Symbols::load(&driver.library).map_err(|error| error.0)?;
        // SAFETY: a valid out-pointer.
        let ask = |has_pools| unsafe { (symbols.attribute)(has_pools, POOLS_SUPPORTED, device) };
        let has_pools = driver.ask("cuDeviceGetAttribute", 0, ask).map_err(told)?;
        if has_pools == 0 {
            return Err(format!(
                "device {device} has no memory pools (CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED is 0): allocate outside of the queue, \
                 with cuMemAlloc"
            ));
        }
        Ok(Allocator { symbols, device: device.cast_unsigned() })
    }

    /// Allocates from the pool of the current context's device, for work that is put on the stream from now on.
    pub(super) fn allocate(&self, driver: &Driver, stream: StreamPtr, bytes: usize) -> Result<u64, CudaError> {
        // SAFETY: a valid out-pointer, and a stream of the current context whose owner vouches for it.
        driver.ask("cuMemAllocAsync", 0, |address| unsafe { (self.symbols.allocate)(address, bytes, stream) })
    }

    /// Frees memory behind the work that is on the stream now.
    pub(super) fn free(&self, driver: &Driver, stream: StreamPtr, address: u64) -> Result<(), CudaError> {
        // SAFETY: `allocate` returned the address, whose only owner frees it once; the stream is as above. The driver refuses an address that
        // is none of its allocations.
        let code = unsafe { (self.symbols.free)(address, stream) };
        driver.check("cuMemFreeAsync", code)
    }
}
