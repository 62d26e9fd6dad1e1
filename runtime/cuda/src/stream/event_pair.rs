//! The points of a zone: put on the stream where it begins and ends, by the launching thread.
//!
//! A mark calls it, so nothing here waits, and nothing but these points is put on the stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::CudaStream;
use crate::capture;
use crate::context::Context;
use crate::driver::{CudaError, PER_THREAD, is_default};
use crate::graph;
use crate::graphs::Handle;
use crate::pool::PairId;
use warpline_core::backend::{BackendError, Call, Ended, EndedZone, Refused, StreamEventPair};
use warpline_core::clock::now_ns;

/// The points of one zone at a time.
pub(super) struct CudaEventPair {
    stream: Arc<CudaStream>,
    pub(super) pair: Option<PairId>,
    /// The end is a marker.
    pub(super) lazy: bool,
    pub(super) thread: u64,
    /// When the zone began, on the host's clock.
    begin_ns: i64,
}

impl CudaEventPair {
    pub(super) fn new(stream: Arc<CudaStream>) -> CudaEventPair {
        CudaEventPair { stream, pair: None, lazy: false, thread: 0, begin_ns: 0 }
    }

    fn handle(&self) -> Handle {
        self.stream.ptr as Handle
    }
}

impl StreamEventPair for CudaEventPair {
    fn begin(&mut self, call: Call) -> Result<(), Refused> {
        let stream = &*self.stream;
        let Context { driver, pool, .. } = &*stream.context;
        let lazy = stream.context.is_lazy();
        let id = pool.take(lazy).map_err(|error| error.refusal(driver))?.ok_or(Refused::Full)?;
        self.pair = Some(id);
        let Some(pair) = pool.get(id) else { return Err(Refused::Full) };
        (self.thread, self.begin_ns) = (call.thread, call.host_ns);
        let is_end = lazy || stream.owes_end.load(Ordering::Relaxed);
        if is_end {
            pair.before_begin.store(stream.count(), Ordering::Relaxed);
            pair.host_ns.store(call.host_ns, Ordering::Relaxed);
            pair.thread.store(call.thread, Ordering::Relaxed);
        }
        stream.record(pair.begin())?;
        if is_end {
            pool.publish_to(&stream.begins, id);
            if !lazy {
                stream.owes_end.store(false, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn end(&mut self, thread: u64) -> Result<Ended, Refused> {
        let stream = &*self.stream;
        if stream.ptr as usize == PER_THREAD && thread != self.thread {
            return Err(Refused::Failed(BackendError("the per-thread default stream is another one here".to_owned())));
        }
        let Context { driver, pool, .. } = &*stream.context;
        let refused = |error: CudaError| error.refusal(driver);
        // A begin needs no such question: its stream was asked when it was told from others.
        if stream.where_known(|| driver.is_capturing(stream.ptr)).map_err(refused)? {
            return Err(Refused::Captured);
        }
        let Some(pair) = self.pair.and_then(|id| pool.get(id)) else { return Err(Refused::Full) };
        self.lazy = stream.context.is_lazy();
        stream.record(pool.end(pair, self.lazy).map_err(refused)?)?;
        if self.lazy {
            pair.after_end.store(stream.count(), Ordering::Relaxed);
            stream.owes_end.store(true, Ordering::Relaxed);
        }
        Ok(if graph::captured_since(self.begin_ns) { Ended::AfterCapture } else { Ended::Done })
    }

    fn is_complete(&self) -> Result<bool, BackendError> {
        let Context { driver, pool, .. } = &*self.stream.context;
        let Some(pair) = self.pair.and_then(|id| pool.get(id)) else {
            return Err(BackendError("a zone has no end on its stream".to_owned()));
        };
        let asked = pool.end(pair, self.lazy).and_then(|end| driver.is_complete(end));
        asked.map_err(|error| self.stream.context.failed(error))
    }

    fn release(&mut self) {
        if let Some(id) = self.pair.take() {
            self.stream.context.pool.give(id);
        }
    }

    /// The capture began after the zone.
    fn add_to_capture(&mut self, zone: EndedZone<'_>) -> bool {
        let context = is_default(self.stream.ptr).then_some(self.stream.context.ptr);
        let end = capture::mark(self.stream.ptr, context, now_ns()).ok().flatten();
        graph::captured(self.handle(), None, end, zone)
    }

    fn add_to_past_captures(&self, zone: EndedZone<'_>) {
        graph::spanned(self.handle(), zone);
    }
}

impl Drop for CudaEventPair {
    fn drop(&mut self) {
        self.release();
    }
}
