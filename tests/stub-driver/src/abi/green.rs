//! Green contexts. Events and kernels of the primary context may be put on their streams, and the other way round (seen on driver 580.159.04).

use crate::call::{Out, driver_calls};
use crate::code::Code;
use crate::driver::{Context, Driver};
use crate::table::Handle;

/// `CU_GREEN_CTX_DEFAULT_STREAM`, `CU_STREAM_NON_BLOCKING`: both are required.
const DEFAULT_STREAM: u32 = 1;
const NON_BLOCKING: u32 = 1;

/// By so much a green context's handle is greater than that of the context that it is converted to.
const GREEN: Handle = 8;

driver_calls! {
    /// A part of the primary context, which it retains.
    fn cuGreenCtxCreate(green: Out<Handle>, _resources: Handle, device: i32, flags: u32) = |driver| {
        let device = driver.device(device)?;
        let primary = *driver.primary.get(&device).ok_or(Code::INVALID_VALUE)?;
        if flags != DEFAULT_STREAM {
            return Err(Code::INVALID_VALUE);
        }
        driver.context(primary)?.retained += 1;
        let id = driver.new_id();
        let context = driver.contexts.insert(Context { device, id, is_active: true, retained: 0, part_of: Some(primary) });
        green.put(context + GREEN)
    }

    fn cuGreenCtxDestroy(green: Handle) = |driver| {
        let primary = driver.context(green - GREEN)?.part_of.ok_or(Code::INVALID_CONTEXT)?;
        driver.destroy_context(green - GREEN)?;
        driver.context(primary)?.retained -= 1;
        Ok(())
    }

    fn cuCtxFromGreenCtx(context: Out<Handle>, green: Handle) = |driver| {
        driver.context(green - GREEN)?;
        context.put(green - GREEN)
    }

    fn cuGreenCtxStreamCreate(stream: Out<Handle>, green: Handle, flags: u32, _priority: i32) = |driver| {
        driver.context(green - GREEN)?;
        if flags != NON_BLOCKING {
            return Err(Code::INVALID_VALUE);
        }
        let id = driver.add_stream(green - GREEN, false);
        stream.put(driver.stream_handles.insert(id))
    }

    fn cuStreamGetGreenCtx(stream: Handle, green: Out<Handle>) = |driver| { green.put(driver.contexts_of(stream)?.1) }
}

#[cfg(not(feature = "elapsed-v1"))]
driver_calls! {
    fn cuStreamGetCtx_v2(stream: Handle, context: Out<Handle>, green: Out<Handle>) = |driver| {
        let contexts = driver.contexts_of(stream)?;
        context.put(contexts.0)?;
        green.put(contexts.1)
    }
}

impl Driver {
    /// A stream's regular context, and its green one or 0.
    fn contexts_of(&mut self, stream: Handle) -> Result<(Handle, Handle), Code> {
        let id = self.resolve(stream)?;
        let context = self.stream_mut(id)?.context;
        let regular = self.whole(context);
        Ok((regular, if regular == context { 0 } else { context + GREEN }))
    }
}
