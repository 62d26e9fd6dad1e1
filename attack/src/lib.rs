//! Attacks on warpline that are kept: each runs for a given time with a seeded generator, and reports how often it tried and
//! what failed.
//!
//! `tests/attacks.rs` runs each for a second, `cargo xtask attack` for minutes. The fuzz targets in `fuzz/` call the same
//! [`readers`]. What could crash, hang or take all memory runs in a worker, a process of its own, so that the attack survives it;
//! `tests/planted.rs` shows for each attack that it catches a fault.
//!
//! The attacks are for Linux; the readers are for every system.

pub mod readers;

#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "linux")]
pub use linux::*;

warpline::namespace!("attack", "zones that attacked programs make");
