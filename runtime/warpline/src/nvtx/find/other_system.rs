//! Stands for `system` on other systems than Linux.

use std::ffi::OsStr;
use std::path::PathBuf;

/// No tool comes with the driver.
pub(super) fn advertisements() -> Vec<PathBuf> {
    Vec::new()
}

/// Opens a library.
pub(super) fn open(path: &OsStr) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: what runs when the library is loaded is what the user asked for by naming it.
    unsafe { libloading::Library::new(path) }
}
