//! cuBLAS through cudarc, for [`Blas`](crate::Blas). cudarc panics where the library is missing, so [`Blas::new`] asks before
//! its first call.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::cublas::{CudaBlas, result, sys};

use super::on::{Memory, Queue};
use crate::error::Error;
use crate::product::Sizes;

/// What cuBLAS may use while it multiplies, in bytes: so much is its advice for the newest GPUs.
const WORKSPACE: usize = 32 << 20;

/// A handle, bound to a stream.
pub(crate) struct Blas {
    handle: CudaBlas,
    /// Freed when the handle is gone.
    _workspace: Memory,
    queue: *const c_void,
}

// SAFETY: the address of the stream is compared and never looked through; the rest may go from thread to thread.
unsafe impl Send for Blas {}
// SAFETY: as above; cuBLAS lets several threads use one handle.
unsafe impl Sync for Blas {}

impl Blas {
    pub(crate) fn new(queue: &Queue) -> Result<Blas, Error> {
        // SAFETY: loading cuBLAS runs its initialisers and nothing else.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::Blas(
                "there is no cuBLAS (`libcublas.so`), which multiplies large matrices; install the CUDA toolkit, or add its lib64 \
                 to LD_LIBRARY_PATH"
                    .to_owned(),
            ));
        }
        // It makes the stream's context current.
        let handle = CudaBlas::new(Arc::clone(&queue.stream))?;
        let workspace = queue.gpu.upload(&vec![0_u8; WORKSPACE])?;
        // SAFETY: the handle is valid, and the memory is freed behind it. Set behind the stream: a stream resets it.
        unsafe { sys::cublasSetWorkspace_v2(*handle.handle(), workspace.address() as *mut c_void, WORKSPACE) }
            .result()?;
        Ok(Blas { handle, _workspace: workspace, queue: raw_handle(queue) })
    }

    /// Whether it was made for this stream.
    pub(crate) fn is_of(&self, queue: &Queue) -> bool {
        self.queue == raw_handle(queue)
    }

    /// Queues the products.
    ///
    /// # Safety
    /// The memory has as many elements as the sizes say, and it was made for this stream.
    pub(crate) unsafe fn multiply(&self, queue: &Queue, sizes: Sizes, [a, b, out]: [&Memory; 3]) -> Result<(), Error> {
        // cuBLAS takes the context that is current.
        queue.gpu.context.bind_to_thread()?;
        let Sizes { count, m, k, n, is_transposed, factor } = sizes;
        let (none, transpose) = (sys::cublasOperation_t::CUBLAS_OP_N, sys::cublasOperation_t::CUBLAS_OP_T);
        let (of_b, lead) = if is_transposed { (transpose, k) } else { (none, n) };
        let handle = *self.handle.handle();
        let (a, b, out) = (a.address() as *const f32, b.address() as *const f32, out.address() as *mut f32);
        let int = |size: usize| size as i32;
        // cuBLAS counts columns first: it sees every matrix transposed, and so computes outᵀ = bᵀ · aᵀ.
        // SAFETY: the handle is valid; the caller vouches for the memory, which is freed only when the GPU is idle.
        let outcome = unsafe {
            if count == 1 {
                result::sgemm(
                    handle,
                    of_b,
                    none,
                    int(n),
                    int(m),
                    int(k),
                    &factor,
                    b,
                    int(lead),
                    a,
                    int(k),
                    &0.0,
                    out,
                    int(n),
                )
            } else {
                let stride = |size: usize| size as i64;
                result::sgemm_strided_batched(
                    handle,
                    of_b,
                    none,
                    int(n),
                    int(m),
                    int(k),
                    &factor,
                    b,
                    int(lead),
                    stride(k * n),
                    a,
                    int(k),
                    stride(m * k),
                    &0.0,
                    out,
                    int(n),
                    stride(m * n),
                    int(count),
                )
            }
        };
        Ok(outcome?)
    }
}

fn raw_handle(queue: &Queue) -> *const c_void {
    queue.stream.cu_stream().cast_const().cast()
}

impl fmt::Debug for Blas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blas").finish_non_exhaustive()
    }
}

impl From<result::CublasError> for Error {
    fn from(error: result::CublasError) -> Error {
        Error::Blas(format!("cuBLAS says {:?}", error.0))
    }
}
