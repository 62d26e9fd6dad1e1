//! The device, as the benches and the GPU tests use it: streams, the kernels of `kernels.ptx`, memory, and the driver's own
//! event calls.
//!
//! Every bench goes through here. What is timed as the raw peer is one call of the driver and no more.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};

/// Whatever went wrong, in words.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const KERNELS: &str = include_str!("kernels.ptx");

/// Says what is missing where there is no driver. cudarc panics then, so this comes before its first call.
pub fn require_driver() -> Result {
    // SAFETY: the driver's library runs no code of its own when it is loaded but its initialisers, as in every program
    // that uses CUDA.
    let driver = unsafe { libloading::Library::new("libcuda.so.1") };
    let remedy = "run it on a machine with an NVIDIA GPU, after `nvidia-smi` works there";
    driver.map(drop).map_err(|_| format!("there is no CUDA driver, `libcuda.so.1`; {remedy}").into())
}

/// The name under which this host has CUPTI, if it has it.
pub fn cupti_name() -> Option<&'static str> {
    const NAMES: [&str; 5] = [
        "libcupti.so.13",
        "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13",
        "/usr/local/cuda/lib64/libcupti.so.13",
        "libcupti.so.12",
        "libcupti.so",
    ];
    // SAFETY: CUPTI's initialisers are those of every program that profiles itself. It is never unloaded.
    NAMES.into_iter().find(|name| unsafe { libloading::Library::new(*name) }.map(std::mem::forget).is_ok())
}

/// The device's name and the newest CUDA that its driver knows.
pub fn describe() -> Result<String> {
    require_driver()?;
    result::init()?;
    let mut version = 0;
    // SAFETY: it writes one number there.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
    let name = result::device::get_name(result::device::get(0)?)?;
    Ok(format!("{name}, driver for CUDA {}.{}", version / 1000, version % 1000 / 10))
}

const MULTIPROCESSORS: sys::CUdevice_attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;

/// Multiprocessors that `churn` leaves to others, such as the kernels of NCCL.
const LEFT_FREE: u32 = 16;

/// A device with its kernels.
pub struct Gpu {
    /// The device's primary context.
    pub context: Arc<CudaContext>,
    null: Function,
    spin: Function,
    hang: Function,
    poke: Function,
    answer: Function,
    halve: Function,
    churn: Function,
    processors: u32,
}

#[derive(Clone, Copy)]
struct Function(sys::CUfunction);

