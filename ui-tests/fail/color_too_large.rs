use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add", color = 0x1ff0000)]
fn add(stream: &HostStream) {}

fn main() {}
