//! Graphs, their nodes, and the executable graphs made of them.

use std::ffi::{c_char, c_void};

use crate::call::{Out, driver_calls};
use crate::capture::edge;
use crate::code::Code;
use crate::control::KERNEL;
use crate::driver::Driver;
use crate::graph::{ConditionKind, Kind, Node};
use crate::table::Handle;

/// `CUDA_KERNEL_NODE_PARAMS_v2`, as far as anybody looks.
#[repr(C)]
struct KernelParams {
    func: Handle,
    others: [usize; 8],
}

/// `CUgraphNodeParams`, as far as anybody looks: the type, and the parameters of a conditional node; the function of a kernel is
/// where the handle is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NodeParams {
    kind: i32,
    reserved: [i32; 3],
    handle: u64,
    condition: u32,
    size: u32,
    bodies: *const Handle,
    context: Handle,
    others: [u64; 26],
}

const _: () = assert!(size_of::<NodeParams>() == 256);

driver_calls! {
    fn cuGraphCreate(graph: Out<Handle>, _flags: u32) = |driver| { let made = driver.new_graph(); graph.put(made) }

    fn cuGraphAddKernelNode_v2(node: Out<Handle>, graph: Handle, deps: List, count: usize, params: Out<KernelParams>) = |driver| {
        let func = params.read(|params| params.func)?;
        let deps = deps.get(count);
        node.put(driver.add_node(graph, Kind::Kernel(func), &deps)?)
    }

    fn cuGraphConditionalHandleCreate(handle: Out<u64>, graph: Handle, _context: Handle, value: u32, _flags: u32) = |driver| {
        let id = driver.graphs.get(graph)?.id;
        handle.put(u64::from(id) << 32 | u64::from(value))
    }

    fn cuGraphAddNode_v2(node: Out<Handle>, graph: Handle, deps: List, _edges: List, count: usize, params: Out<NodeParams>) = |driver| {
        let given = params.read(|params| *params)?;
        let deps = deps.get(count);
        let kind = match (given.kind, given.condition) {
            (0, _) => return node.put(driver.add_node(graph, Kind::Kernel(given.handle as Handle), &deps)?),
            (13, 0) => ConditionKind::If,
            (13, 1) => ConditionKind::While,
            (13, 2) => ConditionKind::Switch,
            _ => return Err(Code::INVALID_VALUE),
        };
        let (made, bodies) = driver.add_conditional(graph, &deps, (kind, given.handle, given.size))?;
        params.put(NodeParams { bodies: bodies.as_ptr(), ..given })?;
        node.put(made)
    }

    /// Drivers before 13.2 do not have it, which here is an error.
    fn cuGraphNodeGetParams(node: Handle, params: Out<NodeParams>) = |driver| {
        if !driver.tells_bodies {
            return Err(Code::NOT_SUPPORTED);
        }
        let kind = driver.nodes.get(node)?.kind;
        let (condition, handle, bodies): (_, _, &[Handle]) = match kind {
            Kind::Conditional(condition) => (condition.kind as u32, u64::from(condition.value), condition.bodies),
            _ => (0, 0, &[]),
        };
        params.put(NodeParams {
            kind: kind.number(),
            reserved: [0; 3],
            handle,
            condition,
            size: bodies.len() as u32,
            bodies: bodies.as_ptr(),
            context: 0,
            others: [0; 26],
        })
    }

    fn cuGraphDestroyNode(node: Handle) = |driver| { driver.destroy_node(node) }

    fn cuGraphDestroy(graph: Handle) = |driver| { driver.destroy_graph(graph) }

    fn cuGraphClone(clone: Out<Handle>, graph: Handle) = |driver| {
        let made = driver.clone_graph(graph, false)?;
        clone.put(made)
    }

    fn cuGraphNodeFindInClone(found: Out<Handle>, node: Handle, clone: Handle) = |driver| {
        found.put(driver.find_in_clone(node, clone)?)
    }

    /// Adds a copy of a graph as a node behind the nodes.
    fn cuGraphAddChildGraphNode(node: Out<Handle>, graph: Handle, deps: List, count: usize, child: Handle) = |driver| {
        let inside = driver.clone_graph(child, true)?;
        let deps = deps.get(count);
        node.put(driver.add_node(graph, Kind::Graph(inside), &deps)?)
    }

    fn cuGraphGetNodes(graph: Handle, nodes: Out<Handle>, count: Out<usize>) = |driver| {
        let all = driver.graphs.get(graph)?.nodes.clone();
        list(all, nodes, count)
    }

    fn cuGraphGetEdges(graph: Handle, from: Out<Handle>, to: Out<Handle>, count: Out<usize>) = |driver| {
        edges(&mut driver, graph, from, to, None, count)
    }

    fn cuGraphGetEdges_v2(graph: Handle, from: Out<Handle>, to: Out<Handle>, data: Out<Handle>, count: Out<usize>) = |driver| {
        edges(&mut driver, graph, from, to, Some(data), count)
    }

    fn cuGraphNodeGetType(node: Handle, kind: Out<i32>) = |driver| { kind.put(driver.nodes.get(node)?.kind.number()) }

    fn cuGraphChildGraphNodeGetGraph(node: Handle, graph: Out<Handle>) = |driver| {
        match driver.nodes.get(node)?.kind {
            Kind::Graph(inside) => graph.put(inside),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuGraphKernelNodeGetParams_v2(node: Handle, params: Out<KernelParams>) = |driver| {
        match driver.nodes.get(node)?.kind {
            Kind::Kernel(func) => params.put(KernelParams { func, others: [0; 8] }),
            Kind::Own(func, given) => {
                // The real one's nodes own them; these stay.
                let [first, second] = Box::leak(Box::new(given));
                let places: &[usize; 2] = Box::leak(Box::new([&raw const *first as usize, &raw const *second as usize]));
                let mut others = [0; 8];
                others[4] = places.as_ptr() as usize;
                params.put(KernelParams { func, others })
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuGraphEventRecordNodeGetEvent(node: Handle, event: Out<Handle>) = |driver| {
        match driver.nodes.get(node)?.kind {
            Kind::Event(of) => event.put(of),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuGraphExecEventRecordNodeSetEvent(exec: Handle, node: Handle, event: Handle) = |driver| {
        driver.exchange_event(exec, node, event)
    }

    fn cuFuncGetName(name: Out<*const c_char>, function: Handle) = |driver| {
        if function == KERNEL {
            return name.put(c"stub_kernel".as_ptr());
        }
        name.put(driver.modules.function(function).ok_or(Code::INVALID_HANDLE)?.c_name())
    }

    fn cuGraphInstantiateWithFlags(exec: Out<Handle>, graph: Handle, _flags: u64) = |driver| {
        exec.put(driver.instantiate(graph)?)
    }

    fn cuGraphExecUpdate_v2(exec: Handle, graph: Handle, _info: *mut c_void) = |driver| { driver.update(exec, graph) }

    fn cuGraphLaunch(exec: Handle, stream: Handle) = |driver| {
        let id = driver.resolve(stream)?;
        driver.launch_graph(exec, id)
    }

    fn cuGraphExecDestroy(exec: Handle) = |driver| { driver.execs.remove(exec).map(drop) }

    /// As all that tell ids: drivers before 13.1 do not have it, which here is an error.
    fn cuGraphNodeGetToolsId(node: Handle, id: Out<u64>) = |driver| {
        driver.check_tells_ids()?;
        id.put(driver.tools_id(node)?)
    }

    fn cuGraphGetId(graph: Handle, id: Out<u32>) = |driver| {
        driver.check_tells_ids()?;
        id.put(driver.graphs.get(graph)?.id)
    }

    fn cuGraphExecGetId(exec: Handle, id: Out<u32>) = |driver| {
        driver.check_tells_ids()?;
        id.put(driver.execs.get(exec)?.id)
    }
}

/// Nodes that the caller gives.
#[repr(transparent)]
pub struct List(*const Handle);

impl List {
    pub fn get(&self, count: usize) -> Vec<Handle> {
        if count == 0 || self.0.is_null() {
            return Vec::new();
        }
        // SAFETY: the caller gives as many nodes as it says.
        unsafe { std::slice::from_raw_parts(self.0, count) }.to_vec()
    }
}

fn edges(
    driver: &mut Driver,
    graph: Handle,
    from: Out<Handle>,
    to: Out<Handle>,
    data: Option<Out<Handle>>,
    count: Out<usize>,
) -> Result<(), Code> {
    let mut ends = (Vec::new(), Vec::new());
    let mut all_data = Vec::new();
    for node in driver.graphs.get(graph)?.nodes.clone() {
        let Node { deps, by_launch, .. } = driver.nodes.get(node)?.clone();
        all_data.extend(deps.iter().map(|dep| edge(&by_launch, *dep)));
        ends.1.extend(deps.iter().map(|_| node));
        ends.0.extend(deps);
    }
    if from.is_wanted() {
        match data {
            Some(data) => data.put_all(&all_data),
            None if all_data.iter().any(|data| *data != 0) => return Err(Code::LOSSY_QUERY),
            None => {}
        }
        from.put_all(&ends.0);
        to.put_all(&ends.1);
    }
    count.put(ends.0.len())
}

/// As many as the caller has room for; only how many there are, without room.
fn list(all: Vec<Handle>, to: Out<Handle>, count: Out<usize>) -> Result<(), Code> {
    if to.is_wanted() {
        to.put_all(&all);
    }
    count.put(all.len())
}

impl Driver {
    fn check_tells_ids(&self) -> Result<(), Code> {
        if self.tells_ids { Ok(()) } else { Err(Code::NOT_SUPPORTED) }
    }
}
