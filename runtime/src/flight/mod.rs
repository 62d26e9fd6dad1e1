//! The flight recorder: the last bytes of zones in a file, even if the program is killed, and a trace of them on request or
//! when something happens.
//!
//! `format` is the layout of the file, `file` writes it, `read` reads it back, `open` and `found` are values. `recorder` is what a
//! session adds: it hears of panics and signals and has traces written. Zones come through a sink of the session (`FlightSink`).

#[cfg(all(feature = "enable", unix))]
pub(crate) mod file;
#[cfg(feature = "export")]
#[cfg_attr(not(all(feature = "enable", unix)), expect(dead_code, reason = "only a session writes it"))]
pub mod format;
mod found;
#[cfg(all(feature = "enable", unix))]
mod open;
#[cfg(feature = "export")]
mod read;
#[cfg(all(feature = "enable", unix))]
mod recorder;

pub use found::{RecoverError, Recovered};
#[cfg(feature = "export")]
pub use read::recover;
#[cfg(all(feature = "enable", unix))]
pub(crate) use {
    open::{Incident, OpenZone, Reason},
    recorder::{Flight, FlightPlan, Request},
};
