//! Contexts: a device's primary one, those that a program makes, and each thread's current one.
//!
//! To retain a primary context, to release it or to reset it may create or destroy it, so all three count as unsafe in a capture. CUDA's
//! header does not list the unsafe calls, and driver 580.159.04 permits to retain a context that is active.
//!
//! A reset ends what is in the context, and leaves the count of those that retain it (the header, and seen on driver 580.159.04).

use crate::call::{Out, driver_calls};
use crate::code::Code;
use crate::driver::wait_for_streams;
use crate::table::Handle;
use crate::thread;

driver_calls! {
    /// Always the same handle for a device. After a reset, or when nobody had retained it, the context has a new id.
    fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: i32) = |driver| {
        driver.check_unsafe_call()?;
        let device = driver.device(device)?;
        let primary = match driver.primary.get(&device) {
            Some(&primary) => primary,
            None => driver.create_context(device),
        };
        driver.primary.insert(device, primary);
        let id = driver.new_id();
        let of = driver.contexts.get(primary)?;
        if !of.is_active {
            (of.is_active, of.id) = (true, id);
        }
        of.retained += 1;
        context.put(primary)
    }

    fn cuDevicePrimaryCtxRelease_v2(device: i32) = |driver| {
        driver.check_unsafe_call()?;
        let device = driver.device(device)?;
        let primary = *driver.primary.get(&device).ok_or(Code::INVALID_CONTEXT)?;
        let of = driver.contexts.get(primary)?;
        of.retained = of.retained.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
        if of.retained == 0 {
            of.is_active = false;
            driver.end_contents(primary);
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) = |driver| {
        let device = driver.device(device)?;
        let primary = driver.primary.get(&device).copied();
        let is_active = match primary {
            Some(primary) => driver.contexts.get(primary)?.is_active,
            None => false,
        };
        flags.put(0)?;
        active.put(i32::from(is_active))
    }

    fn cuDevicePrimaryCtxReset_v2(device: i32) = |driver| {
        driver.check_unsafe_call()?;
        let device = driver.device(device)?;
        if let Some(&primary) = driver.primary.get(&device) {
            driver.contexts.get(primary)?.is_active = false;
            driver.end_contents(primary);
        }
        Ok(())
    }

    fn cuCtxCreate_v2(context: Out<Handle>, _flags: u32, device: i32) = |driver| {
        let device = driver.device(device)?;
        let made = driver.create_context(device);
        driver.change_current(|| thread::push(made))?;
        context.put(made)
    }

    fn cuCtxDestroy_v2(context: Handle) = |driver| {
        if driver.primary.values().any(|&primary| primary == context) {
            return Err(Code::INVALID_CONTEXT);
        }
        driver.destroy_context(context)?;
        if thread::current() == context {
            thread::pop()?;
        }
        Ok(())
    }

    fn cuCtxGetCurrent(context: Out<Handle>) = |driver| { context.put(thread::current()) }

    fn cuCtxSetCurrent(context: Handle) = |driver| {
        if context != 0 {
            driver.context(context)?;
        }
        driver.change_current(|| thread::set_current(context))
    }

    // The real driver takes a context that was destroyed, and memory is corrupted by what follows (seen on driver
    // 580.159.04): here it is counted.
    fn cuCtxPushCurrent_v2(context: Handle) = |driver| {
        if driver.contexts.is_orphan(context) {
            driver.orphans_pushed += 1;
            return thread::push(context);
        }
        driver.context(context)?;
        driver.change_current(|| thread::push(context))
    }

    fn cuCtxPopCurrent_v2(context: Out<Handle>) = |driver| {
        let mut popped = 0;
        driver.change_current(|| thread::pop().map(|context| popped = context))?;
        context.put_if_wanted(popped);
        Ok(())
    }

    fn cuCtxGetDevice(device: Out<i32>) = |driver| {
        let current = driver.current()?;
        device.put(driver.context(current)?.device)
    }

    /// Waits for all streams of the current context.
    fn cuCtxSynchronize() = |driver| {
        let context = driver.current()?;
        driver.check_unsafe_call()?;
        let streams: Vec<_> =
            driver.streams.iter().filter(|(_, stream)| stream.context == context).map(|(&id, _)| id).collect();
        wait_for_streams(driver, &streams);
        Ok(())
    }
}

#[cfg(not(feature = "old"))]
driver_calls! {
    fn cuCtxGetId(context: Handle, id: Out<u64>) = |driver| {
        let context = if context == 0 { driver.current()? } else { context };
        id.put(driver.context(context)?.id)
    }
}
