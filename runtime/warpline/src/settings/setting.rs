//! The type of a setting, and the macro that generates code from the table's entries.
//!
//! `table` contains the settings. `line` reads [`SETTINGS`](super::table::SETTINGS) to parse, `config` to check.

use std::path::PathBuf;

/// A setting of `C`: its form, its meaning, and the conversion of its text to a value.
pub(super) struct Setting<C> {
    pub(super) key: &'static str,
    /// The form of the setting, as the help shows it.
    pub(super) form: &'static str,
    /// The meaning, in a few words.
    pub(super) help: &'static str,
    /// Whether it may appear several times in a line.
    pub(super) repeats: bool,
    pub(super) read: Read<C>,
    /// The reason why this program does not support it: a missing feature or the operating system.
    pub(super) unavailable: Option<&'static str>,
    /// Checks that it is consistent with the other settings. The error says what to write.
    pub(super) check: fn(&C) -> Result<(), String>,
    /// Returns whether it is an output for records.
    pub(super) is_output: fn(&C) -> bool,
    /// Returns the files that it names.
    pub(super) paths: fn(&mut C) -> Vec<&mut PathBuf>,
    /// The row in docs/sessions.md, for the test that writes the page: the builder's method, the default, the meaning.
    #[cfg_attr(not(test), expect(dead_code, reason = "the texts are empty outside tests"))]
    pub(super) row: [&'static str; 3],
}

/// The conversion of a text to the value of a setting.
pub(super) enum Read<C> {
    /// `key`, which takes no value and sets this field.
    Flag(fn(&mut C) -> &mut bool),
    /// `key=value`, with an example of a value.
    Value(&'static str, fn(&mut C, &str) -> Result<(), String>),
    /// `key` or `key=value`.
    Optional(fn(&mut C, Option<&str>) -> Result<(), String>),
}

impl<C> Setting<C> {
    const fn new(key: &'static str, form: &'static str, help: &'static str, read: Read<C>) -> Setting<C> {
        Setting {
            key,
            form,
            help,
            repeats: false,
            read,
            unavailable: None,
            check: |_| Ok(()),
            is_output: |_| false,
            paths: |_| Vec::new(),
            row: [""; 3],
        }
    }

    pub(super) const fn flag(key: &'static str, help: &'static str, field: fn(&mut C) -> &mut bool) -> Setting<C> {
        Setting::new(key, key, help, Read::Flag(field))
    }

    pub(super) const fn value(
        key: &'static str,
        form: &'static str,
        help: &'static str,
        example: &'static str,
        set: fn(&mut C, &str) -> Result<(), String>,
    ) -> Setting<C> {
        Setting::new(key, form, help, Read::Value(example, set))
    }

    pub(super) const fn optional(
        key: &'static str,
        help: &'static str,
        set: fn(&mut C, Option<&str>) -> Result<(), String>,
    ) -> Setting<C> {
        Setting::new(key, key, help, Read::Optional(set))
    }

    pub(super) const fn repeats(self) -> Setting<C> {
        Setting { repeats: true, ..self }
    }

    pub(super) const fn only_if(self, is_available: bool, why_not: &'static str) -> Setting<C> {
        Setting { unavailable: if is_available { None } else { Some(why_not) }, ..self }
    }

    pub(super) const fn check(self, check: fn(&C) -> Result<(), String>) -> Setting<C> {
        Setting { check, ..self }
    }

    pub(super) const fn output(self, is_output: fn(&C) -> bool) -> Setting<C> {
        Setting { is_output, ..self }
    }

    pub(super) const fn paths(self, paths: fn(&mut C) -> Vec<&mut PathBuf>) -> Setting<C> {
        Setting { paths, ..self }
    }

    /// Sets the row. Only tests contain its texts.
    pub(super) const fn row(self, builder: &'static str, default: &'static str, means: &'static str) -> Setting<C> {
        Setting { row: if cfg!(test) { [builder, default, means] } else { [""; 3] }, ..self }
    }
}

/// Checks that another setting, which this one needs, is present.
pub(super) fn needs(is_there: bool, other: &str, example: &str) -> Result<(), String> {
    if is_there { Ok(()) } else { Err(format!("needs {other}, as in `{example}`")) }
}

/// Generates the settings' values (`Config`), the list of settings (`SETTINGS`), and `builder_methods!`, which expands to the methods of
/// the builder, from a table.
///
/// An entry contains the setting, the fields that hold its value with their defaults, and its methods. A field is `own` if it applies only
/// to the program's own session, and `shared` if it also applies to recordings from outside.
macro_rules! settings {
    (@reset own $config:ident $fresh:ident $field:ident) => {
        $config.$field = $fresh.$field;
    };
    (@reset shared $config:ident $fresh:ident $field:ident) => {};
    ({$(
        $setting:expr;
        $whose:ident { $($(#[$meta:meta])* $field:ident: $type:ty = $default:expr),* $(,)? }
        methods { $($method:tt)* }
    )*}) => {
        /// The value of every setting.
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct Config {
            $($($(#[$meta])* pub(crate) $field: $type,)*)*
        }

        impl Default for Config {
            fn default() -> Config {
                Config { $($($field: $default,)*)* }
            }
        }

        impl Config {
            /// Returns the settings, with the defaults for those that apply only to the program's own session.
            pub(crate) fn shared(&self) -> Config {
                let (mut config, fresh) = (self.clone(), Config::default());
                $($(settings!(@reset $whose config fresh $field);)*)*
                config
            }
        }

        /// Every setting, in the order in which the help and docs/sessions.md list them.
        pub(super) static SETTINGS: &[Setting] = &[$($setting),*];

        macro_rules! builder_methods {
            () => { $($($method)*)* };
        }
        pub(super) use builder_methods;
    };
}
