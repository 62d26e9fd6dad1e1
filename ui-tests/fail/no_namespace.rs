use warpline::{HostStream, block, gpu_zone};

warpline::range! {
    DIV = "demo.div": "Divides.";
}

/// Adds.
#[gpu_zone("demo.add")]
fn add(stream: &HostStream) {
    block::host_zone!("demo.add.part", description = "A part.", {});
}

fn main() {}
