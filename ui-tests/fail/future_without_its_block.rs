use std::future::Future;
use std::pin::Pin;

use warpline::{HostStream, gpu_zone, host_zone};

warpline::namespace!("demo", "vector arithmetic");

async fn work() {}

/// Adds.
#[gpu_zone("demo.add")]
fn add(stream: &HostStream) -> impl Future<Output = ()> {
    work()
}

/// Loads.
#[host_zone]
fn load() -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let work = work();
    Box::pin(work)
}

fn main() {}
