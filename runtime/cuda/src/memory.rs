//! Memory that a device allocates and frees in the order of a stream, for queues of timelines.
//!
//! `allocator` has the driver's calls. Nothing here waits for a device, and nothing is called for a stream that is being captured, because
//! the allocation would become a node of the graph.

use super::allocator::Allocator;
use super::key::Key;
use super::timeline::{Context, Lane};
use warpline_core::backend::Refusal;
use warpline_core::backend::device::DeviceMemory;

const WHAT: &str = "memory of a CUDA stream";

/// Allocates memory for work that is put on the stream from now on.
pub(super) fn allocate(lane: Lane<'_>, key: Key, bytes: u64) -> Result<DeviceMemory, Refusal> {
    let (context, allocator) = allocator(lane, key)?;
    let device = allocator.device;
    let out_of_memory = |error| Refusal::OutOfMemory { device, error };
    let Ok(bytes) = usize::try_from(bytes) else {
        return Err(out_of_memory("the system has no allocations of this size".to_owned()));
    };
    let driver = context.driver;
    let allocate = || driver.with_context(context.ptr, || allocator.allocate(driver, lane.stream, bytes));
    match driver.outside_captures(allocate) {
        Ok(address) => Ok(DeviceMemory { address, device }),
        Err(error) if error.is_out_of_memory() => Err(out_of_memory(driver.describe(error).0)),
        Err(error) => Err(context.failed(WHAT, error)),
    }
}

/// Frees memory behind the work that is on the stream now.
pub(super) fn free(lane: Lane<'_>, key: Key, memory: DeviceMemory) -> Result<(), Refusal> {
    let (context, allocator) = allocator(lane, key)?;
    let driver = context.driver;
    let free = || driver.with_context(context.ptr, || allocator.free(driver, lane.stream, memory.address));
    driver.outside_captures(free).map_err(|error| context.failed(WHAT, error))
}

fn allocator(lane: Lane<'_>, key: Key) -> Result<(&'static Context, &'static Allocator), Refusal> {
    let (_, context) = lane.context(key)?;
    match context.allocator() {
        Ok(allocator) => Ok((context, allocator)),
        Err(error) => Err(Refusal::Failed { what: WHAT, error: error.clone() }),
    }
}
