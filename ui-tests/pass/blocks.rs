use warpline::{HostStream, block};

warpline::namespace!("demo", "vector arithmetic");

fn find(stream: &HostStream) -> Option<u32> {
    for n in 0..3 {
        block::gpu_zone!("demo.part", stream, description = "A part.", fields(n = n), {
            if n == 1 {
                break;
            }
        });
    }
    let loaded = block::host_zone!("demo.load", description = "Loads.", { "7".parse::<u32>().ok()? });
    Some(loaded)
}

fn main() {
    assert_eq!(find(&HostStream::new("s")), Some(7));
}
