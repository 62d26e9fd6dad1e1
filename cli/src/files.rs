//! The files that stand for what a user named, without those in folders that a killed program has left empty.
//!
//! The commands that read all traces of a run call it. An empty file that a user names is an error of theirs.

use std::path::{Path, PathBuf};
use std::{fs, slice};

use crate::inputs::{self, InputError};
use crate::output;

/// Replaces each folder with the files in it, as [`inputs::expand`] does. Of several, the empty ones are named on standard error and left out.
///
/// # Errors
/// A folder cannot be read, or has no such file.
pub(crate) fn expand(paths: &[PathBuf], endings: &'static [&'static str]) -> Result<Vec<PathBuf>, InputError> {
    let mut all = Vec::new();
    for path in paths {
        let mut found = inputs::expand(slice::from_ref(path), endings)?;
        let is_empty = |path: &Path| fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0);
        if path.is_dir() && !found.iter().all(|file| is_empty(file)) {
            found.retain(|file| {
                let is_left_out = is_empty(file);
                if is_left_out {
                    output::complain(format_args!(
                        "warning: {}: an empty file, as a killed program leaves it; left out",
                        file.display()
                    ));
                }
                !is_left_out
            });
        }
        all.append(&mut found);
    }
    Ok(all)
}
