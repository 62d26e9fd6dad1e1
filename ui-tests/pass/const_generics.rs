use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.sum", fields(n = N))]
fn sum<const N: usize>(stream: &HostStream, a: [u32; N]) -> u32 {
    a.into_iter().sum()
}

fn main() {
    assert_eq!(sum(&HostStream::new("s"), [1, 2]), 3);
}
