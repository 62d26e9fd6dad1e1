use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.a\0b")]
fn add(stream: &HostStream) {}

fn main() {}
