//! Bytes and operations of any number's type, in each mark that takes them.

use warpline::{HostStream, block, gpu_zone, host_zone};

warpline::namespace!("demo", "vector arithmetic");

struct Shape {
    m: usize,
    n: u32,
    k: i64,
}

impl Shape {
    fn flops(&self) -> f64 {
        2.0 * self.m as f64 * f64::from(self.n) * self.k as f64
    }
}

/// Multiplies.
#[gpu_zone("demo.multiply", bytes = shape.m * 4, flops = shape.flops(), fields(m = shape.m), label = shape.n)]
fn multiply(stream: &HostStream, shape: &Shape) {
    stream.launch(|| ());
}

/// Reads a file.
#[host_zone("demo.read", bytes = bytes.len())]
fn read(bytes: &[u8]) -> usize {
    bytes.len()
}

/// Adds, in an async function.
#[gpu_zone("demo.add", flops = n)]
async fn add(stream: &HostStream, n: i64) {
    stream.launch(|| ());
}

fn main() {
    let stream = HostStream::new("s");
    multiply(&stream, &Shape { m: 1, n: 2, k: 3 });
    read(&[1, 2]);
    drop(add(&stream, 3));
    block::gpu_zone!("demo.scale", &stream, description = "Scales.", bytes = 1_u8, flops = 2.5_f32, {
        stream.launch(|| ());
    });
    block::host_zone!("demo.parse", description = "Parses.", bytes = 8_u128, {});
}
