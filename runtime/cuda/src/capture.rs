//! Where a stream stands in a capture: what a captured zone records instead of events.
//!
//! The driver is asked one thing (`cuStreamGetCaptureInfo`) and the answer is kept. Nothing is put on the stream, and no other
//! call is made: the capture must not notice. Which nodes lie between two marks is found out when the graph is registered
//! (`crate::graph`), and not while it is captured.

use std::sync::atomic::{AtomicU64, Ordering};

use super::driver::{ContextPtr, CudaError, Driver, StreamPtr};
use super::graphs::CapturePosition;

/// Counts places of all captures, to know their order.
static ORDER: AtomicU64 = AtomicU64::new(0);

/// Where a zone's stream stood in a capture, and when.
#[derive(Clone, Debug)]
pub struct Mark {
    pub(crate) place: CapturePosition,
    pub(crate) order: u64,
    pub(crate) ns: i64,
    /// The stamp, or the node of an event, that was captured there or stood there already.
    pub(crate) stamp: Option<u32>,
}

/// A number for a mark: higher than that of every mark before it.
pub(super) fn next_order() -> u64 {
    ORDER.fetch_add(1, Ordering::Relaxed)
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
    Ok(place.map(|place| Mark { place, order: next_order(), ns, stamp: None }))
}
