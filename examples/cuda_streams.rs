//! Two CUDA streams: one multiplies matrices with cuBLAS, the other brings the next weights to the device meanwhile.
//!
//! `cargo run --release --example cuda_streams [-- --steps N]`
//!
//! Weights that do not fit a GPU are streamed to it like this. Each weight is a permutation, so that the result can be
//! checked to the last bit. cudarc's own event tracking is off: its waits would stand inside the zones, and the program
//! orders its streams itself.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use cudarc::cublas::{CudaBlas, Gemm, GemmConfig, sys::cublasOperation_t};
use cudarc::driver::{CudaContext, CudaEvent, CudaSlice, CudaStream, PinnedHostSlice};
use warpline::{Session, gpu_zone, host_zone};

warpline::namespace!("cuda_streams", "matrix products and copies on two CUDA streams");

const TRACE: &str = "cuda_streams.pftrace";
const USAGE: &str = "usage: cargo run --release --example cuda_streams [-- --steps N]";

const STEPS: usize = 12;
const LAYERS: usize = 6;
const ROWS: usize = 1024;
const WIDTH: usize = 2048;

fn main() -> ExitCode {
    let steps = match asked_for(std::env::args().skip(1)) {
        Ok(Some(steps)) => steps,
        Ok(None) => {
            println!("{USAGE}\n\n  --steps N   how many batches to run, from 1 (default {STEPS})");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(missing) = missing() {
        println!("nothing to run: {missing}");
        return ExitCode::SUCCESS;
    }
    match run(steps) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The number of steps; none if only help is wanted.
fn asked_for(mut arguments: impl Iterator<Item = String>) -> Result<Option<usize>, String> {
    let mut steps = STEPS;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-h" | "--help" => return Ok(None),
            "--steps" => {
                let number = arguments.next().ok_or("`--steps` needs a number, such as `--steps 100`")?;
                let right = number.parse().ok().filter(|steps| *steps > 0);
                steps = right.ok_or_else(|| format!("`--steps {number}` is not a whole number from 1"))?;
            }
            _ => return Err(format!("unknown argument `{argument}`; there is `--steps N`")),
        }
    }
    Ok(Some(steps))
}

/// What this machine lacks, and what to do. Asked before the first call of cudarc, which panics without a driver.
fn missing() -> Option<&'static str> {
    // SAFETY: loading the driver runs its initialisers, as in every program that uses CUDA.
    if unsafe { libloading::Library::new("libcuda.so.1") }.is_err() {
        return Some(
            "this machine has no CUDA driver (`libcuda.so.1`). Run it where `nvidia-smi` works, or see zones without a GPU:\n\
             cargo run --release --example quickstart",
        );
    }
    // SAFETY: it only tries to load the library.
    if !unsafe { cudarc::cublas::sys::is_culib_present() } {
        return Some("there is no libcublas. Install the CUDA toolkit, or add its lib64 to LD_LIBRARY_PATH");
    }
    None
}

fn run(steps: usize) -> Result<(), Box<dyn Error>> {
    let context = CudaContext::new(0)?;
    // SAFETY: the events below order every use of a slot on the two streams.
    unsafe { context.disable_event_tracking() };
    let session = Session::from_env_or(&format!("perfetto={TRACE},summary")); // WARPLINE=… wins
    println!("{}: {LAYERS} products of {ROWS} x {WIDTH} x {WIDTH} a step, {steps} steps", context.name()?);
    let mut model = Model::new(&context)?;
    for step in 0..steps {
        model.step(step)?;
    }
    let result = model.result()?;
    check(&result, steps)?;
    println!("checked: {} numbers are what {} permutations make of them\n", result.len(), steps * LAYERS);
    session.finish();
    Ok(())
}

struct Model {
    compute: Arc<CudaStream>,
    copy: Arc<CudaStream>,
    blas: CudaBlas,
    weights: Vec<PinnedHostSlice<f32>>,
    /// Two places for weights: one is computed with while the other is filled.
    slots: [Slot; 2],
    x: CudaSlice<f32>,
    y: CudaSlice<f32>,
}

struct Slot {
    weights: CudaSlice<f32>,
    /// When `compute` has used what is in here.
    used: Option<CudaEvent>,
}

impl Model {
    fn new(context: &Arc<CudaContext>) -> Result<Model, Box<dyn Error>> {
        let (compute, copy) = (context.new_stream()?, context.new_stream()?);
        let slot =
            || -> Result<Slot, Box<dyn Error>> { Ok(Slot { weights: copy.alloc_zeros(WIDTH * WIDTH)?, used: None }) };
        let model = Model {
            blas: CudaBlas::new(Arc::clone(&compute))?,
            weights: (0..LAYERS).map(|layer| permutation(context, layer)).collect::<Result<_, _>>()?,
            slots: [slot()?, slot()?],
            x: compute.clone_htod(&input())?,
            y: compute.alloc_zeros(ROWS * WIDTH)?,
            compute,
            copy,
        };
        context.synchronize()?;
        Ok(model)
    }

