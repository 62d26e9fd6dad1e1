//! Graphs that are built without a capture, conditional nodes and child graphs, on a real device: labels of nodes hold in replays, each iteration
//! of a loop is a zone of its own, and marks in the capture of a body break nothing.
//!
//! Conditional nodes need a driver for CUDA 12.3. CUPTI's numbers of nodes inside others are those of CUDA 13.0; elsewhere a test prints
//! what it sees and checks what holds everywhere. Each test has a process of its own, as those of `replays`.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::{CudaStream, result, sys};
use warpline::graph::{GraphZones, RawGraph};
use warpline::record::{KernelRecord, ReplayRecord};
use warpline::timing::GraphTiming;
use warpline::{RangeSpec, Session};
use warpline_tests::this_test;

use super::{US, alone_in_a_process, assert_exact, device, start};

warpline::range! {
    LAYER = "cuda_tests.conditional_layer": "A layer.";
    STEP = "cuda_tests.conditional_step": "A step of a loop.";
    ATTENTION = "cuda_tests.conditional_attention": "Attention.", lane = "attention";
    MLP = "cuda_tests.conditional_mlp": "Feed-forward.", lane = "mlp";
}

/// How long a kernel of a zone runs.
const WORK_US: u64 = 30;
/// What CUPTI or stamps count of a kernel that its spin does not.
const MARGIN_NS: i64 = 15_000;
/// The iterations of a loop.
const TIMES: u32 = 3;

/// `graph_work` runs for some ns. `graph_step` counts, and sets the condition until it has counted far enough; the driver knows
/// `cudaGraphSetConditional` when it compiles a module.
const PTX: &str = r"
.version 6.0
.target sm_50
.address_size 64

.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);

.visible .entry graph_work(.param .u64 ns)
{
    .reg .pred %p;
    .reg .u64 %rd<4>;
    ld.param.u64 %rd1, [ns];
    mov.u64 %rd2, %globaltimer;
AGAIN:
    mov.u64 %rd3, %globaltimer;
    sub.u64 %rd3, %rd3, %rd2;
    setp.lt.u64 %p, %rd3, %rd1;
    @%p bra AGAIN;
    ret;
}

.visible .entry graph_step(.param .u64 handle, .param .u64 counter, .param .u32 times)
{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    .param .b64 to;
    .param .b32 value;
    ld.param.u64 %rd1, [handle];
    ld.param.u64 %rd2, [counter];
    ld.param.u32 %r1, [times];
    ld.global.u32 %r2, [%rd2];
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p, %r2, %r1;
    selp.u32 %r3, 1, 0, %p;
    @!%p mov.u32 %r2, 0;
    st.global.u32 [%rd2], %r2;
    st.param.b64 [to], %rd1;
    st.param.b32 [value], %r3;
    call.uni cudaGraphSetConditional, (to, value);
    ret;
}
";

/// The kernels of `PTX`, and a counter on the device.
struct Kernels {
    module: sys::CUmodule,
    work: sys::CUfunction,
    step: sys::CUfunction,
    counter: sys::CUdeviceptr,
    context: sys::CUcontext,
}

impl Kernels {
    /// None for a driver without conditional nodes.
    fn load() -> Option<Kernels> {
        let mut version = 0;
        // SAFETY: a valid out-pointer.
        unsafe { sys::cuDriverGetVersion(&mut version) }.result().expect("a driver");
        if version < 12_030 {
            println!("not run: the driver is for CUDA {}.{}", version / 1000, version % 1000 / 10);
            return None;
        }
        let text = std::ffi::CString::new(PTX).expect("no NUL");
        let mut context = ptr::null_mut();
        // SAFETY: `device` has made a context current; the text is PTX; valid out-pointers.
        unsafe {
            sys::cuCtxGetCurrent(&mut context).result().expect("a context");
            let module = result::module::load_data(text.as_ptr().cast()).expect("the driver links the module");
            let work = result::module::get_function(module, c"graph_work".to_owned()).expect("a kernel");
            let step = result::module::get_function(module, c"graph_step".to_owned()).expect("a kernel");
            let counter = result::malloc_sync(4).expect("memory");
            result::memset_d8_sync(counter, 0, 4).expect("set");
            Some(Kernels { module, work, step, counter, context })
        }
    }

