//! Names and creates the files that the commands write. A file is written under a temporary name beside its final one until it is
//! complete; a trace's name must have the ending of its format; a file that the user did not name is never replaced.
//!
//! Every command that writes a file calls this. In a file's name `{pid}`, `{rank}` and `{host}` are placeholders, as in settings.
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "only programs on Linux are asked for traces that nobody named")
)]

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use warpline_annotate::beside;

use crate::output::remedy;
use crate::runtime::file_name;

/// The endings of a Perfetto trace's name.
const ENDINGS: [&str; 2] = [".pftrace", ".perfetto-trace"];

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("{}: the name must end with `.pftrace`, because the output is a Perfetto trace", path.display())]
    Ending { path: PathBuf },
    #[error("the name `{}` {problem}", path.display())]
    Name { path: PathBuf, problem: String },
    #[error("cannot write {}: {error}; {}", path.display(), remedy(error, "choose another file with `-o`"))]
    Write { path: PathBuf, error: io::Error },
}

/// Expands the placeholders of the path. `process` is the value of `{pid}`, and `variable` looks up the environment variables that
/// give the rank.
///
/// # Errors
/// The path has another placeholder.
pub(crate) fn expand(
    path: &Path,
    process: u32,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<PathBuf, PlaceError> {
    let rank = file_name::launched_rank(variable).unwrap_or(0);
    file_name::expand_as(path, process, rank, &host())
        .map_err(|problem| PlaceError::Name { path: path.to_owned(), problem })
}

/// Expands the placeholders for this process.
///
/// # Errors
/// The path has another placeholder.
pub(crate) fn expand_here(path: &Path) -> Result<PathBuf, PlaceError> {
    expand(path, std::process::id(), |name| std::env::var(name).ok())
}

/// The name of this machine.
#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The name of this machine.
#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".to_owned())
}

/// The file of a Perfetto trace.
pub(crate) enum TracePlace {
    /// The file that the user named. It is replaced if it exists.
    Named(PathBuf),
    /// The first of `STEM.pftrace`, `STEM.2.pftrace`, … that does not exist yet.
    Free(String),
}

impl TracePlace {
    /// The file that the user named, or else a free name with this stem.
    ///
    /// # Errors
    /// The name has the ending of another format.
    pub(crate) fn new(named: Option<&Path>, stem: impl Into<String>) -> Result<TracePlace, PlaceError> {
        named.map_or_else(|| Ok(TracePlace::Free(stem.into())), TracePlace::named)
    }

    /// The file that the user named.
    ///
    /// # Errors
    /// The name has the ending of another format.
    pub(crate) fn named(path: &Path) -> Result<TracePlace, PlaceError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            Ok(TracePlace::Named(path.to_owned()))
        } else {
            Err(PlaceError::Ending { path: path.to_owned() })
        }
    }

    /// Like [`new`](TracePlace::new), for a trace that is written as it arrives and so may also go into a pipe or a device.
    ///
    /// # Errors
    /// The name has the ending of another format.
    pub(crate) fn for_a_stream(named: Option<&Path>, stem: impl Into<String>) -> Result<TracePlace, PlaceError> {
        match named {
            Some(path) if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) => {
                Ok(TracePlace::Named(path.to_owned()))
            }
            named => TracePlace::new(named, stem),
        }
    }

    /// Creates the file.
    ///
    /// # Errors
    /// It cannot be created.
    pub(crate) fn create(&self) -> Result<(PathBuf, File), PlaceError> {
        self.first_free(|path| match self {
            TracePlace::Named(_) => File::create(path),
            TracePlace::Free(_) => File::create_new(path),
        })
    }

    /// Creates a temporary file beside it, which is removed unless it is kept.
    ///
    /// # Errors
    /// It cannot be created.
    pub(crate) fn begin(&self) -> Result<NamedTempFile, PlaceError> {
        let path = self.wanted();
        beside(&path).map_err(|error| PlaceError::Write { path, error })
    }

    /// Gives the temporary file its final name.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub(crate) fn keep(&self, whole: NamedTempFile) -> Result<PathBuf, PlaceError> {
        let mut whole = Some(whole);
        let kept = self.first_free(|path| {
            let file = whole.take().ok_or(ErrorKind::NotFound)?;
            let kept = match self {
                TracePlace::Named(_) => file.persist(path),
                TracePlace::Free(_) => file.persist_noclobber(path),
            };
            kept.map_err(|failed| {
                whole = Some(failed.file);
                failed.error
            })
        });
        kept.map(|(path, _)| path)
    }

    /// The preferred name, before it is known whether it is free.
    pub(crate) fn wanted(&self) -> PathBuf {
        self.candidate(1)
    }

    fn first_free<T>(&self, mut make: impl FnMut(&Path) -> io::Result<T>) -> Result<(PathBuf, T), PlaceError> {
        let mut number = 1_u32;
        loop {
            let path = self.candidate(number);
            match (make(&path), self) {
                (Ok(made), _) => return Ok((path, made)),
                (Err(error), TracePlace::Free(_)) if error.kind() == ErrorKind::AlreadyExists && number < u32::MAX => {
                    number += 1;
                }
                (Err(error), _) => return Err(PlaceError::Write { path, error }),
            }
        }
    }

    fn candidate(&self, number: u32) -> PathBuf {
        match (self, number) {
            (TracePlace::Named(path), _) => path.clone(),
            (TracePlace::Free(stem), 1) => PathBuf::from(format!("{stem}.pftrace")),
            (TracePlace::Free(stem), number) => PathBuf::from(format!("{stem}.{number}.pftrace")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_that_a_perfetto_trace_is_there() {
        for right in ["t.pftrace", "/a/b.PFTRACE", "t.perfetto-trace"] {
            assert!(TracePlace::named(Path::new(right)).is_ok(), "{right}");
        }
        for wrong in ["t.json", "-", "t", "t.pftrace.gz", "pftrace", "/", "", ".."] {
            assert!(TracePlace::named(Path::new(wrong)).is_err(), "{wrong}");
        }
    }
}
