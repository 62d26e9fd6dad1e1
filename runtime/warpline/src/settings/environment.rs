//! The settings of the variable `WARPLINE`, for messages that depend on whether the variable or the program made a setting.

use super::line::{self, VARIABLE};
use super::table::Config;
use crate::error::{ConfigError, PROGRAM};
use warpline_core::stderr;

/// The value of the variable, if it is set.
pub(crate) struct Environment {
    line: String,
    /// Whether the program's own settings, which the variable replaces, had an output.
    replaces: bool,
}

impl Environment {
    /// Creates it from the variable's `line`, which replaces the program's own `settings`.
    pub(super) fn new(line: String, settings: &str) -> Environment {
        let mut config = Config::default();
        let is_good = config.add(settings).is_ok();
        Environment { line, replaces: is_good && config.has_output() && !config.off }
    }

    /// Returns the origin of a setting that conflicts with others: the variable or the program.
    pub(super) fn origin(environment: Option<&Environment>, wrong: &ConfigError) -> &'static str {
        match environment {
            Some(Environment { line, .. }) if line::has(line, wrong.key()) => VARIABLE,
            _ => PROGRAM,
        }
    }

    /// Warns that the variable names no output. There is no warning for `nvtx` and `roctx`, which show zones, and none for `nvtx=off` unless the
    /// variable replaces an output of the program's own settings.
    pub(crate) fn warn_of_no_output(&self, config: &Config) {
        let what = if self.replaces { " (it replaces the program's own settings)" } else { "" };
        match config.nvtx {
            _ if config.roctx == Some(true) => {}
            Some(true) => {}
            Some(false) if !self.replaces => {}
            _ => stderr::line(format_args!(
                "{VARIABLE} names nothing to write to{what}; add `summary` or `perfetto=FILE`"
            )),
        }
    }
}