    /// Whether nodes inside others have the numbers that were seen with CUDA 13.0.
    fn are_numbered(&self) -> bool {
        let mut version = 0;
        // SAFETY: a valid out-pointer.
        unsafe { sys::cuDriverGetVersion(&mut version) }.result().expect("a driver");
        version == 13_000
    }

    fn launch_work(&self, stream: &CudaStream) {
        let mut ns = WORK_US * US;
        self.launch(stream, self.work, &mut [(&raw mut ns).cast()]);
    }

    fn launch_step(&self, stream: &CudaStream, mut handle: u64) {
        let (mut counter, mut times) = (self.counter, TIMES);
        let mut params = [(&raw mut handle).cast(), (&raw mut counter).cast(), (&raw mut times).cast()];
        self.launch(stream, self.step, &mut params);
    }

    fn launch(&self, stream: &CudaStream, function: sys::CUfunction, params: &mut [*mut c_void]) {
        // SAFETY: the function's own parameters, which the driver copies.
        unsafe { result::launch_kernel(function, (1, 1, 1), (1, 1, 1), 0, stream.cu_stream(), params) }
            .expect("launched");
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        // SAFETY: no work uses them any more.
        unsafe {
            let _ = result::free_sync(self.counter);
            let _ = result::module::unload(self.module);
        }
    }
}

/// A graph that a test builds, and its executable graph.
struct Built {
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
}

impl Built {
    fn new() -> Built {
        let mut graph = ptr::null_mut();
        // SAFETY: a valid out-pointer.
        unsafe { sys::cuGraphCreate(&mut graph, 0) }.result().expect("a graph");
        Built { graph, exec: ptr::null_mut() }
    }

    fn instantiate(&mut self) {
        // SAFETY: the graph lives.
        self.exec = unsafe { result::graph::instantiate(self.graph, sys::CUgraphInstantiate_flags(0)) }
            .expect("the driver takes the graph");
    }

    fn replay(&self, stream: &CudaStream) {
        // SAFETY: both live.
        unsafe { result::graph::launch(self.exec, stream.cu_stream()) }.expect("launched");
        stream.synchronize().expect("no error");
    }

    fn register(&self) -> GraphZones {
        GraphZones::for_graph(&raw(self.graph, self.exec)).expect("the driver tells the nodes")
    }

    /// A conditional node that runs at first, its handle, and its bodies.
    fn add_conditional(
        &self,
        kernels: &Kernels,
        (into, deps): (sys::CUgraph, &[sys::CUgraphNode]),
        kind: sys::CUgraphConditionalNodeType,
        size: usize,
    ) -> (sys::CUgraphNode, u64, Vec<sys::CUgraph>) {
        let (mut handle, mut node) = (0, ptr::null_mut());
        // SAFETY: zero is a value of the structure; graph, context and nodes live; the driver's array has `size` graphs.
        unsafe {
            sys::cuGraphConditionalHandleCreate(&mut handle, self.graph, kernels.context, 1, 1)
                .result()
                .expect("a handle");
            let mut params: sys::CUgraphNodeParams = std::mem::zeroed();
            params.type_ = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL;
            params.__bindgen_anon_1.conditional.handle = handle;
            params.__bindgen_anon_1.conditional.type_ = kind;
            params.__bindgen_anon_1.conditional.size = size as u32;
            params.__bindgen_anon_1.conditional.ctx = kernels.context;
            sys::cuGraphAddNode_v2(&mut node, into, deps.as_ptr(), ptr::null(), deps.len(), &mut params)
                .result()
                .expect("a conditional node");
            let bodies = std::slice::from_raw_parts(params.__bindgen_anon_1.conditional.phGraph_out, size);
            (node, handle, bodies.to_vec())
        }
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handles, and the work is over.
        unsafe {
            if !self.exec.is_null() {
                let _ = result::graph::exec_destroy(self.exec);
            }
            let _ = result::graph::destroy(self.graph);
        }
    }
}

fn raw(graph: sys::CUgraph, exec: sys::CUgraphExec) -> RawGraph {
    // SAFETY: both live as long as the test uses this; one thread uses them.
    unsafe { RawGraph::from_ptr(graph.cast(), exec.cast()) }
}

/// A kernel that works, behind these nodes.
fn add_work(kernels: &Kernels, graph: sys::CUgraph, deps: &[sys::CUgraphNode]) -> sys::CUgraphNode {
    let mut ns = WORK_US * US;
    add(graph, deps, kernels.work, &mut [(&raw mut ns).cast()])
}

