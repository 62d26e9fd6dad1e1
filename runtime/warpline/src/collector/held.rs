//! Zones that have ended and wait for CUPTI to deliver their work: the session times them by kernels.
//!
//! The pass over the streams adds them here and gives their slots back, so that a ring never waits for CUPTI. The kernel stage takes
//! those whose work is known, and the collector hands them on. Only the collector's thread uses this module.

use std::sync::Arc;

use super::Collector;
use warpline_core::sorting;
use warpline_core::stream::context::StreamContext;
use warpline_core::stream::slot::ReadZone;

/// A zone without its times.
pub(super) struct HeldZone {
    pub(super) zone: ReadZone,
    pub(super) context: Arc<StreamContext>,
}

/// The zones that wait, and the zones whose times are known.
#[derive(Default)]
pub(super) struct HeldZones {
    pub(super) waiting: Vec<HeldZone>,
    pub(super) timed: Vec<HeldZone>,
}

impl Collector {
    /// Hands on the zones whose times are known. Returns their number.
    pub(super) fn deliver_timed(&mut self) -> usize {
        let mut timed = std::mem::take(&mut self.cx.held.timed);
        // A batch holds the zones of one stream.
        sorting::sort_by_key(&mut timed, |held| Arc::as_ptr(&held.context).addr());
        let mut delivered = 0;
        let mut last: Option<Arc<StreamContext>> = None;
        for HeldZone { zone, context } in timed {
            if let Some(other) = last.take_if(|last| !Arc::ptr_eq(last, &context) || self.batch.len() >= super::BATCH) {
                delivered += self.deliver(&other);
            }
            zone.deliver(&mut self.batch);
            last = Some(context);
        }
        delivered + last.map_or(0, |context| self.deliver(&context))
    }
}
