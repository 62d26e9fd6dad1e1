//! A stream in a session with `timing=kernels`: nothing is put on the stream, and CUPTI's records time its zones.
//!
//! The collector calls the reader and the clock as it does for events. The reader returns the zone's host span as a placeholder, marked
//! [`EndSource::Kernels`]. The stage of kernels replaces it when CUPTI has delivered the zone's work. Nothing here calls the driver.

use std::sync::atomic::{AtomicI64, Ordering};

use warpline_core::backend::{BackendError, Clock, EventPair, Reader, Reading};
use warpline_core::clock::EventOverhead;
use warpline_core::record::{EndSource, Span};

/// The largest difference between CUPTI's clock and the host's, in ns, as the latest comparison gave it.
pub(crate) static UNCERTAINTY_NS: AtomicI64 = AtomicI64::new(0);

/// The cost of a zone for its thread: about two reads of the clock and a slot.
const ZONE_NS: i64 = 200;

/// The reader, which returns placeholders.
pub(super) struct KernelReader;

impl Reader for KernelReader {
    /// Does not query the stream, because the stage of kernels determines the end.
    fn is_complete(&mut self, _: &EventPair) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn read(&mut self, _: &EventPair, host: Span, _: &mut dyn Clock) -> Result<Option<Reading>, BackendError> {
        Ok(Some(Reading { gpu: host, end: EndSource::Kernels, end_early_by_ns: 0 }))
    }
}

/// CUPTI's clock, for the figures in the report.
pub(super) struct KernelClock;

impl Clock for KernelClock {
    fn renew(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    fn uncertainty_ns(&self) -> i64 {
        UNCERTAINTY_NS.load(Ordering::Relaxed)
    }

    fn bracket(&self) -> EventOverhead {
        EventOverhead::default()
    }

    fn zone_ns(&self) -> i64 {
        ZONE_NS
    }
}
