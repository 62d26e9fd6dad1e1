//! The session of a program that was built without feature `enable`: the same calls and the same errors, and nothing is recorded.

use std::path::Path;

use super::Report;
use super::builder::SessionBuilder;
use super::error::{ConfigError, Error};
use super::filter::Filter;
use super::values::check_sample;
use crate::catalog::Level;
use crate::flight::Recovered;
use crate::tell::tell;

/// Why the report of such a session is empty.
const NOTHING: &str = "nothing was recorded: this program was built without warpline's feature `enable`";

/// A session that records nothing: this program was built without feature `enable`.
#[must_use = "a session records until it is dropped: bind it, `let session = …`"]
#[derive(Debug)]
pub struct Session(());

impl Session {
    /// Checks what the environment variable `WARPLINE` says, and records nothing.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::NotUnicode`].
    pub fn from_env() -> Result<Session, Error> {
        Session::from_env_or("off")
    }

    /// Checks what the environment variable `WARPLINE` says, or `settings` when it is not set, and records nothing.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::NotUnicode`].
    pub fn from_env_or(settings: &str) -> Result<Session, Error> {
        Session::builder().env_or(settings)?.start()
    }

    /// A session whose settings the program says itself.
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    /// Always `false`.
    pub fn is_recording(&self) -> bool {
        false
    }

    /// Does nothing.
    pub fn stop(&self) {}

    /// Does nothing.
    pub fn start(&self) {}

    /// Checks the patterns, and does nothing else.
    ///
    /// # Errors
    /// [`Error::Config`] for what is no pattern.
    pub fn set_filter(&self, patterns: &str) -> Result<(), Error> {
        Filter::parse_all(patterns).map(drop).map_err(Error::of_program)
    }

    /// Does nothing.
    pub fn set_level(&self, level: Level) {
        let _ = level;
    }

    /// Checks the share, and does nothing else.
    ///
    /// # Errors
    /// [`Error::Config`] for what is no share.
    pub fn set_sample(&self, share: f64) -> Result<(), Error> {
        let wrong = |problem| Error::of_program(ConfigError::new(format!("sample({share})"), problem));
        check_sample(share).map(drop).map_err(wrong)
    }

    /// There is nothing to write.
    ///
    /// # Errors
    /// [`Error::NoFlight`], always.
    pub fn dump(&self, path: impl AsRef<Path>) -> Result<Recovered, Error> {
        let _ = path;
        Err(Error::NoFlight)
    }

    /// A [`Report`] that says why there is nothing in it.
    pub fn finish(self) -> Report {
        Report { notes: vec![NOTHING.to_owned()], ..Report::default() }
    }
}

impl SessionBuilder {
    /// Checks the settings and makes a session that records nothing. Where they ask for something to be recorded, a line on
    /// standard error says that nothing is.
    ///
    /// # Errors
    /// See [`Error`]: those that a setting causes.
    pub fn start(mut self) -> Result<Session, Error> {
        self.check()?;
        let is_asked = self.environment.is_some() || self.config.control || self.config.has_output();
        if !self.config.off && (is_asked || !self.sinks.is_empty()) {
            tell(
                "nothing is recorded: this program was built without warpline's feature `enable`; turn it on in the \
                  application's Cargo.toml: warpline = { …, features = [\"enable\"] }",
            );
        }
        Ok(Session(()))
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::sink::MemorySink;

    /// Tells the process what its program does.
    const PROGRAM: &str = "WARPLINE_TEST_PROGRAM";

    /// In the process of its own: a program with these settings.
    fn run_if_told() -> bool {
        let Ok(program) = env::var(PROGRAM) else { return false };
        let builder = match program.as_str() {
            "sink" => Ok(Session::builder().sink(MemorySink::new(1))),
            settings => Session::builder().env_or(settings),
        };
        match builder.and_then(SessionBuilder::start) {
            Ok(session) => println!("\n{}", session.finish()),
            Err(error) => println!("\nerror: {error}"),
        }
        true
    }

    /// What the program says on standard output and on standard error.
    fn said(test: &str, program: &str, variable: Option<&str>) -> (String, String) {
        let mut command = Command::new(env::current_exe().expect("the test's own path"));
        let test = format!("session::off::tests::{test}");
        command.args(["--exact", &test, "--nocapture"]).env(PROGRAM, program).env_remove("WARPLINE");
        variable.map(|line| command.env("WARPLINE", line));
        let output = command.stdin(Stdio::null()).output().expect("the test can run itself");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (text(output.stdout), text(output.stderr))
    }

    #[test]
    fn what_would_record_says_once_that_nothing_is_recorded() {
        if run_if_told() {
            return;
        }
        let said =
            |program: &str, variable| said("what_would_record_says_once_that_nothing_is_recorded", program, variable);
        let line = "warpline: nothing is recorded: this program was built without warpline's feature `enable`; turn it on in \
                    the application's Cargo.toml: warpline = { …, features = [\"enable\"] }\n";
        for (program, variable) in [
            ("perfetto=/dev/null", None),
            ("summary", None),
            ("sink", None),
            ("off", Some("summary")),
            ("off", Some("level=coarse")),
        ] {
            let (stdout, stderr) = said(program, variable);
            assert_eq!(stderr, line, "{program} {variable:?}");
            assert!(stdout.contains(NOTHING), "{stdout}");
        }
        for (program, variable) in
            [("off", None), ("level=coarse", None), ("summary", Some("off")), ("summary", Some(""))]
        {
            assert_eq!(said(program, variable).1, "", "{program} {variable:?}");
        }
    }

    #[test]
    fn bad_settings_are_refused_as_with_the_feature() {
        if run_if_told() {
            return;
        }
        let said = |variable| said("bad_settings_are_refused_as_with_the_feature", "off", Some(variable)).0;
        for (variable, problem) in [
            ("perfeto=a", "`perfeto=a`: there is no setting `perfeto`; did you mean `perfetto`?"),
            ("rotate=256MiB", "`rotate`: needs a Perfetto trace to rotate"),
            ("perfetto=a,chrome=a", "`a` is named twice"),
            ("level=medium", "`level=medium`: a level is `coarse` or `fine`"),
        ] {
            let stdout = said(variable);
            assert!(stdout.contains("error: WARPLINE has a setting that cannot be used: "), "{stdout}");
            assert!(stdout.contains(problem), "{stdout}");
        }
        let builder = |builder: SessionBuilder| builder.start().expect_err("it is refused").to_string();
        assert!(builder(Session::builder().ring(0)).contains("`ring(0)`: a ring holds 1 to "));
        assert!(builder(Session::builder().perfetto("t.{node}")).contains("no placeholder `{node}`"));
        let session = Session::builder().start().expect("nothing is wrong");
        assert!(session.set_filter("Demo.*").is_err() && session.set_sample(0.0).is_err());
    }
}
