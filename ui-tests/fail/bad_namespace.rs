use warpline::{HostStream, gpu_zone};

warpline::namespace!("Demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add")]
fn add(stream: &HostStream) {}

/// Adds.
#[gpu_zone]
fn sub(stream: &HostStream) {}

fn main() {}
