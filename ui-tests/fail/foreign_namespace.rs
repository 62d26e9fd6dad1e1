use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("other.add")]
fn add(stream: &HostStream) {}

fn main() {}
