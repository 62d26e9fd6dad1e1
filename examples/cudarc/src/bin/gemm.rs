//! Matrix products by cuBLAS. The lines with `warpline` are what is added.
//!
//! `cargo run --release -p warpline-example-cudarc --bin gemm`

use std::error::Error;
use std::sync::Arc;

use cudarc::cublas::result::CublasError;
use cudarc::cublas::{CudaBlas, Gemm, GemmConfig, sys::cublasOperation_t::CUBLAS_OP_N};
use cudarc::driver::{CudaContext, CudaSlice};

warpline::namespace!("gemm", "matrix products by cuBLAS");

/// Rows and columns of each matrix.
const N: usize = 2048;
const PRODUCTS: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(missing) = host::missing() {
        println!("nothing to run: {missing}");
        return Ok(());
    }
    let _session = warpline::Session::from_env_or("perfetto=gemm.pftrace,summary");
    let stream = CudaContext::new(0)?.new_stream()?;
    let blas = Arc::new(CudaBlas::new(stream.clone())?);
    // Small whole numbers, whose products cuBLAS computes exactly, also with shorter mantissas.
    let numbers: Vec<f32> = (0..N * N).map(|n| (n % 7) as f32).collect();
    let (a, b, mut c) = (stream.clone_htod(&numbers)?, stream.clone_htod(&numbers)?, stream.alloc_zeros(N * N)?);
    for _ in 0..PRODUCTS {
        product(&blas, &a, &b, &mut c)?;
    }
    let result: Vec<f32> = stream.clone_dtoh(&c)?;
    // cuBLAS counts columns first.
    let right = |column: usize, row: usize| (0..N).map(|k| numbers[k * N + row] * numbers[column * N + k]).sum::<f32>();
    if (0..N).any(|n| result[n * N + (n * 5) % N] != right(n, (n * 5) % N)) {
        return Err("a number is wrong; please report this".into());
    }
    println!("{N} numbers of {N} x {N} are right");
    Ok(())
}

/// Multiplies two matrices.
#[warpline::gpu_zone("gemm.product", stream = blas, flops = 2 * N * N * N)]
fn product(
    blas: &Arc<CudaBlas>,
    a: &CudaSlice<f32>,
    b: &CudaSlice<f32>,
    c: &mut CudaSlice<f32>,
) -> Result<(), CublasError> {
    let (n, alpha, beta) = (N as i32, 1.0, 0.0);
    let (transa, transb) = (CUBLAS_OP_N, CUBLAS_OP_N);
    let config = GemmConfig { transa, transb, m: n, n, k: n, alpha, lda: n, ldb: n, beta, ldc: n };
    // SAFETY: the sizes are those of the three slices.
    unsafe { blas.gemm(config, a, b, c) }
}
