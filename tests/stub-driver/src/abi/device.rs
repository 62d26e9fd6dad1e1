//! The driver itself and its devices.

use std::ffi::c_char;

use crate::call::{Out, driver_calls};
use crate::code::{Code, describe};

driver_calls! {
    fn cuInit(flags: u32) = |driver| {
        match (flags, driver.devices) {
            (0, 1..) => {
                driver.is_initialized = true;
                Ok(())
            }
            (0, _) => Err(Code::NO_DEVICE),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuDriverGetVersion(version: Out<i32>) = |driver| { version.put(driver.version) }

    fn cuDeviceGetCount(count: Out<i32>) = |driver| { count.put(driver.devices) }

    fn cuDeviceGet(device: Out<i32>, ordinal: i32) = |driver| { device.put(driver.device(ordinal)?) }

    fn cuDeviceGetName(name: Out<c_char>, len: i32, device: i32) = |driver| {
        let device = driver.device(device)?;
        name.put_text(&format!("Stub GPU {device}"), usize::try_from(len).map_err(|_| Code::INVALID_VALUE)?)
    }

    /// The few attributes that somebody asks for; 0 for all others.
    fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) = |driver| {
        let device = driver.device(device)?;
        value.put(match attribute {
            16 => 132,        // MULTIPROCESSOR_COUNT
            33 => device + 1, // PCI_BUS_ID
            40 => 3,          // ASYNC_ENGINE_COUNT
            75 => 9,          // COMPUTE_CAPABILITY_MAJOR
            115 => i32::from(driver.has_memory_pools), // MEMORY_POOLS_SUPPORTED
            _ => 0,
        })
    }

    fn cuDeviceGetPCIBusId(id: Out<c_char>, len: i32, device: i32) = |driver| {
        let bus = driver.device(device)? + 1;
        id.put_text(&format!("0000:{bus:02x}:00.0"), usize::try_from(len).map_err(|_| Code::INVALID_VALUE)?)
    }

    fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: i32) = |driver| {
        let mut bytes = *b"stub driver gpu\0";
        bytes[15] = driver.device(device)? as u8;
        uuid.put(bytes)
    }

    fn cuGetErrorName(code: u32, name: Out<*const c_char>) = |_driver| {
        name.put(describe(code).map_or(std::ptr::null(), |(name, _)| name.as_ptr()))?;
        describe(code).map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn cuGetErrorString(code: u32, text: Out<*const c_char>) = |_driver| {
        text.put(describe(code).map_or(std::ptr::null(), |(_, text)| text.as_ptr()))?;
        describe(code).map(drop).ok_or(Code::INVALID_VALUE)
    }
}
