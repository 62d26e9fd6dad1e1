//! How a stream's zones are read: which begin ended each of them, when that was, and how late it may be.
//!
//! Only the collector calls it, and it waits for no event. It asks for the time between two timed events: the driver answers at once
//! beside threads that launch, also when an event is not complete. Only a marker needs `cuEventQuery`, which waits for those
//! threads, so markers are asked only in passes that allow it.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::CudaStream;
use crate::clock::CudaClock;
use crate::context::Context;
use crate::driver::CudaError;
use crate::pool::{Pair, PairId};
use warpline_core::backend::{BackendError, Clock, EventPair, Reader, Reading};
use warpline_core::clock::now_ns;
use warpline_core::record::{EndSource, Span};
use warpline_core::stream::ring::prefetch;

/// A host thread launches nothing in less time than this: between two points closer than that there is no work.
const SHORTEST_LAUNCH_NS: i64 = 1_000;

/// A begin that waited longer than this between the host's call and the device's time was queued behind other work.
const QUEUED_NS: i64 = 20_000;

/// Reads one stream's zones.
pub(super) struct CudaReader {
    stream: Arc<CudaStream>,
    /// Begins in the order in which they were recorded, from the first that can still be the end of a zone.
    begins: VecDeque<PairId>,
    /// Where the begin that ended the last zone is, so that it need not be asked for again when its own zone is read.
    known: Option<KnownBegin>,
    look: Look,
    /// This pass asks markers.
    asks: bool,
    /// The look that found zones complete with nothing behind them yet: they are read at the next one. And where the first of
    /// them begins, if it is known.
    deferred: Option<Look>,
    deferred_begin: Option<KnownBegin>,
    /// Pairs of zones that were read in this pass, and begins that no zone ends at any more.
    released: Vec<PairId>,
}

/// A look at what is complete on a stream.
#[derive(Clone, Copy, Default)]
struct Look {
    /// When it began, and the one before it.
    began_ns: i64,
    last_ns: i64,
    /// How many of the oldest zones had markers that were asked then too, and were not complete.
    waited: usize,
    /// When it had found out what is complete, and the count of points at the end of the newest zone that is.
    seen_ns: i64,
    upto: u64,
}

/// A begin's place in the device's time, found as a distance from the begin before it.
#[derive(Clone, Copy)]
struct KnownBegin {
    pair: PairId,
    device_ns: i64,
    /// The same on the host's clock, once a zone was told to end there.
    host_ns: Option<i64>,
    /// How many distances have been added up since a begin was compared with the anchor.
    links: u32,
}

impl KnownBegin {
    /// Whether `device_ns` is the same place, but for what floats lose: zones that touch are told one time.
    fn is_at(&self, device_ns: i64) -> bool {
        (self.device_ns - device_ns).abs() <= LOST_NS
    }
}

/// So many short distances are added up before the next begin is compared with the anchor again: each is off by less than a
/// nanosecond.
const MOST_LINKS: u32 = 64;

/// Longer ones lose nanoseconds in the driver's 32-bit floats.
const LONGEST_LINK_NS: i64 = 8_000_000;

/// So many pairs are given back at once.
const RELEASED: usize = 64;

/// What a distance of a second, to the anchor, loses there.
const LOST_NS: i64 = 64;

impl CudaReader {
    pub(super) fn new(stream: Arc<CudaStream>) -> CudaReader {
        CudaReader {
            stream,
            begins: VecDeque::new(),
            known: None,
            look: Look::default(),
            asks: true,
            deferred: None,
            deferred_begin: None,
            released: Vec::new(),
        }
    }

    /// Where a begin is, if it ended the last zone. The reader holds it still, so it is the same one.
    fn known(&self, pair: PairId) -> Option<KnownBegin> {
        self.known.filter(|known| known.pair == pair && self.begins.front() == Some(&pair))
    }

    /// The first begin that is surely behind a point.
    fn next_begin(&mut self, after: u64) -> Option<PairId> {
        let pool = &self.stream.context.pool;
        while let Some(&id) = self.begins.front() {
            if pool.get(id).is_some_and(|next| next.before_begin.load(Ordering::Relaxed) > after) {
                return Some(id);
            }
            self.begins.pop_front();
            // It may be another begin by the time that it is met again.
            self.known = self.known.filter(|known| known.pair != id);
            self.released.push(id);
        }
        None
    }

    /// The same, but keeps the begins before it.
    fn first_begin_after(&self, after: u64) -> Option<&Pair> {
        let pool = &self.stream.context.pool;
        let order = |id: &PairId| pool.get(*id).map_or(0, |pair| pair.before_begin.load(Ordering::Relaxed));
        let at = self.begins.partition_point(|id| order(id) <= after);
        self.begins.get(at).and_then(|id| pool.get(*id))
    }

