use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

trait Add {
    /// Adds.
    #[gpu_zone("demo.add")]
    fn add(&self, stream: &HostStream);
}

fn main() {}
