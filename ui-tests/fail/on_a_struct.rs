use warpline::gpu_zone;

warpline::namespace!("demo", "vector arithmetic");

/// A struct.
#[gpu_zone("demo.add")]
struct Add;

fn main() {}
