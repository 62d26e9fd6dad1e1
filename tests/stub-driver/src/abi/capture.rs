//! Stream capture.

use std::ffi::c_void;

use super::graph::List;
use crate::call::{Out, driver_calls};
use crate::capture::{Mode, Status, edge};
use crate::code::Code;
use crate::control::KERNEL;
use crate::driver::Driver;
use crate::graph::Kind;
use crate::page::Page;
use crate::table::Handle;
use crate::thread;

driver_calls! {
    fn cuStreamBeginCapture_v2(stream: Handle, mode: i32) = |driver| {
        let mode = Mode::from_raw(mode)?;
        let id = driver.resolve(stream)?;
        driver.begin_capture(id, mode, None)
    }

    fn cuStreamBeginCaptureToGraph(stream: Handle, graph: Handle, deps: List, _edges: *const c_void, count: usize, mode: i32) = |driver| {
        let mode = Mode::from_raw(mode)?;
        driver.graphs.get(graph)?;
        let id = driver.resolve(stream)?;
        driver.begin_capture(id, mode, Some((graph, deps.get(count))))
    }

    /// The graph is NULL when the capture was broken.
    fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) = |driver| {
        let id = driver.resolve(stream)?;
        let ended = driver.end_capture(id);
        graph.put(*ended.as_ref().unwrap_or(&0))?;
        ended.map(drop)
    }

    /// Only to replace what the stream stands behind.
    fn cuStreamUpdateCaptureDependencies_v2(stream: Handle, deps: List, edges: List, count: usize, flags: u32) = |driver| {
        if flags != 1 {
            return Err(Code::NOT_SUPPORTED);
        }
        let id = driver.resolve(stream)?;
        driver.stand(id, deps.get(count), &edges.get(count))
    }

    fn cuStreamIsCapturing(stream: Handle, status: Out<i32>) = |driver| {
        let id = driver.resolve(stream)?;
        status.put(driver.capture_status(id)? as i32)
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<i32>) = |driver| {
        mode.exchange(|mode| Ok(thread::exchange_mode(Mode::from_raw(mode)?) as i32))
    }

    fn cuStreamGetCaptureInfo_v2(stream: Handle, status: Out<i32>, capture: Out<u64>, graph: Out<Handle>, frontier: Out<*const Handle>, count: Out<usize>) = |driver| {
        let id = driver.resolve(stream)?;
        if frontier.is_wanted() && !driver.stream_mut(id)?.by_launch.is_empty() {
            return Err(Code::LOSSY_QUERY);
        }
        tell(&mut driver, stream, status, capture, graph, (frontier, None), count)
    }

    fn cuStreamGetCaptureInfo_v3(stream: Handle, status: Out<i32>, capture: Out<u64>, graph: Out<Handle>, frontier: Out<*const Handle>, edges: Out<*const c_void>, count: Out<usize>) = |driver| {
        tell(&mut driver, stream, status, capture, graph, (frontier, Some(edges)), count)
    }
}

/// The state of a stream's capture. Only an active one tells more than that.
fn tell(
    driver: &mut Driver,
    stream: Handle,
    status: Out<i32>,
    capture: Out<u64>,
    graph: Out<Handle>,
    (frontier, edges): (Out<*const Handle>, Option<Out<*const c_void>>),
    count: Out<usize>,
) -> Result<(), Code> {
    let id = driver.resolve(stream)?;
    let is = driver.capture_status(id)?;
    status.put(is as i32)?;
    if is != Status::Active {
        return Ok(());
    }
    let Some(place) = driver.capture_place(id)? else { return Err(Code::UNKNOWN) };
    let nodes = place.frontier.to_vec();
    capture.put_if_wanted(place.capture);
    graph.put_if_wanted(place.graph);
    count.put_if_wanted(nodes.len());
    let page = Page::new(&nodes).ok_or(Code::OUT_OF_MEMORY)?;
    frontier.put_if_wanted(page.as_ptr());
    let of = driver.stream_mut(id)?;
    let data: Vec<_> = nodes.iter().map(|node| edge(&of.by_launch, *node)).collect();
    let data = if of.by_launch.is_empty() { None } else { Page::new(&data) };
    if let Some(edges) = edges {
        edges.put_if_wanted(data.as_ref().map_or(std::ptr::null(), |page| page.as_ptr().cast()));
    }
    (of.told, of.told_edges) = (Some(page), data);
    if driver.overtaken > 0 {
        // As if another thread launched a kernel before the caller has read the array.
        driver.overtaken -= 1;
        driver.stream_mut(id)?.told = None;
        driver.launch(id, 0, Kind::Kernel(KERNEL))?;
    }
    Ok(())
}
