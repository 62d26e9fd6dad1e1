//! Zones that have ended and wait for CUPTI to deliver their work: the session times them by kernels.
//!
//! The pass over the streams adds them here and gives their slots back, so that a ring never waits for CUPTI. The kernel stage takes
//! those whose work is known, and the collector hands them on. Only the collector's thread uses this module.

use std::sync::Arc;

use super::Collector;
use warpline_core::record::ZoneRecord;
use warpline_core::stream::context::StreamContext;
use warpline_core::stream::slot::{Completion, Slot};

/// A zone without its times.
pub(super) struct HeldZone {
    pub(super) record: ZoneRecord,
    /// The entries of a batch of collectives, which share its times.
    pub(super) entries: Vec<ZoneRecord>,
    /// The ticket of the requester, if the zone was requested.
    pub(super) ticket: Option<Box<dyn Completion>>,
    pub(super) context: Arc<StreamContext>,
    /// Whether it ends on the thread that began it.
    #[cfg_attr(not(feature = "cupti"), expect(dead_code, reason = "only the stage of kernels reads it"))]
    pub(super) nests: bool,
}

/// The zones that wait, and the zones whose times are known.
#[derive(Default)]
pub(super) struct HeldZones {
    pub(super) waiting: Vec<HeldZone>,
    pub(super) timed: Vec<HeldZone>,
}

impl HeldZones {
    /// Keeps a zone until its work is known.
    pub(super) fn hold(&mut self, slot: &mut Slot, record: ZoneRecord, context: &Arc<StreamContext>) {
        let (entries, ticket) = slot
            .extras_to_take()
            .map_or((Vec::new(), None), |extras| (super::stream::take_entries(extras, &record), extras.ticket.take()));
        let nests = slot.nests();
        self.waiting.push(HeldZone { record, entries, ticket, context: Arc::clone(context), nests });
    }
}

impl Collector {
    /// Hands on the zones whose times are known. Returns their number.
    pub(super) fn deliver_timed(&mut self) -> usize {
        let mut timed = std::mem::take(&mut self.cx.held.timed);
        // A batch holds the zones of one stream.
        timed.sort_by_key(|held| Arc::as_ptr(&held.context).addr());
        let mut delivered = 0;
        let mut last: Option<Arc<StreamContext>> = None;
        for HeldZone { record, entries, ticket, context, .. } in timed {
            if let Some(other) = last.take_if(|last| !Arc::ptr_eq(last, &context) || self.batch.len() >= super::BATCH) {
                delivered += self.deliver(&other);
            }
            if let Some(ticket) = ticket {
                ticket.complete(&record);
            }
            self.batch.push(record);
            self.batch.extend(entries);
            last = Some(context);
        }
        delivered + last.map_or(0, |context| self.deliver(&context))
    }
}
