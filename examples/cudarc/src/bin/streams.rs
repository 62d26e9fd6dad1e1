//! Streams that work at the same time and are joined. The lines with `warpline` are what is added.
//!
//! `cargo run --release -p warpline-example-cudarc --bin streams`

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::compile_ptx;

warpline::namespace!("streams", "streams that work at the same time");

/// Turns each number around a circle, so that a few blocks work for about a tenth of a millisecond.
const KERNEL: &str = r#"
extern "C" __global__ void turn(float *x, int n, int times) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) for (int t = 0; t < times; t++) x[i] = x[i] < 1.0f ? x[i] + 0.125f : 0.0f;
}
"#;
const N: usize = 4096;
const TIMES: i32 = 9 * 1000;
const STREAMS: usize = 4;
const ROUNDS: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(missing) = host::missing() {
        println!("nothing to run: {missing}");
        return Ok(());
    }
    let _session = warpline::Session::from_env_or("perfetto=streams.pftrace,summary");
    let context = CudaContext::new(0)?;
    let main = context.new_stream()?;
    let kernel = context.load_module(compile_ptx(KERNEL)?)?.load_function("turn")?;
    let numbers: Vec<f32> = (0..N).map(|n| (n % 9) as f32 / 8.0).collect();
    let mut parts = (0..STREAMS).map(|_| main.clone_htod(&numbers)).collect::<Result<Vec<_>, _>>()?;
    let streams = (0..STREAMS).map(|_| main.fork()).collect::<Result<Vec<_>, _>>()?;
    for _ in 0..ROUNDS {
        for (stream, part) in streams.iter().zip(&mut parts) {
            turn(stream, &kernel, part)?;
        }
    }
    for stream in &streams {
        main.join(stream)?;
    }
    // Nine turns are a full circle.
    for part in &parts {
        if main.clone_dtoh(part)? != numbers {
            return Err("a number is wrong; please report this".into());
        }
    }
    println!("{} numbers are right", STREAMS * N);
    Ok(())
}

/// Turns the numbers of one part.
#[warpline::gpu_zone("streams.turn")]
fn turn(stream: &Arc<CudaStream>, kernel: &CudaFunction, part: &mut CudaSlice<f32>) -> Result<(), DriverError> {
    let n = part.len() as i32;
    let mut launch = stream.launch_builder(kernel);
    launch.arg(part).arg(&n).arg(&TIMES);
    // SAFETY: the arguments are those of the kernel, and the slice has `n` numbers.
    unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32)) }?;
    Ok(())
}
