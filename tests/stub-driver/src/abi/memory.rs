//! Memory that is allocated and freed in the order of a stream. No byte of it can be touched.

use crate::call::{Out, driver_calls};
use crate::code::Code;

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
        let held: u64 = driver.memory.values().sum();
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if held.saturating_add(bytes as u64) > ALL {
            return Err(Code::OUT_OF_MEMORY);
        }
        // The lowest address that is free, so that they are reused, as they are by the real one.
        let mut place = FIRST;
        while driver.memory.contains_key(&place) {
            place += STEP;
        }
        driver.memory.insert(place, bytes as u64);
        address.put(place)
    }

    fn cuMemFreeAsync(address: u64, stream: usize) = |driver| {
        let id = driver.resolve(stream)?;
        if driver.capture_of_work(id)?.is_some() {
            driver.captured_records += 1;
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        if driver.memory.remove(&address).is_none() {
            driver.memory_misuse += 1;
            return Err(Code::INVALID_VALUE);
        }
        Ok(())
    }
}
