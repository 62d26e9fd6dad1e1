//! The type of a setting, and the macro that makes everything of the table's entries.
//!
//! `table` is the only user. `line` reads [`SETTINGS`](super::table::SETTINGS) to parse, `config` to check.

use std::path::PathBuf;

/// One setting of `C`: how it is written, what it does, and how a text becomes its value.
pub(super) struct Setting<C> {
    pub(super) key: &'static str,
    /// How it is written, as the help shows it.
    pub(super) form: &'static str,
    /// What it does, in a few words.
    pub(super) help: &'static str,
    /// It may stand several times in a line.
    pub(super) repeats: bool,
    pub(super) read: Read<C>,
    /// Why this program cannot have it: a feature or the operating system is missing.
    pub(super) unavailable: Option<&'static str>,
    /// Whether it goes with the other settings; if not, what to write.
    pub(super) check: fn(&C) -> Result<(), String>,
    /// Whether records go somewhere because of it.
    pub(super) is_output: fn(&C) -> bool,
    /// The files that it names.
    pub(super) paths: fn(&mut C) -> Vec<&mut PathBuf>,
    /// Its row in docs/sessions.md, for the test that writes the page: the builder's method, the default, the meaning.
    #[cfg_attr(not(test), expect(dead_code, reason = "the texts are empty outside tests"))]
    pub(super) row: [&'static str; 3],
}

/// How a text becomes the value of a setting.
pub(super) enum Read<C> {
    /// `key`, which takes no value and sets this.
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

    /// The texts stay out of the program.
    pub(super) const fn row(self, builder: &'static str, default: &'static str, means: &'static str) -> Setting<C> {
        Setting { row: if cfg!(test) { [builder, default, means] } else { [""; 3] }, ..self }
    }
}

/// Checks that another setting, which this one needs, is present.
pub(super) fn needs(is_there: bool, other: &str, example: &str) -> Result<(), String> {
    if is_there { Ok(()) } else { Err(format!("needs {other}, as in `{example}`")) }
}

/// Makes of a table the settings' values (`Config`), the list of settings (`SETTINGS`), and `builder_methods!`, which stands for the methods
/// in the `impl` of the builder.
///
/// An entry has the setting, the fields that hold its value with their defaults, and its methods. A field is `own` if it concerns the
/// program's own session only, and `shared` if a recording that is asked for from outside goes by it, too.
macro_rules! settings {
    (@reset own $config:ident $fresh:ident $field:ident) => {
        $config.$field = $fresh.$field;
    };
    (@reset shared $config:ident $fresh:ident $field:ident) => {};
    ($(
        $setting:expr;
        $whose:ident { $($(#[$meta:meta])* $field:ident: $type:ty = $default:expr),* $(,)? }
        methods { $($method:tt)* }
    )*) => {
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
            /// The settings without those that concern the program's own session only.
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
