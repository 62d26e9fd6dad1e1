use warpline::{HostStream, block, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

fn work() -> u32 {
    1
}

fn add(stream: &HostStream) -> u32 {
    let n = block::host_zone!("demo.load", description = "Loads.", work());
    let m = block::gpu_zone!("demo.add", stream, description = "Adds.", n + 1,);
    let rows = block::host_zone!("demo.rows", description = "Rows.", { 1 }, fields(n = n));
    let more = block::host_zone!("demo.more", { 1 });
    n + m + rows + more
}

#[gpu_zone]
unsafe extern "C" {
    fn launch(stream: *mut u8);
}

unsafe extern "C" {
    #[gpu_zone]
    fn launch_all(stream: *mut u8);
}

struct Layer;

#[gpu_zone]
impl Layer {}

fn main() {}
