//! Runs commands from the root of the repository: shows each one as a line that can be pasted into a shell, then runs it.
//! The steps call it; it never runs anything through a shell, and no command gets an input.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Why a step ended early.
pub enum Stop {
    /// What went wrong.
    Failed(String),
    /// The machine lacks something: what, and how to install it.
    Lacks(String),
    /// A part of the step cannot run on every machine that is to pass; the rest passed. Says which part, and why.
    Skipped(String),
}

/// The root of the repository.
pub fn root() -> PathBuf {
    // Cargo says so while it runs the program: where it was compiled may be another tree, if a target folder is shared or copied.
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    xtask.parent().map_or_else(|| xtask.clone(), Path::to_owned)
}

/// Where Cargo puts what it builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Whether this is a run that nobody watches: there, a check that cannot run is a failure.
pub fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false" && value != "0")
}

/// Settings of Cargo's for builds that are mostly the first and the last: without what would make the next one faster, and without lines
/// in backtraces, a fifth of the work is saved. What is set outside is kept.
pub fn build_settings() -> impl Iterator<Item = (&'static str, &'static str)> {
    let settings = [("CARGO_INCREMENTAL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "none")];
    settings.into_iter().filter(|(name, _)| std::env::var_os(name).is_none())
}

/// Settings for release builds that are run, and not measured: the optimizer's last steps take half of the time.
pub const LITTLE_OPTIMIZED: [(&str, &str); 2] =
    [("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"), ("CARGO_PROFILE_RELEASE_DEBUG", "none")];

/// A setting of Cargo's for these builds: cudarc takes long to optimize, and no step measures its calls.
const CUDARC_UNOPTIMIZED: &str = "profile.release.package.cudarc.opt-level=0";

/// One command line: `NAME=value` settings, a program, its arguments.
pub struct Line {
    settings: Vec<(String, String)>,
    words: Vec<String>,
}

/// A command line of words that have no blanks in them.
pub fn line(words: &str) -> Line {
    Line { settings: Vec::new(), words: words.split_whitespace().map(str::to_owned).collect() }
}

impl Line {
    /// With this environment variable.
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Line {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// With this setting of Cargo's, `KEY=VALUE`, on the command line: other Cargos that the tests start do not inherit it.
    pub fn with_config(mut self, setting: &str) -> Line {
        self.words.splice(1..1, ["--config", setting].map(str::to_owned));
        self
    }

    /// With less optimization of a release build by Cargo, which is run and not measured.
    pub fn little_optimized(self) -> Line {
        let line = self.with_config(CUDARC_UNOPTIMIZED);
        LITTLE_OPTIMIZED.into_iter().fold(line, |line, (name, value)| line.with(name, value))
    }

    /// Runs it.
    pub fn run(self) -> Result<(), Stop> {
        println!("$ {self}");
        let status = self.command().status().map_err(|error| self.not_started(&error))?;
        if status.success() { Ok(()) } else { Err(self.failed(status)) }
    }

    /// Runs tests, and says how many passed. None at all is a failure: then a filter or a feature is wrong.
    pub fn run_tests(self) -> Result<u64, Stop> {
        self.run_tests_to(&mut std::io::stdout())
    }

    /// Runs these tests and those of another line at the same time, as [`run_tests`](Self::run_tests) does. What the others print is shown
    /// at the end.
    pub fn run_tests_beside(self, others: Line) -> Result<u64, Stop> {
        let mut text = Vec::new();
        let (own, others) = thread::scope(|scope| {
            let others = scope.spawn(|| others.run_tests_to(&mut text));
            (self.run_tests(), others.join())
        });
        println!("{}", String::from_utf8_lossy(&text));
        let others = others.unwrap_or_else(|_| Err(Stop::Failed("the thread of the other tests panicked".to_owned())));
        Ok(own? + others?)
    }

    fn run_tests_to(self, output: &mut impl Write) -> Result<u64, Stop> {
        let broken = |error| Stop::Failed(format!("the output of `{self}` broke off: {error}"));
        writeln!(output, "$ {self}").map_err(broken)?;
        let mut child = self.command().stdout(Stdio::piped()).spawn().map_err(|error| self.not_started(&error))?;
        let mut passed = 0;
        for text in child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
            let text = text.map_err(broken)?;
            writeln!(output, "{text}").map_err(broken)?;
            passed += tests_passed(&text);
        }
        let status = child.wait().map_err(|error| self.not_started(&error))?;
        match (status.success(), passed) {
            (false, _) => Err(self.failed(status)),
            (true, 0) => {
                Err(Stop::Failed(format!("`{self}` ran no test; its filter or feature matches none any more")))
            }
            (true, _) => Ok(passed),
        }
    }

    /// Runs it unseen, and returns what it prints; none if it cannot be run or fails.
    pub fn output(self) -> Option<String> {
        let output = self.command().stderr(Stdio::null()).output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok()
    }

    /// Runs it, and says whether it succeeded in this time. One that takes longer is killed.
    pub fn succeeds_within(self, time: Duration) -> bool {
        println!("$ {self}");
        let Ok(mut child) = self.command().spawn() else { return false };
        let deadline = Instant::now() + time;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
                _ => {
                    let _ = child.kill().and_then(|()| child.wait().map(drop));
                    return false;
                }
            }
        }
    }

    fn command(&self) -> Command {
        let (program, arguments) = self.words.split_first().map_or(("true", &[][..]), |(p, a)| (p.as_str(), a));
        let mut command = Command::new(program);
        command.args(arguments).current_dir(root()).stdin(Stdio::null());
        // What Cargo told this program of itself is not meant for another Cargo: build scripts that watch it would run again.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_of_this_package)) {
            command.env_remove(name);
        }
        // The settings of whoever started this are not meant for the tests.
        command
            .env_remove("WARPLINE")
            .envs(build_settings())
            .envs(self.settings.iter().map(|(name, value)| (name, value)));
        command
    }

    fn failed(&self, status: std::process::ExitStatus) -> Stop {
        Stop::Failed(format!("`{self}` ended with {status}"))
    }

    fn not_started(&self, error: &std::io::Error) -> Stop {
        let program = self.words.first().map_or("", String::as_str);
        Stop::Failed(format!("`{program}` did not start: {error}; install it or put it on the PATH"))
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, value) in &self.settings {
            write!(f, "{name}='{value}' ")?;
        }
        let shown = self.words.iter().map(|word| if word.contains('"') { format!("'{word}'") } else { word.clone() });
        f.write_str(&shown.collect::<Vec<_>>().join(" "))
    }
}

