use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add", fields(n = n), label = format_args!("n {n}"), level = fine, lane = "side", color = 0x00ff88)]
fn add(stream: &HostStream, n: u32) -> u32 {
    stream.launch(|| ());
    n
}

fn main() {
    assert_eq!(add(&HostStream::new("s"), 3), 3);
}
