//! References to graphs: by cudarc's type, by one of the program's own, or by the driver's handles.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

/// A CUDA graph and, if there is one, an executable graph that was instantiated from it.
///
/// Implement it for a type of your own by returning the graph that it wraps, as for [`AsStream`](warpline_core::backend::AsStream).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a CUDA graph",
    label = "not a graph",
    note = "give it cudarc's `CudaGraph`, a `RawGraph`, or a type of yours that implements `AsGraph`"
)]
pub trait AsGraph {
    /// Returns the graph.
    fn as_graph(&self) -> GraphRef<'_>;
}

/// A borrowed graph.
#[derive(Clone, Copy)]
pub struct GraphRef<'a> {
    pub(crate) graph: *mut c_void,
    pub(crate) exec: *mut c_void,
    _graph: PhantomData<&'a ()>,
}

impl fmt::Debug for GraphRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphRef").finish_non_exhaustive()
    }
}

/// A CUDA graph of any binding, by its raw handles (`CUgraph`, `cudaGraph_t`, and `CUgraphExec`, `cudaGraphExec_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawGraph {
    graph: *mut c_void,
    exec: *mut c_void,
}

impl RawGraph {
    /// Returns the graph of this handle, with an executable graph that was instantiated from it or updated with it; null for none.
    ///
    /// # Safety
    /// Both must live as long as this value and its copies, and no other thread may use the graph during a call that is given one.
    #[allow(unsafe_code)]
    pub unsafe fn from_ptr(graph: *mut c_void, exec: *mut c_void) -> RawGraph {
        RawGraph { graph, exec }
    }
}

impl AsGraph for RawGraph {
    fn as_graph(&self) -> GraphRef<'_> {
        GraphRef { graph: self.graph, exec: self.exec, _graph: PhantomData }
    }
}

/// The fallback for the methods of cudarc's `CudaGraph` that return its handles, from 0.19.4 on. A type's own methods have precedence.
#[allow(dead_code, reason = "only with an older cudarc")]
trait WithoutHandles {
    fn cu_graph(&self) -> *mut c_void {
        std::ptr::null_mut()
    }

    fn cu_graph_exec(&self) -> *mut c_void {
        std::ptr::null_mut()
    }
}

impl WithoutHandles for cudarc::driver::CudaGraph {}

/// cudarc gives a graph's handles from 0.19.4 on. With an older one they are null, and calls with such a graph return an error.
impl AsGraph for cudarc::driver::CudaGraph {
    fn as_graph(&self) -> GraphRef<'_> {
        GraphRef { graph: self.cu_graph().cast(), exec: self.cu_graph_exec().cast(), _graph: PhantomData }
    }
}

macro_rules! as_graph_through {
    ($($pointer:ty),*) => {
        $(
            impl<G: AsGraph + ?Sized> AsGraph for $pointer {
                fn as_graph(&self) -> GraphRef<'_> {
                    (**self).as_graph()
                }
            }
        )*
    };
}

as_graph_through!(&G, &mut G, Box<G>, Rc<G>, Arc<G>);
