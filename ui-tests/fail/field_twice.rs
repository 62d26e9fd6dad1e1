use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add", fields(n = 1, n = 2))]
fn add(stream: &HostStream) {}

fn main() {}
