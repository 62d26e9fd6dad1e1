use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

mod ranges {
    warpline::range! {
        pub CODEGEN = "demo.codegen": "PTX lowering.", level = fine, fields(n);
        /// Loads.
        pub LOAD = "demo.load": "Loads.", kind = host;
    }
}

#[gpu_zone(ranges::CODEGEN, fields(n = 1))]
fn codegen(stream: &HostStream) {}

fn main() {
    codegen(&HostStream::new("s"));
    let zone = ranges::LOAD.host();
    assert!(!zone.is_active());
}