// SAFETY: the driver lets every thread launch a function of a module that stays loaded, and it is never unloaded.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Gpu {
    /// The device of this ordinal.
    pub fn new(ordinal: usize) -> Result<Gpu> {
        require_driver()?;
        let context = CudaContext::new(ordinal)?;
        // SAFETY: the benches order what they do themselves; cudarc's own events would stand inside the zones.
        unsafe { context.disable_event_tracking() };
        let image = CString::new(KERNELS)?;
        // SAFETY: the image is PTX text that ends in NUL.
        let module = unsafe { result::module::load_data(image.as_ptr().cast()) }.map_err(|error| {
            format!("the driver does not take kernels.ptx: {error:?}; it needs a driver from 450 on")
        })?;
        let function = |name: &str| -> Result<Function> {
            // SAFETY: the module is loaded.
            Ok(Function(unsafe { result::module::get_function(module, CString::new(name)?) }?))
        };
        Ok(Gpu {
            null: function("null_kernel")?,
            spin: function("spin")?,
            hang: function("hang")?,
            poke: function("poke")?,
            answer: function("answer")?,
            halve: function("halve")?,
            churn: function("churn")?,
            processors: context.attribute(MULTIPROCESSORS)?.max(1) as u32,
            context,
        })
    }

    /// A stream of its own, which does not wait for the default stream.
    pub fn stream(&self) -> Result<Arc<CudaStream>> {
        Ok(self.context.new_stream()?)
    }

    /// So many of them.
    pub fn streams(&self, count: usize) -> Result<Vec<Arc<CudaStream>>> {
        (0..count).map(|_| self.stream()).collect()
    }

    /// Launches a kernel that does nothing.
    pub fn null(&self, stream: &CudaStream) -> Result {
        launch(self.null, (1, 1), stream, &mut [])
    }

    /// Launches a kernel that runs for `ns`; with a place, its begin and end on the device's clock are written there.
    pub fn spin(&self, stream: &CudaStream, ns: u64, times: Option<*mut [u64; 2]>) -> Result {
        let mut ns = ns;
        let mut times = times.unwrap_or(ptr::null_mut()) as u64;
        launch(self.spin, (1, 1), stream, &mut [ptr::from_mut(&mut ns).cast(), ptr::from_mut(&mut times).cast()])
    }

    /// Launches a kernel that runs until the host writes something other than 0 to `flag`.
    pub fn hang(&self, stream: &CudaStream, flag: *mut u64) -> Result {
        let mut flag = flag as u64;
        launch(self.hang, (1, 1), stream, &mut [ptr::from_mut(&mut flag).cast()])
    }

    /// Launches a kernel that writes to an address; if that is none of the device's, the context is lost.
    pub fn poke(&self, stream: &CudaStream, address: u64) -> Result {
        let mut address = address;
        launch(self.poke, (1, 1), stream, &mut [ptr::from_mut(&mut address).cast()])
    }

    /// Launches a kernel that answers `count` questions with the device's time.
    pub fn answer(&self, stream: &CudaStream, mailbox: *mut u64, count: u32) -> Result {
        let (mut mailbox, mut count) = (mailbox as u64, count);
        launch(self.answer, (1, 1), stream, &mut [ptr::from_mut(&mut mailbox).cast(), ptr::from_mut(&mut count).cast()])
    }

    /// Launches a kernel that halves `count` f16 in place.
    pub fn halve(&self, stream: &CudaStream, numbers: sys::CUdeviceptr, count: usize) -> Result {
        let (mut numbers, mut pairs) = (numbers, count as u64 / 2);
        let blocks = (count / 2).div_ceil(256).clamp(1, 1056) as u32;
        let parameters = &mut [ptr::from_mut(&mut numbers).cast(), ptr::from_mut(&mut pairs).cast()];
        launch(self.halve, (blocks, 256), stream, parameters)
    }

    /// Launches a kernel of a fixed amount of work, which is about `us` on an H100 that does nothing else, and twice as long beside another
    /// one. It fills all but a few multiprocessors.
    pub fn churn(&self, stream: &CudaStream, us: u64) -> Result {
        // Eight warps on each scheduler, each with 32 steps a round: 256 cycles.
        const ROUNDS_A_MS: u64 = 7_000;
        let mut rounds = (us * ROUNDS_A_MS / 1000).min(u64::from(u32::MAX)) as u32;
        let blocks = self.processors.saturating_sub(LEFT_FREE).max(1);
        launch(self.churn, (blocks, 1024), stream, &mut [ptr::from_mut(&mut rounds).cast()])
    }

    /// Memory in use on the device, by all programs, in bytes.
    pub fn memory_in_use(&self) -> Result<usize> {
        let (free, total) = self.context.mem_get_info()?;
        Ok(total - free)
    }
}

fn launch(
    function: Function,
    (blocks, threads): (u32, u32),
    stream: &CudaStream,
    parameters: &mut [*mut c_void],
) -> Result {
    // SAFETY: the parameters are as many and as large as the kernel declares; the callers keep the memory behind them
    // until the stream is synchronised.
    let launched = unsafe {
        result::launch_kernel(function.0, (blocks, 1, 1), (threads, 1, 1), 0, stream.cu_stream(), parameters)
    };
    Ok(launched?)
}

/// A timed event of the driver.
pub struct Event(sys::CUevent);

