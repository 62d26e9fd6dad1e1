#![allow(unused)]

use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add", fields(n = text.parse::<u32>()?))]
fn add(stream: &HostStream, text: &str) -> Result<(), std::num::ParseIntError> {
    Ok(())
}

/// Scales.
#[gpu_zone("demo.scale", label = match name { Some(name) => name, None => return })]
fn scale(stream: &HostStream, name: Option<&str>) {}

/// Waits.
#[gpu_zone("demo.wait", stream = streams.get(0)?)]
fn wait(streams: &[HostStream]) -> Option<()> {
    Some(())
}

fn main() {}
