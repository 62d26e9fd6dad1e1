//! What the table says of all values together: whether they are consistent, which files they name, and which outputs
//! they have.

use std::path::PathBuf;

use super::config::Config;
use super::files;
use super::setting::Setting;
use super::table::SETTINGS;
use crate::error::ConfigError;

impl Config {
    /// Checks that the settings are consistent.
    ///
    /// # Errors
    /// The first setting that lacks one it needs.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for setting in SETTINGS {
            setting.check(self).map_err(|problem| ConfigError::new(setting.key, problem))?;
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
