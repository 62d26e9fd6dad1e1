//! Borrowed text is copied when a zone records; what is used in fields alone is used.
#![deny(warnings)]

use warpline::{HostStream, block, gpu_zone, host_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Loads.
#[host_zone("demo.load", fields(rows = 1, name = name, path = path, kind = "csv", trimmed = path.trim()))]
fn load(name: &str, path: &String) {}

/// Takes.
#[host_zone("demo.take", fields(name = name))]
fn take(name: String) {}

/// Adds.
#[gpu_zone("demo.add", label = name)]
fn add(stream: &HostStream, name: &str) -> usize {
    for name in &["a", "b"] {
        block::host_zone!("demo.part", description = "A part.", fields(name = name), {});
    }
    1
}

fn main() {
    load("a", &"b".to_owned());
    take("c".to_owned());
    add(&HostStream::new("s"), "d");
}
