use warpline::{HostStream, gpu_zone, host_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add", fields(?n))]
fn add(stream: &HostStream, n: u32) {}

/// Adds.
#[gpu_zone("demo.add_all", fields(n = ?n.len()))]
fn add_all(stream: &HostStream, n: &[u32]) {}

/// Loads.
#[host_zone("demo.load", fields(path = %path.display()))]
fn load(path: &std::path::Path) {}

/// Runs a layer.
#[host_zone("demo.layer", label = "layer {v}")]
fn layer(v: u32) {}

#[doc = concat!("Scales", ".")]
#[host_zone("demo.scale")]
fn scale() {}

warpline::range! {
    #[doc = concat!("Scales", ".")]
    SCALE = "demo.scale";
}

fn main() {}
