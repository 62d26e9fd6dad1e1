//! The calls that start a session from the environment variable `WARPLINE` or from a builder.

use super::handle::Session;
#[cfg(not(feature = "enable"))]
use super::running;
#[cfg(feature = "enable")]
use super::start;
use crate::error::Error;
use crate::settings::SessionBuilder;

impl Session {
    /// Starts a session with the settings of the environment variable `WARPLINE`. If it is not set, empty, or `off`, nothing is recorded.
    ///
    /// # Errors
    /// See [`Error`]. No error leaves anything running.
    pub fn from_env() -> Result<Session, Error> {
        Session::from_env_or("off")
    }

    /// Starts a session with the settings of the environment variable `WARPLINE`, or with `settings` if it is not set.
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
    /// Starts recording. Without the feature `enable`, it checks the settings and records nothing. If they request a recording, a line on
    /// standard error says that there is none.
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
