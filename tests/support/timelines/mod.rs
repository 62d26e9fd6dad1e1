//! What the tests of timelines share: the cases of another suite, random graphs of work, and the devices that they run on.
//!
//! `api` runs them on in-process streams, `stub` on a driver without a GPU, `gpu` on one with a GPU.

#[cfg(feature = "enable")]
pub mod arrows;
#[macro_use]
pub mod cases;
pub mod device;
pub mod graph;
