use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

trait Step {
    /// Steps.
    #[gpu_zone("demo.step")]
    fn step(&self, stream: &HostStream) -> u32 {
        1
    }

    fn other(&self, stream: &HostStream) -> u32;
}

struct Model;

impl Step for Model {
    /// The other.
    #[gpu_zone("demo.other")]
    fn other(&self, stream: &HostStream) -> u32 {
        2
    }
}

fn main() {
    let stream = HostStream::new("s");
    assert_eq!(Model.step(&stream) + Model.other(&stream), 3);
}
