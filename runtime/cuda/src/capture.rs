//! The position of a stream in a capture, which a captured zone records instead of events.
//!
//! One query goes to the driver (`cuStreamGetCaptureInfo`), and its answer is stored. Nothing is put on the stream and no other call is
//! made, so that the capture is not affected. The nodes between two marks are determined when the graph is registered (`crate::graph`), and
//! not during the capture.

use std::sync::atomic::{AtomicU64, Ordering};

use super::driver::{ContextPtr, CudaError, Driver, StreamPtr};
use super::graph_api::CapturePosition;

/// Numbers the marks of all captures, to give their order.
static ORDER: AtomicU64 = AtomicU64::new(0);

/// The position of a zone's stream in a capture, with its order and time.
#[derive(Clone, Debug)]
pub struct Mark {
    pub(crate) place: CapturePosition,
    pub(crate) order: u64,
    pub(crate) ns: i64,
    /// The stamp or the event node at this position, which was captured for the mark or was there already.
    pub(crate) stamp: Option<u32>,
}

/// Returns a number that is greater than those of all previous marks.
pub(super) fn next_order() -> u64 {
    ORDER.fetch_add(1, Ordering::Relaxed)
}

/// Returns the current position of a stream in its capture.
pub(super) fn mark(stream: StreamPtr, context: Option<ContextPtr>, ns: i64) -> Result<Option<Mark>, CudaError> {
    let Ok(driver) = Driver::get() else { return Ok(None) };
    let place = driver.in_context(context, || driver.capture(stream))?;
    Ok(place.map(|place| Mark { place, order: next_order(), ns, stamp: None }))
}
