//! A library marks on cudarc's stream and does not turn on `cuda`. A look-alike stands for it, so that no cudarc is needed.
use std::sync::Arc;

use cudarc::driver::CudaStream;
use warpline::gpu_zone;

warpline::namespace!("marks", "a library that marks");

mod cudarc {
    pub mod driver {
        pub struct CudaStream;
    }
}

/// On cudarc's stream.
#[gpu_zone("marks.work")]
fn work(stream: &Arc<CudaStream>) {}

fn main() {
    work(&Arc::new(CudaStream));
}
