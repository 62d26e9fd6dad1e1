use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.exit")]
fn exit(stream: &HostStream) -> ! {
    std::process::exit(0)
}

fn main() {
    exit(&HostStream::new("s"));
}
