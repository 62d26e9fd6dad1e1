use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

struct Shape;

/// Adds.
#[gpu_zone("demo.add", fields(shape = Shape))]
fn add(stream: &HostStream) {}

fn main() {}
