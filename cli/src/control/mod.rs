//! The commands for programs that run and listen (`WARPLINE=control`): they list them, show what they record, and record them.
//!
//! `find` finds the sockets, `client` speaks with one program, `error` says what went wrong, and `packets` and `signals` keep the
//! recorded file a valid trace. Each other file is one command. The only files that it removes are sockets that killed programs of
//! this user left behind.

mod arm;
mod client;
mod dump;
mod error;
mod find;
mod flight;
mod packets;
mod ps;
mod record;
mod signals;
mod status;
mod stop;
pub(crate) mod top;

pub(crate) use arm::arm;
pub(crate) use dump::dump;
pub(crate) use error::ControlError;
pub(crate) use ps::ps;
pub(crate) use record::{Recording, record};
pub(crate) use status::status;
pub(crate) use stop::stop;
