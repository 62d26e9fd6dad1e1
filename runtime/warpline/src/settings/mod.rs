//! The settings of a session: what it records, of which zones, and where to.
//!
//! Every setting is one entry of `table`: its key, its value, what it needs, its line in the help, its row in docs/sessions.md and
//! its method of [`SessionBuilder`]. `setting` is the type of an entry and the macro that reads the table. `config` works on the
//! values as a whole, `builder` collects them from the program, `line` parses `WARPLINE=…`, `values` parses and checks single values,
//! `filter` is a pattern over names, `unmatched` finds filters that match nothing, `files` keeps the traces' files apart, `inspect` says what a line asks for, `suggest` guesses what a misspelt setting means, and
//! `environment` knows which settings came from the variable.
//!
//! The session, the NVTX mirror and the control server read settings; nothing here knows a session. Settings are parsed and checked in
//! every build, with feature `enable` and without, and no text makes the parser panic.

mod builder;
mod config;
mod environment;
mod files;
mod filter;
pub(crate) mod inspect;
mod line;
#[macro_use]
mod setting;
mod suggest;
mod table;
mod unmatched;
pub(crate) mod values;

pub use builder::SessionBuilder;
pub(crate) use config::KEPT;
pub(crate) use environment::Environment;
pub(crate) use filter::{Filter, lets_through};
pub(crate) use line::nvtx_of_environment;
pub(crate) use table::Config;
pub(crate) use unmatched::unmatched;
pub(crate) use values::FlightSettings;
