//! What marking costs a real step: one transformer block with cuBLAS, every section a zone; no session, a session, and a
//! session with a budget of 0.5%, in turns.
//!
//! The large size is bound by the GPU, the small one by the launching thread, where two events a zone hurt most. The
//! element-wise sections (norm, softmax, GELU) stand in by one kernel that reads and writes the same memory.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::cublas::{CudaBlas, result as cublas, sys as cublas_sys};
use cudarc::driver::{CudaStream, result, sys};
use gpu::{DeviceMemory, Gpu, Result};
use warpline::{Session, block};

use crate::figures::{Table, median, ratio, verdict};
use crate::options::Options;

const HEAD: usize = 128;
const F16: cublas_sys::cudaDataType_t = cublas_sys::cudaDataType_t::CUDA_R_16F;
pub const BUDGET: f64 = 0.005;
pub const MEASURED: Duration = Duration::from_millis(600);
pub const SETTLED: Duration = Duration::from_millis(600);

pub fn run(options: &Options) -> Result {
    let gpu = Gpu::new(0)?;
    let rounds = options.size("rounds", 12);
    let title = format!("steps: us per step of a transformer block, 11 zones a step, medians of {rounds} rounds");
    let mut table = Table::new(
        &title,
        &[
            "dim",
            "tokens",
            "off",
            "on",
            "over off",
            "goal",
            "budget 0.5%",
            "over off",
            "goal",
            "zones a step",
            "with budget",
        ],
    );
    // The goal for the size that is bound by launches holds with a budget; without one it is only told.
    for (dim, batch, tokens, goal, budget_goal) in [(4096, 8, 2048, Some(0.5), 0.5), (1024, 4, 256, None, 0.7)] {
        let model = Model::new(&gpu, dim, batch, tokens)?;
        let (mut off, mut on, mut with_budget) = (Vec::new(), Vec::new(), Vec::new());
        let (mut zones, mut sampled) = (Vec::new(), Vec::new());
        model.steps_for(SETTLED)?;
        for _ in 0..rounds {
            model.steps_for(SETTLED / 4)?;
            off.push(model.steps_for(MEASURED)?.us);
            for (budget, samples, recorded) in
                [(None, &mut on, &mut zones), (Some(BUDGET), &mut with_budget, &mut sampled)]
            {
                let builder = Session::builder();
                let session = budget.into_iter().fold(builder, |builder, share| builder.budget(share)).start()?;
                let settled = model.steps_for(SETTLED)?;
                let measured = model.steps_for(MEASURED)?;
                let report = session.finish();
                samples.push(measured.us);
                recorded.push(report.recorded as f64 / (settled.steps + measured.steps) as f64);
            }
        }
        let over = |samples: &[f64]| (ratio(samples, &off) - 1.0) * 100.0;
        table.row(&[
            dim.to_string(),
            format!("{batch} x {tokens}"),
            format!("{:.1}", median(&off)),
            format!("{:.1}", median(&on)),
            format!("{:+.2}%", over(&on)),
            goal.map_or_else(|| "none".to_owned(), |goal| format!("{goal}%: {}", verdict(over(&on), goal))),
            format!("{:.1}", median(&with_budget)),
            format!("{:+.2}%", over(&with_budget)),
            format!("{budget_goal}%: {}", verdict(over(&with_budget), budget_goal)),
            format!("{:.1}", median(&zones)),
            format!("{:.2}", median(&sampled)),
        ]);
    }
    table.print();
    Ok(())
}

pub struct Model<'a> {
    gpu: &'a Gpu,
    stream: Arc<CudaStream>,
    blas: CudaBlas,
    dim: usize,
    batch: usize,
    tokens: usize,
    x: DeviceMemory,
    normed: DeviceMemory,
    qkv: DeviceMemory,
    scores: DeviceMemory,
    context: DeviceMemory,
    change: DeviceMemory,
    hidden: DeviceMemory,
    qkv_weights: DeviceMemory,
    out_weights: DeviceMemory,
    up_weights: DeviceMemory,
    down_weights: DeviceMemory,
}

pub struct Steps {
    pub steps: u64,
    pub us: f64,
}