/// Whether Cargo sets this variable for a program of a package that it runs.
fn is_of_this_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// How many tests a line such as `test result: ok. 12 passed; 0 failed; …` tells of, or Node's `ℹ pass 12`.
fn tests_passed(text: &str) -> u64 {
    if let Some(number) = text.strip_prefix("ℹ pass ") {
        return number.parse().unwrap_or(0);
    }
    let counts = text.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "));
    let passed = counts.and_then(|(_, counts)| counts.split_once(" passed"));
    passed.and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_as_it_can_be_pasted() {
        let line = line("cargo doc  --no-deps").with("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(line.to_string(), "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps");
    }

    #[test]
    fn a_setting_of_cargo_stands_before_its_command_in_quotes_that_a_shell_removes() {
        let line = line("cargo test --lib").with_config("build.target=\"one\"");
        assert_eq!(line.to_string(), "cargo --config 'build.target=\"one\"' test --lib");
    }

    #[test]
    fn passed_tests_are_counted() {
        assert_eq!(tests_passed("test result: ok. 12 passed; 0 failed; 1 ignored; finished in 0.5s"), 12);
        assert_eq!(tests_passed("test result: FAILED. 3 passed; 1 failed"), 3);
        assert_eq!(tests_passed("12 passed"), 0);
        assert_eq!(tests_passed("ℹ pass 12"), 12);
        assert_eq!(tests_passed("ℹ fail 12"), 0);
    }

    #[test]
    fn a_command_has_so_much_time_and_no_more() {
        assert!(line("true").succeeds_within(Duration::from_secs(60)));
        assert!(!line("false").succeeds_within(Duration::from_secs(60)));
        assert!(!line("sleep 600").succeeds_within(Duration::from_millis(50)));
    }

    #[test]
    fn tests_beside_others_are_counted_together_and_either_can_fail() {
        let passing = |number| Line {
            settings: Vec::new(),
            words: ["echo".to_owned(), format!("test result: ok. {number} passed; 0 failed")].into(),
        };
        assert!(matches!(passing(2).run_tests_beside(passing(3)), Ok(5)));
        assert!(passing(2).run_tests_beside(line("false")).is_err());
        assert!(line("false").run_tests_beside(passing(3)).is_err());
    }

    #[test]
    fn a_run_without_tests_is_a_failure() {
        assert!(matches!(line("true").run_tests(), Err(Stop::Failed(why)) if why.contains("ran no test")));
    }
}
