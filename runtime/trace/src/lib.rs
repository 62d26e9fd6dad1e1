//! Converts records to bytes and back: traces for Perfetto and Chrome, the flight recorder's file and its reader, the files that
//! both are written to, the catalog's exports, the protocol between a running program and the command `warpline`, and the HTTP server of both.
//! With the feature `read`, `read` decodes traces, also those of other tools; programs are built without it.
//!
//! The crate knows no session, no engine and no GPU. `warpline` writes with it; the command and the tool that joins traces read
//! with it.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "it serves warpline's other crates, which have the same version")]

mod catalog;
pub mod chrome;
pub mod control;
pub mod create;
pub mod files;
pub mod flight;
#[cfg(test)]
mod gate_traces;
#[cfg(feature = "http")]
pub mod http;
pub mod json;
pub mod lanes;
pub mod names;
mod order;
pub mod perfetto;
#[cfg(feature = "read")]
pub mod read;
pub mod written;
