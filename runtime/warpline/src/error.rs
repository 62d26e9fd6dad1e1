//! The errors of a session that could not start, or could not do what the program requested while it ran.
//!
//! The builder and the session return an error to the application, which decides what to do. Nothing here prints, and no error leaves
//! anything running. `Display` is written by hand because a build without the feature `enable` has no dependencies for it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use warpline_core::catalog::CatalogFault;
use warpline_core::recovered::RecoverError;
use warpline_core::text::printable;

/// The source of a setting that does not come from the environment.
pub(crate) const PROGRAM: &str = "the program";

/// The kind of a file for the report, in [`Error::Create`].
pub(crate) const REPORT: &str = "report";

/// The reason why a session could not start, or could not do what the program requested. `Debug` prints the same sentence as `Display`, so
/// that `fn main() -> Result<(), warpline::Error>` ends with it.
#[non_exhaustive]
pub enum Error {
    /// A setting is invalid. Nothing was started.
    Config {
        /// The source of the setting: `WARPLINE` or the program.
        origin: &'static str,
        /// The setting, and the text to write instead.
        source: ConfigError,
    },
    /// `WARPLINE` is not UTF-8. Nothing was started.
    NotUnicode,
    /// A session is running already; it must finish first.
    AlreadyRecording,
    /// The program's catalog has faults that the compiler cannot detect. Nothing was started.
    Catalog(Vec<CatalogFault>),
    /// A file for a trace or for the report could not be created. Nothing was started.
    Create {
        /// The kind of trace, or `report`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's message, or the fault of the file and the remedy.
        source: io::Error,
    },
    /// The flight recorder's file could not be created, or no handler could be installed for its signal. Nothing was started.
    Flight {
        /// The file.
        path: PathBuf,
        /// The cause and the remedy.
        problem: String,
    },
    /// The session has no flight recorder to write out.
    NoFlight,
    /// The flight recorder could not be written out.
    Dump {
        /// The trace.
        path: PathBuf,
        /// The reason.
        source: RecoverError,
    },
    /// The operating system refused a thread for the collector.
    Thread(io::Error),
}

impl Error {
    /// Returns the error for an invalid setting of the program itself.
    pub(crate) fn of_program(source: ConfigError) -> Error {
        Error::Config { origin: PROGRAM, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Config { origin, source } => write!(f, "{origin} has a setting that cannot be used: {source}"),
            Error::NotUnicode => f.write_str("WARPLINE is not UTF-8: write its paths and names in UTF-8"),
            Error::AlreadyRecording => f.write_str(
                "a session is already recording in this process: finish it before another one starts",
            ),
            Error::Catalog(faults) => {
                let plural = if faults.len() == 1 { "a fault" } else { "faults" };
                write!(f, "the catalog of this program has {plural}:")?;
                faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
            }
            Error::Create { what, path, source } => {
                // An error of warpline's own has its own remedy.
                let remedy = if source.get_ref().is_some() { "" } else { "; choose another path" };
                let trace = if *what == REPORT { "" } else { " trace" };
                write!(f, "cannot write the {what}{trace} to `{}`: {source}{remedy}", shown(path))
            }
            Error::Flight { path, problem } => {
                write!(f, "cannot keep the flight recorder in `{}`: {problem}", shown(path))
            }
            Error::NoFlight if cfg!(feature = "enable") => {
                f.write_str("this session has no flight recorder: start it with the setting `flight=64MiB`")
            }
            Error::NoFlight => f.write_str(
                "there is no flight recorder: this program was built without warpline's feature `enable`; build it with that",
            ),
            Error::Dump { path, source } => write!(f, "cannot write the last zones to `{}`: {source}", shown(path)),
            Error::Thread(error) => {
                write!(f, "cannot start the collector's thread: {error}; raise the limit on threads of this user")
            }
        }
    }
}

/// Returns a path as it is printed.
fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Config { source, .. } => Some(source),
            Error::Create { source, .. } | Error::Thread(source) => Some(source),
            Error::Dump { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The fault in the text of a setting.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The setting, as it was written.
    setting: String,
    /// The fault, and the text to write instead.
    problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.setting.escape_debug(), printable(&self.problem))
    }
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ConfigError {
    pub(crate) fn new(setting: impl Into<String>, problem: impl Into<String>) -> ConfigError {
        ConfigError { setting: setting.into(), problem: problem.into() }
    }

    /// Returns the fault.
    pub(crate) fn problem(&self) -> &str {
        &self.problem
    }

    /// Returns the setting without its value.
    pub(crate) fn key(&self) -> &str {
        self.setting.split('=').next().unwrap_or_default().trim()
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_acts_on_a_terminal() {
        let create =
            Error::Create { what: "Chrome", path: "a\u{1b}[2J\nb".into(), source: io::ErrorKind::StorageFull.into() };
        assert_eq!(
            create.to_string(),
            "cannot write the Chrome trace to `a\\u{1b}[2J\\nb`: no storage space; choose another path"
        );
    }

    #[test]
    fn debug_is_a_sentence() {
        let error = Error::of_program(ConfigError::new("level=medium", "a level is `coarse` or `fine`"));
        let sentence = "the program has a setting that cannot be used: `level=medium`: a level is `coarse` or `fine`";
        assert_eq!((format!("{error}"), format!("{error:?}")), (sentence.to_owned(), sentence.to_owned()));
        let source = io::ErrorKind::StorageFull.into();
        let create = Error::Create { what: "Chrome", path: "t.json".into(), source };
        assert_eq!(
            format!("{create:?}"),
            "cannot write the Chrome trace to `t.json`: no storage space; choose another path"
        );
    }
}
