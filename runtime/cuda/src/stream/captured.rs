//! The points of a zone on a stream that is being captured: instead of events it has two marks in the graph.
//!
//! Launching threads call it, and nothing here waits. A session that times replays has a stamp captured at each mark, and leads
//! the stream back from those that nobody may wait for (`stamps`).

use crate::capture;
use crate::capture::Mark;
use crate::driver::{ContextPtr, CudaError, Driver, PER_THREAD, StreamPtr, is_default};
use crate::graph;
use crate::graphs::{CapturePosition, Handle};
use crate::owner::Keeper;
use crate::stamps;
use crate::stamps::ZoneEdge;
use warpline_core::backend::{BackendError, Call, Ended, EndedZone, Refused, StreamEventPair};
use warpline_core::clock::now_ns;

/// The marks of one zone at a time.
pub(crate) struct CapturedEventPair {
    stream: StreamPtr,
    /// None for a handle that means the same stream in every context.
    context: Option<ContextPtr>,
    /// The stream's own context, where it is known.
    home: Option<ContextPtr>,
    /// What keeps the stream's context alive; none where that is the caller's duty.
    keeper: Option<Keeper>,
    thread: u64,
    begin: Option<Mark>,
    end: Option<Mark>,
    /// Where the stream stood before it was led behind the stamp of the begin.
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

impl StreamEventPair for CapturedEventPair {
    fn begin(&mut self, call: Call) -> Result<(), Refused> {
        self.thread = call.thread;
        (self.begin, self.end, self.before) = (None, None, None);
        // The capture may have ended since the stream was asked: then there is nothing that the zone could be a part of.
        self.begin = self.mark(call.host_ns).map_err(|_| Refused::CaptureFailed)?;
        let Some(begin) = &mut self.begin else { return Err(Refused::CaptureFailed) };
        if stamps::is_on()
            && let Ok(driver) = Driver::get()
            && let Some(border) =
                stamps::border(driver, self.stream, self.home, self.keeper.as_ref(), &begin.place, ZoneEdge::Begin)
        {
            begin.stamp = Some(border.id);
            // The zone is what comes behind it.
            if let Some(place) = border.place {
                self.before = Some(std::mem::replace(&mut begin.place, place));
                begin.order = capture::next_order();
            }
        }
        Ok(())
    }

    /// It is never recorded: it says why.
    fn end(&mut self, thread: u64) -> Result<Ended, Refused> {
        if self.stream as usize == PER_THREAD && thread != self.thread {
            // The handle means another stream here.
            return Err(Refused::CaptureFailed);
        }
        let end = self.mark(now_ns()).map_err(|_| Refused::CaptureFailed)?;
        // A zone that outlives its capture has no end in it.
        let begun_in = self.begin.as_ref().map(|begin| begin.place.capture);
        self.end = end.filter(|end| Some(end.place.capture) == begun_in);
        // A length needs both.
        if let Some(end) = &mut self.end
            && let Some(begin) = &self.begin
            && let Some(id) = begin.stamp
            && let Ok(driver) = Driver::get()
        {
            // The session may have ended meanwhile; the stream is still led back.
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

    fn is_complete(&self) -> Result<bool, BackendError> {
        Err(BackendError("a captured zone has no times".to_owned()))
    }

    fn release(&mut self) {
        (self.begin, self.end, self.before) = (None, None, None);
    }

    fn is_captured(&self) -> bool {
        true
    }

    /// Where nothing came behind the stamp that the stream was led behind, it has to be led back.
    fn must_restore_capture(&self) -> bool {
        self.before.is_some()
    }

    fn add_to_capture(&mut self, zone: EndedZone<'_>) -> bool {
        graph::captured(self.stream as Handle, self.begin.take(), self.end.take(), zone)
    }
}
