//! Collects the settings that a program makes for a session.
//!
//! Applications call it, and [`Session`](crate::Session) creates one from the environment. The methods for single
//! settings are in `methods`. An invalid setting is stored until `start` reports it; no file, thread or device is
//! touched before.

use std::fmt;
use std::path::{Path, PathBuf};

use super::config::Config;
use super::environment::Environment;
use super::line::{VARIABLE, help};
use super::table::SETTINGS;
use crate::error::{ConfigError, Error, PROGRAM};
use warpline_core::environment;
use warpline_core::file_name;
use warpline_core::stderr;
use warpline_report::sink::Sink;
use warpline_report::sink::held::HeldSinks;

/// A builder that configures and starts a session.
///
/// ```
/// use warpline::Session;
/// use warpline::catalog::Level;
///
/// let session = Session::builder().level(Level::Coarse).filter("demo.*").start()?;
/// # session.finish();
/// # Ok::<(), warpline::Error>(())
/// ```
#[derive(Default)]
pub struct SessionBuilder {
    pub(crate) config: Config,
    pub(crate) sinks: HeldSinks,
    /// The settings of `WARPLINE`, if it is set.
    pub(crate) environment: Option<Environment>,
    /// The error of the first invalid setting.
    wrong: Option<ConfigError>,
}

impl SessionBuilder {
    /// Adds the settings in the environment variable `WARPLINE`, or `settings` if it is not set. A program can combine
    /// this with its own sinks. A program with raised privileges does not read the variable, and a line on standard
    /// error says so.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::NotUnicode`].
    pub fn env_or(self, settings: &str) -> Result<Self, Error> {
        environment::tell_if_ignored(VARIABLE);
        match environment::var(VARIABLE) {
            Ok(line) if line.trim().is_empty() => self.add("off", VARIABLE),
            Ok(line) => self.add_environment(line, settings),
            Err(environment::VarError::NotPresent) => self.add(settings, PROGRAM),
            Err(environment::VarError::NotUnicode(_)) => Err(Error::NotUnicode),
        }
    }

    /// Adds settings in the form of `WARPLINE`: `perfetto=a.pftrace,level=coarse`.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn settings(self, line: &str) -> Result<Self, Error> {
        self.add(line, PROGRAM)
    }

    /// Also passes the records to a sink of your own.
    pub fn sink(mut self, sink: impl Sink + 'static) -> Self {
        self.sinks.push(Box::new(sink));
        self
    }

    fn add(mut self, line: &str, origin: &'static str) -> Result<Self, Error> {
        self.config.add(line).map_err(|source| Error::Config { origin, source })?;
        Ok(self)
    }

    /// Adds the settings of the variable, which replace the program's `settings`.
    fn add_environment(mut self, line: String, settings: &str) -> Result<Self, Error> {
        self = self.add(&line, VARIABLE)?;
        self.environment = Some(Environment::new(line, settings));
        Ok(self)
    }

    /// Checks whether a session can start with these settings, and replaces the placeholders in their paths.
    ///
    /// # Errors
    /// The first setting that is invalid, or that needs another one.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        if let Some(source) = &self.wrong {
            return Err(Error::of_program(source.clone()));
        }
        if self.config.help {
            stderr::lines(help());
            self.config.off = true;
        }
        // With `off`, the other settings are not checked.
        if self.config.off {
            return Ok(());
        }
        self.config.expand_paths().and_then(|()| self.config.check()).map_err(|source| {
            let origin = Environment::origin(self.environment.as_ref(), &source);
            Error::Config { origin, source }
        })
    }

    /// Stores the value of a setting, or the error if there is none yet.
    pub(super) fn set<T>(
        mut self,
        setting: impl fmt::Display,
        value: Result<T, String>,
        store: impl FnOnce(&mut Config, T),
    ) -> Self {
        match value {
            Ok(value) => store(&mut self.config, value),
            Err(problem) => {
                self.wrong.get_or_insert(ConfigError::new(setting.to_string(), problem));
            }
        }
        self
    }

    /// Stores a path, or its error.
    pub(super) fn path(self, key: &str, path: impl AsRef<Path>, store: impl FnOnce(&mut Config, PathBuf)) -> Self {
        let path = path.as_ref();
        self.set(format_args!("{key}={}", path.display()), file_name::check(path).map(|()| path.to_owned()), store)
    }

    /// Stores an error if this program does not support the setting.
    pub(super) fn supported(self, key: &str) -> Self {
        SETTINGS.iter().filter(|setting| setting.key == key).fold(self, |builder, setting| {
            builder.set(format_args!("{key}={}", setting.example), setting.supported(), |_, ()| {})
        })
    }

    /// Adds a setting in the form of `WARPLINE`, or stores its error.
    pub(super) fn line(mut self, setting: &str) -> Self {
        if let Err(wrong) = self.config.add(setting) {
            self.wrong.get_or_insert(wrong);
        }
        self
    }
}

impl fmt::Debug for SessionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBuilder").field("config", &self.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_core::timing::GraphTiming;

    #[test]
    fn a_setting_that_needs_another_one_is_told_where_it_stands() {
        let of_user = |line: &str| SessionBuilder::default().add_environment(line.to_owned(), "");
        let says = |builder: SessionBuilder| builder.start().expect_err("a trace is missing").to_string();
        let of_program = of_user("summary").expect("settings").rotate(1 << 20);
        let missing = "has a setting that cannot be used: `rotate`: needs a Perfetto trace";
        assert!(says(of_program).starts_with(&format!("the program {missing}")));
        assert!(says(of_user("summary,rotate=1MiB").expect("settings")).starts_with(&format!("WARPLINE {missing}")));
    }

    #[test]
    fn the_builder_refuses_the_sizes_that_the_variable_does() {
        let says = |builder: SessionBuilder| builder.start().expect_err("it is no size").to_string();
        assert!(says(SessionBuilder::default().ring(0)).contains("`ring(0)`: a ring holds 1 to "));
        assert!(says(SessionBuilder::default().event_budget(1)).contains("`event_budget(1)`: a GPU context has 2 to "));
    }

    #[test]
    fn a_method_says_which_feature_it_lacks() {
        let new = SessionBuilder::default;
        for (feature, is_on, mut builder) in [
            ("otlp", cfg!(feature = "otlp"), new().otlp("http://localhost")),
            ("prometheus", cfg!(feature = "prometheus"), new().prometheus("9464").prometheus_hosts("node7")),
            ("ranks", cfg!(feature = "ranks"), new().ranks("run")),
            ("timeline", cfg!(feature = "timeline"), new().event_pool_capacity(1)),
            ("cupti", cfg!(feature = "cupti"), new().kernels(true)),
            ("cuda", cfg!(feature = "cuda"), new().graph_timing(GraphTiming::Stamps)),
        ] {
            let says = builder.check().err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(says.contains(&format!("without warpline's feature `{feature}`; build it")), !is_on, "{says}");
        }
    }

    #[test]
    fn a_user_who_wants_nothing_need_not_give_what_the_programs_settings_need() {
        let builder =
            SessionBuilder::default().add_environment("off".to_owned(), "").expect("settings").rotate(1 << 20);
        assert!(!builder.start().expect("nothing is started").is_recording());
    }
}
