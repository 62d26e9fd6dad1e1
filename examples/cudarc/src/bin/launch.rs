//! A kernel that NVRTC compiles, launched on a stream. The lines with `warpline` are what is added.
//!
//! `cargo run --release -p warpline-example-cudarc --bin launch`

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::compile_ptx;

warpline::namespace!("launch", "a kernel that NVRTC compiles");

const KERNEL: &str = r#"
extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"#;
const N: usize = 1 << 24;
const LAUNCHES: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(missing) = host::missing() {
        println!("nothing to run: {missing}");
        return Ok(());
    }
    let _session = warpline::Session::from_env_or("perfetto=launch.pftrace,summary");
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let kernel = context.load_module(compile_ptx(KERNEL)?)?.load_function("saxpy")?;
    let (x, mut y) = (stream.clone_htod(&vec![1.0; N])?, stream.alloc_zeros(N)?);
    for _ in 0..LAUNCHES {
        saxpy(&stream, &kernel, 0.5, &x, &mut y)?;
    }
    let result: Vec<f32> = stream.clone_dtoh(&y)?;
    if result.iter().any(|y| *y != 0.5 * LAUNCHES as f32) {
        return Err("a number is wrong; please report this".into());
    }
    println!("{} numbers are right", result.len());
    Ok(())
}

/// Adds `a * x` to `y`.
#[warpline::gpu_zone("launch.saxpy", fields(n = x.len()), bytes = 3 * x.num_bytes())]
fn saxpy(
    stream: &Arc<CudaStream>,
    kernel: &CudaFunction,
    a: f32,
    x: &CudaSlice<f32>,
    y: &mut CudaSlice<f32>,
) -> Result<(), DriverError> {
    let n = x.len() as i32;
    let mut launch = stream.launch_builder(kernel);
    launch.arg(&a).arg(x).arg(y).arg(&n);
    // SAFETY: the arguments are those of the kernel, and both slices have `n` numbers.
    unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32)) }?;
    Ok(())
}
