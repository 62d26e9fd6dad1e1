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

/// Joins two texts.
///
/// # Errors
/// None.
#[gpu_zone("demo.join", err)]
fn join(stream: &HostStream, mut first: String, second: String) -> Result<String, String> {
    first += &second;
    drop(second);
    Ok(first)
}

fn main() {
    assert_eq!(join(&HostStream::new("s"), "a".to_owned(), "b".to_owned()).as_deref(), Ok("ab"));
    assert_eq!(add(&HostStream::new("s"), 1), Ok(1));
}
