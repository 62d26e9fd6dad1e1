//! The points of a zone on a stream that is being captured. Instead of events, the zone has two marks in the graph.
//!
//! Launching threads call this, and nothing here waits. In a session that times replays, a stamp is captured at each mark. If nothing may
//! join a stamp, the stream is moved back from it (`stamps`).

use crate::capture;
use crate::capture::Mark;
use crate::driver::{ContextPtr, CudaError, Driver, PER_THREAD, StreamPtr, is_default};
use crate::graph;
use crate::graph_api::{CapturePosition, Handle};
use crate::owner::Keeper;
use crate::stamps;
use crate::stamps::ZoneEdge;
use warpline_core::backend::{Call, EndedZone, Points, Refused};
use warpline_core::clock::now_ns;

/// The marks of one zone at a time.
pub(crate) struct CapturedEventPair {
    stream: StreamPtr,
    /// None for a handle that denotes the same stream in every context.
    context: Option<ContextPtr>,
    /// The stream's own context, if it is known.
    home: Option<ContextPtr>,
    /// Keeps the stream's context alive; none if the caller must do so.
    keeper: Option<Keeper>,
    thread: u64,
    begin: Option<Mark>,
    end: Option<Mark>,
    /// The stream's position before it was moved after the stamp of the begin.
    before: Option<CapturePosition>,
}

// SAFETY: the driver takes a stream from any thread; everything else is `Send`.
#[allow(unsafe_code)]
unsafe impl Send for CapturedEventPair {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for CapturedEventPair {}

impl CapturedEventPair {
    pub(crate) fn new(stream: StreamPtr, context: Option<ContextPtr>, keeper: Option<Keeper>) -> CapturedEventPair {
        let home = context;
        let context = context.filter(|_| is_default(stream));
        CapturedEventPair { stream, context, home, keeper, thread: 0, begin: None, end: None, before: None }
    }

    fn mark(&self, ns: i64) -> Result<Option<Mark>, CudaError> {
        capture::mark(self.stream, self.context, ns)
    }
}

impl Points for CapturedEventPair {
    fn begin(&mut self, call: Call) -> Result<(), Refused> {
        self.thread = call.thread;
        (self.begin, self.end, self.before) = (None, None, None);
        // The capture may have ended since the stream was queried. Then the zone cannot be part of it.
        self.begin = self.mark(call.begin_ns).map_err(|_| Refused::CaptureFailed)?;
        let Some(begin) = &mut self.begin else { return Err(Refused::CaptureFailed) };
        if stamps::is_on()
            && let Ok(driver) = Driver::get()
            && let Some(border) =
                stamps::border(driver, self.stream, self.home, self.keeper.as_ref(), &begin.place, ZoneEdge::Begin)
        {
            begin.stamp = Some(border.id);
            // The zone consists of the work after the stamp.
            if let Some(place) = border.place {
                self.before = Some(std::mem::replace(&mut begin.place, place));
                begin.order = capture::next_order();
            }
        }
        Ok(())
    }

    fn end(&mut self, call: Call) -> Result<(), Refused> {
        if self.stream as usize == PER_THREAD && call.thread != self.thread {
            // On this thread, the handle denotes another stream.
            return Err(Refused::CaptureFailed);
        }
        let Ok(end) = self.mark(now_ns()) else { return Err(Refused::CaptureFailed) };
        // A zone that ends after its capture has no end in it.
        let begun_in = self.begin.as_ref().map(|begin| begin.place.capture);
        self.end = end.filter(|end| Some(end.place.capture) == begun_in);
        // A duration needs both stamps.
        if let Some(end) = &mut self.end
            && let Some(begin) = &self.begin
            && let Some(id) = begin.stamp
            && let Ok(driver) = Driver::get()
        {
            // Even if the session has ended in the meantime, the stream must be moved back.
            if stamps::is_on() {
                let border =
                    stamps::border(driver, self.stream, self.home, self.keeper.as_ref(), &end.place, ZoneEdge::End);
                end.stamp = border.map(|border| border.id);
            }
            if let Some(before) = self.before.take().filter(|_| end.place.frontier == begin.place.frontier) {
                stamps::leave(driver, self.stream, self.home, &before, &begin.place, id);
            }
        }
        Err(Refused::Captured)
    }

    fn release(&mut self) {
        (self.begin, self.end, self.before) = (None, None, None);
    }

    /// Returns whether the stream must be moved back from the stamp of the begin if nothing was captured after it.
    fn must_restore_capture(&self) -> bool {
        self.before.is_some()
    }

    fn add_to_capture(&mut self, zone: EndedZone<'_>) -> bool {
        graph::captured(self.stream as Handle, self.begin.take(), self.end.take(), zone)
    }
}
