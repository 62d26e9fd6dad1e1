//! From outside: a program that runs is asked for its state, for a trace, for single zones.
//!
//! With `WARPLINE=control` the process listens on a socket of its user. `place` is where, `protocol` is what both ends say, `server`
//! the side of the program, and `figures` what the command shows of an answer as a report does.
//!
//! It must never make a launching thread wait, never let another user in, never touch a file outside of its directory, and
//! never let what somebody sends cost more than a bounded share of a core and of memory.


#[cfg(all(feature = "enable", target_os = "linux"))]
mod server;

#[cfg(all(feature = "enable", target_os = "linux"))]
pub(crate) use server::{Current, HeldSession, Listening, begin, end, give_way};
