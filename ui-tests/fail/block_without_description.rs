use warpline::HostStream;

warpline::namespace!("demo", "vector arithmetic");

fn add(stream: &HostStream) {
    warpline::block::gpu_zone!("demo.add", stream, {});
}

fn main() {}
