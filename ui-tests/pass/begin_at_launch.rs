use warpline::{HostStream, block, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

warpline::range! {
    ADD = "demo.add": "Adds.";
}

/// Multiplies.
#[gpu_zone("demo.multiply", begin = launch)]
fn multiply(stream: &HostStream) {
    stream.launch(|| ());
}

#[gpu_zone(ADD, begin = "launch", label = "one")]
fn add(stream: &HostStream) {
    stream.launch(|| ());
}

/// Subtracts.
#[gpu_zone("demo.subtract", begin = stream)]
async fn subtract(stream: &HostStream) {
    stream.launch(|| ());
}

fn main() {
    let stream = HostStream::new("s");
    multiply(&stream);
    add(&stream);
    drop(subtract(&stream));
    block::gpu_zone!("demo.scale", &stream, description = "Scales.", begin = launch, { stream.launch(|| ()) });
    let zone = ADD.zone(&stream).begin_at_launch();
    stream.launch(|| ());
    drop(zone);
}
