//! A crate with every lint on.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
///
/// # Errors
/// None.
#[gpu_zone("demo.add", err, fields(n = n))]
fn add(stream: &HostStream, n: u32) -> Result<u32, String> {
    use std::convert::identity;
    Ok(identity(n))
}

fn main() {
    assert_eq!(add(&HostStream::new("s"), 1), Ok(1));
}