    /// Queues one batch on both streams.
    fn step(&mut self, step: usize) -> Result<(), Box<dyn Error>> {
        for layer in 0..LAYERS {
            let slot = &mut self.slots[(step * LAYERS + layer) % 2];
            if let Some(used) = slot.used.take() {
                self.copy.wait(&used)?;
            }
            upload(&self.copy, layer, &self.weights[layer], &mut slot.weights)?;
            self.compute.wait(&self.copy.record_event(None)?)?;
            product(&self.compute, &self.blas, layer, &self.x, &slot.weights, &mut self.y)?;
            std::mem::swap(&mut self.x, &mut self.y);
            slot.used = Some(self.compute.record_event(None)?);
        }
        Ok(())
    }

    /// What the steps have computed.
    #[host_zone("cuda_streams.result", description = "Waits for the streams and reads the result.")]
    fn result(&self) -> Result<Vec<f32>, Box<dyn Error>> {
        let numbers = read_back(&self.compute, &self.x)?;
        self.compute.synchronize()?;
        Ok(numbers)
    }
}

/// Brings one layer's weights to the device.
#[gpu_zone(
    "cuda_streams.upload",
    stream = copy,
    fields(bytes = weights.num_bytes()),
    label = format_args!("layer {layer}"),
    err
)]
fn upload(
    copy: &Arc<CudaStream>,
    layer: usize,
    weights: &PinnedHostSlice<f32>,
    slot: &mut CudaSlice<f32>,
) -> Result<(), cudarc::driver::DriverError> {
    copy.memcpy_htod(weights, slot)
}

/// Multiplies the batch with one layer's weights.
#[gpu_zone("cuda_streams.product", fields(rows = ROWS, width = WIDTH), label = format_args!("layer {layer}"), err)]
fn product(
    stream: &Arc<CudaStream>,
    blas: &CudaBlas,
    layer: usize,
    x: &CudaSlice<f32>,
    weights: &CudaSlice<f32>,
    y: &mut CudaSlice<f32>,
) -> Result<(), cudarc::cublas::result::CublasError> {
    // cuBLAS counts columns first: it sees every matrix transposed, and so computes yᵀ = weightsᵀ · xᵀ.
    let (rows, width) = (ROWS as i32, WIDTH as i32);
    let none = cublasOperation_t::CUBLAS_OP_N;
    let config = GemmConfig {
        transa: none,
        transb: none,
        m: width,
        n: rows,
        k: width,
        alpha: 1.0,
        lda: width,
        ldb: width,
        beta: 0.0,
        ldc: width,
    };
    // SAFETY: the sizes are those of the three slices.
    unsafe { blas.gemm(config, weights, x, y) }
}

/// Brings the result to the host.
#[gpu_zone("cuda_streams.read_back", err)]
fn read_back(stream: &Arc<CudaStream>, x: &CudaSlice<f32>) -> Result<Vec<f32>, cudarc::driver::DriverError> {
    stream.clone_dtoh(x)
}

/// How far a layer moves each column.
fn shift(layer: usize) -> usize {
    2 * layer + 1
}

/// The weights of a layer: every column goes on by `shift`, and the last ones come first.
fn permutation(context: &Arc<CudaContext>, layer: usize) -> Result<PinnedHostSlice<f32>, Box<dyn Error>> {
    // SAFETY: every number is written before it is read.
    let mut weights = unsafe { context.alloc_pinned::<f32>(WIDTH * WIDTH) }?;
    let numbers = weights.as_mut_slice()?;
    numbers.fill(0.0);
    for row in 0..WIDTH {
        numbers[row * WIDTH + (row + shift(layer)) % WIDTH] = 1.0;
    }
    Ok(weights)
}

/// Small whole numbers: exact in every format that cuBLAS may compute in.
fn input() -> Vec<f32> {
    (0..ROWS * WIDTH).map(|index| (index % 1021) as f32).collect()
}

fn check(result: &[f32], steps: usize) -> Result<(), String> {
    let moved = steps * (0..LAYERS).map(shift).sum::<usize>() % WIDTH;
    let x = input();
    for (row, (is, was)) in result.chunks(WIDTH).zip(x.chunks(WIDTH)).enumerate() {
        let wrong = (0..WIDTH).find(|column| is[(column + moved) % WIDTH] != was[*column]);
        if let Some(column) = wrong {
            return Err(format!(
                "wrong result: row {row}, column {column} was not moved by {moved}; please report this"
            ));
        }
    }
    Ok(())
}
