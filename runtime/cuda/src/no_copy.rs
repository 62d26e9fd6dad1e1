//! The replacement of `copy` on systems other than Linux.

use std::ffi::c_void;

/// Returns none, because no copy is safe here: the position of a zone in its graph remains unknown.
pub(super) fn copy<const N: usize>(_from: *const c_void, _count: usize) -> Option<Box<[[u8; N]]>> {
    None
}
