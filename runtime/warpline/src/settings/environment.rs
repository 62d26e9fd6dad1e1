//! What `WARPLINE` says, as far as it matters that it was the variable who said it, and not the program.

use super::line::{self, VARIABLE};
use super::table::Config;
use crate::error::{ConfigError, PROGRAM};
use warpline_core::stderr;

/// The variable is set.
pub(crate) struct Environment {
    line: String,
    /// The program's own settings, which it replaces, would have written something.
    replaces: bool,
}

impl Environment {
    /// `line` stands in place of the program's own `settings`.
    pub(super) fn new(line: String, settings: &str) -> Environment {
        let mut config = Config::default();
        let is_good = config.add(settings).is_ok();
        Environment { line, replaces: is_good && config.has_output() && !config.off }
    }

    /// Who said a setting that does not go with the others.
    pub(super) fn origin(environment: Option<&Environment>, wrong: &ConfigError) -> &'static str {
        match environment {
            Some(Environment { line, .. }) if line::has(line, wrong.key()) => VARIABLE,
            _ => PROGRAM,
        }
    }

    /// It wants something recorded, and nothing that shows it. The mirror to NVTX shows zones; to leave it is reason enough
    /// for the variable, unless it costs the program's own trace.
    pub(crate) fn warn_of_no_output(&self, config: &Config) {
        let what = if self.replaces { " (it replaces the program's own settings)" } else { "" };
        match config.nvtx {
            Some(true) => {}
            Some(false) if !self.replaces => {}
            _ => stderr::line(format_args!(
                "{VARIABLE} names nothing to write to{what}; add `summary` or `perfetto=FILE`"
            )),
        }
    }
}
