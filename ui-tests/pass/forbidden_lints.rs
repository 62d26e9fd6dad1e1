//! A crate that forbids what others only deny: nothing of an expansion may allow it.
#![forbid(warnings, unused, dead_code, unreachable_code, non_local_definitions, nonstandard_style, missing_docs, unsafe_code)]

use warpline::{HostStream, block, gpu_zone, host_zone};

warpline::namespace!("demo", "vector arithmetic");

warpline::range! {
    /// Used.
    pub SHARED_RANGE = "demo.shared", fields(n);
    UNUSED_RANGE = "demo.unused": "Not used.", kind = host;
}

/// Adds.
#[gpu_zone(SHARED_RANGE, fields(n = 1))]
fn shared(stream: &HostStream) {}

/// Parses.
#[host_zone("demo.parse", err)]
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
    let _ = parse("1");
    drop(parse_later("1"));
}
