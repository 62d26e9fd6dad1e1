//! A Python module with one operation for PyTorch, marked with warpline. `example.py` builds it, calls it, and looks at it.
//!
//! The module gets addresses and the raw handle of the stream that PyTorch uses, so that it links neither PyTorch nor the CUDA runtime.
//! It works on the first GPU, in the context that PyTorch uses too (the primary one).

use std::error::Error;
use std::ffi::c_void;
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::{CudaContext, result, sys};
use cudarc::nvrtc;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use warpline::graph::{GraphZones, RawGraph};
use warpline::{RawStream, Session, gpu_zone};

warpline::namespace!("rms_norm", "an operation for PyTorch");

const THREADS: u32 = 256;

/// A block for each row.
const KERNEL: &str = r#"
extern "C" __global__ void rms_norm(const float *x, float *out, int width) {
    __shared__ float sums[256];
    const float *row = x + blockIdx.x * (size_t)width;
    float sum = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) sum += row[i] * row[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    float scale = rsqrtf(sums[0] / width + 1e-6f);
    for (int i = threadIdx.x; i < width; i += blockDim.x) out[blockIdx.x * (size_t)width + i] = row[i] * scale;
}
"#;

#[pymodule]
mod rms_norm {
    #[pymodule_export]
    use super::{finish, forward, save_graph, start};
}

static SESSION: Mutex<Option<Session>> = Mutex::new(None);

/// Starts a session. `WARPLINE=…` overrides the settings.
#[pyfunction]
fn start(settings: &str) -> PyResult<()> {
    let session = Session::builder().env_or(settings).and_then(|builder| builder.start()).map_err(failed)?;
    *SESSION.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    Ok(())
}

/// Ends the session, and writes what its settings ask for. Synchronize before.
#[pyfunction]
fn finish() {
    drop(SESSION.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// Normalizes each row of `x` into `out`: addresses of float32 tensors without gaps. `stream` is a CUstream.
#[pyfunction]
fn forward(x: u64, out: u64, rows: u32, width: u32, stream: usize) -> PyResult<()> {
    let kernel = kernel().map_err(failed)?;
    // SAFETY: PyTorch's streams live as long as the process.
    let zone = unsafe { RawStream::from_ptr(stream as *mut c_void) };
    launch(&zone, kernel, stream as sys::CUstream, (x, out), rows, width).map_err(failed)
}

/// Writes which nodes of a captured graph (a CUgraph) belong to which zones, for `warpline annotate`.
#[pyfunction]
fn save_graph(graph: usize, path: &str) -> PyResult<()> {
    // SAFETY: PyTorch keeps the graph (`keep_graph=True`), and Python's lock keeps other threads away from it meanwhile.
    let graph = unsafe { RawGraph::from_ptr(graph as *mut c_void, std::ptr::null_mut()) };
    GraphZones::for_graph(&graph).map_err(failed)?.named("block").save(path).map_err(failed)
}

/// Divides each row by the root of its mean square.
#[gpu_zone("rms_norm.forward", stream = zone, lane = "rms_norm", fields(rows = rows, width = width))]
fn launch(
    zone: &RawStream,
    kernel: &Kernel,
    stream: sys::CUstream,
    (mut x, mut out): (u64, u64),
    rows: u32,
    mut width: u32,
) -> Result<(), Box<dyn Error>> {
    let mut arguments = [(&raw mut x).cast(), (&raw mut out).cast(), (&raw mut width).cast()];
    // SAFETY: the arguments are those of the kernel, and the caller has given the tensors' own sizes.
    Ok(unsafe { result::launch_kernel(kernel.0, (rows, 1, 1), (THREADS, 1, 1), 0, stream, &mut arguments) }?)
}

/// A kernel of the primary context, which is never unloaded.
struct Kernel(sys::CUfunction);

// SAFETY: the driver takes a function on any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// Compiles the kernel at the first call, which must not be in a capture.
fn kernel() -> Result<&'static Kernel, Box<dyn Error>> {
    static KERNEL_OF_ALL: OnceLock<Kernel> = OnceLock::new();
    if let Some(kernel) = KERNEL_OF_ALL.get() {
        return Ok(kernel);
    }
    // SAFETY: they only try to load the libraries.
    if !unsafe { sys::is_culib_present() && nvrtc::sys::is_culib_present() } {
        return Err("there is no CUDA driver or no NVRTC; add CUDA's lib64 to LD_LIBRARY_PATH".into());
    }
    let context = CudaContext::new(0)?;
    let ptx = nvrtc::compile_ptx(KERNEL)?;
    let image = ptx.as_bytes().ok_or("NVRTC returned no image")?;
    // SAFETY: the image is NVRTC's, which ends in a NUL; the module stays loaded.
    let kernel =
        unsafe { result::module::get_function(result::module::load_data(image.as_ptr().cast())?, c"rms_norm".into()) }?;
    std::mem::forget(context); // as long as the kernel
    Ok(KERNEL_OF_ALL.get_or_init(|| Kernel(kernel)))
}

fn failed(error: impl ToString) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}
