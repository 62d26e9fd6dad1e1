//! From outside: a program that runs is asked for its state, for a trace, for single zones.
//!
//! With `WARPLINE=control` the process listens on a socket of its user. `place` says where, `socket` makes it, `protocol` is
//! what is said on it, `server` the one thread that listens, `connection` what somebody asked for and what has become of it,
//! `host` finds or holds the session that is recorded in, `pipe` and `watch` lead from its collector to the connection, `answers` is what is told in JSON,
//! and `figures` what of that the command shows as a report does.
//!
//! It must never make a launching thread wait, never let another user in, never touch a file outside of its directory, and
//! never let what somebody sends cost more than a bounded share of a core and of memory.

pub mod figures;
#[cfg(unix)]
pub mod place;
pub mod protocol;

#[cfg(all(feature = "enable", target_os = "linux"))]
mod answers;
#[cfg(all(feature = "enable", target_os = "linux"))]
mod connection;
#[cfg(all(feature = "enable", target_os = "linux"))]
mod host;
#[cfg(all(feature = "enable", target_os = "linux"))]
mod pipe;
#[cfg(all(feature = "enable", target_os = "linux"))]
mod server;
#[cfg(all(feature = "enable", target_os = "linux"))]
mod socket;
#[cfg(all(feature = "enable", target_os = "linux"))]
mod sys;
#[cfg(all(feature = "enable", target_os = "linux"))]
mod watch;

#[cfg(all(feature = "enable", target_os = "linux"))]
pub(crate) use host::{Current, begin, end, give_way};
#[cfg(all(feature = "enable", target_os = "linux"))]
pub(crate) use server::{Listening, Waker};
