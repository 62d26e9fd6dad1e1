//! The collector's work besides reading zones: one stage for each source or figure, behind one trait. Two have the collector call them by
//! their type, because they take part in the reading of zones: `waits`, which stand among zones in the rings, and `stall_monitor`.
//!
//! The session's start creates the stages that its settings and the program's features need and adds them to the collector, which calls
//! them in that order. A stage accesses the engine only through [`Context`]. It must not wait for a device or a thread.

use std::time::{Duration, Instant};

use super::context::Context;

/// Whether sinks receive kernels, if that was requested, or why they do not.
pub(crate) type GivesKernels = Option<Result<(), String>>;

/// One source of records, which the collector asks in each round. Every hook does nothing by default.
pub(crate) trait Stage: Send {
    /// Hands on what has arrived since the last call, once a round. Returns the number of records.
    fn pass(&mut self, _cx: &mut Context) -> usize {
        0
    }

    /// Returns the time until the stage must be passed again.
    fn due(&self) -> Option<Duration> {
        None
    }

    /// Returns whether something has begun since the last pass, so that the collector must not rest for long.
    fn has_begun(&self, _cx: &Context) -> bool {
        false
    }

    /// Returns whether its records come from a source that does not wake the collector, which must then look for them.
    fn polls(&self, _cx: &Context) -> bool {
        false
    }

    /// Returns whether records from before this time are still to be handed on, as far as that is known.
    fn has_pending(&self, _since: Instant) -> bool {
        false
    }

    /// Hands on what has arrived, while the last zones of a session that is over are read.
    fn drain(&mut self, _cx: &mut Context) {}

    /// Stops the source and hands on what is left, after the zones have been drained.
    fn finish(&mut self, _cx: &mut Context) {}
}
