//! Trains blocks of a multilayer perceptron with burn on a GPU, with a zone for each module.
//!
//! `cd examples/burn && cargo run --release`, with `WARPLINE=off` to compare the time of a step

mod zones;

use std::error::Error;
use std::time::Instant;

use burn::backend::{Autodiff, Cuda};
use burn::module::Module;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};

warpline::namespace!("mlp", "a multilayer perceptron of burn");

type Gpu = Autodiff<Cuda>;

const BATCH: usize = 512;
const WIDTH: usize = 1024;
const BLOCKS: usize = 4;
const STEPS: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let session = warpline::Session::from_env_or("perfetto=burn.pftrace,summary,timing=kernels");
    let device = Default::default();
    Gpu::seed(&device, 1);
    let mut model: Vec<Block<Gpu>> = (0..BLOCKS).map(|_| Block::new(&device)).collect();
    let mut optimizer = SgdConfig::new().init();
    let random = || Tensor::<Gpu, 2>::random([BATCH, WIDTH], Distribution::Normal(0.0, 1.0), &device);
    let (x, target) = (random(), random());
    let mut losses: Vec<f32> = Vec::new();
    for step in 0..STEPS {
        let begin = Instant::now();
        let y = model.iter().fold(x.clone(), |x, block| block.forward(x));
        let loss = zoned!("mlp.loss", "The mean squared error.", {
            MseLoss::new().forward(y, target.clone(), Reduction::Mean)
        });
        let gradients = zoned!("mlp.backward", "The gradients of all modules.", loss.backward());
        let gradients = GradientsParams::from_grads(gradients, &model);
        model = zoned!("mlp.update", "Updates the weights.", optimizer.step(0.1, model, gradients));
        losses.push(loss.into_scalar()); // waits for the GPU
        println!("step {step}: loss {:.4}, {:.2} ms", losses[step], begin.elapsed().as_secs_f64() * 1e3);
    }
    session.finish();
    match losses.is_sorted_by(|before, after| before > after) {
        true => Ok(()),
        false => Err("the loss did not fall".into()),
    }
}

/// A residual block.
#[derive(Module, Debug)]
struct Block<B: Backend> {
    norm: LayerNorm<B>,
    up: Linear<B>,
    gelu: Gelu,
    down: Linear<B>,
}

impl<B: Backend> Block<B> {
    fn new(device: &B::Device) -> Self {
        Block {
            norm: LayerNormConfig::new(WIDTH).init(device),
            up: LinearConfig::new(WIDTH, 4 * WIDTH).init(device),
            gelu: Gelu::new(),
            down: LinearConfig::new(4 * WIDTH, WIDTH).init(device),
        }
    }

    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let normed = zoned!("mlp.norm", "Normalizes the batch.", self.norm.forward(x.clone()));
        let wide = zoned!("mlp.up", "Projects up.", self.gelu.forward(self.up.forward(normed)));
        zoned!("mlp.down", "Projects down, and adds the batch.", x + self.down.forward(wide))
    }
}
