#![deny(warnings)]
use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add")]
fn add(stream: &HostStream) -> u32 {
    #![allow(unused_variables)]
    let unused = 1;
    2
}

fn main() {
    assert_eq!(add(&HostStream::new("s")), 2);
}
