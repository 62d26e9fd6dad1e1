//! The collector's work besides reading zones: one stage for each source or figure, all behind one trait.
//!
//! The session's start creates the stages that its settings and the program's features need and adds them to the collector, which calls
//! them in that order. A stage accesses the engine only through [`Context`]. It must not wait for a device or a thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Context;
use super::stream::Stream;
use warpline_core::backend::{BackendError, Reading};
use warpline_core::record::{ThreadInfo, ZoneRecord};
use warpline_core::stream::context::StreamContext;
use warpline_core::stream::slot::Slot;

/// One source of records, or one observer of zones. Every hook does nothing by default.
pub(crate) trait Stage: Send {
    /// Hands on what has arrived since the last call, once a round. Returns the number of records.
    fn pass(&mut self, _cx: &mut Context) -> usize {
        0
    }

    /// Runs after the streams have been read. Returns the number of records handed on.
    fn after_read(&mut self, _cx: &mut Context) -> usize {
        0
    }

    /// Receives zones of one stream that have become records, in the order of the ring. Called once per batch.
    fn zones(&mut self, _zones: &[ZoneRecord]) {}

    /// Receives a slot that holds a wait, not a zone.
    fn wait(
        &mut self,
        _slot: &mut Slot,
        _thread: &Arc<ThreadInfo>,
        _stream: &Arc<StreamContext>,
        _reading: Option<Reading>,
    ) {
    }

    /// Runs when a stream has failed, before its pending zones are dropped.
    fn stream_failed(&mut self, _cx: &mut Context, _stream: &mut Stream, _error: &BackendError) {}

    /// Runs when the collector forgets a stream: all its zones are accounted for.
    fn stream_gone(&mut self, _stream: &Stream) {}

    /// Returns whether everything must be read and flushed in this round, because a caller waits for it.
    fn wants_all(&mut self) -> bool {
        false
    }

    /// Runs at the end of a round: records are handed on, and the sinks are flushed if that was due.
    fn end_round(&mut self, _cx: &mut Context) {}

    /// Returns whether it holds records back until the next reads of the streams.
    fn is_holding(&self) -> bool {
        false
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

    /// Returns whether sinks receive kernels.
    fn gives_kernels(&self) -> bool {
        false
    }

    /// Hands on what has arrived, while the last zones of a session that is over are read.
    fn drain(&mut self, _cx: &mut Context) {}

    /// Stops the source and hands on what is left, after the zones have been drained.
    fn finish(&mut self, _cx: &mut Context) {}
}
