use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add", err)]
fn add(stream: &HostStream) {}

fn main() {}
