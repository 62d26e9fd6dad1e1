use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

mod core {}
mod std {}

#[derive(Clone, Copy)]
struct Option;

/// Adds.
#[gpu_zone("demo.add", fields(zone = 1))]
fn add(stream: &HostStream, zone: Option) -> Option {
    zone
}

fn main() {
    let _ = add(&HostStream::new("s"), Option);
}
