use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

warpline::range! {
    ADD = "demo.add": "Adds.";
}

/// Adds.
#[gpu_zone(ADD, level = fine)]
fn add(stream: &HostStream) {}

fn main() {}
