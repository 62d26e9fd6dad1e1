use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

#[gpu_zone("demo.add")]
fn add(stream: &HostStream) {}

fn main() {}
