//! Events.

use crate::call::{Out, driver_calls};
use crate::clock::now_ns;
use crate::code::Code;
use crate::driver::{self, EventState};
use crate::graph::Kind;
use crate::table::Handle;
use crate::thread;

/// `CU_EVENT_RECORD_EXTERNAL`.
const EXTERNAL: u32 = 1;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;

driver_calls! {
    fn cuEventCreate(event: Out<Handle>, flags: u32) = |driver| {
        event.put(driver.create_event(flags & DISABLE_TIMING == 0)?)
    }

    fn cuEventDestroy_v2(event: Handle) = |driver| { driver.events.remove(event).map(drop) }

    /// In a capture it becomes a part of the capture, which is counted.
    fn cuEventRecord(event: Handle, stream: Handle) = |driver| {
        let id = driver.resolve(stream)?;
        let context = driver.events.get(event)?.context;
        let of_stream = driver.stream_mut(id)?.context;
        if driver.whole(of_stream) != driver.whole(context) {
            return Err(Code::INVALID_HANDLE);
        }
        let state = match driver.capture_of_work(id)? {
            Some(capture) => {
                driver.captured_records += 1;
                EventState::Captured(capture, driver.stream_mut(id)?.frontier.clone())
            }
            None => {
                let is_timed = driver.events.get(event)?.is_timed;
                let takes_ns = match is_timed && !driver.stream_mut(id)?.is_blocking {
                    true => driver.event_costs.next_ns(),
                    false => 0,
                };
                let here = (thread::tid(), id);
                let is_next = driver.event_costs.last.replace(here) == Some(here)
                    && driver.journal.before() == "cuEventRecord"
                    && driver.event_costs.quiet_ns > 0;
                let of = driver.stream_mut(id)?;
                if !is_next {
                    of.free = of.free.next(now_ns());
                }
                let reached = of.free.clone();
                of.free.at_ns += takes_ns;
                EventState::Recorded(reached)
            }
        };
        driver.events.get(event)?.state = state;
        Ok(())
    }

    /// With `CU_EVENT_RECORD_EXTERNAL` a node of the capture, and nothing else.
    fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: u32) = |driver| {
        let id = driver.resolve(stream)?;
        let context = driver.events.get(event)?.context;
        let of_stream = driver.stream_mut(id)?.context;
        if driver.whole(of_stream) != driver.whole(context) {
            return Err(Code::INVALID_HANDLE);
        }
        match driver.capture_of_work(id)? {
            Some(capture) if flags == EXTERNAL => driver.capture_node(id, capture, Kind::Event(event), 0),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuEventQuery(event: Handle) = |driver| {
        driver.events.get(event)?;
        driver.check_unsafe_call()?;
        if driver.is_complete(event)? { Ok(()) } else { Err(Code::NOT_READY) }
    }

    fn cuEventSynchronize(event: Handle) = |driver| {
        driver.events.get(event)?;
        driver.check_unsafe_call()?;
        let moment = match &driver.events.get(event)?.state {
            EventState::Fresh => return Ok(()),
            EventState::Recorded(moment) => moment.clone(),
            EventState::Captured(..) => return Err(Code::CAPTURED_EVENT),
        };
        let mark = driver.mark(moment);
        drop(driver::wait(driver, mark));
        Ok(())
    }

    fn cuEventElapsedTime(ms: Out<f32>, start: Handle, end: Handle) = |driver| {
        ms.put(driver.elapsed_ms(start, end)?)
    }
}

#[cfg(not(feature = "elapsed-v1"))]
driver_calls! {
    fn cuEventElapsedTime_v2(ms: Out<f32>, start: Handle, end: Handle) = |driver| {
        ms.put(driver.elapsed_ms(start, end)?)
    }
}

impl driver::Driver {
    /// The time between two events of one context that are both complete and timed.
    fn elapsed_ms(&mut self, start: Handle, end: Handle) -> Result<f32, Code> {
        let (from, to) = (self.timed(start)?, self.timed(end)?);
        if self.whole(from.0) != self.whole(to.0) {
            return Err(Code::INVALID_HANDLE);
        }
        if !self.is_complete(start)? || !self.is_complete(end)? {
            return Err(Code::NOT_READY);
        }
        Ok(self.clock.elapsed_ms(from.1, to.1))
    }

    /// A timed event's context and its host ns.
    fn timed(&mut self, event: Handle) -> Result<(Handle, i64), Code> {
        let event = self.events.get(event)?;
        match &event.state {
            EventState::Captured(..) => Err(Code::CAPTURED_EVENT),
            EventState::Recorded(moment) if event.is_timed => Ok((event.context, moment.at_ns)),
            _ => Err(Code::INVALID_HANDLE),
        }
    }
}
