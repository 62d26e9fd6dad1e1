//! What the tests of graphs on the stub driver share: captures, executable graphs, and the replays that a session hands out.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::ffi::c_void;

use warpline::RangeSpec;
use warpline::graph::{GraphZones, RawGraph};
use warpline::record::ReplayRecord;
use warpline::sink::MemorySink;
use warpline_tests::taken;

use crate::harness::driver::{GLOBAL, Handle, SUCCESS, Stub, made};
use crate::harness::zones::raw;

pub const US: u64 = 1_000;

pub fn begin(driver: &Stub, stream: Handle) {
    assert_eq!(driver.cuStreamBeginCapture_v2(stream, GLOBAL), SUCCESS);
}

pub fn end(driver: &Stub, stream: Handle) -> Handle {
    made(|graph| driver.cuStreamEndCapture(stream, graph))
}

pub fn capture(driver: &Stub, stream: Handle, mode: i32, work: impl FnOnce()) -> Handle {
    assert_eq!(driver.cuStreamBeginCapture_v2(stream, mode), SUCCESS);
    work();
    end(driver, stream)
}

/// A kernel that takes so long.
pub fn kernel(driver: &Stub, stream: Handle, us: u64) {
    assert_eq!(driver.stub_launch(stream, us * US), SUCCESS);
}

/// A zone with one kernel.
pub fn zone(driver: &Stub, range: &'static RangeSpec, stream: Handle, us: u64) {
    let _zone = range.zone(&raw(stream)).field("us", us);
    kernel(driver, stream, us);
}

pub fn instantiate(driver: &Stub, graph: Handle) -> Handle {
    made(|exec| driver.cuGraphInstantiateWithFlags(exec, graph, 0))
}

pub fn exec_id(driver: &Stub, exec: Handle) -> u32 {
    let mut id = 0;
    assert_eq!(driver.cuGraphExecGetId(exec, &mut id), SUCCESS);
    id
}

pub fn raw_graph(graph: Handle, exec: Handle) -> RawGraph {
    // SAFETY: the stub driver treats handles as numbers; no other thread uses the graph.
    unsafe { RawGraph::from_ptr(graph as *mut c_void, exec as *mut c_void) }
}

pub fn register(graph: Handle, exec: Handle) -> GraphZones {
    GraphZones::for_graph(&raw_graph(graph, exec)).expect("a graph that is alive")
}

/// A graph that was captured, and an executable one that is registered.
pub struct Captured {
    pub graph: Handle,
    pub exec: Handle,
    pub zones: GraphZones,
}

impl Captured {
    pub fn new(driver: &Stub, stream: Handle, work: impl FnOnce()) -> Captured {
        Captured::read(driver, capture(driver, stream, GLOBAL, work))
    }

    pub fn read(driver: &Stub, graph: Handle) -> Captured {
        let exec = instantiate(driver, graph);
        Captured { graph, exec, zones: register(graph, exec) }
    }

    pub fn raw(&self) -> RawGraph {
        raw_graph(self.graph, self.exec)
    }

    pub fn launch(&self, driver: &Stub, stream: Handle, times: usize) {
        launch(driver, self.exec, stream, times);
    }
}

pub fn launch(driver: &Stub, exec: Handle, stream: Handle, times: usize) {
    for _ in 0..times {
        assert_eq!(driver.cuGraphLaunch(exec, stream), SUCCESS);
    }
}

/// Waits until the collector has handed out so many replays.
#[track_caller]
pub fn wait_for_replays(sink: &MemorySink, count: usize) -> Vec<ReplayRecord> {
    taken(count, || sink.take_replays())
}

/// How long the zone of this range was in a replay.
pub fn length_ns(replay: &ReplayRecord, range: &'static RangeSpec) -> i64 {
    let zone = replay.zones.iter().find(|replayed| std::ptr::eq(replayed.zone.range, range));
    zone.unwrap_or_else(|| panic!("no {}: {replay:?}", range.name())).zone.gpu_ns().expect("timed")
}