fn add_step(kernels: &Kernels, graph: sys::CUgraph, deps: &[sys::CUgraphNode], mut handle: u64) -> sys::CUgraphNode {
    let (mut counter, mut times) = (kernels.counter, TIMES);
    let mut params = [(&raw mut handle).cast(), (&raw mut counter).cast(), (&raw mut times).cast()];
    add(graph, deps, kernels.step, &mut params)
}

fn add(
    graph: sys::CUgraph,
    deps: &[sys::CUgraphNode],
    function: sys::CUfunction,
    params: &mut [*mut c_void],
) -> sys::CUgraphNode {
    let mut node = ptr::null_mut();
    // SAFETY: zero is a value of the structure; the driver copies the function's own parameters; graph and nodes live.
    unsafe {
        let mut of: sys::CUDA_KERNEL_NODE_PARAMS = std::mem::zeroed();
        of.func = function;
        (of.gridDimX, of.gridDimY, of.gridDimZ) = (1, 1, 1);
        (of.blockDimX, of.blockDimY, of.blockDimZ) = (1, 1, 1);
        of.kernelParams = params.as_mut_ptr();
        sys::cuGraphAddKernelNode_v2(&mut node, graph, deps.as_ptr(), deps.len(), &of).result().expect("a node");
    }
    node
}

fn label(graph: sys::CUgraph, nodes: &[sys::CUgraphNode], range: &'static RangeSpec) {
    GraphZones::label(&raw(graph, ptr::null_mut()), nodes.iter().copied(), range, &[]).expect("nodes of the graph");
}

/// Captures into the body of a conditional node.
fn capture_to(stream: &CudaStream, body: sys::CUgraph, work: impl FnOnce()) {
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    let mut graph = ptr::null_mut();
    // SAFETY: stream and body live; there are no nodes to depend on.
    unsafe { sys::cuStreamBeginCaptureToGraph(stream.cu_stream(), body, ptr::null(), ptr::null(), 0, mode) }
        .result()
        .expect("the capture begins");
    work();
    // SAFETY: as above.
    unsafe { sys::cuStreamEndCapture(stream.cu_stream(), &mut graph) }.result().expect("the capture ends");
    assert_eq!(graph, body);
}

fn print(replay: &ReplayRecord, kernels: &[KernelRecord]) {
    for of in kernels.iter().filter(|kernel| kernel.graph.is_some() && replay.gpu.begin_ns <= kernel.gpu.begin_ns) {
        let node = of.graph.expect("a node");
        println!(
            "exec {}: {} of launch {}: graph {}, node {} << 32 | {}, at {} ns",
            replay.exec,
            of.name,
            of.correlation,
            node.graph,
            node.node >> 32,
            node.node as u32,
            of.gpu.begin_ns - replay.gpu.begin_ns
        );
    }
    for zone in &replay.zones {
        let gpu = zone.zone.gpu.expect("timed");
        println!(
            "{}: {} kernels, from {} ns, {} ns",
            zone.zone.range.name(),
            zone.kernels,
            gpu.begin_ns - replay.gpu.begin_ns,
            gpu.duration_ns()
        );
    }
}

