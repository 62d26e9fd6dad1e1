//! The flight recorder: the last bytes of zones in a file, even if the program is killed, and a trace of them on request or
//! when something happens.
//!
//! `format` is the layout of the file, `file` writes it, `read` reads it back, and `open` has the values of zones that are open. A
//! session's recorder, in the crate `warpline`, hears of panics and signals and has traces written; zones reach the file through the
//! sink `FlightSink`.

#[cfg(unix)]
pub mod file;
pub mod format;
pub mod open;
mod read;

pub use read::recover;
