use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.double")]
fn double<'a>(stream: &HostStream, a: impl Iterator<Item = &'a u32>) -> impl Iterator<Item = u32> {
    a.map(|x| x * 2)
}

fn main() {
    assert_eq!(double(&HostStream::new("s"), [1, 2].iter()).sum::<u32>(), 6);
}