/// The zones of this range in a replay: each with so many kernels that work, and nothing else.
fn assert_each(replay: &ReplayRecord, range: &'static RangeSpec, count: usize, working: i64, kernels: u32) {
    let of: Vec<_> = replay.zones.iter().filter(|of| std::ptr::eq(of.zone.range, range)).collect();
    assert_eq!(of.len(), count, "{}: {replay:?}", range.name());
    for zone in of {
        let ns = zone.zone.gpu_ns().expect("it has kernels");
        let spin_ns = working * (WORK_US * US) as i64;
        assert_eq!(zone.kernels, kernels, "{zone:?}");
        assert!((spin_ns - 2_000..spin_ns + i64::from(kernels) * MARGIN_NS).contains(&ns), "{}: {ns} ns", range.name());
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn each_iteration_of_a_loop_is_a_zone_of_its_own_by_kernels() {
    const REPLAYS: usize = 4;
    alone_in_a_process(this_test!(), || {
        let gpu = device();
        let Some(kernels) = Kernels::load() else { return };
        let stream = gpu.stream().expect("a stream");
        let (session, sink) = start(Session::builder().kernels(true));
        let mut graph = Built::new();
        let first = add_work(&kernels, graph.graph, &[]);
        let kind = sys::CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE;
        let (node, handle, bodies) = graph.add_conditional(&kernels, (graph.graph, &[first]), kind, 1);
        let last = add_work(&kernels, graph.graph, &[node]);
        label(graph.graph, &[node], &LAYER);
        label(graph.graph, &[last], &MLP);
        capture_to(&stream, bodies[0], || {
            let _step = STEP.zone(&stream);
            {
                let _attention = ATTENTION.zone(&stream);
                kernels.launch_work(&stream);
            }
            kernels.launch_step(&stream, handle);
        });
        graph.instantiate();
        let (zones, body) =
            (graph.register(), GraphZones::for_graph(&raw(bodies[0], ptr::null_mut())).expect("a body"));
        let conditional = zones.nodes().find(|node| node.kind.as_str() == "conditional").expect("it has one").index;
        zones.inside(conditional, &body).expect("its body");
        (0..REPLAYS).for_each(|_| graph.replay(&stream));
        let report = session.finish();
        assert_exact(&report);
        let (replays, records) = (sink.take_replays(), sink.take_kernels());
        println!("{report}");
        replays.first().into_iter().for_each(|replay| print(replay, &records));
        assert_eq!(replays.len(), REPLAYS, "{report}");
        for replay in &replays {
            assert_ne!(replay.correlation, 0, "{replay:?}");
            assert_eq!(replay.kernels, 2 + 2 * TIMES, "{replay:?}");
            assert_each(replay, &MLP, 1, 1, 1);
            if kernels.are_numbered() {
                assert_eq!(replay.unplaced, 0, "{replay:?}");
                assert_each(replay, &ATTENTION, TIMES as usize, 1, 1);
                assert_each(replay, &STEP, TIMES as usize, 1, 2);
                let layer = replay.zones.iter().find(|of| std::ptr::eq(of.zone.range, &LAYER)).expect("a layer");
                assert_eq!(layer.kernels, 2 * TIMES);
            }
        }
        let is_of_bodies = |note: &&String| note.contains("count in no replay");
        assert_eq!(report.notes.iter().find(is_of_bodies), None, "{report}");
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn each_iteration_of_a_loop_is_timed_by_stamps_in_its_body() {
    const REPLAYS: usize = 4;
    alone_in_a_process(this_test!(), || {
        let gpu = device();
        let Some(kernels) = Kernels::load() else { return };
        let stream = gpu.stream().expect("a stream");
        let (session, sink) = start(Session::builder().graph_timing(GraphTiming::Stamps));
        let mut graph = Built::new();
        let kind = sys::CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE;
        let (_, handle, bodies) = graph.add_conditional(&kernels, (graph.graph, &[]), kind, 1);
        capture_to(&stream, bodies[0], || {
            {
                let _attention = ATTENTION.zone(&stream);
                kernels.launch_work(&stream);
            }
            kernels.launch_step(&stream, handle);
        });
        graph.instantiate();
        let body = GraphZones::for_graph(&raw(bodies[0], ptr::null_mut())).expect("a body");
        let _zones = graph.register();
        (0..REPLAYS).for_each(|_| graph.replay(&stream));
        let report = session.finish();
        assert_exact(&report);
        let replays = sink.take_replays();
        println!("{report}");
        assert_eq!(replays.len(), REPLAYS * TIMES as usize, "{report}");
        for replay in &replays {
            assert_eq!(replay.graph, body.number());
            assert_each(replay, &ATTENTION, 1, 1, 1);
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn bodies_inside_bodies_and_of_a_switch_have_their_zones() {
    alone_in_a_process(this_test!(), || {
        let gpu = device();
        let Some(kernels) = Kernels::load() else { return };
        let stream = gpu.stream().expect("a stream");
        let (session, sink) = start(Session::builder().kernels(true));
        use sys::CUgraphConditionalNodeType as Kind;
        // while { work; if { work }; step }, then switch (1) { work; work }.
        let mut graph = Built::new();
        let first = add_work(&kernels, graph.graph, &[]);
        let outer = (graph.graph, &[first][..]);
        let (node, handle, bodies) = graph.add_conditional(&kernels, outer, Kind::CU_GRAPH_COND_TYPE_WHILE, 1);
        let one = add_work(&kernels, bodies[0], &[]);
        let (inner, _, inside) = graph.add_conditional(&kernels, (bodies[0], &[one]), Kind::CU_GRAPH_COND_TYPE_IF, 1);
        let two = add_work(&kernels, inside[0], &[]);
        let three = add_step(&kernels, bodies[0], &[inner], handle);
        label(bodies[0], &[one, inner, three], &STEP);
        label(inside[0], &[two], &ATTENTION);
        let end = (graph.graph, &[node][..]);
        let (_, _, branches) = graph.add_conditional(&kernels, end, Kind::CU_GRAPH_COND_TYPE_SWITCH, 2);
        for (branch, range) in branches.iter().zip([&LAYER, &MLP]) {
            let work = add_work(&kernels, *branch, &[]);
            label(*branch, &[work], range);
        }
        graph.instantiate();
        let register = |graph| GraphZones::for_graph(&raw(graph, ptr::null_mut())).expect("a body");
        let (zones, body, inside) = (graph.register(), register(bodies[0]), register(inside[0]));
        let branches = [register(branches[0]), register(branches[1])];
        body.inside(1, &inside).expect("a body in a body");
        zones.inside(1, &body).expect("a body");
        zones.bodies(2, &[&branches[0], &branches[1]]).expect("two bodies");
        (0..3).for_each(|_| graph.replay(&stream));
        let report = session.finish();
        let (replays, records) = (sink.take_replays(), sink.take_kernels());
        println!("{report}");
        replays.first().into_iter().for_each(|replay| print(replay, &records));
        assert_eq!(replays.len(), 3, "{report}");
        for replay in &replays {
            assert_eq!(replay.kernels, 1 + 3 * TIMES + 1, "{replay:?}");
            if kernels.are_numbered() {
                assert_eq!(replay.unplaced, 0, "{replay:?}");
                assert_each(replay, &ATTENTION, TIMES as usize, 1, 1);
                assert_each(replay, &MLP, 1, 1, 1);
                assert_each(replay, &LAYER, 0, 0, 0);
                let steps: Vec<_> = replay.zones.iter().filter(|of| std::ptr::eq(of.zone.range, &STEP)).collect();
                assert!(steps.len() == TIMES as usize && steps.iter().all(|step| step.kernels == 3), "{replay:?}");
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn nodes_of_a_built_graph_and_of_its_equal_child_graphs_have_their_zones_in_replays() {
    const REPLAYS: usize = 5;
    alone_in_a_process(this_test!(), || {
        let gpu = device();
        let Some(kernels) = Kernels::load() else { return };
        let stream = gpu.stream().expect("a stream");
        let (session, sink) = start(Session::builder().kernels(true));
        let child = Built::new();
        let inner = add_work(&kernels, child.graph, &[]);
        add_work(&kernels, child.graph, &[inner]);
        let mut graph = Built::new();
        let into = raw(graph.graph, ptr::null_mut());
        let layer = GraphZones::label_added(&into, &LAYER).expect("alive").label("layer 0").field("batch", 4_u32);
        let first = add_work(&kernels, graph.graph, &[]);
        let add_child = |dep: sys::CUgraphNode| {
            let mut node = ptr::null_mut();
            // SAFETY: both graphs and the node live; a valid out-pointer.
            unsafe { sys::cuGraphAddChildGraphNode(&mut node, graph.graph, &dep, 1, child.graph) }
                .result()
                .expect("a child graph");
            node
        };
        let attention = add_child(first);
        let mlp = add_child(attention);
        assert_eq!(layer.end().expect("alive"), 3);
        add_work(&kernels, graph.graph, &[mlp]);
        label(graph.graph, &[attention], &ATTENTION);
        label(graph.graph, &[mlp], &MLP);
        graph.instantiate();
        let zones = graph.register();
        assert_eq!(zones.nodes().count(), 8);
        (0..REPLAYS).for_each(|_| graph.replay(&stream));
        let report = session.finish();
        let (replays, records) = (sink.take_replays(), sink.take_kernels());
        println!("{report}");
        replays.first().into_iter().for_each(|replay| print(replay, &records));
        assert_eq!(replays.len(), REPLAYS, "{report}");
        for replay in &replays {
            assert_eq!(replay.kernels, 6, "{replay:?}");
            assert_each(replay, &LAYER, 1, 5, 5);
            let of = &replay.zones[0].zone;
            assert_eq!((of.fields.label(), of.fields.len()), (Some("layer 0"), 1), "{of:?}");
            if kernels.are_numbered() {
                assert_eq!(replay.unplaced, 0, "{replay:?}");
                assert_each(replay, &ATTENTION, 1, 2, 2);
                assert_each(replay, &MLP, 1, 2, 2);
            }
        }
    });
}
