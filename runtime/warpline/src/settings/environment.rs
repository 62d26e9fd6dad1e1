//! The settings of the variable `WARPLINE`, for messages that depend on whether the variable or the program made a
//! setting.

use super::config::Config;
use super::line::{self, VARIABLE};
use crate::error::{ConfigError, PROGRAM};
use warpline_core::stderr;

/// The value of the variable, if it is set.
pub(crate) struct Environment {
    line: String,
    /// The outputs among the program's own settings, which the variable replaces: the text and the key of each.
    replaced: Vec<(String, String)>,
}

impl Environment {
    /// Creates it from the variable's `line`, which replaces the program's own `settings`.
    pub(super) fn new(line: String, settings: &str) -> Environment {
        let mut config = Config::default();
        let is_good = config.add(settings).is_ok() && !config.off;
        let is_output = |key: &str| is_good && config.outputs().any(|setting| setting.key == key);
        let replaced = line::settings(settings).filter(|(_, key, _)| is_output(key));
        let replaced = replaced.map(|(text, key, _)| (text.to_owned(), key.to_owned())).collect();
        Environment { line, replaced }
    }

    /// Warns of outputs of the program's own settings that the variable removes.
    pub(crate) fn warn_of_replaced(&self, config: &Config) {
        let is_gone = |(text, key): &(String, String)| {
            (!config.outputs().any(|setting| setting.key == key)).then(|| format!("`{text}`"))
        };
        let gone: Vec<_> = self.replaced.iter().filter_map(is_gone).collect();
        if !gone.is_empty() {
            let gone = gone.join(", ");
            stderr::line(format_args!(
                "{VARIABLE} replaces the program's own settings, and has no {gone}; add to it what you want to keep"
            ));
        }
    }

    /// Returns the origin of a setting that conflicts with others: the variable or the program.
    pub(super) fn origin(environment: Option<&Environment>, wrong: &ConfigError) -> &'static str {
        match environment {
            Some(Environment { line, .. }) if line::has(line, wrong.key()) => VARIABLE,
            _ => PROGRAM,
        }
    }

    /// Warns that the variable names no output. There is no warning for `nvtx` and `roctx`, which show zones, and none
    /// for `nvtx=off` unless the variable replaces an output of the program's own settings.
    pub(crate) fn warn_of_no_output(&self, config: &Config) {
        let replaces = !self.replaced.is_empty();
        let what = if replaces { " (it replaces the program's own settings)" } else { "" };
        match config.nvtx {
            _ if config.roctx == Some(true) => {}
            Some(true) => {}
            Some(false) if !replaces => {}
            _ => stderr::line(format_args!(
                "{VARIABLE} names nothing to write to{what}; add `summary` or `perfetto=FILE`"
            )),
        }
    }
}
