//! What the three programs ask about the host before their first call of cudarc, which panics without the libraries.

use cudarc::{cublas, driver, nvrtc};

/// What this host lacks, and what to do.
pub fn missing() -> Option<&'static str> {
    // SAFETY: the three calls only try to load the libraries, as every program does that uses them.
    let (has_driver, has_nvrtc, has_cublas) =
        unsafe { (driver::sys::is_culib_present(), nvrtc::sys::is_culib_present(), cublas::sys::is_culib_present()) };
    match (has_driver, has_nvrtc, has_cublas) {
        (false, _, _) => Some("there is no CUDA driver (`libcuda.so.1`): run it where `nvidia-smi` works"),
        (_, false, _) => {
            Some("there is no NVRTC (`libnvrtc.so`): install the CUDA toolkit, or add its lib64 to LD_LIBRARY_PATH")
        }
        (_, _, false) => {
            Some("there is no cuBLAS (`libcublas.so`): install the CUDA toolkit, or add its lib64 to LD_LIBRARY_PATH")
        }
        _ => None,
    }
}