    /// Whether a lazy zone is over: what comes behind it has begun, or its marker is complete.
    fn is_past(&self, zone: &Pair) -> Result<bool, CudaError> {
        let Context { driver, pool, .. } = &*self.stream.context;
        if driver.reads_beside_launches()
            && let Some(next) = self.first_begin_after(zone.after_end.load(Ordering::Relaxed))
            && driver.elapsed_ns(zone.begin(), next.begin())?.is_some()
        {
            return Ok(true);
        }
        if self.asks { driver.is_complete(pool.end(zone, true)?) } else { Ok(false) }
    }

    fn let_begins_go(&mut self) {
        self.known = None;
        self.stream.context.pool.give_all(self.begins.drain(..));
    }

    /// The end of a lazy zone, in the device's time: what it was found by, and how much earlier it can have been.
    fn lazy_end(
        &mut self,
        zone: &Pair,
        begin: KnownBegin,
        next_id: Option<PairId>,
        look: Look,
        (thread, host): (u64, Span),
        clock: &CudaClock,
    ) -> Result<(i64, EndSource, i64), CudaError> {
        let begin_ns = begin.device_ns;
        let uncertainty_ns = clock.correlation().uncertainty_ns();
        let observed_ns = clock.correlation().device_ns(look.seen_ns) + uncertainty_ns;
        let mut earliest_ns = begin_ns;
        if look.waited > 0 {
            earliest_ns = earliest_ns.max(clock.correlation().device_ns(look.last_ns) - uncertainty_ns);
        }
        let context = &self.stream.context;
        // Zones within one another that end at one point are told one time.
        let again = self.known.filter(|known| Some(known.pair) == next_id);
        let host_ns = again.and_then(|known| known.host_ns);
        let again = again.map(|known| known.device_ns);
        let boundary = match next_id.and_then(|id| context.pool.get(id)) {
            Some(next) => {
                let distance = || Ok(context.driver.elapsed_ns(zone.begin(), next.begin())?.map(|ns| begin_ns + ns));
                again.map_or_else(distance, |ns| Ok(Some(ns)))?.map(|ns| (next, ns))
            }
            None => None,
        };
        self.known = next_id.zip(boundary).map(|(pair, (_, device_ns))| {
            let links = if device_ns - begin_ns < LONGEST_LINK_NS { begin.links + 1 } else { MOST_LINKS };
            KnownBegin { pair, device_ns, host_ns, links }
        });
        let (end_ns, found) = match boundary {
            Some((next, boundary_ns)) if boundary_ns <= observed_ns => {
                let next_host_ns = next.host_ns.load(Ordering::Relaxed);
                let follows =
                    next.thread.load(Ordering::Relaxed) == thread && next_host_ns - host.end_ns < SHORTEST_LAUNCH_NS;
                let was_queued = boundary_ns - clock.correlation().device_ns(next_host_ns) > QUEUED_NS;
                if follows && was_queued {
                    // Nothing lies between, and the stream did not wait: what is left is what points themselves cost.
                    earliest_ns = earliest_ns.max(boundary_ns - clock.point_cost_ns());
                }
                (boundary_ns, EndSource::Boundary)
            }
            _ => (observed_ns, EndSource::Observed),
        };
        let end_ns = end_ns.max(begin_ns);
        Ok((end_ns, found, end_ns - earliest_ns.min(end_ns)))
    }
}

impl Reader for CudaReader {
    fn pass(&mut self, waiting: usize, asks: bool) {
        // Of a zone whose marker was not asked, the last look says nothing.
        let waited = if self.asks { waiting } else { 0 };
        self.look = Look { began_ns: now_ns(), last_ns: self.look.began_ns, waited, ..Look::default() };
        self.asks = asks || !self.stream.context.driver.reads_beside_launches();
        let pool = &self.stream.context.pool;
        let order = |id: PairId| pool.get(id).map_or(0, |pair| pair.before_begin.load(Ordering::Relaxed));
        let known = self.begins.len();
        let begins = &mut self.begins;
        pool.collect_from(&self.stream.begins, |id| begins.push_back(id));
        // Two threads on one stream can hand over in another order than they recorded.
        if !self.begins.range(known.saturating_sub(1)..).is_sorted_by_key(|&id| order(id)) {
            self.begins.make_contiguous().sort_by_key(|&id| order(id));
        }
    }

    fn is_complete(&mut self, points: &EventPair) -> Result<bool, BackendError> {
        let Context { driver, pool, .. } = &*self.stream.context;
        let zone = points.of_device();
        let Some((zone, pair)) = zone.and_then(|zone| Some((zone, self.stream.pair(zone)?))) else {
            return Err(BackendError("a zone has no end on its stream".to_owned()));
        };
        let asked = if zone.is_lazy {
            self.is_past(pair)
        } else {
            pool.end(pair, false).and_then(|end| driver.has_passed(end))
        };
        asked.map_err(|error| self.stream.context.failed(error))
    }

