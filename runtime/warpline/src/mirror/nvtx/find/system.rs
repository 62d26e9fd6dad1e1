//! The part of finding a tool that is specific to Linux.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use warpline_core::environment;

/// Returns the files with which a tool requests that the driver provides it.
pub(super) fn advertisements() -> Vec<PathBuf> {
    const FILE: &str = "nvidia/nvtx/nvtx-cuda.yaml";
    // SAFETY: the call takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let of_user = if is_root {
        Some("/run/nvidia/nvtx/user.0/nvtx-cuda.yaml".into())
    } else {
        environment::var_os("XDG_RUNTIME_DIR")
            .filter(|folder| !folder.is_empty())
            .map(|folder| Path::new(&folder).join(FILE))
    };
    [Some(Path::new("/run").join(FILE)), of_user].into_iter().flatten().collect()
}

/// Opens a library that is never unloaded.
pub(super) fn open(path: &OsStr) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: loading runs only code of NVIDIA's driver or toolkit, or of a library that the user names.
    unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL | libc::RTLD_NODELETE) }.map(Into::into)
}
