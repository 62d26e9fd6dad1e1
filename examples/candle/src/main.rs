//! Trains a multilayer perceptron with candle, with a zone for each module.
//!
//! `cd examples/candle && cargo run --release --features cuda`; without the feature, on the CPU

mod zoned;

use std::error::Error;
use std::time::Instant;

use candle_core::{DType, Device, Module, Tensor};
use candle_nn::{Activation, LayerNorm, Linear, Optimizer, SGD, VarBuilder, VarMap, layer_norm, linear};
use warpline::gpu_zone;
use zoned::{Zoned, stream};

warpline::namespace!("mlp", "a multilayer perceptron of candle");

warpline::range! {
    NORM = "mlp.norm": "Normalizes the batch.";
    UP = "mlp.up": "Projects up.";
    DOWN = "mlp.down": "Projects down.";
}

const BATCH: usize = 512;
const WIDTH: usize = 1024;
const BLOCKS: usize = 4;
const STEPS: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let _session = warpline::Session::from_env_or("perfetto=candle.pftrace,summary");
    let device = if cfg!(feature = "cuda") { Device::new_cuda_with_stream(0)? } else { Device::Cpu };
    warpline::name_stream(&stream(&device), "candle");
    let weights = VarMap::new();
    let builder = VarBuilder::from_varmap(&weights, DType::F32, &device);
    let model = (0..BLOCKS).map(|n| Block::new(&builder.pp(n))).collect::<candle_core::Result<Vec<_>>>()?;
    let mut optimizer = SGD::new(weights.all_vars(), 0.1)?;
    let random = || Tensor::randn(0f32, 1.0, (BATCH, WIDTH), &device);
    let (x, target) = (random()?, random()?);
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let begin = Instant::now();
        let y = model.iter().try_fold(x.clone(), |x, block| block.forward(&x))?;
        let loss = candle_nn::loss::mse(&y, &target)?;
        train(&mut optimizer, &loss)?;
        losses.push(loss.to_scalar::<f32>()?); // waits for the GPU
        println!("step {step}: loss {:.4}, {:.2} ms", losses[step], begin.elapsed().as_secs_f64() * 1e3);
    }
    match losses.is_sorted_by(|before, after| before > after) {
        true => Ok(()),
        false => Err("the loss did not fall".into()),
    }
}

/// Computes the gradients and updates the weights.
#[gpu_zone("mlp.train", stream = stream(loss.device()))]
fn train(optimizer: &mut SGD, loss: &Tensor) -> candle_core::Result<()> {
    optimizer.backward_step(loss)
}

/// A residual block.
struct Block {
    norm: Zoned<LayerNorm>,
    up: Zoned<Linear>,
    down: Zoned<Linear>,
}

impl Block {
    fn new(builder: &VarBuilder) -> candle_core::Result<Block> {
        Ok(Block {
            norm: Zoned(&NORM, layer_norm(WIDTH, 1e-5, builder.pp("norm"))?),
            up: Zoned(&UP, linear(WIDTH, 4 * WIDTH, builder.pp("up"))?),
            down: Zoned(&DOWN, linear(4 * WIDTH, WIDTH, builder.pp("down"))?),
        })
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let wide = Activation::Gelu.forward(&self.up.forward(&self.norm.forward(x)?)?)?;
        x + self.down.forward(&wide)?
    }
}
