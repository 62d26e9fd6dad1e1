//! The settings of a session: what it records, of which zones, and to which outputs.
//!
//! Every setting is an entry of `table`, a field of [`Config`], and a method of [`SessionBuilder`] in `methods`.
//! `setting` contains the type of an entry. `check` handles the values as a whole, `builder` collects them from the
//! program, `line` parses `WARPLINE=…`, `values` parses and checks single values, `addresses` are those of receivers of
//! metrics, `filter` is a pattern over names, `unmatched` finds filters that match nothing, `files` checks that traces
//! have different files, and finds those whose names are of another format, `inspect` lists what a line requests,
//! `suggest` finds the setting that a misspelt one means, and `environment` holds the settings of the variable.
//!
//! The session, the NVTX mirror and the control server read settings, and nothing here depends on a session. Settings
//! are parsed and checked in every build, with and without the feature `enable`, and no text makes the parser panic.

pub(crate) mod addresses;
mod builder;
mod check;
mod config;
mod environment;
mod files;
mod filter;
pub(crate) mod inspect;
mod line;
mod methods;
mod setting;
mod suggest;
mod table;
mod unmatched;
pub(crate) mod values;

pub use builder::SessionBuilder;
pub(crate) use config::{Config, KEPT};
pub(crate) use environment::Environment;
pub(crate) use files::misnamed;
pub(crate) use filter::{Filter, lets_through};
pub(crate) use line::of_environment;
pub(crate) use unmatched::unmatched;
