//! Tells files of annotations of CUDA graphs from traces, which they lie beside and whose endings they have.
//!
//! `inputs` leaves them out of a folder's traces, and the joiner of annotations finds them. Only names and the first bytes of files are looked at.

use std::io::Read;
use std::path::Path;

use crate::files;

/// The begin of the names that PyTorch's tools give to annotations.
pub const PYTORCH: &str = "kernel_annotations_rank";

/// The value of `format` in files of `warpline::graph::save`, and where it is in them.
const OURS: &[u8] = b"\"warpline-graph/";
const BEGIN: u64 = 4096;

/// Whether a file with this path is annotations, and so no trace, though its name ends like one.
pub fn is_annotations(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".annotations.json") || name.starts_with(PYTORCH) || is_ours(path)
}

/// Whether `warpline::graph::save` wrote it.
pub fn is_ours(path: &Path) -> bool {
    if !path.file_name().unwrap_or_default().to_string_lossy().ends_with(".json") {
        return false;
    }
    let mut begin = Vec::new();
    let read = files::regular(path).map(|file| file.map(|file| file.take(BEGIN).read_to_end(&mut begin)));
    matches!(read, Ok(Some(Ok(_)))) && begin.windows(OURS.len()).any(|bytes| bytes == OURS)
}
