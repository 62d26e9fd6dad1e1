//! Why a session could not start, or could not do what it was asked for while it ran.
//!
//! The builder and the session return it to the application, which decides; nothing here is printed, and no error leaves anything
//! running.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::catalog::CatalogFault;
use crate::flight::RecoverError;

/// Where a setting stands that does not come from the environment.
pub(super) const PROGRAM: &str = "the program";

/// Why a session could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is not one. Nothing was started.
    #[error("{origin} has a setting that cannot be used: {source}")]
    Config {
        /// Where the setting stands: `WARPLINE` or the program.
        origin: &'static str,
        /// The setting and what to write instead.
        source: ConfigError,
    },
    /// `WARPLINE` is not UTF-8. Nothing was started.
    #[error("WARPLINE is not UTF-8: write its paths and names in UTF-8")]
    NotUnicode,
    /// A session is on already: its `finish` must come first.
    #[error("a session is already recording in this process: finish it before another one starts")]
    AlreadyRecording,
    /// The program's catalog has faults that no compiler could see. Nothing was started.
    #[error("{}", catalog_text(.0))]
    Catalog(Vec<CatalogFault>),
    /// A trace file could not be made. Nothing was started.
    #[error("cannot write the {what} trace to `{}`: {source}; choose another path", path.display())]
    Create {
        /// The kind of trace.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The flight recorder's file could not be made, or the signal that it waits for not be handled. Nothing was started.
    #[error("cannot keep the flight recorder in `{}`: {problem}", path.display())]
    Flight {
        /// The file.
        path: PathBuf,
        /// What is in the way, and the remedy.
        problem: String,
    },
    /// There is no flight recorder to write out.
    #[error("this session has no flight recorder: start it with the setting `flight=64MiB`")]
    NoFlight,
    /// The flight recorder could not be written out.
    #[error("cannot write the last zones to `{}`: {source}", path.display())]
    Dump {
        /// The trace.
        path: PathBuf,
        /// Why.
        source: RecoverError,
    },
    /// The operating system gave no thread for the collector.
    #[error("cannot start the collector's thread: {0}")]
    Thread(io::Error),
}

impl Error {
    /// What the program says itself is no setting.
    pub(super) fn of_program(source: ConfigError) -> Error {
        Error::Config { origin: PROGRAM, source }
    }
}

/// What is wrong with the text of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The setting, as it was written.
    setting: String,
    /// What is wrong with it and what to write instead.
    problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.setting.escape_debug(), self.problem)
    }
}

impl ConfigError {
    pub(super) fn new(setting: impl Into<String>, problem: impl Into<String>) -> ConfigError {
        ConfigError { setting: setting.into(), problem: problem.into() }
    }

    /// The setting without its value.
    pub(super) fn key(&self) -> &str {
        self.setting.split('=').next().unwrap_or_default().trim()
    }
}

impl std::error::Error for ConfigError {}

fn catalog_text(faults: &[CatalogFault]) -> String {
    let lines: Vec<_> = faults.iter().map(|fault| format!("\n  {fault}")).collect();
    format!("the catalog of this program has {} faults; nothing was recorded:{}", faults.len(), lines.concat())
}
