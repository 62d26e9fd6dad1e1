//! A zone on a stream that is being captured: instead of events it has two places in the graph.
//!
//! The begin and the end each ask the driver one thing, where the stream stands (`cuStreamGetCaptureInfo`), and keep the
//! answer. Nothing is put on the stream, and no other call is made: the capture must not notice. Which nodes lie between the
//! places is found out when the graph is registered (`crate::graph`), and not while it is captured. A session that times
//! replays by stamps, or events, has one captured at each place, and leads the stream back from those that nobody may wait
//! for (`stamps`).

use std::sync::atomic::{AtomicU64, Ordering};

use super::driver::{ContextPtr, CudaError, Driver, StreamPtr};
use super::driver::{PER_THREAD, is_default};
use super::graphs::{Handle, Place};
use super::owner::Keeper;
use super::stamps::{self, Of};
use crate::backend::{BackendError, Call, Refused};
use crate::clock::now_ns;

/// Counts places of all captures, to know their order.
static ORDER: AtomicU64 = AtomicU64::new(0);

/// Where a zone's stream stood in a capture, and when.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) place: Place,
    pub(crate) order: u64,
    pub(crate) ns: i64,
    /// The stamp, or the node of an event, that was captured there or stood there already.
    pub(crate) stamp: Option<u32>,
}

/// The places of one zone at a time.
pub(crate) struct CapturePoints {
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
    before: Option<Place>,
}

// SAFETY: the driver takes a stream from any thread; everything else is `Send`.
#[allow(unsafe_code)]
unsafe impl Send for CapturePoints {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for CapturePoints {}

impl CapturePoints {
    pub(super) fn new(stream: StreamPtr, context: Option<ContextPtr>, keeper: Option<Keeper>) -> CapturePoints {
        let home = context;
        let context = context.filter(|_| is_default(stream));
        CapturePoints { stream, context, home, keeper, thread: 0, begin: None, end: None, before: None }
    }

    pub(crate) fn begin(&mut self, call: Call) -> Result<(), Refused> {
        self.thread = call.thread;
        (self.begin, self.end, self.before) = (None, None, None);
        // The capture may have ended since the stream was asked: then there is nothing that the zone could be a part of.
        self.begin = self.mark(call.host_ns).map_err(|_| Refused::CaptureFailed)?;
        let Some(begin) = &mut self.begin else { return Err(Refused::CaptureFailed) };
        if stamps::is_on()
            && let Ok(driver) = Driver::get()
            && let Some(border) =
                stamps::border(driver, self.stream, self.home, self.keeper.as_ref(), &begin.place, Of::Begin)
        {
            begin.stamp = Some(border.id);
            // The zone is what comes behind it.
            if let Some(place) = border.place {
                self.before = Some(std::mem::replace(&mut begin.place, place));
                begin.order = ORDER.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Whether the stream was led behind the stamp of its begin: where nothing came behind that, it is to be led back.
    pub(crate) fn is_led(&self) -> bool {
        self.before.is_some()
    }

    /// It is never recorded: it says why.
    pub(crate) fn end(&mut self, thread: u64) -> Result<(), Refused> {
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
                let border = stamps::border(driver, self.stream, self.home, self.keeper.as_ref(), &end.place, Of::End);
                end.stamp = border.map(|border| border.id);
            }
            if let Some(before) = self.before.take().filter(|_| end.place.frontier == begin.place.frontier) {
                stamps::leave(driver, self.stream, self.home, &before, &begin.place, id);
            }
        }
        Err(Refused::Captured)
    }

    pub(crate) fn is_complete(&self) -> Result<bool, BackendError> {
        Err(BackendError("a captured zone has no times".to_owned()))
    }

    pub(crate) fn release(&mut self) {
        (self.begin, self.end, self.before) = (None, None, None);
    }

    /// The stream, and the places that the zone had in its capture.
    pub(crate) fn take(&mut self) -> (Handle, Option<Mark>, Option<Mark>) {
        (self.stream as Handle, self.begin.take(), self.end.take())
    }

    fn mark(&self, ns: i64) -> Result<Option<Mark>, CudaError> {
        mark(self.stream, self.context, ns)
    }
}

/// Where a stream stands in its capture now.
pub(super) fn mark(stream: StreamPtr, context: Option<ContextPtr>, ns: i64) -> Result<Option<Mark>, CudaError> {
    let Ok(driver) = Driver::get() else { return Ok(None) };
    let place = match context {
        Some(context) if driver.current_context()? != context => {
            driver.with_context(context, || driver.capture(stream))?
        }
        _ => driver.capture(stream)?,
    };
    Ok(place.map(|place| Mark { place, order: ORDER.fetch_add(1, Ordering::Relaxed), ns, stamp: None }))
}
