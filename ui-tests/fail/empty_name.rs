use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("")]
fn add(stream: &HostStream) {}

fn main() {}
