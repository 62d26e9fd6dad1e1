use warpline::{HostStream, block, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

struct Lane;

fn lane() -> String {
    String::new()
}

warpline::range! {
    ADD = "demo.add": "Adds.";
    SUB = "demo.sub": "Subtracts.", lane = lane();
}

/// Adds.
#[gpu_zone("demo.number", lane = 3)]
fn number(stream: &HostStream) {}

/// Adds.
#[gpu_zone("demo.empty", lane = "")]
fn empty(stream: &HostStream) {}

/// Adds.
#[gpu_zone("demo.format", lane = "layer {n}")]
fn format(stream: &HostStream, n: u32) {}

/// Adds.
#[gpu_zone("demo.display", lane = Lane)]
fn display(stream: &HostStream) {}

/// Adds.
#[gpu_zone(ADD, lane = "adds")]
fn add(stream: &HostStream) {}

/// Adds.
#[gpu_zone("demo.leaves", lane = name?)]
fn leaves(stream: &HostStream, name: Option<&str>) -> Option<()> {
    block::gpu_zone!("demo.nothing", stream, description = "Nothing.", lane =, {});
    None
}

fn main() {}
