//! Converts records to bytes and back. `write` has the sinks for Perfetto and Chrome, `flight` the flight recorder's
//! file and its reader, which a session needs too, and `files` the files that both are written to. `control` is the
//! protocol between a running program and the command `warpline`, and `http` the server of both. With the feature
//! `read`, `read` decodes traces, also those of other tools; programs are built without it.
//!
//! The crate knows no session, no engine and no GPU. `warpline` writes with it; the command and the tool that joins traces read
//! with it.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "it serves warpline's other crates, which have the same version")]

pub mod control;
pub mod files;
pub mod flight;
#[cfg(test)]
mod gate_traces;
#[cfg(feature = "http")]
pub mod http;
pub mod json;
pub mod names;
#[cfg(feature = "read")]
pub mod read;
pub mod write;
