//! The driver's functions for captures and graphs, in a symbol table of our own.
//!
//! `Driver::capture` is the only query, besides whether a stream is being captured, that does not break a capture. Several threads may call
//! it for one stream. Zones on capturing streams use it. `crate::graph` uses the other functions, for graphs that its caller holds and that
//! are no longer being captured, because the driver does not lock graphs. Every symbol is optional: drivers for 12.0 lack some, and drivers
//! before 13.1 lack others. What a missing symbol would return is unknown. Nothing here changes a graph; `Driver::stand` changes the
//! position of a stream in one.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use super::copy::copy;
use super::demangle::readable_name;
use super::driver::{Code, CudaError, Driver, SUCCESS, StreamPtr};

/// A `CUgraph`, `CUgraphExec` or `CUgraphNode`. Only the driver interprets it.
pub(crate) type Handle = usize;

/// `CU_STREAM_CAPTURE_STATUS_ACTIVE` and `_INVALIDATED`.
const ACTIVE: c_int = 1;
const INVALIDATED: c_int = 2;

/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`, `CUDA_ERROR_NOT_FOUND`.
const CAPTURE_INVALIDATED: Code = 901;
const NOT_FOUND: Code = 500;
/// `CUDA_ERROR_ILLEGAL_STATE`.
const ILLEGAL_STATE: Code = 401;

const CAPTURE_INFO: &str = "cuStreamGetCaptureInfo";

/// The maximum number of queries for the position of a stream that other threads use at the same time.
const QUESTIONS: u32 = 8;

/// `CUgraphEdgeData`: the port of the node before the edge, the port of the node after it, and the type.
type EdgeData = [u8; 8];

/// `CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER` and `CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC`: the next kernel waits until this one has begun. If
/// the next node is not a kernel, the driver makes this an ordinary edge.
const LAUNCH_ORDER: EdgeData = [2, 0, 1, 0, 0, 0, 0, 0];

/// `CU_STREAM_SET_CAPTURE_DEPENDENCIES`.
const SET: c_uint = 1;

table! {
    optional
    capture_info_v2: b"cuStreamGetCaptureInfo_v2\0"
        fn(StreamPtr, *mut c_int, *mut u64, *mut *mut c_void, *mut *const *mut c_void, *mut usize);
    capture_info_v3: b"cuStreamGetCaptureInfo_v3\0"
        fn(StreamPtr, *mut c_int, *mut u64, *mut *mut c_void, *mut *const *mut c_void, *mut *const EdgeData, *mut usize);
    update_dependencies: b"cuStreamUpdateCaptureDependencies\0" fn(StreamPtr, *const *mut c_void, usize, c_uint);
    update_dependencies_v2: b"cuStreamUpdateCaptureDependencies_v2\0"
        fn(StreamPtr, *const *mut c_void, *const EdgeData, usize, c_uint);
    get_nodes: b"cuGraphGetNodes\0" fn(*mut c_void, *mut *mut c_void, *mut usize);
    get_edges: b"cuGraphGetEdges\0" fn(*mut c_void, *mut *mut c_void, *mut *mut c_void, *mut usize);
    get_edges_v2: b"cuGraphGetEdges_v2\0" fn(*mut c_void, *mut *mut c_void, *mut *mut c_void, *mut EdgeData, *mut usize);
    node_get_type: b"cuGraphNodeGetType\0" fn(*mut c_void, *mut c_int);
    node_get_tools_id: b"cuGraphNodeGetToolsId\0" fn(*mut c_void, *mut u64);
    graph_get_id: b"cuGraphGetId\0" fn(*mut c_void, *mut c_uint);
    exec_get_id: b"cuGraphExecGetId\0" fn(*mut c_void, *mut c_uint);
    child_get_graph: b"cuGraphChildGraphNodeGetGraph\0" fn(*mut c_void, *mut *mut c_void);
    node_get_params: b"cuGraphNodeGetParams\0" fn(*mut c_void, *mut NodeParams);
    find_in_clone: b"cuGraphNodeFindInClone\0" fn(*mut *mut c_void, *mut c_void, *mut c_void);
    kernel_get_params: b"cuGraphKernelNodeGetParams_v2\0" fn(*mut c_void, *mut KernelParams);
    func_get_name: b"cuFuncGetName\0" fn(*mut *const c_char, *mut c_void);
    kernel_get_name: b"cuKernelGetName\0" fn(*mut *const c_char, *mut c_void);
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
struct KernelParams {
    func: *mut c_void,
    /// Grid, block, bytes of shared memory.
    sizes: [c_uint; 7],
    params: *mut c_void,
    extra: *mut c_void,
    kern: *mut c_void,
    ctx: *mut c_void,
}

const _: () = assert!(size_of::<usize>() != 8 || size_of::<KernelParams>() == 72);

/// `CUgraphNodeParams`, as it is for a conditional node.
#[repr(C)]
struct NodeParams {
    kind: c_int,
    reserved: [c_int; 3],
    handle: u64,
    condition: c_int,
    size: c_uint,
    bodies: *const *mut c_void,
    rest: [u64; 27],
}

const _: () = assert!(size_of::<usize>() != 8 || size_of::<NodeParams>() == 256);

/// `CU_GRAPH_NODE_TYPE_CONDITIONAL`, and the maximum number of bodies of one.
const CONDITIONAL: c_int = 13;
const MOST_BODIES: usize = 1 << 16;

/// The position of a stream in the graph into which it is being captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CapturePosition {
    /// Identifies the capture; unique for the life of the process.
    pub(crate) capture: u64,
    pub(crate) graph: Handle,
    /// The nodes on which the next node of the stream will depend.
    pub(crate) frontier: Box<[Handle]>,
    /// The edge data for each of these nodes; empty if all edges are ordinary.
    edges: Box<[EdgeData]>,
}

impl CapturePosition {
    /// Returns the position directly after one node of the same capture.
    pub(super) fn behind(&self, node: Handle) -> CapturePosition {
        CapturePosition { frontier: Box::new([node]), edges: Box::default(), ..self.clone() }
    }

    /// Returns the position directly after a kernel, where the next kernel waits only until that kernel has begun.
    pub(super) fn behind_launch(&self, kernel: Handle) -> CapturePosition {
        CapturePosition { edges: Box::new([LAUNCH_ORDER]), ..self.behind(kernel) }
    }

    /// Returns the same position with ordinary edges, so that the next node waits for all preceding work; none if it does so already.
    pub(super) fn behind_all(&self) -> Option<CapturePosition> {
        (!self.edges.is_empty()).then(|| CapturePosition { edges: Box::default(), ..self.clone() })
    }
}

/// The driver's answer about a stream's capture. The arrays belong to the driver, which may free them.
struct CaptureInfo {
    capture: u64,
    graph: Handle,
    nodes: *const *mut c_void,
    edges: *const EdgeData,
    count: usize,
}

impl CaptureInfo {
    /// Copies the position; none if the arrays are no longer readable. If they were freed, the copy may have arbitrary content.
    fn place(&self) -> Option<CapturePosition> {
        let count = if self.nodes.is_null() { 0 } else { self.count };
        let nodes = copy::<{ size_of::<Handle>() }>(self.nodes.cast(), count)?;
        let edges = copy(self.edges.cast(), if self.edges.is_null() { 0 } else { count })?;
        let is_usual = edges.iter().all(|edge| *edge == EdgeData::default());
        Some(CapturePosition {
            capture: self.capture,
            graph: self.graph,
            frontier: nodes.iter().map(|node| Handle::from_ne_bytes(*node)).collect(),
            edges: if is_usual { Box::default() } else { edges },
        })
    }
}

/// A kernel, by whichever of two kinds of handles its node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    Function(Handle),
    Kernel(Handle),
}

fn symbols(driver: &Driver) -> &'static Symbols {
    static SYMBOLS: OnceLock<Symbols> = OnceLock::new();
    SYMBOLS.get_or_init(|| Symbols::load(&driver.library))
}

fn absent(call: &'static str) -> CudaError {
    CudaError { call, code: NOT_FOUND }
}

/// Returns the result that a call writes to a pointer, where `value` is before the call. None if it fails or has no symbol.
fn told<T>(mut value: T, ask: impl FnOnce(*mut T) -> Option<Code>) -> Option<T> {
    (ask(&raw mut value)? == SUCCESS).then_some(value)
}

fn pointer(handle: Handle) -> *mut c_void {
    handle as *mut c_void
}

impl Driver {
    /// Returns the position of the stream in its capture; none while it is not being captured. This query does not break the stream's
    /// capture, from any thread and in any capture mode.
    ///
    /// The driver returns an array of its own, which it may free at the next call for the stream or at the end of the capture, by any
    /// thread. So the kernel copies the array, and the answer is accepted when two queries in a row agree.
    ///
    /// # Errors
    /// The driver fails, or other threads use the stream so often that no two answers agree.
    pub(super) fn capture(&self, stream: StreamPtr) -> Result<Option<CapturePosition>, CudaError> {
        let mut before = None;
        for _ in 0..QUESTIONS {
            let Some(told) = self.capture_info(stream)? else { return Ok(None) };
            match told.place() {
                Some(place) if place.frontier.is_empty() || before.as_ref() == Some(&place) => return Ok(Some(place)),
                place => before = place,
            }
        }
        Err(CudaError { call: CAPTURE_INFO, code: ILLEGAL_STATE })
    }

    /// Queries the driver about the stream's capture.
    fn capture_info(&self, stream: StreamPtr) -> Result<Option<CaptureInfo>, CudaError> {
        let symbols = symbols(self);
        let (mut status, mut capture, mut graph) = (0, 0, std::ptr::null_mut());
        let (mut nodes, mut edges, mut count) = (std::ptr::null(), std::ptr::null(), 0);
        let code = match (symbols.capture_info_v3, symbols.capture_info_v2) {
            // SAFETY: valid out-pointers, and a stream whose owner vouches for it.
            (Some(info), _) => unsafe {
                info(
                    stream,
                    &raw mut status,
                    &raw mut capture,
                    &raw mut graph,
                    &raw mut nodes,
                    &raw mut edges,
                    &raw mut count,
                )
            },
            // SAFETY: as above.
            (None, Some(info)) => unsafe {
                info(stream, &raw mut status, &raw mut capture, &raw mut graph, &raw mut nodes, &raw mut count)
            },
            (None, None) => return Err(absent(CAPTURE_INFO)),
        };
        self.check(CAPTURE_INFO, code)?;
        match status {
            ACTIVE => Ok(Some(CaptureInfo { capture, graph: graph as Handle, nodes, edges, count })),
            INVALIDATED => Err(CudaError { call: CAPTURE_INFO, code: CAPTURE_INVALIDATED }),
            _ => Ok(None),
        }
    }

    /// Returns whether the driver has [`stand`](Self::stand).
    pub(super) fn can_stand(&self) -> bool {
        let symbols = symbols(self);
        symbols.update_dependencies_v2.is_some() || symbols.update_dependencies.is_some()
    }

    /// Returns whether a position may have [edges by launch order](CapturePosition::behind_launch).
    pub(super) fn can_stand_behind_launches(&self) -> bool {
        symbols(self).update_dependencies_v2.is_some()
    }

    /// Moves a stream that is being captured to this position of its capture. Nodes on which the stream depended before need
    /// not be joined.
    ///
    /// # Errors
    /// The driver fails, or the stream is in another capture or in none, because another thread has ended the capture of the position.
    pub(super) fn stand(&self, stream: StreamPtr, at: &CapturePosition) -> Result<(), CudaError> {
        const CALL: &str = "cuStreamUpdateCaptureDependencies";
        if self.capture_info(stream)?.is_none_or(|told| told.capture != at.capture) {
            return Err(CudaError { call: CALL, code: ILLEGAL_STATE });
        }
        let symbols = symbols(self);
        let count = at.frontier.len();
        let nodes = if count == 0 { std::ptr::null() } else { at.frontier.as_ptr().cast::<*mut c_void>() };
        let edges = if at.edges.is_empty() { std::ptr::null() } else { at.edges.as_ptr() };
        let code = match (symbols.update_dependencies_v2, symbols.update_dependencies) {
            // SAFETY: the stream's owner vouches for it; handles are numbers as wide as pointers; there are no edges, or as many as
            // nodes. The nodes are of its capture, which went on just now: no thread may end it in this moment, destroy its graph,
            // and begin another one on the stream (docs/graphs.md, under timing inside replays).
            (Some(update), _) => unsafe { update(stream, nodes, edges, count, SET) },
            // SAFETY: as above.
            (None, Some(update)) if edges.is_null() => unsafe { update(stream, nodes, count, SET) },
            _ => return Err(absent(CALL)),
        };
        self.check(CALL, code)
    }

    /// Returns all nodes of a graph, in the driver's order.
    pub(crate) fn graph_nodes(&self, graph: Handle) -> Result<Vec<Handle>, CudaError> {
        const CALL: &str = "cuGraphGetNodes";
        let get = symbols(self).get_nodes.ok_or(absent(CALL))?;
        let mut count = 0;
        // SAFETY: the caller vouches for the graph; without an array the driver only counts the nodes.
        self.check(CALL, unsafe { get(pointer(graph), std::ptr::null_mut(), &raw mut count) })?;
        let mut nodes = vec![std::ptr::null_mut(); count];
        if count > 0 {
            // SAFETY: as above, with an array of the length that is passed.
            self.check(CALL, unsafe { get(pointer(graph), nodes.as_mut_ptr(), &raw mut count) })?;
            nodes.truncate(count);
        }
        Ok(nodes.into_iter().map(|node: *mut c_void| node as Handle).collect())
    }

    /// Returns all edges of a graph, each from a node to one that depends on it.
    pub(crate) fn graph_edges(&self, graph: Handle) -> Result<Vec<(Handle, Handle)>, CudaError> {
        const CALL: &str = "cuGraphGetEdges";
        let symbols = symbols(self);
        let get = |from: *mut *mut c_void, to: *mut *mut c_void, data: *mut EdgeData, count: &mut usize| {
            let code = match (symbols.get_edges_v2, symbols.get_edges) {
                // SAFETY: the caller vouches for the graph; each array is null, or has the length that is passed.
                (Some(get), _) => unsafe { get(pointer(graph), from, to, data, count) },
                // SAFETY: as above.
                (None, Some(get)) => unsafe { get(pointer(graph), from, to, count) },
                (None, None) => return Err(absent(CALL)),
            };
            self.check(CALL, code)
        };
        let mut count = 0;
        get(std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut(), &mut count)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut from: Vec<*mut c_void> = vec![std::ptr::null_mut(); count];
        let mut to = from.clone();
        // Programmatic edges have data, and the driver does not return them without an array for it.
        let mut data = vec![[0; 8]; count];
        get(from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut count)?;
        Ok(from.into_iter().zip(to).take(count).map(|(from, to)| (from as Handle, to as Handle)).collect())
    }

    /// Returns a node's type, as numbered in CUDA's headers.
    pub(crate) fn node_type(&self, node: Handle) -> Option<i32> {
        // SAFETY: the caller vouches for the node; a valid out-pointer.
        told(0, |kind| unsafe { Some(symbols(self).node_get_type?(pointer(node), kind)) })
    }

    /// Returns the id by which tools identify a node: drivers for 13.1 and newer.
    pub(crate) fn node_tools_id(&self, node: Handle) -> Option<u64> {
        // SAFETY: as above.
        told(0, |id| unsafe { Some(symbols(self).node_get_tools_id?(pointer(node), id)) })
    }

    /// Returns a graph's id: drivers for 13.1 and newer.
    pub(crate) fn graph_id(&self, graph: Handle) -> Option<u32> {
        // SAFETY: as above, of a graph.
        told(0, |id| unsafe { Some(symbols(self).graph_get_id?(pointer(graph), id)) })
    }

    /// Returns an executable graph's id: drivers for 13.1 and newer.
    pub(crate) fn exec_id(&self, exec: Handle) -> Option<u32> {
        // SAFETY: as above, of an executable graph.
        told(0, |id| unsafe { Some(symbols(self).exec_get_id?(pointer(exec), id)) })
    }

    /// Returns the graph inside a child-graph node.
    pub(crate) fn child_graph(&self, node: Handle) -> Option<Handle> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: as above; the driver refuses a node of another type.
        let code = unsafe { symbols(self).child_get_graph?(pointer(node), &raw mut graph) };
        (code == SUCCESS && !graph.is_null()).then_some(graph as Handle)
    }

    /// Returns the graphs of a conditional node's bodies: drivers for 13.2 and newer.
    pub(crate) fn bodies(&self, node: Handle) -> Option<Vec<Handle>> {
        let null = std::ptr::null();
        let mut params =
            NodeParams { kind: 0, reserved: [0; 3], handle: 0, condition: 0, size: 0, bodies: null, rest: [0; 27] };
        // SAFETY: the caller vouches for the node; the driver fills a structure of this size.
        let code = unsafe { symbols(self).node_get_params?(pointer(node), &raw mut params) };
        let count = params.size as usize;
        if code != SUCCESS || params.kind != CONDITIONAL || params.bodies.is_null() || count > MOST_BODIES {
            return None;
        }
        // SAFETY: the array has `size` graphs, and is the driver's as long as the node exists.
        let bodies = unsafe { std::slice::from_raw_parts(params.bodies, count) };
        Some(bodies.iter().map(|body| *body as Handle).collect())
    }

    /// Returns the node in a clone that corresponds to a node of the original graph.
    pub(crate) fn node_in_clone(&self, node: Handle, clone: Handle) -> Option<Handle> {
        let mut found = std::ptr::null_mut();
        // SAFETY: as above; the driver refuses a graph that is not a clone of the node's graph.
        let code = unsafe { symbols(self).find_in_clone?(&raw mut found, pointer(node), pointer(clone)) };
        (code == SUCCESS && !found.is_null()).then_some(found as Handle)
    }

    /// Returns the launch parameters of a kernel node.
    fn kernel_params(&self, node: Handle) -> Option<KernelParams> {
        let null = std::ptr::null_mut();
        let empty = KernelParams { func: null, sizes: [0; 7], params: null, extra: null, kern: null, ctx: null };
        // SAFETY: the caller vouches for the node; the driver refuses a node of another type.
        told(empty, |params| unsafe { Some(symbols(self).kernel_get_params?(pointer(node), params)) })
    }

    /// Returns the kernel that a kernel node launches.
    pub(crate) fn node_function(&self, node: Handle) -> Option<Function> {
        let params = self.kernel_params(node)?;
        match (params.func.is_null(), params.kern.is_null()) {
            (false, _) => Some(Function::Function(params.func as Handle)),
            (true, false) => Some(Function::Kernel(params.kern as Handle)),
            (true, true) => None,
        }
    }

    /// Returns the second parameter of a warpline kernel that takes two numbers.
    pub(super) fn second_parameter(&self, node: Handle) -> Option<u64> {
        let params = self.kernel_params(node)?;
        if params.params.is_null() {
            return None;
        }
        // SAFETY: the driver gives a pointer to each of the kernel's two parameters; the node owns them.
        let second = unsafe { *params.params.cast::<*const u64>().add(1) };
        // SAFETY: as above; the parameter is a 64-bit number.
        (!second.is_null()).then(|| unsafe { second.read_unaligned() })
    }

    /// Returns a kernel's name: drivers for 12.3 and newer.
    pub(crate) fn function_name(&self, function: Function) -> Option<String> {
        let mut name: *const c_char = std::ptr::null();
        let code = match function {
            // SAFETY: a valid out-pointer, and a function that a node of a live graph has.
            Function::Function(handle) => unsafe { symbols(self).func_get_name?(&raw mut name, pointer(handle)) },
            // SAFETY: as above, a kernel.
            Function::Kernel(handle) => unsafe { symbols(self).kernel_get_name?(&raw mut name, pointer(handle)) },
        };
        // SAFETY: the driver guarantees that the name is not null and is NUL-terminated; it lives as long as the module.
        let text = |name| readable_name(&unsafe { CStr::from_ptr(name) }.to_string_lossy()).into_owned();
        (code == SUCCESS && !name.is_null()).then(|| text(name))
    }
}
