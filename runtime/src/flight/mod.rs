//! The flight recorder: the last bytes of zones in a file, whatever becomes of the program, and a trace of them when
//! asked or when something happens.
//!
//! `format` is the file, `file` writes it, `read` reads it back; `panic` and `signal` ask for a trace, and the collector
//! does where a stream stands still or fails (`collector/watch.rs`); `writer` is the thread that writes those traces, and
//! `failures` what could not be written. The zones come through a sink of the session (`FlightSink`). Whoever asks for a trace has the collector write down what it knows, for a bounded time, and then
//! copies the ring itself: so a collector that hangs with its device keeps no trace from being written. Nothing here
//! waits for a device, or for a lock that a launching thread could hold.

#[cfg(all(feature = "enable", unix))]
mod failures;
#[cfg(all(feature = "enable", unix))]
pub(crate) mod file;
#[cfg(feature = "export")]
#[cfg_attr(not(all(feature = "enable", unix)), expect(dead_code, reason = "only a session writes it"))]
pub mod format;
mod found;
#[cfg(all(feature = "enable", unix))]
mod panic;
#[cfg(feature = "export")]
mod read;
#[cfg(all(feature = "enable", unix))]
mod recorder;
#[cfg(all(feature = "enable", unix))]
mod signal;
#[cfg(all(feature = "enable", unix))]
mod writer;

pub use found::{RecoverError, Recovered};
#[cfg(feature = "export")]
pub use read::recover;
#[cfg(all(feature = "enable", unix))]
pub(crate) use recorder::{Flight, FlightPlan, Incident, OpenZone, Reason, Request};
