//! What a rank computes. Of each layer's hidden units it has its part, so that its product with the second matrix is a part of
//! the sum that the layer gives: the all-reduce makes it whole. Of parameters that every rank has, it has the gradients of its
//! own samples: they are summed in buckets, all by one launch, while the next step computes.

use std::error::Error;
use std::time::Duration;

use tensor::{Comm, Device, Matrix, Stream};
use warpline::timeline::{self, Semaphore};
use warpline::{gpu_zone, host_zone};

use crate::options::Late;

const LAYERS: usize = 2;
const TOKENS: usize = 32;
const WIDTH: usize = 128;
/// Over all ranks: their number divides it.
pub const HIDDEN: usize = 256;
/// Samples of a rank, for the gradients.
const SAMPLES: usize = 16;
/// Columns of each gradient.
const BUCKETS: [usize; 3] = [128, 32, 64];

pub struct Rank {
    rank: usize,
    ranks: usize,
    comm: Comm,
    compute: Stream,
    /// What the collectives are queued on.
    exchange: Stream,
    layers: Vec<Layer>,
    /// This rank's part of a layer's hidden units; work on `compute` alone touches it.
    hidden: Matrix,
    /// This rank's samples, a column each; and what comes back for them, a matrix for each bucket.
    samples: Matrix,
    errors: Vec<Matrix>,
    steps: Vec<Step>,
    late: Option<Late>,
    /// The group's number of the next collective.
    next: u64,
    order: Order,
}

/// What orders the two streams, and this thread behind them.
struct Order {
    /// `exchange` has brought a batch; summed what `compute` gave it. `compute` has given it something to sum; done a step.
    there: Counter,
    summed: Counter,
    computed: Counter,
    done: Counter,
}

/// A semaphore that goes on by one.
struct Counter {
    semaphore: Semaphore,
    last: u64,
}

/// This rank's part of a layer.
struct Layer {
    up: Matrix,
    down: Matrix,
}

/// A step's matrices stay until they are checked.
struct Step {
    /// The batch, which rank 0 has at first; then what the layers made of it.
    x: Matrix,
    /// What each layer adds: a part at first, then the sum over the ranks.
    sums: Vec<Matrix>,
    gradients: Vec<Matrix>,
    /// The number of the batch, when it is on its way.
    there: u64,
}

impl Rank {
    /// Everything that a run needs, and one step to warm it up, which nobody records: kernels are loaded and ranks connected
    /// with the first call of each kind.
    pub fn new(device: &Device, comm: Comm, steps: usize, late: Option<Late>) -> Result<Rank, Box<dyn Error>> {
        let (rank, ranks) = (comm.group().rank() as usize, comm.group().size());
        let part = HIDDEN / ranks;
        let layer = |layer| -> Result<Layer, tensor::Error> {
            Ok(Layer {
                up: Matrix::from_fn(device, WIDTH, part, |row, col| up(layer, row, rank * part + col))?,
                down: Matrix::from_fn(device, part, WIDTH, |row, col| down(layer, rank * part + row, col))?,
            })
        };
        let errors =
            |bucket: usize| Matrix::from_fn(device, SAMPLES, BUCKETS[bucket], |row, col| error(rank, bucket, row, col));
        let step = |step| Step::new(device, step, rank);
        let mut warm = Rank {
            compute: device.stream("compute")?,
            exchange: device.stream("comm")?,
            layers: (0..LAYERS).map(layer).collect::<Result<_, _>>()?,
            hidden: Matrix::zeros(device, TOKENS, part)?,
            samples: Matrix::from_fn(device, WIDTH, SAMPLES, |row, col| sample(rank, row, col))?,
            errors: (0..BUCKETS.len()).map(errors).collect::<Result<_, _>>()?,
            steps: vec![step(0)?],
            late: None,
            next: 0,
            order: Order::new(rank),
            rank,
            ranks,
            comm,
        };
        warm.run()?;
        // What it computed is overwritten by the run's own matrices.
        let steps = (0..steps).map(step).collect::<Result<_, _>>()?;
        Ok(Rank { steps, late, next: 0, ..warm })
    }

    /// Queues all steps, and waits for them.
    pub fn run(&mut self) -> Result<(), Box<dyn Error>> {
        self.fetch(0)?;
        for step in 0..self.steps.len() {
            self.step(step)?;
            // One step computes, one is queued behind it: the launching thread never runs further ahead.
            let Counter { semaphore, last } = &self.order.done;
            semaphore.wait(last - 1, Duration::MAX)?;
        }
        self.synchronize()?;
        Ok(self.comm.failure()?)
    }

