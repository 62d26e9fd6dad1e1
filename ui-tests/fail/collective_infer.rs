#![allow(unused_variables)]

use warpline::{HostStream, block, collective, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Infers something.
#[collective(kind = "all_reduce", infer = group)]
fn some(stream: &HostStream) {}

/// Has no value.
#[collective(kind = "all_reduce", infer)]
fn bare(stream: &HostStream) {}

/// Infers twice.
#[collective(kind = "all_reduce", infer = none, infer = none)]
fn twice(stream: &HostStream) {}

/// Moves nothing.
#[gpu_zone("demo.add", infer = none)]
fn add(stream: &HostStream) {}

fn part(stream: &HostStream) {
    block::collective!("demo.part", stream, kind = "all_reduce", infer = none, description = "A part.", {});
}

warpline::range! {
    SYNC = "demo.sync": "Sums the gradients of all ranks.", kind = collective, infer = none;
}

fn main() {}
