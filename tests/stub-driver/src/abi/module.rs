//! Modules, launches of their kernels, and memory of the program's that they write to.

use std::ffi::{CStr, c_char, c_void};

use crate::call::{Out, driver_calls};
use crate::code::Code;
use crate::table::Handle;

driver_calls! {
    fn cuModuleLoadData(module: Out<Handle>, _image: *const c_void) = |driver| {
        driver.current()?;
        driver.check_unsafe_call()?;
        let loaded = driver.modules.load();
        module.put(loaded)
    }

    fn cuModuleUnload(_module: Handle) = |driver| { Ok(()) }

    fn cuModuleGetFunction(function: Out<Handle>, module: Handle, name: *const c_char) = |driver| {
        // SAFETY: the caller gives a string that ends in NUL.
        let name = unsafe { CStr::from_ptr(name) };
        function.put(driver.modules.get(module, name)?)
    }

    fn cuLaunchKernel(function: Handle, _gx: u32, _gy: u32, _gz: u32, _bx: u32, _by: u32, _bz: u32, _shared: u32, stream: Handle, parameters: *const *const u64, _extra: *const c_void) = |driver| {
        let id = driver.resolve(stream)?;
        let (of_stream, current) = (driver.stream_mut(id)?.context, driver.current()?);
        if driver.whole(of_stream) != driver.whole(current) {
            return Err(Code::INVALID_HANDLE);
        }
        let known = driver.modules.function(function).ok_or(Code::INVALID_HANDLE)?;
        let mut given = [0; 2];
        for (at, place) in given.iter_mut().enumerate().take(known.parameters()) {
            // SAFETY: the caller gives a pointer to each parameter, of 64 bits.
            *place = unsafe { **parameters.add(at) };
        }
        driver.launch_own(id, function, given)
    }

    fn cuMemHostRegister_v2(_memory: *const c_void, _bytes: usize, _flags: u32) = |driver| {
        driver.current()?;
        driver.check_unsafe_call()
    }

    /// The device sees the program's memory where the program does.
    fn cuMemHostGetDevicePointer_v2(there: Out<u64>, memory: *const c_void, _flags: u32) = |driver| {
        there.put(memory as u64)
    }
}
