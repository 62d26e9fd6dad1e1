//! Stream capture and the graphs that come out of it. Graphs can be counted and destroyed, not run.

use crate::call::{Out, driver_calls};
use crate::capture::Mode;
use crate::table::Handle;
use crate::thread;

driver_calls! {
    fn cuStreamBeginCapture_v2(stream: Handle, mode: i32) = |driver| {
        let mode = Mode::from_raw(mode)?;
        let id = driver.resolve(stream)?;
        driver.begin_capture(id, mode)
    }

    /// The graph is NULL when the capture was broken.
    fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) = |driver| {
        let id = driver.resolve(stream)?;
        let ended = driver.end_capture(id);
        graph.put(*ended.as_ref().unwrap_or(&0))?;
        ended.map(drop)
    }

    fn cuStreamIsCapturing(stream: Handle, status: Out<i32>) = |driver| {
        let id = driver.resolve(stream)?;
        status.put(driver.capture_status(id)? as i32)
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<i32>) = |driver| {
        mode.exchange(|mode| Ok(thread::exchange_mode(Mode::from_raw(mode)?) as i32))
    }

    fn cuGraphDestroy(graph: Handle) = |driver| { driver.graphs.remove(graph).map(drop) }
}
