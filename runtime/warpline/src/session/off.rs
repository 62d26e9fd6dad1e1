//! Replaces the recording session in builds without the feature `enable`. It checks settings and records nothing.

use std::num::NonZeroU32;
use std::path::Path;

use crate::error::Error;
use crate::settings::{Config, SessionBuilder};
use warpline_core::recovered::Recovered;
use warpline_core::stderr;
use warpline_report::sink::{Change, Sink};
use warpline_report::{Report, SinkReport};

/// The note that explains the empty report.
const NOTHING: &str = "nothing was recorded: this program was built without warpline's feature `enable`";

/// A placeholder for the recording session, which never exists in this build.
pub(super) enum Running {}

/// A placeholder for the control server, which never exists in this build.
pub(super) enum Listening {}

#[rustfmt::skip]
impl Running {
    pub(super) fn is_here(&self) -> bool { match *self {} }
    pub(super) fn is_on(&self) -> bool { match *self {} }
    pub(super) fn warn(&self, _: String) { match *self {} }
    pub(super) fn stop(&self) { match *self {} }
    pub(super) fn start(&self) { match *self {} }
    pub(super) fn change(&self, _: Change, _: impl FnOnce(&mut Config)) { match *self {} }
    pub(super) fn epoch(&self) -> NonZeroU32 { match *self {} }
    pub(super) fn add_sink(&self, _: Box<dyn Sink>) -> usize { match *self {} }
    pub(super) fn remove_sink(&self, _: usize) -> Option<SinkReport> { match *self {} }
    pub(super) fn dump(&self, _: &Path) -> Result<Recovered, Error> { match *self {} }
    pub(super) fn finish(self) -> Report { match self {} }
    pub(super) fn abandon(self) { match self {} }
}

pub(super) fn why_nothing() -> Vec<String> {
    vec![NOTHING.to_owned()]
}

/// Checks the settings, and warns if they request a recording.
pub(super) fn begin(mut builder: SessionBuilder) -> Result<(Option<Running>, Option<Listening>), Error> {
    builder.check()?;
    let is_asked = builder.environment.is_some() || builder.config.control || builder.config.has_output();
    if !builder.config.off && (is_asked || !builder.sinks.is_empty()) {
        stderr::line(
            "nothing is recorded: this program was built without warpline's feature `enable`; turn it on in the application's \
             Cargo.toml: warpline = { …, features = [\"enable\"] }",
        );
    }
    Ok((None, None))
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::session::Session;
    use warpline_report::sink::MemorySink;

    /// The variable that tells a child process which program to run.
    const PROGRAM: &str = "WARPLINE_TEST_PROGRAM";

    /// Runs the program with these settings if this is the child process, and returns whether it is.
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

    /// Runs the program in a child process, and returns its standard output and standard error.
    fn said(test: &str, program: &str, variable: Option<&str>) -> (String, String) {
        let mut command = Command::new(env::current_exe().expect("the test's own path"));
        let test = format!("session::running::tests::{test}");
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
