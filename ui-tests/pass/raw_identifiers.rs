use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone(fields(r#match = r#match))]
fn r#type(stream: &HostStream, r#match: u32) -> u32 {
    r#match
}

fn main() {
    assert_eq!(r#type(&HostStream::new("s"), 1), 1);
    assert!(warpline::catalog().find("demo.type").is_some());
}
