//! Memory that is allocated and freed at once, or in the order of a stream. No byte of it can be touched.

use crate::call::{Out, driver_calls};
use crate::code::Code;
use crate::driver::Driver;

/// The memory of the device: 80 GiB.
const ALL: u64 = 80 << 30;

/// Where addresses begin, and what they are multiples of.
const FIRST: u64 = 0x7f00_0000_0000;
const STEP: u64 = 512;

driver_calls! {
    /// In a capture the real driver makes a node of the graph; nothing here should get so far.
    fn cuMemAllocAsync(address: Out<u64>, bytes: usize, stream: usize) = |driver| {
        let id = driver.resolve(stream)?;
        if driver.capture_of_work(id)?.is_some() {
            driver.captured_records += 1;
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        address.put(driver.allocate(bytes)?)
    }

    fn cuMemFreeAsync(address: u64, stream: usize) = |driver| {
        let id = driver.resolve(stream)?;
        if driver.capture_of_work(id)?.is_some() {
            driver.captured_records += 1;
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        driver.free(address)
    }

    fn cuMemAlloc_v2(address: Out<u64>, bytes: usize) = |driver| {
        driver.current()?;
        driver.check_unsafe_call()?;
        address.put(driver.allocate(bytes)?)
    }

    fn cuMemFree_v2(address: u64) = |driver| {
        driver.current()?;
        driver.check_unsafe_call()?;
        driver.free(address)
    }
}

impl Driver {
    /// Takes memory. It has the lowest address that is free, so that addresses are reused, as they are by the real driver.
    fn allocate(&mut self, bytes: usize) -> Result<u64, Code> {
        let held: u64 = self.memory.values().sum();
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if held.saturating_add(bytes as u64) > ALL {
            return Err(Code::OUT_OF_MEMORY);
        }
        let mut place = FIRST;
        while self.memory.contains_key(&place) {
            place += STEP;
        }
        self.memory.insert(place, bytes as u64);
        Ok(place)
    }

    fn free(&mut self, address: u64) -> Result<(), Code> {
        if self.memory.remove(&address).is_none() {
            self.memory_misuse += 1;
            return Err(Code::INVALID_VALUE);
        }
        Ok(())
    }
}