    /// Queues one step on both streams.
    fn step(&mut self, step: usize) -> Result<(), Box<dyn Error>> {
        self.fetch(step + 1)?;
        self.order.there.semaphore.wait_on(&self.compute, self.steps[step].there)?;
        for layer in 0..LAYERS {
            self.mlp(step, layer)?;
            self.order.computed.orders(&self.compute, &self.exchange)?;
            self.may_be_late(1)?;
            tensor::all_reduce(&self.exchange, &self.comm, &self.steps[step].sums[layer])?;
            self.order.summed.orders(&self.exchange, &self.compute)?;
            tensor::add(&self.compute, &self.steps[step].sums[layer], &self.steps[step].x)?;
        }
        self.gradients(step)?;
        self.order.computed.orders(&self.compute, &self.exchange)?;
        self.may_be_late(BUCKETS.len())?;
        // Nothing on `compute` waits for them: the next step goes on.
        tensor::all_reduce_each(&self.exchange, &self.comm, &self.steps[step].gradients)?;
        self.order.done.signal_on(&self.compute)?;
        Ok(())
    }

    /// Brings the batch of a step from rank 0 to all, if there is such a step.
    fn fetch(&mut self, step: usize) -> Result<(), Box<dyn Error>> {
        if step < self.steps.len() {
            self.may_be_late(1)?;
            tensor::broadcast(&self.exchange, &self.comm, &self.steps[step].x, 0)?;
            self.steps[step].there = self.order.there.signal_on(&self.exchange)?;
        }
        Ok(())
    }

    /// This rank's part of a layer.
    #[gpu_zone("nccl_all_reduce.mlp", stream = self.compute, fields(step = step), label = format_args!("layer {layer}"))]
    fn mlp(&self, step: usize, layer: usize) -> Result<(), tensor::Error> {
        let (Layer { up, down }, Step { x, sums, .. }) = (&self.layers[layer], &self.steps[step]);
        tensor::matmul(&self.compute, x, up, &self.hidden)?;
        tensor::gelu(&self.compute, &self.hidden)?;
        tensor::matmul(&self.compute, &self.hidden, down, &sums[layer])
    }

    /// The gradients of this rank's samples.
    #[gpu_zone("nccl_all_reduce.gradients", stream = self.compute, fields(step = step))]
    fn gradients(&self, step: usize) -> Result<(), tensor::Error> {
        let each = self.errors.iter().zip(&self.steps[step].gradients);
        each.into_iter()
            .try_for_each(|(errors, gradient)| tensor::matmul(&self.compute, &self.samples, errors, gradient))
    }

