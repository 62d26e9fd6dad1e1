//! A transformer block, captured once as a CUDA graph and replayed: what a profiler alone knows of the replays, and what it knows
//! with the marks.
//!
//! `cargo run --release --example cuda_graph [-- --replays N]`
//!
//! The block is that of PyTorch's tutorial on graph annotations: 4 sequences of 256 tokens, 1,024 numbers a token, 8 heads. The
//! library `transformer` computes it with cuBLAS and kernels of its own, and its marks know nothing of graphs. With two GPUs two
//! ranks share it, and their all-reduces are captured, too.
//!
//! The program compares the replays with the block as it runs without a graph, bit for bit, and with a reference on the host; and
//! each kernel of each replay, as CUPTI reports it, with the node that it should be. `block` is what a rank does, `launch` starts
//! ranks, `seen` puts kernels and zones together, `table` shows them, `options` is the command line.

mod block;
mod launch;
mod options;
mod seen;
mod table;

use std::process::ExitCode;

use options::{Asked, USAGE};

fn main() -> ExitCode {
    let options = match options::asked_for(std::env::args().skip(1)) {
        Ok(Asked::Run(options)) => options,
        Ok(Asked::Help) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let gpus = match launch::gpus() {
        Ok(gpus) => gpus,
        Err(missing) => {
            println!("nothing to run: {missing}");
            return ExitCode::SUCCESS;
        }
    };
    match launch::run(&options, gpus) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
