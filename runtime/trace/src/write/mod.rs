//! Writes records as traces: `perfetto` and `chrome` are the sinks, each with its format in its own folder.
//!
//! What both decide alike is beside them: which slices share a track (`lanes`), the order of a batch (`order`), how
//! much of the catalog fits (`catalog`), and which records are in the file when a disk takes only some of them
//! (`written`).

pub mod accounting;
mod catalog;
pub mod chrome;
pub mod create;
pub mod lanes;
mod order;
pub mod perfetto;
