//! The flight recorder: the last bytes of zones in a file, even if the program is killed, and a trace of them on request or
//! when something happens.
//!
//! `format` is the layout of the file, `file` writes it, `read` reads it back, `open` and `found` are values. `recorder` is what a
//! session adds: it hears of panics and signals and has traces written. Zones come through a sink of the session (`FlightSink`).

#[cfg(unix)]
pub(crate) mod file;
#[cfg_attr(not(unix), expect(dead_code, reason = "only a session writes it"))]
pub mod format;
#[cfg(unix)]
mod open;
mod read;

pub use warpline_core::recovered::{RecoverError, Recovered};
pub use read::recover;
#[cfg(unix)]
pub(crate) use {
    open::{Incident, OpenZone, Reason},
    recorder::{Flight, FlightPlan, Request},
};
