//! Constants with the names that an expansion could use for variables.
#![allow(non_upper_case_globals)]

use warpline::{HostStream, block, gpu_zone, host_zone};

warpline::namespace!("demo", "vector arithmetic");

pub const zone: u8 = 0;
pub const begin: u8 = 0;
pub const opening: u8 = 0;
pub const outcome: u8 = 0;
pub const hint: u8 = 0;
pub const facts: u8 = 0;
pub const namespace: u8 = 0;
pub const stream: u8 = 0;

warpline::range! {
    SHARED = "demo.shared": "Shared.", fields(n);
}

#[gpu_zone(SHARED, stream = queue, fields(n = 1 + 1), label = "x")]
fn shared(queue: &HostStream) {}

/// Parses.
#[host_zone(err)]
fn parse(text: &str) -> Result<u32, std::num::ParseIntError> {
    block::host_zone!("demo.part", description = "A part.", { text.parse() })
}

/// Parses later.
#[host_zone(err)]
async fn parse_later(text: &str) -> Result<u32, std::num::ParseIntError> {
    Ok(text.parse()?)
}

fn main() {
    shared(&HostStream::new("s"));
    assert_eq!(parse("1"), Ok(1));
    drop(parse_later("1"));
}
