//! The record of a step, as plain data.
//!
//! Sinks, tests and users' own analysis read it. `steps` has the boundaries from which the collector makes it.

use std::sync::Arc;

use crate::record::{Span, ThreadInfo};

/// One step of the program: an iteration of its loop, from [`step`](crate::steps::step) or from a mark with `step`.
///
/// `Send` and `Sync`; cloning shares the name of the thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// The number of the step, as the program gives it.
    pub number: u64,
    /// The thread that began it.
    pub thread: Arc<ThreadInfo>,
    /// The time from its begin to its end on that thread. Work that it launched may still run on streams when it ends.
    pub host: Span,
}

impl StepRecord {
    /// Returns the duration, in ns.
    pub fn duration_ns(&self) -> i64 {
        self.host.duration_ns()
    }
}
