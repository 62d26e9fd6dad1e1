//! What the driver tells of captures and graphs, through our own table of symbols.
//!
//! Zones on capturing streams ask `Driver::capture`, which is the one question that a capture stands besides whether there
//! is one, and which several threads may ask of one stream; `crate::graph` asks the rest about graphs that the caller holds, never about one that is still being captured:
//! the driver does not lock graphs. Every symbol is optional, since drivers for 12.0 lack some and those before 13.1 more;
//! what cannot be asked is not known. Nothing here changes a graph; `Driver::stand` changes where a stream stands in one.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use super::copy::copy;
use super::demangle::readable_name;
use super::driver::{Code, CudaError, Driver, SUCCESS, StreamPtr};

/// A `CUgraph`, `CUgraphExec` or `CUgraphNode`: a number to everybody but the driver.
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

/// How often a stream that other threads use, too, is asked where it stands.
const QUESTIONS: u32 = 8;

/// `CUgraphEdgeData`.
type EdgeData = [u8; 8];

/// `CU_STREAM_SET_CAPTURE_DEPENDENCIES`.
const SET: c_uint = 1;

macro_rules! table {
    ($($field:ident: $symbol:literal fn($($argument:ty),*);)*) => {
        /// The symbols. Whoever calls one passes handles that the caller vouches for, or out-pointers of the right type.
        struct Symbols {
            $($field: Option<unsafe extern "C" fn($($argument),*) -> Code>,)*
        }

        impl Symbols {
            fn load(library: &libloading::Library) -> Symbols {
                Symbols {
                    $($field: {
                        // SAFETY: the type is the one that CUDA's headers declare for this symbol.
                        let symbol = unsafe { library.get($symbol) };
                        symbol.ok().map(|symbol| *symbol)
                    },)*
                }
            }
        }
    };
}

table! {
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

/// Where a stream stands in the graph that it is being captured into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CapturePosition {
    /// Names the capture in this process for ever.
    pub(crate) capture: u64,
    pub(crate) graph: Handle,
    /// What the next node on the stream will depend on.
    pub(crate) frontier: Box<[Handle]>,
    /// How, for each of them; empty where all of it is as usual.
    edges: Box<[EdgeData]>,
}

impl CapturePosition {
    /// Right behind one node of the same capture.
    pub(super) fn behind(&self, node: Handle) -> CapturePosition {
        CapturePosition { frontier: Box::new([node]), edges: Box::default(), ..self.clone() }
    }
}

/// What the driver says of a stream's capture. The arrays are the driver's, and may be gone.
struct CaptureInfo {
    capture: u64,
    graph: Handle,
    nodes: *const *mut c_void,
    edges: *const EdgeData,
    count: usize,
}

impl CaptureInfo {
    /// A copy; none where the arrays are gone. What has been freed may still be copied, whatever it holds by now.
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

/// A kernel, by whichever of its two kinds of handles the node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    Function(Handle),
    Kernel(Handle),
}

fn symbols(driver: &Driver) -> &'static Symbols {
    static SYMBOLS: OnceLock<Symbols> = OnceLock::new();
    SYMBOLS.get_or_init(|| Symbols::load(driver.library))
}

fn absent(call: &'static str) -> CudaError {
    CudaError { call, code: NOT_FOUND }
}

fn pointer(handle: Handle) -> *mut c_void {
    handle as *mut c_void
}

impl Driver {
    /// Where the stream stands in its capture; none while it is not being captured. The stream's capture stands the question,
    /// on every thread and in every mode.
    ///
    /// The driver answers with an array of its own, which it may free at the next call for the stream or at the capture's end,
    /// by any thread. So the kernel copies it, and the answer is believed when it comes twice.
    ///
    /// # Errors
    /// The driver refuses, or other threads use the stream so often that no answer comes twice.
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

    /// What the driver says of the stream's capture now.
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

    /// Whether [`stand`](Self::stand) can be asked for.
    pub(super) fn can_stand(&self) -> bool {
        let symbols = symbols(self);
        symbols.update_dependencies_v2.is_some() || symbols.update_dependencies.is_some()
    }

    /// Has a stream that is being captured stand at this place of its capture. Nodes that it stood behind, and does not any more, need
    /// not be joined.
    ///
    /// # Errors
    /// The stream is in another capture, or in none: another thread has ended the one of the place. Or the driver refuses.
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

    /// All nodes of a graph, in the driver's order.
    pub(crate) fn graph_nodes(&self, graph: Handle) -> Result<Vec<Handle>, CudaError> {
        const CALL: &str = "cuGraphGetNodes";
        let get = symbols(self).get_nodes.ok_or(absent(CALL))?;
        let mut count = 0;
        // SAFETY: the caller vouches for the graph; with no place for nodes the driver only counts them.
        self.check(CALL, unsafe { get(pointer(graph), std::ptr::null_mut(), &raw mut count) })?;
        let mut nodes = vec![std::ptr::null_mut(); count];
        if count > 0 {
            // SAFETY: as above, with room for as many as it is told.
            self.check(CALL, unsafe { get(pointer(graph), nodes.as_mut_ptr(), &raw mut count) })?;
            nodes.truncate(count);
        }
        Ok(nodes.into_iter().map(|node: *mut c_void| node as Handle).collect())
    }

