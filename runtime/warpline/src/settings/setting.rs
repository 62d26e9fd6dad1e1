//! The type of a setting. `table` contains the settings; `line` reads them to parse, `check` to check.

use std::path::PathBuf;

use super::config::Config;
use super::values::no_feature;

/// A setting: its key, its meaning, and the conversion of its text to a value.
pub(super) struct Setting {
    pub(super) key: &'static str,
    /// The meaning in a few words, for the help.
    pub(super) help: &'static str,
    pub(super) read: Read,
    /// A value, as errors show it.
    pub(super) example: &'static str,
    /// Whether it may appear several times in a line.
    pub(super) repeats: bool,
    /// The feature that it needs.
    pub(super) feature: Option<&'static str>,
    /// Whether this program has the feature, or runs on a system with the setting.
    pub(super) is_supported: bool,
    /// What else must be set, and a line in which it is.
    needs: [&'static str; 2],
    has_needed: fn(&Config) -> bool,
    check: fn(&Config) -> Result<(), String>,
    /// Returns whether it is an output for records.
    pub(super) is_output: fn(&Config) -> bool,
    /// Returns the files that it names.
    pub(super) paths: fn(&mut Config) -> Vec<&mut PathBuf>,
}

/// The conversion of a text to the value of a setting.
pub(super) enum Read {
    /// `key`, which takes no value and sets this field.
    Flag(fn(&mut Config) -> &mut bool),
    /// `key=value`, with the value as the help shows it.
    Value(&'static str, fn(&mut Config, &str) -> Result<(), String>),
    /// `key` or `key=value`.
    Optional(fn(&mut Config, Option<&str>) -> Result<(), String>),
}

impl Setting {
    /// Returns the setting `key`, which takes no value and sets a field.
    pub(super) const fn flag(key: &'static str, help: &'static str, field: fn(&mut Config) -> &mut bool) -> Setting {
        Setting::new(key, help, Read::Flag(field))
    }

    /// Returns the setting `key=value`, with the value as the help shows it.
    pub(super) const fn value(
        key: &'static str,
        shown: &'static str,
        help: &'static str,
        read: fn(&mut Config, &str) -> Result<(), String>,
    ) -> Setting {
        Setting::new(key, help, Read::Value(shown, read))
    }

    /// Returns the setting `key` or `key=value`.
    pub(super) const fn optional(
        key: &'static str,
        help: &'static str,
        read: fn(&mut Config, Option<&str>) -> Result<(), String>,
    ) -> Setting {
        Setting::new(key, help, Read::Optional(read))
    }

    const fn new(key: &'static str, help: &'static str, read: Read) -> Setting {
        Setting {
            key,
            help,
            example: if let Read::Value(shown, _) = read { shown } else { "" },
            read,
            repeats: false,
            feature: None,
            is_supported: true,
            needs: [""; 2],
            has_needed: |_| true,
            check: |_| Ok(()),
            is_output: |_| false,
            paths: |_| Vec::new(),
        }
    }

    pub(super) const fn example(self, example: &'static str) -> Setting {
        Setting { example, ..self }
    }

    pub(super) const fn repeats(self) -> Setting {
        Setting { repeats: true, ..self }
    }

    pub(super) const fn feature(self, feature: &'static str, is_on: bool) -> Setting {
        Setting { feature: Some(feature), is_supported: is_on, ..self }
    }

    pub(super) const fn only_if(self, is_supported: bool) -> Setting {
        Setting { is_supported, ..self }
    }

    pub(super) const fn needs(self, what: &'static str, line: &'static str, has: fn(&Config) -> bool) -> Setting {
        Setting { needs: [what, line], has_needed: has, ..self }
    }

    pub(super) const fn check_with(self, check: fn(&Config) -> Result<(), String>) -> Setting {
        Setting { check, ..self }
    }

    pub(super) const fn output(self, is_output: fn(&Config) -> bool) -> Setting {
        Setting { is_output, ..self }
    }

    pub(super) const fn paths(self, paths: fn(&mut Config) -> Vec<&mut PathBuf>) -> Setting {
        Setting { paths, ..self }
    }

    /// Returns the form of the setting, as the help shows it.
    pub(super) fn form(&self) -> String {
        match self.read {
            Read::Value(shown, _) => format!("{}={shown}", self.key),
            Read::Flag(_) | Read::Optional(_) => self.key.to_owned(),
        }
    }

    /// Checks that this program supports it.
    ///
    /// # Errors
    /// The reason why not: a missing feature or the operating system.
    pub(super) fn supported(&self) -> Result<(), String> {
        match self.feature {
            _ if self.is_supported => Ok(()),
            Some(feature) => Err(no_feature(feature)),
            None => Err("the command `warpline` can control processes on Linux only; leave it out here".to_owned()),
        }
    }

    /// Checks that it is consistent with the other settings.
    ///
    /// # Errors
    /// What to write.
    pub(super) fn check(&self, config: &Config) -> Result<(), String> {
        if !(self.has_needed)(config) {
            let [what, line] = self.needs;
            return Err(format!("needs {what}, as in `{line}`"));
        }
        (self.check)(config)
    }
}
