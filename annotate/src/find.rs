//! Finds the annotations that belong to a trace, if the user names none.
//!
//! Only names and the first bytes of files are looked at, in the folder of the trace and, for PyTorch's names, in the folder above. If
//! several files come into question, none is chosen.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use warpline_trace::read::annotations::{PYTORCH, is_ours};
use warpline_trace::read::document::{Document, Piece};
use warpline_trace::read::inputs::{self, stem, uncompressed};

use crate::AnnotateError;

/// The endings of the names that PyTorch's tools give to annotations.
const ENDINGS: [&str; 2] = [".json", ".pkl"];

/// The most files of a folder that are looked at.
const MOST: usize = 10_000;

/// Finds the annotations of a trace, in this order:
///
/// 1. `TRACE.annotations.json`, beside `TRACE.json`, `TRACE.pftrace`, one of them with `.gz` or `.zst`, or a trace with another ending;
/// 2. `kernel_annotations_rankN_….json` or `.pkl`, as PyTorch's tools name them, in the trace's folder or in the one above. N is the rank that the
///    trace says in `distributedInfo`, or that its name has: `rank3_trace.json`, `000003.17.pt.trace.json`. A trace without a rank is of rank 0, if
///    there are files of no other rank;
/// 3. a file of `warpline::graph::save` in the trace's folder.
///
/// # Errors
/// No file, several of the first kind that there is, or files of several ranks for a trace without a rank.
pub fn find_annotations(trace: &Path) -> Result<PathBuf, AnnotateError> {
    let folder = trace.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = trace.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let files = files_of(folder);
    let plain = uncompressed(&name);
    let stem = stem(plain, &["json", "pftrace"]).unwrap_or(plain);
    let beside: Vec<PathBuf> =
        files.iter().filter(|file| name_of(file) == format!("{stem}.annotations.json")).cloned().collect();
    let rank = rank_said(trace).or_else(|| rank_in_name(&name));
    let is_pytorchs = |file: &&PathBuf| {
        let of = rank_of_annotations(&name_of(file));
        of.is_some() && (rank.is_none() || of == rank)
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
            // Annotations of another rank would label the wrong kernels.
            [one] if rank.is_some() || rank_of_annotations(&name_of(one)).is_none_or(|of| of == 0) => {
                return Ok(one.clone());
            }
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

/// The rank that a trace of PyTorch's profiler says it is of, in a member before its events.
fn rank_said(trace: &Path) -> Option<u64> {
    let mut document = Document::new(inputs::open_within(trace, u64::MAX, |_| {}).ok()??).may_be_cut();
    loop {
        match document.next_piece() {
            Ok(Some(Piece::Member(b"\"distributedInfo\"", value))) => {
                let said: Value = serde_json::from_slice(value).ok()?;
                return said["rank"].as_u64();
            }
            Ok(Some(Piece::Member(..))) => {}
            _ => return None,
        }
    }
}

/// The rank in the name of a trace: behind `rank`, or six digits with which it begins, as torchtitan writes them. The name of a host may begin with
/// a digit, too.
fn rank_in_name(name: &str) -> Option<u64> {
    let name = name.to_lowercase();
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    // `frank` ends a word, and `pp_rank1_tp_rank3` says several ranks, of which none is that of the job.
    let words = name.match_indices("rank").filter(|(at, _)| !name[..*at].ends_with(char::is_alphabetic));
    let mut named: Vec<u64> = words
        .filter_map(|(at, rank)| digits(name[at + rank.len()..].trim_start_matches(['_', '-'])).parse().ok())
        .collect();
    named.dedup();
    let first = digits(&name);
    let is_numbered = first.len() == 6 && name[6..].starts_with('.');
    match named[..] {
        [] => first.parse().ok().filter(|_| is_numbered),
        [rank] => Some(rank),
        _ => None,
    }
}

/// The rank whose annotations PyTorch's tools give such a name; none for another name.
fn rank_of_annotations(name: &str) -> Option<u64> {
    let rest = name.strip_prefix(PYTORCH).filter(|rest| ENDINGS.iter().any(|ending| rest.ends_with(ending)))?;
    let digits = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    rest[..digits].parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_in_a_name_where_tools_write_it() {
        for (name, rank) in [
            ("rank3_trace.json", Some(3)),
            ("trace_rank-12.json.gz", Some(12)),
            ("000003.17.pt.trace.json", Some(3)),
            // Hosts.
            ("3node.cluster_77.1700000000.pt.trace.json", None),
            ("10.0.0.5_77.1700000000.pt.trace.json", None),
            ("trace_raw.json", None),
            ("ranked.json", None),
            ("Rank-7.pftrace", Some(7)),
            ("frank2_77.1700000000.pt.trace.json", None),
            ("pp_rank1_tp_rank3.json", None),
            ("rank3_of_rank3.json", Some(3)),
        ] {
            assert_eq!(rank_in_name(name), rank, "{name}");
        }
        assert_eq!(rank_of_annotations("kernel_annotations_rank01_fwd.json"), Some(1));
        assert_eq!(rank_of_annotations("kernel_annotations_rank3.txt"), None);
    }
}
