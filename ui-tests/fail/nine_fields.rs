use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add", fields(a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8, i = 9))]
fn add(stream: &HostStream) {}

fn main() {}
