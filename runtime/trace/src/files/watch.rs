//! Checks whether a file that is being written still exists and still contains everything that was written to it.
//!
//! A removed or replaced file still takes bytes, which nobody can read, and a truncated file gets a hole. The file that a sink
//! writes (`own`) asks the operating system before each write, and several times a second while there is nothing to write. The
//! check is one call that looks up no name. A moved file keeps everything and is not an error.

use std::fmt;
use std::fs::File;
use std::path::PathBuf;

use super::system;

/// The expected state of a file.
pub(super) struct FileWatch {
    /// The absolute path: the program may change its working directory.
    pub(super) path: PathBuf,
    /// The position of the next write.
    at: u64,
    /// The length of the file.
    len: u64,
    /// Whether the file had a name at the beginning, which it can lose: a `memfd` never has one.
    had_name: bool,
}

/// Why a file takes no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    Removed,
    Changed,
    /// A pipe has no reader.
    NoReader,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::Removed => {
                "was removed or replaced while this session wrote to it: its trace is lost; leave the file there until the session \
                 ends"
            }
            Loss::Changed => {
                "was truncated or written to by another program while this session wrote to it: its trace is lost; do not change \
                 the file until the session ends"
            }
            Loss::NoReader => {
                "has lost its reader: the rest of the trace is lost; keep the reader until the session ends"
            }
        })
    }
}

impl FileWatch {
    /// Creates a watch for an empty file.
    pub(super) fn new(path: PathBuf, file: &File) -> FileWatch {
        FileWatch { path, at: 0, len: 0, had_name: has_name(file) }
    }

    pub(super) fn wrote(&mut self, bytes: usize) {
        self.at += bytes as u64;
        self.len = self.len.max(self.at);
    }

    pub(super) fn sought(&mut self, at: u64) {
        self.at = at;
    }

    pub(super) fn set_len(&mut self, len: u64) {
        self.len = len;
    }

    /// Returns what happened to the file, if anything.
    pub(super) fn check(&self, file: &File) -> Option<Loss> {
        match file.metadata() {
            Ok(there) => match system::links(&there)? {
                0 if self.had_name => Some(Loss::Removed),
                _ => (there.len() != self.len).then_some(Loss::Changed),
            },
            Err(error) if system::says_removed(&error) => Some(Loss::Removed),
            // The next write reports the error.
            Err(_) => None,
        }
    }
}

fn has_name(file: &File) -> bool {
    file.metadata().is_ok_and(|there| system::links(&there) != Some(0))
}
