//! The side of the program that is asked: it listens, answers, and records what is asked for. On Linux, with feature `enable`.
//!
//! A session whose settings have `control` holds a [`Listening`]. `serve` is the one thread that listens, on the socket that `socket`
//! makes; `connection` is one request and its state, `host` finds the session that it records in, or has one started, `pipe` and `watch` lead
//! from the session's collector to the connection, `answers` are the answers in JSON, and `sys` the calls of the operating system.
//!
//! It must never make a launching thread wait, never let another user in, and never let what somebody sends cost more than a bounded
//! share of a core and of memory.

mod answers;
mod connection;
mod host;
mod pipe;
mod serve;
mod socket;
mod sys;
mod watch;

pub(crate) use host::{Current, HeldSession, begin, end, give_way};
pub(crate) use serve::Listening;
