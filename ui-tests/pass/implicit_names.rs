use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

mod deep {
    pub mod deeper {
        use warpline::{HostStream, gpu_zone};

        /// Named after the function.
        #[gpu_zone]
        pub fn add(stream: &HostStream) {}
    }
}

/// Adds.
#[gpu_zone("demo.sum")]
fn add(stream: &HostStream) {}

fn main() {
    deep::deeper::add(&HostStream::new("s"));
    add(&HostStream::new("s"));
    assert!(warpline::catalog().find("demo.add").is_some());
}
