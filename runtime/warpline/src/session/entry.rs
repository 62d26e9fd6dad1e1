//! The calls that start a session: from the environment variable `WARPLINE`, or from a builder.

use super::handle::Session;
#[cfg(not(feature = "enable"))]
use super::running;
#[cfg(feature = "enable")]
use super::start;
use crate::error::Error;
use crate::settings::SessionBuilder;

impl Session {
    /// Starts what the environment variable `WARPLINE` says; nothing when it is not set, empty, or `off`.
    ///
    /// # Errors
    /// See [`Error`]. No error leaves anything running.
    pub fn from_env() -> Result<Session, Error> {
        Session::from_env_or("off")
    }

    /// Starts what the environment variable `WARPLINE` says, and what `settings` say when it is not set.
    ///
    /// ```
    /// let session = warpline::Session::from_env_or("summary,level=coarse")?;
    /// # session.finish();
    /// # Ok::<(), warpline::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`Error`]. No error leaves anything running.
    pub fn from_env_or(settings: &str) -> Result<Session, Error> {
        Session::builder().env_or(settings)?.start()
    }
}

impl SessionBuilder {
    /// Starts recording. Without feature `enable` it checks the settings and records nothing; where they ask for a recording, a
    /// line on standard error says that there is none.
    ///
    /// # Errors
    /// See [`Error`]. No error leaves anything running.
    pub fn start(self) -> Result<Session, Error> {
        warpline_core::if_feature!("enable", start::begin(self), {
            running::check(self)?;
            Ok(Session::with(None))
        })
    }
}
