//! A crate may have an item of any name, as `__RANGE`.

use warpline::{HostStream, block, gpu_zone, host_zone};

warpline::namespace!("demo", "vector arithmetic");

const __RANGE: u32 = 3;

/// Adds.
#[gpu_zone("demo.add", fields(n = __RANGE))]
fn add(stream: &HostStream) -> u32 {
    __RANGE + 1
}

/// Loads.
#[host_zone]
fn load() -> u32 {
    block::host_zone!("demo.part", description = "A part.", fields(n = __RANGE), { __RANGE })
}

fn main() {
    assert_eq!(add(&HostStream::new("s")) + load(), 7);
}
