//! The main job, end to end: a small transformer computes for real on two streams, and warpline shows where the time
//! went. `cargo run --release --example quickstart [-- --steps N]`
//!
//! The streams are those of an NVIDIA GPU where there is one, and in-process streams elsewhere; the program says which.
//!
//! The model's weights lie packed in 4 bits. While `compute` runs one layer, `copy` unpacks the weights of the next, as
//! programs do that stream a model to a GPU. Semaphores order the two, so the trace shows who waited for whom. The sections are marked here, in the namespace `quickstart`; the operations
//! that they are made of are marked in the library `tensor`, in a namespace of its own.

use std::error::Error;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tensor::{Device, Matrix, Packed, Stream};
use warpline::timeline::Semaphore;
use warpline::{Session, gpu_zone, host_zone};

warpline::namespace!("quickstart", "a small transformer on two streams");

const TRACE: &str = "quickstart.pftrace";
const USAGE: &str =
    "usage: cargo run --release --example quickstart [-- [--steps N | --seconds N] [--host] | --catalog]";

const STEPS: usize = 96;
const LAYERS: usize = 4;
const TOKENS: usize = 32;
const WIDTH: usize = 256;
const HEADS: usize = 8;
const TEXT: &str = "Mark the functions that launch work; the compiler checks the marks; the program shows its time. ";

