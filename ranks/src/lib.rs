//! Reads the tables that the ranks of a job write with warpline's setting `ranks=DIR`, and says which rank is late, which is slow,
//! which one hangs, and why; and answers SQL over them, or over one trace. The command `warpline-ranks` is a thin layer over it. Nothing here
//! records.

#![forbid(unsafe_code)]

pub mod clocks;
pub mod command;
pub mod compact;
pub mod engine;
pub mod error;
pub mod folder;
pub mod generate;
pub mod hang;
pub mod judge;
pub mod perfetto;
mod progress;
mod reading;
pub mod report;
mod shell;
pub mod store;
pub mod table;
pub mod trace;
pub mod views;

pub use engine::Engine;
pub use error::Error;
pub use report::Report;
