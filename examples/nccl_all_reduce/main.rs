//! Ranks that compute together: a tensor-parallel block whose parts are summed by an all-reduce, and gradients that are summed
//! in buckets. warpline shows what the collectives move, and `warpline stragglers` which rank was late.
//!
//! * One process, a thread a GPU: `cargo run --release --example nccl_all_reduce`
//! * One process a GPU: the same with `-- --processes 2`, or under a launcher that sets `RANK` and `WORLD_SIZE` or their like:
//!   `mpirun -n 2 …`, `srun -n 2 …`, `torchrun --no-python --nproc-per-node 2 … --rendezvous FILE`
//! * Without a GPU, or without the feature `cuda`, on in-process streams: a reference implementation moves the data, between
//!   threads through memory and between processes through sockets.
//!
//! Every sum is compared with a naive one in f64. The marked collectives are in the library `tensor`, the sections here. `model`
//! is what a rank computes, `launch` starts ranks as threads or processes, `options` is the command line.

mod launch;
mod model;
mod options;

use std::process::ExitCode;

use options::{Asked, USAGE};

warpline::namespace!("nccl_all_reduce", "a tensor-parallel block, and gradients in buckets");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match options::asked_for(&arguments) {
        Ok(Asked::Run(options)) => match options.processes {
            Some(count) => launch::processes(count, &arguments),
            None => launch::ranks(&options),
        },
        Ok(Asked::Help) => {
            println!("{USAGE}");
            Ok(())
        }
        Err(error) => {
            eprintln!("error: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
