//! A body on one line is not told that its braces are one pair too many.
#![deny(warnings)]

use warpline::{HostStream, gpu_zone, host_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add")]
pub fn add(stream: &HostStream, n: u64) -> u64 { stream.launch(|| ()); n }

/// Loads.
#[host_zone]
pub fn load(n: u64) -> u64 { n }

/// Parses.
#[host_zone("demo.parse", err)]
pub fn parse(text: &str) -> Result<u64, std::num::ParseIntError> { text.parse() }

/// Waits.
#[host_zone("demo.wait", err)]
pub async fn wait(text: &str) -> Result<u64, std::num::ParseIntError> { text.parse() }

fn main() {
    add(&HostStream::new("compute"), load(1));
    assert_eq!(parse("3"), Ok(3));
    drop(wait("3"));
}
