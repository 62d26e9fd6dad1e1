use warpline::{HostStream, gpu_zone, host_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone(ret)]
fn add(stream: &HostStream) {}

/// Loads.
#[host_zone(skip_all)]
fn load() {}

fn main() {}
