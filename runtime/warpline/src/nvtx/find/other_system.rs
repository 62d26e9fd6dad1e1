//! Replaces `system` on systems other than Linux.

use std::ffi::OsStr;
use std::path::PathBuf;

/// Returns no files, because the driver provides no tool.
pub(super) fn advertisements() -> Vec<PathBuf> {
    Vec::new()
}

/// Opens a library.
pub(super) fn open(path: &OsStr) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: loading runs only code of NVIDIA's toolkit, or of a library that the user names.
    unsafe { libloading::Library::new(path) }
}
