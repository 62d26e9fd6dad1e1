use warpline::{HostStream, gpu_zone};

/// Adds.
#[gpu_zone("demo.add")]
fn add(stream: &HostStream) {}

fn main() {}
