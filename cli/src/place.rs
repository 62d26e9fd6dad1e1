//! Where a file is written: beside its place until it is whole, under a name that says what it is, and never over one that
//! nobody named.
//!
//! Called by every command that writes a file. In each file's name `{pid}`, `{rank}` and `{host}` are placeholders, as in settings.
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "only programs on Linux are asked for traces that nobody named")
)]

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::runtime::file_name;
use tempfile::NamedTempFile;
use warpline_annotate::beside;

use crate::output::remedy;

/// How a Perfetto trace is called.
const ENDINGS: [&str; 2] = [".pftrace", ".perfetto-trace"];

/// Why nothing is written there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("{}: the name must end with `.pftrace`: what is written is a Perfetto trace", path.display())]
    Ending { path: PathBuf },
    #[error("the name `{}` {problem}", path.display())]
    Name { path: PathBuf, problem: String },
    #[error("cannot write {}: {error}; {}", path.display(), remedy(error, "choose another file with `-o`"))]
    Write { path: PathBuf, error: io::Error },
}

/// The path with what its placeholders stand for. `process` is what `{pid}` stands for, and `variable` looks up the environment
/// variables that say the rank.
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

/// The same, where the placeholders stand for this process.
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

/// Where a Perfetto trace goes.
pub(crate) enum TracePlace {
    /// Where somebody said: what is there is replaced.
    Named(PathBuf),
    /// Into the first file of `STEM.pftrace`, `STEM.2.pftrace`, … that is not there yet.
    Free(String),
}

impl TracePlace {
    /// What somebody named, if anything; else a free name that begins so.
    ///
    /// # Errors
    /// The name says that something else is there.
    pub(crate) fn new(named: Option<&Path>, stem: impl Into<String>) -> Result<TracePlace, PlaceError> {
        named.map_or_else(|| Ok(TracePlace::Free(stem.into())), TracePlace::named)
    }

    /// This file.
    ///
    /// # Errors
    /// The name says that something else is there.
    pub(crate) fn named(path: &Path) -> Result<TracePlace, PlaceError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            Ok(TracePlace::Named(path.to_owned()))
        } else {
            Err(PlaceError::Ending { path: path.to_owned() })
        }
    }

    /// The same for what is written as it comes, which may also go into a pipe or a device.
    ///
    /// # Errors
    /// The name says that something else is there.
    pub(crate) fn for_a_stream(named: Option<&Path>, stem: impl Into<String>) -> Result<TracePlace, PlaceError> {
        match named {
            Some(path) if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) => {
                Ok(TracePlace::Named(path.to_owned()))
            }
            named => TracePlace::new(named, stem),
        }
    }

    /// Makes the file.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn create(&self) -> Result<(PathBuf, File), PlaceError> {
        self.first_free(|path| match self {
            TracePlace::Named(_) => File::create(path),
            TracePlace::Free(_) => File::create_new(path),
        })
    }

    /// A file beside it, which goes away unless it is kept.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn begin(&self) -> Result<NamedTempFile, PlaceError> {
        let path = self.wanted();
        beside(&path).map_err(|error| PlaceError::Write { path, error })
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// It cannot have it.
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

    /// The file that it shall be, as far as that is known before it is made.
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
