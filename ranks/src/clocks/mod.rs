//! Compares the clocks of hosts: `load` asks the engine for the meetings of hosts and makes the table `clocks` from the
//! results of [`warpline_judge::clocks`], `by_host` says how well each clock is known, and `write` writes the table
//! beside the others.

mod by_host;
mod load;
mod write;

pub use by_host::{ClockOfHost, ClockSummary, Inconsistent};
pub use load::{Clocks, Options, clocks};
pub use write::write;
