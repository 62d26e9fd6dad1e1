//! The calls that start a session from the environment variable `WARPLINE` or from a builder.

use super::handle::Session;
use super::running;
use crate::error::Error;
use crate::settings::SessionBuilder;
use warpline_core::stderr;

impl Session {
    /// Starts a session with the settings of the environment variable `WARPLINE`. If it is not set, empty, or `off`, nothing is recorded.
    ///
    /// If the session cannot start, for example because a setting is misspelt or a trace cannot be written, a line on standard error says why, and
    /// the program goes on with a session that records nothing. [`SessionBuilder::start`] returns the error instead.
    pub fn from_env() -> Session {
        Session::from_env_or("off")
    }

    /// Starts a session with the settings of the environment variable `WARPLINE`, or with `settings` if it is not set.
    ///
    /// ```
    /// let session = warpline::Session::from_env_or("summary,level=coarse");
    /// # session.finish();
    /// ```
    ///
    /// If the session cannot start, a line on standard error says why, and the program goes on with a session that records nothing. A program that
    /// wants the error asks for it:
    ///
    /// ```
    /// let session = warpline::Session::builder().env_or("summary,level=coarse")?.start()?;
    /// # session.finish();
    /// # Ok::<(), warpline::Error>(())
    /// ```
    pub fn from_env_or(settings: &str) -> Session {
        Session::builder().env_or(settings).and_then(SessionBuilder::start).unwrap_or_else(|error| {
            let why = format!("nothing is recorded: {error}");
            stderr::lines(&why);
            Session::refused(why)
        })
    }
}

impl SessionBuilder {
    /// Starts recording. Without the feature `enable`, it checks the settings and records nothing. If they request a recording, a line on
    /// standard error says that there is none.
    ///
    /// # Errors
    /// See [`Error`]. No error leaves anything running.
    pub fn start(self) -> Result<Session, Error> {
        let (running, listening) = running::begin(self)?;
        Ok(Session::new(running, listening))
    }
}
