use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

#[gpu_zone(ADD)]
fn add(stream: &HostStream) {}

fn main() {}
