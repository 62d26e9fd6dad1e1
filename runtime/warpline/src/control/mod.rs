//! From outside: a program that runs is asked for its state, for a trace, for single zones. On Linux, with feature `enable`.
//!
//! With `WARPLINE=control` the process listens on a socket of its user, and a session holds a [`Listening`]. `serve` is the one thread
//! that listens, on the socket that `socket` makes, and `waker` wakes it. `connection` is one request and its state, `host` finds the
//! session that it records in, or has one started, `pipe` and `watch` lead from the session's collector to the connection, `answers` are
//! the answers in JSON, and `sys` the calls of the operating system. Protocol and path of the socket are in `warpline-trace`.
//!
//! It must never make a launching thread wait, never let another user in, never touch a file outside of its directory, and
//! never let what somebody sends cost more than a bounded share of a core and of memory.

mod answers;
mod connection;
mod host;
mod live_stats;
mod pipe;
mod serve;
mod socket;
mod sys;
mod waker;

pub(crate) use host::{Current, HeldSession, begin, end, give_way};
pub(crate) use serve::Listening;
