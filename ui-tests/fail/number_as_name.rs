use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone(7)]
fn add(stream: &HostStream) {}

fn main() {}
