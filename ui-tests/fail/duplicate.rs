use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add")]
fn add(stream: &HostStream) {}

/// Adds.
#[gpu_zone("demo.add")]
fn sum(stream: &HostStream) {}

fn main() {}
