use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

mod instrumentation {
    pub use warpline as inner;
}

/// Adds.
#[gpu_zone("demo.add", crate = crate::instrumentation::inner)]
fn add(stream: &HostStream) {}

fn main() {
    add(&HostStream::new("s"));
}