// SAFETY: the driver's event calls may come from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event with a time.
    pub fn new() -> Result<Event> {
        Ok(Event(result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)?))
    }

    /// So many of them.
    pub fn many(count: usize) -> Result<Vec<Event>> {
        (0..count).map(|_| Event::new()).collect()
    }

    /// Exactly `cuEventRecord`.
    pub fn record(&self, stream: &CudaStream) -> std::result::Result<(), DriverError> {
        // SAFETY: the event and the stream live.
        unsafe { sys::cuEventRecord(self.0, stream.cu_stream()) }.result()
    }

    /// Puts it into the graph that is being captured on a stream, as a node that records it in each replay.
    pub fn capture(&self, stream: &CudaStream) -> Result {
        let external = sys::CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: the event and the stream live.
        Ok(unsafe { sys::cuEventRecordWithFlags(self.0, stream.cu_stream(), external) }.result()?)
    }

    /// Lets a stream wait for it.
    pub fn wait(&self, stream: &CudaStream) -> std::result::Result<(), DriverError> {
        // SAFETY: the event and the stream live.
        unsafe { sys::cuStreamWaitEvent(stream.cu_stream(), self.0, 0) }.result()
    }

    /// The driver's handle.
    pub fn raw(&self) -> sys::CUevent {
        self.0
    }

    /// Exactly `cuEventQuery`.
    pub fn is_complete(&self) -> std::result::Result<bool, DriverError> {
        // SAFETY: the event lives.
        match unsafe { sys::cuEventQuery(self.0) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => other.result().map(|()| true),
        }
    }

    /// Exactly `cuEventElapsedTime`, from this event to `end`, in ms.
    pub fn elapsed_ms(&self, end: &Event) -> std::result::Result<f32, DriverError> {
        // SAFETY: both events live.
        unsafe { result::event::elapsed(self.0, end.0) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle. An error here is one that the stream has shown before.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

/// A captured graph, and what was instantiated from it.
pub struct Graph {
    /// The graph.
    pub graph: sys::CUgraph,
    /// Executable graphs, at least one.
    pub execs: Vec<sys::CUgraphExec>,
}

// SAFETY: the driver lets any thread use a graph, one at a time; whoever holds this is one.
unsafe impl Send for Graph {}

impl Graph {
    /// Captures `work` on a stream and instantiates it.
    pub fn capture(
        stream: &CudaStream,
        mode: sys::CUstreamCaptureMode,
        work: impl FnOnce() -> Result,
    ) -> Result<Graph> {
        // SAFETY: the stream lives.
        unsafe { result::stream::begin_capture(stream.cu_stream(), mode) }?;
        let worked = work();
        // SAFETY: as above.
        let graph = unsafe { result::stream::end_capture(stream.cu_stream()) };
        worked?;
        let mut graph = Graph { graph: graph?, execs: Vec::new() };
        graph.instantiate()?;
        Ok(graph)
    }

    /// One more executable graph.
    pub fn instantiate(&mut self) -> Result<sys::CUgraphExec> {
        // SAFETY: the graph lives.
        let exec = unsafe { result::graph::instantiate(self.graph, sys::CUgraphInstantiate_flags(0)) }?;
        self.execs.push(exec);
        Ok(exec)
    }

    /// Puts this graph into the one that is being captured on a stream, as a node behind what is there: a launch during a
    /// capture is refused.
    pub fn add_to_capture(&self, stream: &CudaStream) -> Result {
        let (mut status, mut parent) = (sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE, ptr::null_mut());
        let (mut before, mut count, mut node) = (ptr::null(), 0, ptr::null_mut());
        // SAFETY: the stream and both graphs live; valid out-pointers; what is before is read before the next call on the stream.
        unsafe {
            sys::cuStreamGetCaptureInfo_v3(
                stream.cu_stream(),
                &mut status,
                ptr::null_mut(),
                &mut parent,
                &mut before,
                ptr::null_mut(),
                &mut count,
            )
            .result()?;
            sys::cuGraphAddChildGraphNode(&mut node, parent, before, count, self.graph).result()?;
            let replace = sys::CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES as u32;
            sys::cuStreamUpdateCaptureDependencies_v2(stream.cu_stream(), &mut node, ptr::null(), 1, replace)
                .result()?;
        }
        Ok(())
    }

    /// A clone (`cuGraphClone`), instantiated.
    pub fn cloned(&self) -> Result<Graph> {
        let mut clone = ptr::null_mut();
        // SAFETY: the graph lives; a valid out-pointer.
        unsafe { sys::cuGraphClone(&mut clone, self.graph) }.result()?;
        let mut clone = Graph { graph: clone, execs: Vec::new() };
        clone.instantiate()?;
        Ok(clone)
    }

    /// Replays the executable graph of this number.
    pub fn launch(&self, exec: usize, stream: &CudaStream) -> std::result::Result<(), DriverError> {
        // SAFETY: both live.
        unsafe { result::graph::launch(self.execs[exec], stream.cu_stream()) }
    }

    /// The nodes that record events, in the order of their capture.
    pub fn event_nodes(&self) -> Result<Vec<EventNode>> {
        let mut count = 0;
        // SAFETY: the graph lives; with no place for nodes the driver counts them.
        unsafe { sys::cuGraphGetNodes(self.graph, ptr::null_mut(), &mut count) }.result()?;
        let mut nodes = vec![ptr::null_mut(); count];
        // SAFETY: as above, with room for all of them.
        unsafe { sys::cuGraphGetNodes(self.graph, nodes.as_mut_ptr(), &mut count) }.result()?;
        let is_event = |node: &sys::CUgraphNode| {
            let mut kind = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
            // SAFETY: a node of a graph that lives; a valid out-pointer.
            let told = unsafe { sys::cuGraphNodeGetType(*node, &mut kind) }.result();
            told.is_ok() && kind == sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD
        };
        nodes.retain(is_event);
        Ok(nodes.into_iter().map(EventNode).collect())
    }

    /// From the next launch on a node of the executable graph of this number records this event.
    pub fn exchange(&self, exec: usize, node: &EventNode, event: &Event) -> std::result::Result<(), DriverError> {
        // SAFETY: all live, and the node is one of the graph's.
        unsafe { sys::cuGraphExecEventRecordNodeSetEvent(self.execs[exec], node.0, event.0) }.result()
    }

    /// As warpline takes it, with the executable graph of this number.
    pub fn raw(&self, exec: usize) -> warpline::graph::RawGraph {
        // SAFETY: both live as long as this; the benches and tests use a graph on one thread.
        unsafe { warpline::graph::RawGraph::from_ptr(self.graph.cast(), self.execs[exec].cast()) }
    }
}

/// A node that records an event, of a graph that lives.
pub struct EventNode(sys::CUgraphNode);

impl Drop for Graph {
    fn drop(&mut self) {
        for exec in self.execs.drain(..) {
            // SAFETY: nobody else has the handle; work that runs is not ended.
            let _ = unsafe { result::graph::exec_destroy(exec) };
        }
        // SAFETY: as above.
        let _ = unsafe { result::graph::destroy(self.graph) };
    }
}

/// Pinned host memory that the device writes: the address is the same on both sides.
pub struct Pinned {
    memory: *mut u64,
    len: usize,
}

// SAFETY: it is memory of the process; the accesses are volatile.
unsafe impl Send for Pinned {}

impl Pinned {
    /// `len` numbers, zero.
    pub fn new(len: usize) -> Result<Pinned> {
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: a context is current: the benches' one thread made it.
        let memory: *mut u64 = unsafe { result::malloc_host(len * 8, flags) }?.cast();
        // SAFETY: so much was allocated.
        unsafe { ptr::write_bytes(memory, 0, len) };
        Ok(Pinned { memory, len })
    }

    /// Its address, here and on the device.
    pub fn as_ptr(&self) -> *mut u64 {
        self.memory
    }

    /// The place of the times of kernel `index`.
    pub fn times(&self, index: usize) -> *mut [u64; 2] {
        assert!(index * 2 + 1 < self.len, "kernel {index} has no place in {} numbers", self.len);
        // SAFETY: it is inside the allocation, as just asserted.
        unsafe { self.memory.add(index * 2).cast() }
    }

    /// What the kernel `index` wrote.
    pub fn read_times(&self, index: usize) -> [u64; 2] {
        // SAFETY: `times` is inside the allocation; the device may write it meanwhile, hence volatile.
        unsafe { ptr::read_volatile(self.times(index)) }
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.len * 8
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: it came from `malloc_host`; the benches synchronise before they drop it.
        let _ = unsafe { result::free_host(self.memory.cast()) };
    }
}

/// Memory of the device.
pub struct DeviceMemory(
    /// Its address.
    pub sys::CUdeviceptr,
);

impl DeviceMemory {
    /// So many bytes, zero.
    pub fn zeroed(bytes: usize) -> Result<DeviceMemory> {
        // SAFETY: a context is current.
        let memory = DeviceMemory(unsafe { result::malloc_sync(bytes) }?);
        // SAFETY: so much was just allocated.
        unsafe { result::memset_d8_sync(memory.0, 0, bytes) }?;
        Ok(memory)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: it came from `malloc_sync`; freeing waits for the work that uses it.
        let _ = unsafe { result::free_sync(self.0) };
    }
}
