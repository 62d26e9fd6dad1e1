//! What the collector does besides reading zones: one stage for each source or figure, all behind one trait.
//!
//! The session's start makes the stages that its settings and the program's features need and adds them to the collector, which
//! calls them in that order. A stage reaches the engine only through [`Context`]. It must not wait for a device or a thread.

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
    /// Hands on what has arrived since the last call, once a round. Returns how many records that was.
    fn pass(&mut self, _cx: &mut Context) -> usize {
        0
    }

    /// The streams have been read. Returns how many records were handed on.
    fn after_read(&mut self, _cx: &mut Context) -> usize {
        0
    }

    /// Zones of one stream have become records, in the order of the ring. Called once for a batch.
    fn zones(&mut self, _zones: &[ZoneRecord]) {}

    /// A slot holds a wait, not a zone.
    fn wait(
        &mut self,
        _slot: &mut Slot,
        _thread: &Arc<ThreadInfo>,
        _stream: &Arc<StreamContext>,
        _reading: Option<Reading>,
    ) {
    }

    /// A stream has failed; its pending zones have not been dropped yet.
    fn stream_failed(&mut self, _cx: &mut Context, _stream: &mut Stream, _error: &BackendError) {}

    /// The collector forgets a stream: all its zones are accounted for.
    fn stream_gone(&mut self, _stream: &Stream) {}

    /// Whether everything has to be read and flushed in this round, because somebody waits for it.
    fn wants_all(&mut self) -> bool {
        false
    }

    /// The round is over: records are handed on, and the sinks are flushed if that was due.
    fn end_round(&mut self, _cx: &mut Context) {}

    /// Whether it holds records back until the next reads of the streams.
    fn is_holding(&self) -> bool {
        false
    }

    /// How long it is until the stage has to be passed again.
    fn due(&self) -> Option<Duration> {
        None
    }

    /// Whether something has begun since the last pass, so that the collector must not rest for long.
    fn has_begun(&self, _cx: &Context) -> bool {
        false
    }

    /// Whether records come to it from a source that does not wake the collector, which must look for them then.
    fn polls(&self, _cx: &Context) -> bool {
        false
    }

    /// Whether records from before this time are still to be handed on, as far as that can be known.
    fn has_pending(&self, _since: Instant) -> bool {
        false
    }

    /// Whether sinks get kernels.
    fn gives_kernels(&self) -> bool {
        false
    }

    /// The session is over and its last zones are being read: hands on what has arrived.
    fn drain(&mut self, _cx: &mut Context) {}

    /// The zones have been drained: stops the source and hands on what is left.
    fn finish(&mut self, _cx: &mut Context) {}
}
