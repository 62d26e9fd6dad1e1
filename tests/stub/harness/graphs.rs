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

/// What a graph that is built without a capture is built of.
impl Stub {
    pub fn graph(&self) -> Handle {
        made(|graph| self.cuGraphCreate(graph, 0))
    }

    /// A kernel behind these nodes.
    pub fn add_kernel(&self, graph: Handle, deps: &[Handle]) -> Handle {
        // `CUDA_KERNEL_NODE_PARAMS_v2`, of which the stub reads the function.
        let params: [usize; 9] = [0x7000_0000, 0, 0, 0, 0, 0, 0, 0, 0];
        made(|node| self.cuGraphAddKernelNode_v2(node, graph, deps.as_ptr(), deps.len(), params.as_ptr().cast()))
    }

    pub fn add_child(&self, graph: Handle, deps: &[Handle], child: Handle) -> Handle {
        made(|node| self.cuGraphAddChildGraphNode(node, graph, deps.as_ptr(), deps.len(), child))
    }

    /// A conditional node of this `CUgraphConditionalNodeType`, whose handle has this value, and its bodies.
    pub fn add_conditional(
        &self,
        graph: Handle,
        deps: &[Handle],
        kind: u32,
        value: u32,
        size: u32,
    ) -> (Handle, Vec<Handle>) {
        let mut handle = 0;
        assert_eq!(self.cuGraphConditionalHandleCreate(&mut handle, graph, 0, value, 1), SUCCESS);
        // `CUgraphNodeParams`.
        let mut params = [0_u64; 32];
        (params[0], params[2], params[3]) = (13, handle, u64::from(kind) | u64::from(size) << 32);
        let node = made(|node| {
            self.cuGraphAddNode_v2(node, graph, deps.as_ptr(), std::ptr::null(), deps.len(), params.as_mut_ptr().cast())
        });
        let bodies = params[4] as *const Handle;
        // SAFETY: the stub gives as many bodies as it was asked for, which stay.
        (node, unsafe { std::slice::from_raw_parts(bodies, size as usize) }.to_vec())
    }
}

pub const IF: u32 = 0;
pub const WHILE: u32 = 1;
pub const SWITCH: u32 = 2;

/// A node, as programs have it.
pub fn pointer(node: Handle) -> *mut c_void {
    node as *mut c_void
}
