#![deny(unused_must_use)]
use warpline::HostStream;

warpline::namespace!("demo", "vector arithmetic");

warpline::range! {
    ADD = "demo.add": "Adds.";
}

fn add(stream: &HostStream) {
    ADD.zone(stream);
}

fn main() {}
