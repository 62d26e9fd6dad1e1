use warpline::{HostStream, block, collective, gpu_zone, range};

warpline::namespace!("demo", "vector arithmetic");

/// A text is no number of bytes.
#[gpu_zone("demo.copy", bytes = name)]
fn copy(stream: &HostStream, name: &str) {}

/// Operations without their number.
#[gpu_zone("demo.add", flops)]
fn add(stream: &HostStream) {}

/// Declared twice.
#[gpu_zone("demo.scale", bytes = 4, bytes = 8)]
fn scale(stream: &HostStream) {}

/// What a collective moves follows from its message.
#[collective("demo.sync", kind = "all_reduce", count = 4, dtype = f32, bytes = 16)]
fn sync(stream: &HostStream) {}

range! {
    MULTIPLY = "demo.multiply": "Multiplies.", flops = 8;
}

fn part(stream: &HostStream) {
    block::collective!("demo.part", stream, kind = "all_reduce", description = "A part.", flops = 8, {});
}

fn main() {}
