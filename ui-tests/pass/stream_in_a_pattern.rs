use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

struct Context<'a> {
    stream: &'a HostStream,
    rows: u32,
}

/// Adds.
#[gpu_zone]
fn pair((stream, n): (&HostStream, u32)) -> u32 {
    n
}

/// Adds.
#[gpu_zone]
fn context(Context { stream, rows: n }: &Context<'_>) -> u32 {
    *n
}

/// Adds.
#[gpu_zone]
fn renamed(Context { stream: _, .. }: &Context<'_>, &stream: &&HostStream) {}

/// Adds.
#[gpu_zone]
fn raw(r#stream: &HostStream) {}

fn main() {
    let stream = HostStream::new("s");
    assert_eq!(pair((&stream, 1)) + context(&Context { stream: &stream, rows: 2 }), 3);
    renamed(&Context { stream: &stream, rows: 2 }, &&stream);
    raw(&stream);
}
