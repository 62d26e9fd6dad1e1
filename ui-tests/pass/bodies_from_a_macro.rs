//! Bodies that `macro_rules` hands on as `$body:block`.
#![deny(warnings)]

use warpline::{HostStream, block, gpu_zone, host_zone};

warpline::namespace!("demo", "vector arithmetic");

macro_rules! marked {
    ($name:ident, $later:ident, $range:literal, $part:literal, $n:expr, $body:block) => {
        /// Made by a macro.
        #[gpu_zone($range, fields(n = $n))]
        fn $name(stream: &HostStream) -> u32 $body

        /// Made by a macro.
        #[host_zone]
        async fn $later(stream: &HostStream) -> u32 {
            block::gpu_zone!($part, stream, description = "A part.", $body)
        }
    };
}

marked!(one, one_later, "demo.one", "demo.part", 1, { 1 });

fn main() {
    let stream = HostStream::new("s");
    assert_eq!(one(&stream), 1);
    drop(one_later(&stream));
}
