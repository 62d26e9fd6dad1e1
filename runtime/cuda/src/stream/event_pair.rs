//! The points of a zone, which the launching thread puts on the stream where the zone begins and ends.
//!
//! Marks call this, so nothing here waits, and nothing but these points is put on the stream.

use std::sync::atomic::Ordering;

use super::CudaStream;
use crate::capture;
use crate::context::Context;
use crate::driver::{CudaError, PER_THREAD, is_default};
use crate::graph;
use crate::graph_api::Handle;
use crate::pool::{Pair, PairId};
use warpline_core::backend::{BackendError, Call, Ended, EndedZone, PointStream, Refused, ZonePoints};
use warpline_core::clock::now_ns;

impl CudaStream {
    fn handle(&self) -> Handle {
        self.ptr as Handle
    }

    #[inline]
    pub(super) fn pair(&self, zone: &ZonePoints) -> Option<&Pair> {
        self.context.pool.get(PairId(zone.id?))
    }
}

impl PointStream for CudaStream {
    fn begin(&self, zone: &mut ZonePoints, call: Call) -> Result<(), Refused> {
        self.ask_tool_numbers();
        let Context { driver, pool, .. } = &*self.context;
        if self.context.is_timed_by_kernels {
            return Ok(());
        }
        let lazy = self.context.is_lazy();
        let id = pool.take(lazy).map_err(|error| error.refusal(driver))?.ok_or(Refused::Full)?;
        zone.id = Some(id.0);
        let Some(pair) = pool.get(id) else { return Err(Refused::Full) };
        zone.thread = call.thread;
        let is_end = lazy || self.owes_end.load(Ordering::Relaxed);
        if is_end {
            pair.before_begin.store(self.count(), Ordering::Relaxed);
            pair.host_ns.store(call.begin_ns, Ordering::Relaxed);
            pair.thread.store(call.thread, Ordering::Relaxed);
        }
        self.record(pair.begin())?;
        if is_end {
            pool.publish_to(&self.begins, id);
            if !lazy {
                self.owes_end.store(false, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn end(&self, zone: &mut ZonePoints, call: Call) -> Result<Ended, Refused> {
        let is_timed_by_kernels = self.context.is_timed_by_kernels;
        if self.ptr as usize == PER_THREAD && !is_timed_by_kernels && call.thread != zone.thread {
            return Err(Refused::Failed(BackendError(
                "the zone began on the per-thread default stream of another thread".to_owned(),
            )));
        }
        let Context { driver, pool, .. } = &*self.context;
        let refused = |error: CudaError| error.refusal(driver);
        // A begin needs no such query, because the stream was queried when it was identified.
        if self.where_known(|| driver.is_capturing(self.ptr)).map_err(refused)? {
            return Err(Refused::Captured);
        }
        let ended = || if graph::captured_since(call.begin_ns) { Ended::AfterCapture } else { Ended::Done };
        if is_timed_by_kernels {
            return Ok(ended());
        }
        let Some(pair) = self.pair(zone) else { return Err(Refused::Full) };
        zone.is_lazy = self.context.is_lazy();
        self.record(pool.end(pair, zone.is_lazy).map_err(refused)?)?;
        if zone.is_lazy {
            pair.after_end.store(self.count(), Ordering::Relaxed);
            self.owes_end.store(true, Ordering::Relaxed);
        }
        Ok(ended())
    }

    fn release(&self, zone: &mut ZonePoints) {
        if let Some(id) = zone.id.take() {
            self.context.pool.give(PairId(id));
        }
    }

    /// Adds a zone whose capture began after the zone.
    fn add_to_capture(&self, zone: EndedZone<'_>) -> bool {
        let context = is_default(self.ptr).then_some(self.context.ptr);
        let end = capture::mark(self.ptr, context, now_ns()).ok().flatten();
        graph::captured(self.handle(), None, end, zone)
    }

    fn add_to_past_captures(&self, zone: EndedZone<'_>) {
        graph::spanned(self.handle(), zone);
    }
}
