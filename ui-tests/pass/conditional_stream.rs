//! `#[cfg]` may remove the parameter that is the stream: the zone then is a host zone, as on the stream `None`.
#![deny(warnings)]

use warpline::{HostStream, collective, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds where there is a GPU.
#[gpu_zone("demo.add", fields(n = n))]
fn add(#[cfg(any())] stream: &HostStream, n: u64) -> u64 {
    n
}

/// Subtracts.
#[gpu_zone("demo.sub", err)]
fn sub(#[cfg(all())] stream: &HostStream, #[cfg(any())] name: String, n: String) -> Result<u64, String> {
    stream.launch(|| ());
    Ok(n.len() as u64)
}

/// Sums.
#[collective("demo.sum", kind = "all_reduce")]
fn sum(
    #[cfg(all())]
    #[cfg(any())]
    stream: &HostStream,
    n: &mut [f32],
) {
    n[0] = 1.0;
}

fn main() {
    let stream = HostStream::new("s");
    assert_eq!(add(1), 1);
    assert_eq!(sub(&stream, "n".to_owned()), Ok(1));
    sum(&mut [0.0]);
}
