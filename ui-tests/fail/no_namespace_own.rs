/// Adds.
#[warpline::gpu_zone]
fn add(stream: &warpline::HostStream) {}

fn main() {}
