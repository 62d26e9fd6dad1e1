use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.items", err)]
fn items(stream: &HostStream, n: u32) -> Result<impl Iterator<Item = u32>, String> {
    Ok(0..n)
}

fn main() {
    assert_eq!(items(&HostStream::new("s"), 3).unwrap().count(), 3);
}
