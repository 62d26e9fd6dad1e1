//! The settings as a whole: whether they are consistent, and what they mean for a range.
//!
//! The values are plain data ([`Config`] comes from `table`), so an engine that is started for a control client can have its own
//! settings.

use std::path::PathBuf;

use super::files;
use super::filter::lets_through;
use super::table::{Config, SETTINGS, Setting};
use crate::error::ConfigError;
use warpline_core::catalog::RangeSpec;
use warpline_core::steps::Schedule;

/// The default budget of a session whose only output is the flight recorder, and of recordings from outside.
const UNASKED_BUDGET: f64 = 0.01;

/// The number of files that a rotated trace keeps by default.
pub(crate) const KEPT: usize = 4;

impl Config {
    /// Checks that the settings are consistent.
    ///
    /// # Errors
    /// The first setting that lacks one it needs.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for setting in SETTINGS {
            (setting.check)(self).map_err(|problem| ConfigError::new(setting.key, problem))?;
        }
        files::apart(self.clone().paths())
    }

    /// Returns each file that a setting names, with the setting's key.
    fn paths(&mut self) -> Vec<(&'static str, PathBuf)> {
        let paths = |config: &mut Config, setting: &Setting| -> Vec<_> {
            (setting.paths)(config).into_iter().map(|path| (setting.key, path.clone())).collect()
        };
        SETTINGS.iter().flat_map(|setting| paths(self, setting)).collect()
    }

    /// Expands the placeholders of each path for this process.
    ///
    /// # Errors
    /// The first path with an unknown placeholder.
    pub(super) fn expand_paths(&mut self) -> Result<(), ConfigError> {
        // A build without `enable` creates no file.
        for setting in SETTINGS.iter().filter(|_| cfg!(feature = "enable")) {
            for path in (setting.paths)(self) {
                let wrong = |problem| ConfigError::new(format!("{}={}", setting.key, path.display()), problem);
                *path = warpline_core::file_name::expand(path).map_err(wrong)?;
            }
        }
        Ok(())
    }

    /// Returns whether the report is printed or written.
    pub(crate) fn has_summary(&self) -> bool {
        self.summary.is_some() || !self.summary_files.is_empty()
    }

    /// Returns the share of its time that recording may cost the program, or none if every zone is recorded. `is_asked_for` is whether the
    /// program's own settings request a trace or a sink.
    pub(crate) fn budget(&self, is_asked_for: bool) -> Option<f64> {
        let default = if is_asked_for { None } else { Some(UNASKED_BUDGET) };
        self.budget.or(default).filter(|share| *share < 1.0)
    }

    /// Returns which steps of the program are recorded; none if all are.
    pub(crate) fn schedule(&self) -> Option<Schedule> {
        let active = self.active?;
        let [wait, warmup, repeat] = [self.wait, self.warmup, self.repeat].map(Option::unwrap_or_default);
        Some(Schedule { wait, warmup, active, repeat })
    }

    /// Returns what a session with these settings records of a range.
    pub(crate) fn wants(&self, range: &RangeSpec) -> warpline_core::sample::Wanted {
        use warpline_core::sample::{Wanted, may_be_sampled};

        match self.sample {
            _ if self.leaves_out(range) => Wanted::None,
            share if share < 1.0 && may_be_sampled(range) => Wanted::Share(share),
            _ => Wanted::All,
        }
    }

    /// Returns whether a session with these settings excludes the range.
    pub(crate) fn leaves_out(&self, range: &RangeSpec) -> bool {
        range.level() > self.level || !lets_through(&self.filters, range.name())
    }

    pub(super) fn outputs(&self) -> impl Iterator<Item = &'static Setting> {
        SETTINGS.iter().filter(|setting| (setting.is_output)(self))
    }

    /// Returns whether records have an output other than control clients and the flight recorder.
    pub(crate) fn has_output_beside_flight(&self) -> bool {
        self.outputs().any(|setting| setting.key != "flight")
    }

    /// Returns whether records have an output other than control clients.
    pub(crate) fn has_output(&self) -> bool {
        self.outputs().next().is_some()
    }
}
