use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

struct Shape;

/// Adds.
#[gpu_zone("demo.add", fields(names = ["a", "b"]))]
fn add(stream: &HostStream) {}

/// Adds.
#[gpu_zone("demo.sub", fields(shapes = shapes))]
fn sub(stream: &HostStream, shapes: Vec<Shape>) {}

/// Adds.
#[gpu_zone("demo.mul", fields(options = [("shape", Shape)]))]
fn mul(stream: &HostStream) {}

fn main() {}
