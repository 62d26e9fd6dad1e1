//! The HTTP server of `prometheus=ADDR`, which serves metrics, and of `warpline open`, which serves traces.
//!
//! It takes one request a connection, reads no more than its head, and closes the connection after the answer. Everything that a client sends is
//! bounded and untrusted: the length of a request that is declared means nothing, and only the method, the path, `Host` and `Accept` are looked at.
//! A request whose `Host` is not one of the server's names ([`Hosts`]) is refused, so no page of another name that somebody lets resolve to this
//! machine reads an answer. [`Pages`] is what a caller serves; no thread of the caller waits for a client.

mod answer;
mod hosts;
mod request;
mod server;

pub use answer::{Answer, Body};
pub use hosts::Hosts;
pub use request::HttpRequest;
pub use server::{Pages, Server};
