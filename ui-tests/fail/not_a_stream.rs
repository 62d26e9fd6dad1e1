use warpline::gpu_zone;

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add")]
fn add(stream: u32) {}

fn main() {}
