use warpline::{HostStream, block, gpu_zone, host_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add", begin = kernel)]
fn add(stream: &HostStream) {}

/// Loads.
#[host_zone("demo.load", begin = launch)]
fn load() {}

warpline::range! {
    SCALE = "demo.scale": "Scales.", begin = launch;
}

fn parse() {
    block::host_zone!("demo.parse", description = "Parses.", begin = launch, {});
}

fn main() {}