    fn prefetch(&self, points: &EventPair) {
        if let Some(pair) = points.of_device().and_then(|zone| self.stream.pair(zone)) {
            prefetch(pair);
        }
    }

    fn release(&mut self, points: &mut EventPair) {
        match points.take_number() {
            Some(id) => self.released.push(id.into()),
            None => points.release(),
        }
        if self.released.len() >= RELEASED {
            self.end_pass();
        }
    }

    fn end_pass(&mut self) {
        self.stream.context.pool.give_all(self.released.drain(..));
    }

    fn seen(&mut self, newest: &EventPair) {
        let Some(zone) = newest.of_device() else { return };
        self.look.seen_ns = now_ns();
        // An eager end is not counted: the pair's count is then an earlier zone's.
        if let Some(pair) = self.stream.pair(zone).filter(|_| zone.is_lazy) {
            self.look.upto = pair.after_end.load(Ordering::Relaxed);
        }
    }

    fn read(&mut self, points: &EventPair, host: Span, clock: &mut dyn Clock) -> Result<Option<Reading>, BackendError> {
        let foreign = || BackendError("points of another device".to_owned());
        let zone = points.of_device().ok_or_else(foreign)?;
        let clock = (clock as &mut dyn Any).downcast_mut::<CudaClock>().ok_or_else(foreign)?;
        let context = Arc::clone(&self.stream.context);
        let failed = |error| context.failed(error);
        let id = zone.id.map(PairId::from);
        let Some((id, pair)) = id.and_then(|id| Some((id, context.pool.get(id)?))) else {
            return Err(foreign());
        };
        let known = self.known(id).or_else(|| self.deferred_begin.take().filter(|known| known.pair == id));
        let (mut next, mut look) = (None, self.look);
        if zone.is_lazy {
            let after_end = pair.after_end.load(Ordering::Relaxed);
            next = self.next_begin(after_end);
            match self.deferred.filter(|deferred| after_end <= deferred.upto) {
                Some(deferred) => look = deferred,
                // A thread may be about to put a begin there: it says better than this look when the zone ended.
                None if next.is_none() => {
                    self.deferred = Some(Look { upto: look.upto.max(after_end), ..look });
                    // Compared with the anchor then: the pair may be another zone's by the next look.
                    self.deferred_begin = known.map(|known| KnownBegin { links: MOST_LINKS, ..known });
                    return Ok(None);
                }
                None => {}
            }
        }
        let begin = match known {
            Some(known) if known.links < MOST_LINKS => known,
            known => {
                let Some(device_ns) = clock.device_ns(&context, id).map_err(failed)? else { return Ok(None) };
                let fresh = KnownBegin { pair: id, device_ns, host_ns: None, links: 0 };
                known.filter(|known| known.is_at(device_ns)).map_or(fresh, |known| KnownBegin { links: 0, ..known })
            }
        };
        let begin_ns = begin.device_ns;
        let (end_ns, found, early_by_ns) = if zone.is_lazy {
            self.lazy_end(pair, begin, next, look, (zone.thread, host), clock).map_err(failed)?
        } else {
            let end = context.pool.end(pair, false).map_err(failed)?;
            let length = context.driver.elapsed_ns(pair.begin(), end).map_err(failed)?;
            let Some(length) = length else { return Ok(None) };
            // Begins from before ends became eager: nobody asks for them any more.
            self.let_begins_go();
            (begin_ns + length.max(0), EndSource::Event, 0)
        };
        self.look.waited = self.look.waited.saturating_sub(1);
        if let Some(deferred) = &mut self.deferred {
            deferred.waited = deferred.waited.saturating_sub(1);
        }
        let begin_host_ns = begin.host_ns.unwrap_or_else(|| clock.correlation().host_ns(begin_ns));
        // The length is the device's own, where an event of the zone's own says it. Where a zone ends with what comes next,
        // that point is one time for both; what this adds to the length is little, and is said.
        let length_ns = end_ns - begin_ns;
        let end_host_ns = match found {
            EndSource::Event => begin_host_ns + length_ns,
            EndSource::Boundary => {
                let told_ns = || clock.correlation().host_ns(end_ns);
                let told_ns =
                    self.known.as_mut().map_or_else(told_ns, |known| *known.host_ns.get_or_insert_with(told_ns));
                told_ns.max(begin_host_ns)
            }
            _ => clock.correlation().host_ns(end_ns).max(begin_host_ns),
        };
        let early_by_ns = early_by_ns + (end_host_ns - begin_host_ns - length_ns).max(0);
        Ok(Some(Reading {
            gpu: Span { begin_ns: begin_host_ns, end_ns: end_host_ns },
            end: found,
            end_early_by_ns: early_by_ns,
        }))
    }
}

impl Drop for CudaReader {
    fn drop(&mut self) {
        self.pass(0, false);
        self.end_pass();
        self.let_begins_go();
    }
}
