//! Programs that run and listen (`WARPLINE=control`): who they are, what they record, and a trace of them.
//!
//! `find` finds their sockets, `client` speaks with one, `packets` and `signals` keep what is recorded a trace whatever happens; the
//! other files are a command each. Nothing here writes to a program's
//! directory, but for sockets that programs of this user have left behind.

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
