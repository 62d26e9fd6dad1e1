//! The control server: clients query a running program for its status, a trace or single zones. Linux only, with feature `enable`.
//!
//! With `WARPLINE=control` the process listens on a socket that belongs to its user, and the session holds a [`Listening`]. `serve` is
//! the server's only thread; it listens on the socket that `socket` creates, and `waker` wakes it. A `connection` serves one request;
//! for records it holds a subscription on the collector's engine. `pipe` and `live_stats` carry data from the collector's thread to the
//! connection, `answers` builds the JSON replies, and `sys` wraps system calls. `warpline-trace` has the protocol and the socket's path.
//!
//! The server must never block a launching thread, accept another user, or touch a file outside of its directory. The CPU time and
//! memory that a client can make it use are bounded.

mod answers;
mod connection;
mod live_stats;
mod pipe;
mod serve;
mod socket;
mod sys;
mod waker;

pub(crate) use serve::Listening;
