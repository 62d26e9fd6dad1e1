//! Streams.

use std::ffi::c_void;

use crate::call::{Out, driver_calls};
use crate::clock::now_ns;
use crate::code::Code;
use crate::driver::{self, EventState, wait_for_streams};
use crate::graph::Kind;
use crate::table::Handle;
use crate::thread;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

driver_calls! {
    fn cuStreamCreate(stream: Out<Handle>, flags: u32) = |driver| {
        stream.put(driver.create_stream(flags & NON_BLOCKING == 0)?)
    }

    fn cuStreamCreateWithPriority(stream: Out<Handle>, flags: u32, _priority: i32) = |driver| {
        stream.put(driver.create_stream(flags & NON_BLOCKING == 0)?)
    }

    fn cuStreamDestroy_v2(stream: Handle) = |driver| { driver.destroy_stream(stream) }

    fn cuStreamGetCtx(stream: Handle, context: Out<Handle>) = |driver| {
        let id = driver.resolve(stream)?;
        context.put(driver.stream_mut(id)?.context)
    }

    fn cuStreamQuery(stream: Handle) = |driver| {
        let id = driver.resolve(stream)?;
        driver.check_not_capturing(id)?;
        driver.check_unsafe_call()?;
        if driver.stream_mut(id)?.free.is_reached(now_ns()) { Ok(()) } else { Err(Code::NOT_READY) }
    }

    fn cuStreamSynchronize(stream: Handle) = |driver| {
        let id = driver.resolve(stream)?;
        driver.check_not_capturing(id)?;
        driver.check_unsafe_call()?;
        wait_for_streams(driver, &[id]);
        Ok(())
    }

    /// An event of a capture takes the stream into that capture.
    fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: u32) = |driver| {
        let id = driver.resolve(stream)?;
        let of_event = match &driver.events.get(event)?.state {
            EventState::Fresh => return Ok(()),
            EventState::Recorded(moment) => Ok(moment.clone()),
            EventState::Captured(capture, nodes) => Err((*capture, nodes.clone())),
        };
        match (of_event, driver.capture_of_work(id)?) {
            (Ok(moment), None) => driver.stream_mut(id)?.free.join(&moment),
            (Ok(_), Some(capture)) => {
                driver.invalidate(&[capture]);
                return Err(Code::CAPTURED_EVENT);
            }
            (Err((capture, nodes)), None) if driver.captures.contains_key(&capture) => {
                let of = driver.stream_mut(id)?;
                (of.capture, of.frontier) = (Some(capture), nodes);
            }
            (Err((capture, nodes)), Some(own)) if capture == own => {
                let frontier = &mut driver.stream_mut(id)?.frontier;
                let new: Vec<_> = nodes.into_iter().filter(|node| !frontier.contains(node)).collect();
                frontier.extend(new);
            }
            (Err(_), _) => return Err(Code::CAPTURED_EVENT),
        }
        Ok(())
    }

    /// Runs the function on a thread of its own when the stream gets there; the stream goes on when it is back.
    fn cuLaunchHostFunc(stream: Handle, function: Option<HostFunction>, data: *mut c_void) = |driver| {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        let id = driver.resolve(stream)?;
        if let Some(capture) = driver.capture_of_work(id)? {
            return driver.capture_node(id, capture, Kind::Host, 0);
        }
        let before = driver.stream_mut(id)?.free.clone();
        let mark = driver.mark(before);
        let gate = driver.shut(id)?;
        let data = Data(data);
        let run = move || {
            drop(driver::wait(driver::lock(), mark));
            thread::enter_host_function();
            data.hand_to(function);
            driver::lock().open(gate);
        };
        std::thread::Builder::new().name("stub stream".to_owned()).spawn(run).map(drop).map_err(|_| Code::UNKNOWN)
    }
}

#[cfg(not(feature = "old"))]
driver_calls! {
    fn cuStreamGetId(stream: Handle, id: Out<u64>) = |driver| {
        let stream = driver.resolve(stream)?;
        driver.check_identity(stream)?;
        id.put(stream)
    }
}

/// `CUhostFn`.
type HostFunction = unsafe extern "C" fn(*mut c_void);

struct Data(*mut c_void);

// SAFETY: who launches a host function gives it data that another thread may use, as CUDA demands.
unsafe impl Send for Data {}

impl Data {
    fn hand_to(self, function: HostFunction) {
        // SAFETY: the caller of cuLaunchHostFunc gave both for exactly this call.
        unsafe { function(self.0) };
    }
}