fn main() -> ExitCode {
    let result = match asked_for(std::env::args().skip(1)) {
        Ok(Asked::Run { work, host }) => run(work, host),
        Ok(Asked::Catalog) => {
            say(warpline::catalog().records().to_json().trim_end());
            Ok(())
        }
        Ok(Asked::Help) => {
            say(format_args!("{USAGE}\n\n  --steps N   how many batches to run, from 1 (default {STEPS})"));
            say("  --seconds N for how long, to ask it from outside meanwhile: docs/control.md");
            say("  --host      in-process streams, also where a GPU is");
            say("  --catalog   print what this program can record, as `warpline catalog --format json` does");
            Ok(())
        }
        Err(error) => {
            eprintln!("error: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    result.map_or_else(
        |error| {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// A line on standard output. A reader that goes away (`| head`) is not an error.
fn say(line: impl Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

enum Asked {
    Run { work: Work, host: bool },
    Catalog,
    Help,
}

/// How much there is to do.
#[derive(Clone, Copy)]
enum Work {
    Steps(usize),
    For(Duration),
}

impl Work {
    fn is_done(self, steps: usize, time: Duration) -> bool {
        match self {
            Work::Steps(all) => steps >= all,
            Work::For(all) => time >= all,
        }
    }
}

fn asked_for(mut arguments: impl Iterator<Item = String>) -> Result<Asked, String> {
    let (mut work, mut host) = (Work::Steps(STEPS), false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-h" | "--help" => return Ok(Asked::Help),
            "--catalog" => return Ok(Asked::Catalog),
            "--host" => host = true,
            "--steps" => {
                let number = arguments.next().ok_or("`--steps` needs a number, such as `--steps 100`")?;
                let right = number.parse().ok().filter(|steps| *steps > 0);
                work = Work::Steps(right.ok_or_else(|| format!("`--steps {number}` is not a whole number from 1"))?);
            }
            "--seconds" => {
                let number = arguments.next().ok_or("`--seconds` needs a number, such as `--seconds 60`")?;
                let right = number.parse().ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
                work = Work::For(right.ok_or_else(|| format!("`--seconds {number}` is not a whole number from 1"))?);
            }
            _ => {
                let there_are = "`--steps N`, `--seconds N`, `--host` and `--catalog`";
                return Err(format!("unknown argument `{argument}`; there are {there_are}"));
            }
        }
    }
    Ok(Asked::Run { work, host })
}

fn run(work: Work, host: bool) -> Result<(), Box<dyn Error>> {
    let (device, which) =
        if host { (Device::host(), "in-process streams, as asked for".to_owned()) } else { Device::find() };
    let session = Session::from_env_or(&format!("perfetto={TRACE},summary")); // WARPLINE=… wins
    say(which);
    let how_much = match work {
        Work::Steps(steps) => steps.to_string(),
        Work::For(time) => format!("as many as there are in {} s", time.as_secs()),
    };
    say(format_args!("{LAYERS} layers of width {WIDTH} on two streams; batches of {TOKENS} tokens: {how_much}"));
    let model = Model::new(&device)?;
    let progress = Progress::new(work);
    let mut step = 0;
    while !work.is_done(step, progress.begin.elapsed()) {
        model.launch(step)?;
        // One batch computes, one is queued behind it: the launching thread never runs further ahead.
        model.done.wait(step as u64, Duration::MAX)?;
        progress.at(step);
        step += 1;
    }
    model.synchronize()?;
    let checked = model.check(step - 1)?;
    progress.finish();
    say(format_args!("{checked}\n"));
    session.finish();
    Ok(())
}

struct Model {
    compute: Stream,
    copy: Stream,
    embeddings: Matrix,
    layers: Vec<Layer>,
    /// Two places for unpacked weights: one is computed with while the other is filled.
    slots: [Slot; 2],
    state: State,
    /// So many layers' weights are unpacked, so many have been computed with, and so many batches are done.
    staged: Semaphore,
    used: Semaphore,
    done: Semaphore,
}

/// One layer's weights as they lie in memory.
struct Layer {
    index: usize,
    qkv: Packed,
    out_proj: Packed,
    up: Packed,
    down: Packed,
}

/// One layer's weights as they are computed with.
struct Slot {
    qkv: Matrix,
    out_proj: Matrix,
    up: Matrix,
    down: Matrix,
}

/// What flows through the layers; work on `compute` alone touches it.
struct State {
    x: Matrix,
    normed: Matrix,
    qkv: Matrix,
    weights: Matrix,
    context: Matrix,
    hidden: Matrix,
    change: Matrix,
}

impl Model {
    fn new(device: &Device) -> Result<Model, tensor::Error> {
        let mut noise = Noise(1);
        let zeros = |rows, cols| Matrix::zeros(device, rows, cols);
        Ok(Model {
            compute: device.stream("compute")?,
            copy: device.stream("copy")?,
            embeddings: Matrix::from_fn(device, 256, WIDTH, |_, _| noise.next())?,
            layers: (0..LAYERS).map(|index| Layer::new(device, index, &mut noise)).collect::<Result<_, _>>()?,
            slots: [Slot::new(device)?, Slot::new(device)?],
            state: State {
                x: zeros(TOKENS, WIDTH)?,
                normed: zeros(TOKENS, WIDTH)?,
                qkv: zeros(TOKENS, 3 * WIDTH)?,
                weights: zeros(HEADS * TOKENS, TOKENS)?,
                context: zeros(TOKENS, WIDTH)?,
                hidden: zeros(TOKENS, 4 * WIDTH)?,
                change: zeros(TOKENS, WIDTH)?,
            },
            staged: Semaphore::named("weights staged", 0),
            used: Semaphore::named("weights used", 0),
            done: Semaphore::named("batches done", 0),
        })
    }

    /// Queues one batch on both streams.
    fn launch(&self, step: usize) -> Result<(), Box<dyn Error>> {
        let Model { compute, copy, embeddings, layers, slots, state, staged, used, done } = self;
        tensor::embed(compute, load(step), embeddings, &state.x)?;
        for layer in layers {
            let slot = &slots[layer.index % slots.len()];
            let count = step * LAYERS + layer.index + 1;
            // The slot is free when the layer before the last has been computed.
            used.wait_on(copy, count.saturating_sub(slots.len()) as u64)?;
            stage(copy, layer, slot)?;
            staged.signal_on(copy, count as u64)?;
            staged.wait_on(compute, count as u64)?;
            block(compute, layer.index, slot, state)?;
            used.signal_on(compute, count as u64)?;
        }
        Ok(done.signal_on(compute, step as u64 + 1)?)
    }

    fn synchronize(&self) -> Result<(), tensor::Error> {
        self.copy.synchronize()?;
        self.compute.synchronize()
    }

    /// Compares what the streams computed for `step`, the last one, with a naive reference in f64.
    #[host_zone("quickstart.check", description = "Compares the last batch with a naive reference.")]
    fn check(&self, step: usize) -> Result<String, Box<dyn Error>> {
        let sums = self.state.weights.to_vec()?.chunks(TOKENS).map(|row| row.iter().sum::<f32>()).collect::<Vec<_>>();
        let off_one = sums.iter().map(|sum| (sum - 1.0).abs()).fold(0.0, f32::max);
        if off_one.is_nan() || off_one > 1e-5 {
            return Err(format!("wrong result: a softmax row is {off_one:.1e} off 1; please report this").into());
        }
        let is = self.state.x.to_vec()?;
        let embeddings = self.embeddings.to_vec()?;
        let mut x: Vec<f64> =
            load(step).iter().flat_map(|token| &embeddings[token * WIDTH..][..WIDTH]).map(|v| f64::from(*v)).collect();
        for layer in &self.layers {
            stage(&self.copy, layer, &self.slots[0])?;
            self.copy.synchronize()?;
            reference::block(&mut x, &self.slots[0])?;
        }
        let off = is.iter().zip(&x).map(|(is, wanted)| (f64::from(*is) - wanted).abs()).fold(0.0, f64::max);
        if off.is_nan() || off > 1e-2 {
            return Err(format!("wrong result: {off:.1e} off the naive reference; please report this").into());
        }
        Ok(format!(
            "checked: {} softmax rows sum to 1, the last batch is within {off:.0e} of a naive reference",
            sums.len()
        ))
    }
}

/// Makes the tokens of a batch: the bytes of a text.
#[host_zone("quickstart.load", fields(step = step))]
fn load(step: usize) -> Vec<usize> {
    TEXT.bytes().cycle().skip(step * TOKENS % TEXT.len()).take(TOKENS).map(usize::from).collect()
}

/// Unpacks one layer's weights while the other slot is computed with.
#[gpu_zone("quickstart.stage", stream = copy, label = format_args!("layer {}", layer.index))]
fn stage(copy: &Stream, layer: &Layer, slot: &Slot) -> Result<(), tensor::Error> {
    tensor::unpack(copy, &layer.qkv, &slot.qkv)?;
    tensor::unpack(copy, &layer.out_proj, &slot.out_proj)?;
    tensor::unpack(copy, &layer.up, &slot.up)?;
    tensor::unpack(copy, &layer.down, &slot.down)
}

/// One layer of the transformer.
#[gpu_zone("quickstart.block", fields(tokens = TOKENS, width = WIDTH), label = format_args!("layer {index}"))]
fn block(stream: &Stream, index: usize, weights: &Slot, state: &State) -> Result<(), tensor::Error> {
    qkv(stream, weights, state)?;
    attention(stream, state)?;
    out_proj(stream, weights, state)?;
    mlp(stream, weights, state)
}

/// Projects the normalised input to queries, keys and values.
#[gpu_zone("quickstart.qkv")]
fn qkv(stream: &Stream, weights: &Slot, state: &State) -> Result<(), tensor::Error> {
    tensor::layernorm(stream, &state.x, &state.normed)?;
    tensor::matmul(stream, &state.normed, &weights.qkv, &state.qkv)
}

/// Lets each token look at itself and the tokens before it.
#[gpu_zone("quickstart.attention", fields(heads = HEADS))]
fn attention(stream: &Stream, state: &State) -> Result<(), tensor::Error> {
    tensor::scores(stream, HEADS, &state.qkv, &state.weights)?;
    tensor::softmax(stream, &state.weights)?;
    tensor::attend(stream, HEADS, &state.weights, &state.qkv, &state.context)
}

/// Projects what attention found back and adds it to the input.
#[gpu_zone("quickstart.out_proj")]
fn out_proj(stream: &Stream, weights: &Slot, state: &State) -> Result<(), tensor::Error> {
    tensor::matmul(stream, &state.context, &weights.out_proj, &state.change)?;
    tensor::add(stream, &state.change, &state.x)
}

/// Two matrices with a GELU between them, added to the input.
#[gpu_zone("quickstart.mlp", color = 0xE8A33D)]
fn mlp(stream: &Stream, weights: &Slot, state: &State) -> Result<(), tensor::Error> {
    tensor::layernorm(stream, &state.x, &state.normed)?;
    tensor::matmul(stream, &state.normed, &weights.up, &state.hidden)?;
    tensor::gelu(stream, &state.hidden)?;
    tensor::matmul(stream, &state.hidden, &weights.down, &state.change)?;
    tensor::add(stream, &state.change, &state.x)
}

impl Layer {
    fn new(device: &Device, index: usize, noise: &mut Noise) -> Result<Layer, tensor::Error> {
        let mut packed = |rows: usize, cols: usize| {
            let scale = (rows as f32).sqrt();
            let weights: Vec<f32> = (0..rows * cols).map(|_| noise.next() / scale).collect();
            Packed::from_weights(device, &weights, cols)
        };
        Ok(Layer {
            index,
            qkv: packed(WIDTH, 3 * WIDTH)?,
            out_proj: packed(WIDTH, WIDTH)?,
            up: packed(WIDTH, 4 * WIDTH)?,
            down: packed(4 * WIDTH, WIDTH)?,
        })
    }
}

impl Slot {
    fn new(device: &Device) -> Result<Slot, tensor::Error> {
        Ok(Slot {
            qkv: Matrix::zeros(device, WIDTH, 3 * WIDTH)?,
            out_proj: Matrix::zeros(device, WIDTH, WIDTH)?,
            up: Matrix::zeros(device, WIDTH, 4 * WIDTH)?,
            down: Matrix::zeros(device, 4 * WIDTH, WIDTH)?,
        })
    }
}

/// The same numbers in every run, between -1 and 1.
struct Noise(u32);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// A bar on a terminal, from the second second on.
struct Progress {
    bar: ProgressBar,
    begin: Instant,
}

impl Progress {
    fn new(work: Work) -> Progress {
        let (steps, template) = match work {
            Work::Steps(steps) => (Some(steps as u64), "{bar:40} {pos}/{len} batches, {eta} left"),
            Work::For(_) => (None, "{pos} batches"),
        };
        let bar = ProgressBar::with_draw_target(steps, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Progress { bar, begin: Instant::now() }
    }

    fn at(&self, step: usize) {
        let late = self.begin.elapsed() > Duration::from_secs(1);
        if late && self.bar.is_hidden() && std::io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(step as u64 + 1);
    }

    fn finish(self) {
        self.bar.finish_and_clear();
    }
}

/// The block once more, slowly and from its definition.
mod reference {
    use super::{HEADS, Slot, TOKENS, WIDTH};
    use tensor::Matrix;

    pub fn block(x: &mut [f64], weights: &Slot) -> Result<(), tensor::Error> {
        let qkv = matmul(&layernorm(x), &weights.qkv)?;
        add(x, &matmul(&attention(&qkv), &weights.out_proj)?);
        let mut hidden = matmul(&layernorm(x), &weights.up)?;
        for v in &mut hidden {
            *v = 0.5 * *v * (1.0 + (std::f64::consts::FRAC_2_PI.sqrt() * (*v + 0.044_715 * v.powi(3))).tanh());
        }
        add(x, &matmul(&hidden, &weights.down)?);
        Ok(())
    }

    fn layernorm(x: &[f64]) -> Vec<f64> {
        let row = |row: &[f64]| {
            let mean = row.iter().sum::<f64>() / WIDTH as f64;
            let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / WIDTH as f64;
            row.iter().map(|v| (v - mean) / (variance + 1e-5).sqrt()).collect::<Vec<_>>()
        };
        x.chunks(WIDTH).flat_map(row).collect()
    }

    fn matmul(a: &[f64], b: &Matrix) -> Result<Vec<f64>, tensor::Error> {
        let (k, n, b) = (b.rows(), b.cols(), b.to_vec()?);
        let mut out = vec![0.0; TOKENS * n];
        for (i, out) in out.iter_mut().enumerate() {
            let (row, col) = (i / n, i % n);
            *out = (0..k).map(|p| a[row * k + p] * f64::from(b[p * n + col])).sum();
        }
        Ok(out)
    }

    fn attention(qkv: &[f64]) -> Vec<f64> {
        let part = WIDTH / HEADS;
        let at = |token: usize, which: usize, i: usize| qkv[token * 3 * WIDTH + which * WIDTH + i];
        let mut out = vec![0.0; TOKENS * WIDTH];
        for (i, out) in out.iter_mut().enumerate() {
            let (token, col) = (i / WIDTH, i % WIDTH);
            let head = col / part * part;
            let score = |other| {
                let product: f64 = (head..head + part).map(|c| at(token, 0, c) * at(other, 1, c)).sum();
                (product / (part as f64).sqrt()).exp()
            };
            let scores: Vec<f64> = (0..=token).map(score).collect();
            let sum: f64 = scores.iter().sum();
            *out = scores.iter().enumerate().map(|(other, score)| score / sum * at(other, 2, col)).sum();
        }
        out
    }

    fn add(x: &mut [f64], change: &[f64]) {
        for (x, change) in x.iter_mut().zip(change) {
            *x += change;
        }
    }
}
