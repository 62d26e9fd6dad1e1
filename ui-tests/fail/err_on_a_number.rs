use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add", err)]
fn add(stream: &HostStream) -> u32 {
    1
}

fn main() {}