    /// All edges of a graph, from a node to one that depends on it.
    pub(crate) fn graph_edges(&self, graph: Handle) -> Result<Vec<(Handle, Handle)>, CudaError> {
        const CALL: &str = "cuGraphGetEdges";
        let symbols = symbols(self);
        let get = |from: *mut *mut c_void, to: *mut *mut c_void, data: *mut EdgeData, count: &mut usize| {
            let code = match (symbols.get_edges_v2, symbols.get_edges) {
                // SAFETY: the caller vouches for the graph; each list is null, or has room for as many as it is told.
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
        // A programmatic edge has data, and the driver does not tell of one without a place for them.
        let mut data = vec![[0; 8]; count];
        get(from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut count)?;
        Ok(from.into_iter().zip(to).take(count).map(|(from, to)| (from as Handle, to as Handle)).collect())
    }

    /// The number of a node's type, as CUDA's headers have it.
    pub(crate) fn node_type(&self, node: Handle) -> Option<i32> {
        let mut kind = 0;
        // SAFETY: the caller vouches for the node; a valid out-pointer.
        let code = unsafe { symbols(self).node_get_type?(pointer(node), &raw mut kind) };
        (code == SUCCESS).then_some(kind)
    }

    /// The id by which tools know a node: drivers for 13.1 and newer.
    pub(crate) fn node_tools_id(&self, node: Handle) -> Option<u64> {
        let mut id = 0;
        // SAFETY: as above.
        let code = unsafe { symbols(self).node_get_tools_id?(pointer(node), &raw mut id) };
        (code == SUCCESS).then_some(id)
    }

    /// A graph's id: drivers for 13.1 and newer.
    pub(crate) fn graph_id(&self, graph: Handle) -> Option<u32> {
        let mut id = 0;
        // SAFETY: as above, of a graph.
        let code = unsafe { symbols(self).graph_get_id?(pointer(graph), &raw mut id) };
        (code == SUCCESS).then_some(id)
    }

    /// An executable graph's id: drivers for 13.1 and newer.
    pub(crate) fn exec_id(&self, exec: Handle) -> Option<u32> {
        let mut id = 0;
        // SAFETY: as above, of an executable graph.
        let code = unsafe { symbols(self).exec_get_id?(pointer(exec), &raw mut id) };
        (code == SUCCESS).then_some(id)
    }

    /// The graph inside a child-graph node.
    pub(crate) fn child_graph(&self, node: Handle) -> Option<Handle> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: as above; the driver refuses a node of another type.
        let code = unsafe { symbols(self).child_get_graph?(pointer(node), &raw mut graph) };
        (code == SUCCESS && !graph.is_null()).then_some(graph as Handle)
    }

    /// The node of a clone that a node became.
    pub(crate) fn node_in_clone(&self, node: Handle, clone: Handle) -> Option<Handle> {
        let mut found = std::ptr::null_mut();
        // SAFETY: as above; the driver refuses a graph that is no clone of the node's.
        let code = unsafe { symbols(self).find_in_clone?(&raw mut found, pointer(node), pointer(clone)) };
        (code == SUCCESS && !found.is_null()).then_some(found as Handle)
    }

    /// What a kernel node launches, and with which parameters.
    fn kernel_params(&self, node: Handle) -> Option<KernelParams> {
        let null = std::ptr::null_mut();
        let mut params = KernelParams { func: null, sizes: [0; 7], params: null, extra: null, kern: null, ctx: null };
        // SAFETY: the caller vouches for the node; the driver refuses a node of another type.
        let code = unsafe { symbols(self).kernel_get_params?(pointer(node), &raw mut params) };
        (code == SUCCESS).then_some(params)
    }

    /// The kernel that a kernel node launches.
    pub(crate) fn node_function(&self, node: Handle) -> Option<Function> {
        let params = self.kernel_params(node)?;
        match (params.func.is_null(), params.kern.is_null()) {
            (false, _) => Some(Function::Function(params.func as Handle)),
            (true, false) => Some(Function::Kernel(params.kern as Handle)),
            (true, true) => None,
        }
    }

    /// The second parameter of a kernel of our own that takes two numbers.
    pub(super) fn second_parameter(&self, node: Handle) -> Option<u64> {
        let params = self.kernel_params(node)?;
        if params.params.is_null() {
            return None;
        }
        // SAFETY: the driver gives a pointer to each of the kernel's parameters, of which there are two; the node owns them.
        let second = unsafe { *params.params.cast::<*const u64>().add(1) };
        // SAFETY: as above; it is a number of 64 bits.
        (!second.is_null()).then(|| unsafe { second.read_unaligned() })
    }

    /// A kernel's name: drivers for 12.3 and newer.
    pub(crate) fn function_name(&self, function: Function) -> Option<String> {
        let mut name: *const c_char = std::ptr::null();
        let code = match function {
            // SAFETY: a valid out-pointer, and a function that a node of a live graph has.
            Function::Function(handle) => unsafe { symbols(self).func_get_name?(&raw mut name, pointer(handle)) },
            // SAFETY: as above, a kernel.
            Function::Kernel(handle) => unsafe { symbols(self).kernel_get_name?(&raw mut name, pointer(handle)) },
        };
        // SAFETY: not null and NUL-terminated, says the driver; it lives as long as the module.
        let text = |name| readable_name(&unsafe { CStr::from_ptr(name) }.to_string_lossy()).into_owned();
        (code == SUCCESS && !name.is_null()).then(|| text(name))
    }
}
