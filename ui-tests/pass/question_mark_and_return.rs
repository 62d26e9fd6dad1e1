use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.parse", err)]
fn parse(stream: &HostStream, text: &str) -> Result<u32, std::num::ParseIntError> {
    if text.is_empty() {
        return Ok(0);
    }
    Ok(text.parse::<u32>()?)
}

fn main() {
    let stream = HostStream::new("s");
    assert_eq!(parse(&stream, ""), Ok(0));
    assert!(parse(&stream, "x").is_err());
}