    /// Counts the collectives that come now; and if the one is among them to which this rank is told to be late, it is: as a
    /// rank whose thread was held up, when its streams had nothing to do any more.
    fn may_be_late(&mut self, collectives: usize) -> Result<(), tensor::Error> {
        let these = self.next..self.next + collectives as u64;
        self.next = these.end;
        if let Some(late) = self.late
            && late.rank as usize == self.rank
            && these.contains(&late.at)
        {
            self.synchronize()?;
            hold_up(late.by);
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<(), tensor::Error> {
        self.compute.synchronize()?;
        self.exchange.synchronize()
    }

    /// Compares every sum of every step with a naive one in f64, and says how many there were.
    #[host_zone("nccl_all_reduce.check", description = "Compares every sum with a naive one.")]
    pub fn check(&self) -> Result<String, Box<dyn Error>> {
        let gradients = reference::gradients(self.ranks);
        for (index, step) in self.steps.iter().enumerate() {
            let mut x = reference::batch(index);
            for (layer, sum) in step.sums.iter().enumerate() {
                let wanted = reference::layer(layer, &mut x);
                self.compare(&format!("layer {layer} of step {index}"), &sum.to_vec()?, &wanted)?;
            }
            self.compare(&format!("the end of step {index}"), &step.x.to_vec()?, &x)?;
            for (bucket, (is, wanted)) in step.gradients.iter().zip(&gradients).enumerate() {
                self.compare(&format!("gradient {bucket} of step {index}"), &is.to_vec()?, wanted)?;
            }
        }
        let (steps, sums) = (self.steps.len(), self.steps.len() * (LAYERS + BUCKETS.len()));
        Ok(format!(
            "checked: rank {} of {}: the {sums} sums of {steps} steps are those of a naive reference",
            self.rank, self.ranks
        ))
    }

    fn compare(&self, what: &str, is: &[f32], wanted: &[f64]) -> Result<(), String> {
        let off = |(is, wanted): (&f32, &f64)| (f64::from(*is) - wanted).abs() / wanted.abs().max(1.0);
        let off = is
            .iter()
            .zip(wanted)
            .map(off)
            .fold(0.0, |most, off| if off.is_nan() { f64::INFINITY } else { off.max(most) });
        if is.len() == wanted.len() && off < 1e-4 {
            return Ok(());
        }
        Err(format!("wrong sum: rank {}, {what}: {off:.1e} off the naive reference; please report this", self.rank))
    }
}

impl Order {
    fn new(rank: usize) -> Order {
        let counter = |what| Counter { semaphore: Semaphore::named(&format!("{what} of rank {rank}"), 0), last: 0 };
        Order { there: counter("batches"), summed: counter("sums"), computed: counter("parts"), done: counter("steps") }
    }
}

impl Counter {
    /// The stream signals the next number, which is returned.
    fn signal_on(&mut self, stream: &Stream) -> Result<u64, timeline::Error> {
        self.last += 1;
        self.semaphore.signal_on(stream, self.last)?;
        Ok(self.last)
    }

    /// Lets what comes on a stream wait for what is on another one.
    fn orders(&mut self, first: &Stream, then: &Stream) -> Result<(), timeline::Error> {
        let number = self.signal_on(first)?;
        self.semaphore.wait_on(then, number)
    }
}

impl Step {
    fn new(device: &Device, step: usize, rank: usize) -> Result<Step, tensor::Error> {
        let sum = |_| Matrix::zeros(device, TOKENS, WIDTH);
        Ok(Step {
            // The other ranks have zeros until rank 0's batch has come.
            x: Matrix::from_fn(device, TOKENS, WIDTH, |row, col| if rank == 0 { token(step, row, col) } else { 0.0 })?,
            sums: (0..LAYERS).map(sum).collect::<Result<_, _>>()?,
            gradients: BUCKETS.iter().map(|cols| Matrix::zeros(device, WIDTH, *cols)).collect::<Result<_, _>>()?,
            there: 0,
        })
    }
}

/// What holds a rank up: a slow loader, another program, a page that is not there.
#[host_zone("nccl_all_reduce.held_up", description = "Holds this rank up, as it was told.")]
fn hold_up(time: Duration) {
    std::thread::sleep(time);
}

/// A number between -1 and 1 that depends on all of these, and on nothing else: every rank can make any part.
fn noise(what: usize, which: usize, row: usize, col: usize) -> f32 {
    let mut bits = ((what * 31 + which) as u64) << 40 ^ (row as u64) << 20 ^ col as u64;
    for _ in 0..2 {
        bits = (bits ^ bits >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    (bits >> 40) as f32 / (1 << 23) as f32 - 1.0
}

fn token(step: usize, row: usize, col: usize) -> f32 {
    noise(0, step, row, col)
}

fn up(layer: usize, row: usize, unit: usize) -> f32 {
    noise(1, layer, row, unit) / (WIDTH as f32).sqrt()
}

fn down(layer: usize, unit: usize, col: usize) -> f32 {
    noise(2, layer, unit, col) / (HIDDEN as f32).sqrt()
}

fn sample(rank: usize, row: usize, sample: usize) -> f32 {
    noise(3, rank, row, sample)
}

fn error(rank: usize, bucket: usize, sample: usize, col: usize) -> f32 {
    noise(4, rank * BUCKETS.len() + bucket, sample, col)
}

/// The same on one rank, slowly and from the definition.
mod reference {
    use super::{BUCKETS, HIDDEN, SAMPLES, TOKENS, WIDTH, down, error, sample, token, up};

    pub fn batch(step: usize) -> Vec<f64> {
        (0..TOKENS * WIDTH).map(|i| f64::from(token(step, i / WIDTH, i % WIDTH))).collect()
    }

    /// What a layer adds to `x`, which it does.
    pub fn layer(layer: usize, x: &mut [f64]) -> Vec<f64> {
        let mut hidden = product(x, WIDTH, HIDDEN, |row, col| up(layer, row, col));
        for v in &mut hidden {
            *v = 0.5 * *v * (1.0 + (std::f64::consts::FRAC_2_PI.sqrt() * (*v + 0.044_715 * v.powi(3))).tanh());
        }
        let sum = product(&hidden, HIDDEN, WIDTH, |row, col| down(layer, row, col));
        x.iter_mut().zip(&sum).for_each(|(x, sum)| *x += sum);
        sum
    }

    /// The gradients of all ranks' samples.
    pub fn gradients(ranks: usize) -> Vec<Vec<f64>> {
        let of_bucket = |bucket: usize| {
            let mut sum = vec![0.0; WIDTH * BUCKETS[bucket]];
            for rank in 0..ranks {
                let samples: Vec<f64> =
                    (0..WIDTH * SAMPLES).map(|i| f64::from(sample(rank, i / SAMPLES, i % SAMPLES))).collect();
                let part = product(&samples, SAMPLES, BUCKETS[bucket], |row, col| error(rank, bucket, row, col));
                sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
            }
            sum
        };
        (0..BUCKETS.len()).map(of_bucket).collect()
    }

    /// `a` (of rows of `k`) by a matrix of `k` x `n`.
    fn product(a: &[f64], k: usize, n: usize, b: impl Fn(usize, usize) -> f32) -> Vec<f64> {
        let b: Vec<f64> = (0..k * n).map(|i| f64::from(b(i / n, i % n))).collect();
        let mut out = vec![0.0; a.len() / k * n];
        for (a, out) in a.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
            for (a, b) in a.iter().zip(b.chunks_exact(n)) {
                out.iter_mut().zip(b).for_each(|(out, b)| *out += a * b);
            }
        }
        out
    }
}
