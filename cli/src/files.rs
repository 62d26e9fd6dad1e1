//! Finds the files that a user's arguments name, and skips the empty files that killed programs left in folders.
//!
//! The commands that read all traces of a run call it. An empty file that a user names is an error of theirs.

use std::path::{Path, PathBuf};
use std::{fs, slice};

use crate::inputs::{self, InputError};
use crate::output;
use crate::trace;

/// Replaces each folder with the files in it, as [`inputs::expand`] does. If there are several files, those that are
/// empty or not traces are named on standard error and left out.
///
/// # Errors
/// A folder cannot be read, or has no such file.
pub(crate) fn expand(paths: &[PathBuf], endings: &'static [&'static str]) -> Result<Vec<PathBuf>, InputError> {
    let mut all = Vec::new();
    for path in paths {
        let mut found = inputs::expand(slice::from_ref(path), endings)?;
        if path.is_dir() {
            let why: Vec<_> = found.iter().map(|file| why_left_out(file)).collect();
            // For a folder without a trace, the reader says what is wrong.
            if why.iter().any(Option::is_none) {
                let mut why = why.into_iter();
                found.retain(|file| {
                    let why = why.next().flatten();
                    if let Some(why) = why {
                        output::complain(format_args!("warning: {}: {why}; left out", file.display()));
                    }
                    why.is_none()
                });
            }
        }
        all.append(&mut found);
    }
    Ok(all)
}

/// Why a file of a folder is not a trace, as far as its beginning shows it.
fn why_left_out(file: &Path) -> Option<&'static str> {
    if fs::metadata(file).is_ok_and(|file| file.is_file() && file.len() == 0) {
        return Some("the file is empty, as a killed program leaves it");
    }
    trace::is_other_json(file)
        .then_some("the file is JSON without `traceEvents`, such as settings or a report, and not a trace")
}
