use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

macro_rules! marked {
    ($name:ident, $range:literal, $n:expr) => {
        /// Made by a macro.
        #[gpu_zone($range, fields(n = $n))]
        fn $name(stream: &HostStream) -> u32 {
            $n
        }
    };
}

marked!(one, "demo.one", 1);
marked!(two, "demo.two", 1 + 1);

fn main() {
    let stream = HostStream::new("s");
    assert_eq!(one(&stream) + two(&stream), 3);
}
