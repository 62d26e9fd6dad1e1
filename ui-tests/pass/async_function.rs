use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.later", err)]
async fn later(stream: &HostStream, n: u32) -> Result<u32, String> {
    std::future::ready(()).await;
    Ok(n)
}

fn is_send<T: Send>(value: T) -> T {
    value
}

fn main() {
    let stream = HostStream::new("s");
    drop(is_send(later(&stream, 1)));
}
