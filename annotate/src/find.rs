//! Finds the annotations that belong to a trace, if the user names none.
//!
//! Only names and the first bytes of files are looked at, in the folder of the trace and, for PyTorch's names, in the folder above. If
//! several files come into question, none is chosen.

use std::fs;
use std::path::{Path, PathBuf};

use warpline_trace::read::annotations::{PYTORCH, is_ours};
use warpline_trace::read::inputs::{stem, uncompressed};

use crate::AnnotateError;

/// The endings of the names that PyTorch's tools give to annotations.
const ENDINGS: [&str; 2] = [".json", ".pkl"];

/// The most files of a folder that are looked at.
const MOST: usize = 10_000;

/// Finds the annotations of a trace, in this order:
///
/// 1. `TRACE.annotations.json`, beside `TRACE.json`, `TRACE.pftrace`, one of them with `.gz` or `.zst`, or a trace with another ending;
/// 2. `kernel_annotations_rankN_….json` or `.pkl`, as PyTorch's tools name them, in the trace's folder or in the one above. N is the number
///    with which the trace's name begins, or 0;
/// 3. a file of `warpline::graph::save` in the trace's folder.
///
/// # Errors
/// No file, or several of the first kind that there is.
pub fn find_annotations(trace: &Path) -> Result<PathBuf, AnnotateError> {
    let folder = trace.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = trace.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let files = files_of(folder);
    let plain = uncompressed(&name);
    let stem = stem(plain, &["json", "pftrace"]).unwrap_or(plain);
    let beside: Vec<PathBuf> =
        files.iter().filter(|file| name_of(file) == format!("{stem}.annotations.json")).cloned().collect();
    let digits: String = name.chars().take_while(char::is_ascii_digit).collect();
    let rank: u64 = digits.parse().unwrap_or(0);
    let begin = format!("{PYTORCH}{rank}");
    let is_pytorchs = |file: &&PathBuf| {
        let name = name_of(file);
        let rest = name.strip_prefix(&begin).filter(|rest| !rest.starts_with(|letter: char| letter.is_ascii_digit()));
        rest.is_some_and(|rest| ENDINGS.iter().any(|ending| rest.ends_with(ending)))
    };
    let in_folder = || files.iter().filter(is_pytorchs).cloned().collect::<Vec<_>>();
    let above = || {
        let above = folder.canonicalize().ok().and_then(|folder| folder.parent().map(Path::to_owned));
        above.map_or_else(Vec::new, |above| files_of(&above).iter().filter(is_pytorchs).cloned().collect())
    };
    let ours = || files.iter().filter(|file| is_ours(file)).cloned().collect::<Vec<_>>();
    let kinds: [&dyn Fn() -> Vec<PathBuf>; 4] = [&|| beside.clone(), &in_folder, &above, &ours];
    for kind in kinds {
        match &kind()[..] {
            [] => {}
            [one] => return Ok(one.clone()),
            several => {
                return Err(AnnotateError::SeveralAnnotations {
                    trace: trace.to_owned(),
                    files: several.iter().take(8).map(|file| file.display().to_string()).collect(),
                });
            }
        }
    }
    Err(AnnotateError::NoAnnotations { trace: trace.to_owned() })
}

/// The files of a folder, sorted by name.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MOST);
    let mut files: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
