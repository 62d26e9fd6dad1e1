use warpline::{HostStream, host_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Loads.
#[host_zone("demo.load", stream = stream)]
fn load(stream: &HostStream) {}

fn main() {}
