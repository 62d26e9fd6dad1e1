use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.raw")]
unsafe fn raw(stream: &HostStream, p: *const u32) -> u32 {
    unsafe { *p }
}

/// Adds.
#[gpu_zone("demo.c")]
extern "C" fn c(stream: &HostStream, n: u32) -> u32 {
    n
}

fn main() {
    let stream = HostStream::new("s");
    assert_eq!(unsafe { raw(&stream, &4) } + c(&stream, 1), 5);
}