impl<'a> Model<'a> {
    pub fn new(gpu: &'a Gpu, dim: usize, batch: usize, tokens: usize) -> Result<Model<'a>> {
        // SAFETY: it only tries to load the library.
        if !unsafe { cublas_sys::is_culib_present() } {
            return Err("there is no libcublas; add the CUDA toolkit's lib64 to LD_LIBRARY_PATH".into());
        }
        let stream = gpu.stream()?;
        let rows = batch * tokens;
        Ok(Model {
            gpu,
            blas: CudaBlas::new(stream.clone())?,
            stream,
            dim,
            batch,
            tokens,
            x: noise(rows * dim, 1.0)?,
            normed: noise(rows * dim, 1.0)?,
            qkv: noise(rows * 3 * dim, 1.0)?,
            scores: noise(batch * dim / HEAD * tokens * tokens, 1.0)?,
            context: noise(rows * dim, 1.0)?,
            change: noise(rows * dim, 1.0)?,
            hidden: noise(rows * 4 * dim, 1.0)?,
            qkv_weights: noise(dim * 3 * dim, 0.05)?,
            out_weights: noise(dim * dim, 0.05)?,
            up_weights: noise(dim * 4 * dim, 0.05)?,
            down_weights: noise(4 * dim * dim, 0.05)?,
        })
    }

    /// Steps until the time is over, and how long one took. At most a few are in flight, as in a training loop.
    pub fn steps_for(&self, time: Duration) -> Result<Steps> {
        self.stream.synchronize()?;
        let begin = Instant::now();
        let mut steps = 0;
        while begin.elapsed() < time {
            for _ in 0..8 {
                self.step()?;
                steps += 1;
            }
            self.stream.synchronize()?;
        }
        Ok(Steps { steps, us: begin.elapsed().as_secs_f64() * 1e6 / steps as f64 })
    }

    fn step(&self) -> Result {
        let stream = &self.stream;
        let (dim, rows) = (self.dim, self.batch * self.tokens);
        block::gpu_zone!("gpu_bench.block", stream, description = "One block of the transformer.", {
            block::gpu_zone!("gpu_bench.norm1", stream, description = "Stands for the first norm.", {
                self.norm(&self.x)?;
            });
            block::gpu_zone!("gpu_bench.qkv", stream, description = "Projects to queries, keys and values.", {
                self.matmul(&self.normed, &self.qkv_weights, &self.qkv, (rows, dim, 3 * dim))?;
            });
            block::gpu_zone!("gpu_bench.scores", stream, description = "Queries times keys.", { self.scores()? });
            block::gpu_zone!("gpu_bench.softmax", stream, description = "Stands for the softmax.", {
                self.gpu.halve(stream, self.scores.0, self.batch * dim / HEAD * self.tokens * self.tokens)?;
            });
            block::gpu_zone!("gpu_bench.attend", stream, description = "Scores times values.", { self.attend()? });
            block::gpu_zone!("gpu_bench.out_proj", stream, description = "Projects back.", {
                self.matmul(&self.context, &self.out_weights, &self.change, (rows, dim, dim))?;
            });
            block::gpu_zone!("gpu_bench.norm2", stream, description = "Stands for the second norm.", {
                self.norm(&self.change)?;
            });
            block::gpu_zone!("gpu_bench.up", stream, description = "The first matrix of the MLP.", {
                self.matmul(&self.normed, &self.up_weights, &self.hidden, (rows, dim, 4 * dim))?;
            });
            block::gpu_zone!("gpu_bench.gelu", stream, description = "Stands for the GELU.", {
                self.gpu.halve(stream, self.hidden.0, rows * 4 * dim)?;
            });
            block::gpu_zone!("gpu_bench.down", stream, description = "The second matrix of the MLP.", {
                self.matmul(&self.hidden, &self.down_weights, &self.change, (rows, 4 * dim, dim))?;
            });
        });
        Ok(())
    }

    fn norm(&self, from: &DeviceMemory) -> Result {
        let count = self.batch * self.tokens * self.dim;
        // SAFETY: both have `count` f16.
        unsafe { result::memcpy_dtod_async(self.normed.0, from.0, count * 2, self.stream.cu_stream()) }?;
        self.gpu.halve(&self.stream, self.normed.0, count)
    }

    /// `out = a · b`, all row by row, of `rows x inner` and `inner x cols`. cuBLAS sees them transposed.
    fn matmul(&self, a: &DeviceMemory, b: &DeviceMemory, out: &DeviceMemory, size: (usize, usize, usize)) -> Result {
        let (rows, inner, cols) = (size.0 as i32, size.1 as i32, size.2 as i32);
        let (one, zero) = (1.0_f32, 0.0_f32);
        let none = cublas_sys::cublasOperation_t::CUBLAS_OP_N;
        // SAFETY: the three matrices have the sizes that they were made with, which are those given here.
        unsafe {
            cublas::gemm_ex(
                *self.blas.handle(),
                none,
                none,
                cols,
                rows,
                inner,
                number(&one),
                at(b, 0),
                F16,
                cols,
                at(a, 0),
                F16,
                inner,
                number(&zero),
                at(out, 0).cast_mut(),
                F16,
                cols,
                cublas_sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                cublas_sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }?;
        Ok(())
    }

    /// Per text of the batch, all heads in one call: `scores = queries · keysᵀ`.
    fn scores(&self) -> Result {
        use cublas_sys::cublasOperation_t::{CUBLAS_OP_N, CUBLAS_OP_T};
        let (tokens, wide, heads) = (self.tokens as i32, 3 * self.dim as i32, (self.dim / HEAD) as i32);
        let (one, zero) = (1.0_f32, 0.0_f32);
        for text in 0..self.batch {
            let row = text * self.tokens * 3 * self.dim;
            let out = text * self.dim / HEAD * self.tokens * self.tokens;
            // SAFETY: the queries, keys and scores of one text lie inside their memory, as the offsets say.
            unsafe {
                cublas::gemm_strided_batched_ex(
                    *self.blas.handle(),
                    CUBLAS_OP_T,
                    CUBLAS_OP_N,
                    tokens,
                    tokens,
                    HEAD as i32,
                    number(&one),
                    at(&self.qkv, row + self.dim),
                    F16,
                    wide,
                    HEAD as i64,
                    at(&self.qkv, row),
                    F16,
                    wide,
                    HEAD as i64,
                    number(&zero),
                    at(&self.scores, out).cast_mut(),
                    F16,
                    tokens,
                    i64::from(tokens) * i64::from(tokens),
                    heads,
                    cublas_sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                    cublas_sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
                )
            }?;
        }
        Ok(())
    }

    /// Per text of the batch, all heads in one call: `context = scores · values`.
    fn attend(&self) -> Result {
        let none = cublas_sys::cublasOperation_t::CUBLAS_OP_N;
        let (tokens, wide, heads) = (self.tokens as i32, 3 * self.dim as i32, (self.dim / HEAD) as i32);
        let (one, zero) = (1.0_f32, 0.0_f32);
        for text in 0..self.batch {
            let row = text * self.tokens * 3 * self.dim;
            let scores = text * self.dim / HEAD * self.tokens * self.tokens;
            // SAFETY: the values, scores and context of one text lie inside their memory, as the offsets say.
            unsafe {
                cublas::gemm_strided_batched_ex(
                    *self.blas.handle(),
                    none,
                    none,
                    HEAD as i32,
                    tokens,
                    tokens,
                    number(&one),
                    at(&self.qkv, row + 2 * self.dim),
                    F16,
                    wide,
                    HEAD as i64,
                    at(&self.scores, scores),
                    F16,
                    tokens,
                    i64::from(tokens) * i64::from(tokens),
                    number(&zero),
                    at(&self.context, text * self.tokens * self.dim).cast_mut(),
                    F16,
                    self.dim as i32,
                    HEAD as i64,
                    heads,
                    cublas_sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                    cublas_sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
                )
            }?;
        }
        Ok(())
    }
}

/// The address of the f16 number `index`.
fn at(memory: &DeviceMemory, index: usize) -> *const c_void {
    (memory.0 + 2 * index as u64) as *const c_void
}

fn number(value: &f32) -> *const c_void {
    ptr::from_ref(value).cast()
}

/// `count` f16 between -size and size: the same in every run, and no zeros, with which the device would draw less power.
fn noise(count: usize, size: f32) -> Result<DeviceMemory> {
    let memory = DeviceMemory::zeroed(count * 2)?;
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f16_bits(((state >> 8) as f32 / (1 << 23) as f32 - 1.0) * size)
    };
    let some: Vec<u16> = (0..count.min(1 << 20)).map(|_| next()).collect();
    for begin in (0..count).step_by(some.len()) {
        let part = &some[..some.len().min(count - begin)];
        // SAFETY: the part lies inside the memory.
        unsafe { result::memcpy_htod_sync(memory.0 + 2 * begin as sys::CUdeviceptr, part) }?;
    }
    Ok(memory)
}

/// A normal f16, cut; what is too small for one is 0.
fn f16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let exponent = ((bits >> 23) & 0xff) as i32 - 112;
    if exponent <= 0 { sign as u16 } else { (sign | (exponent as u32) << 10 | (bits >> 13) & 0x3ff) as u16 }
}
