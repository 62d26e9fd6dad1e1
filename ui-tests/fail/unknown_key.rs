use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add", feilds(n = 1))]
fn add(stream: &HostStream) {}

fn main() {}
