//! Stands for `copy` on other systems than Linux.

use std::ffi::c_void;

/// No copy is safe here: where a zone stands in its graph stays unknown.
pub(super) fn copy<const N: usize>(_from: *const c_void, _count: usize) -> Option<Box<[[u8; N]]>> {
    None
}
