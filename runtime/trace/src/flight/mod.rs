//! The flight recorder: the last zones in a file that survives a kill, and traces of them on request or after an incident.
//!
//! `format` is the layout of the file, `file` writes it, `read` reads it, and `open` has the values of open zones. In the crate
//! `warpline`, the recorder of a session handles panics and signals and writes traces. Zones reach the file through the sink
//! `FlightSink`.

#[cfg(unix)]
pub mod file;
pub mod format;
pub mod open;
mod read;

#[cfg(feature = "read")]
pub(crate) use read::open_piece;
pub use read::recover;
