//! What a marked function is warned of without its mark, it is warned of with it.
#![deny(warnings)]

use warpline::{HostStream, gpu_zone, host_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add", fields(n = n))]
#[expect(unused_variables, unused_mut, unreachable_code, unused_must_use, unused_assignments, unused_parens)]
fn add(stream: &HostStream, n: u32, unused: u32) -> u32 {
    let mut not_changed = 1;
    let mut assigned = 1;
    assigned = (2);
    Ok::<u32, u32>(1);
    return not_changed;
    n
}

/// Never called.
#[host_zone("demo.never")]
#[expect(dead_code)]
fn never() {}

/// Parses.
#[host_zone("demo.parse", err)]
#[expect(unused_variables, unreachable_code, non_snake_case)]
fn parse(text: &str, unUsed: u32) -> Result<u32, std::num::ParseIntError> {
    return text.parse();
    Ok(1)
}

/// Parses later.
#[host_zone("demo.later", err)]
#[expect(unused_variables, unreachable_code)]
async fn later(text: &str, unused: u32) -> Result<u32, std::num::ParseIntError> {
    return text.parse();
    Ok(1)
}

fn main() {
    add(&HostStream::new("s"), 1, 2);
    let _ = parse("1", 1);
    drop(later("1", 1));
}
