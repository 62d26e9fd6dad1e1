//! Opens the two inputs, which are files and no pipes. Called by `annotations` and `reading`.

use std::io::BufRead;
use std::path::Path;

use warpline_trace::read::inputs;

use crate::AnnotateError;

/// Opens a file, and decompresses it if it is compressed. After `limit` decompressed bytes, reads fail. `on_bytes` is called with the number of
/// bytes that each read takes from the file.
///
/// # Errors
/// The file cannot be read, or is none.
pub(super) fn open_within<'a>(
    path: &Path,
    limit: u64,
    on_bytes: impl FnMut(u64) + 'a,
) -> Result<Box<dyn BufRead + 'a>, AnnotateError> {
    let opened = inputs::open_within(path, limit, on_bytes);
    let opened = opened.map_err(|error| AnnotateError::Read { path: path.to_owned(), error })?;
    opened.ok_or_else(|| AnnotateError::NotAFile { path: path.to_owned() })
}
