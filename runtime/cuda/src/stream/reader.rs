//! Reads the zones of a stream: when each began and ended, which begin ended it, and how inaccurate the end may be.
//!
//! Only the collector calls this, and it waits for no event. For two timed events it queries the time between them, which the driver
//! answers at once even while other threads launch, and even if an event is not complete. Only a marker needs `cuEventQuery`, which waits
//! for those threads. Markers are therefore queried only in passes that allow it.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::CudaStream;
use super::timed_ends::{LOST_NS, TimedEnds};
use crate::clock::CudaClock;
use crate::context::Context;
use crate::driver::CudaError;
use crate::pool::{Pair, PairId};
use warpline_core::backend::{BackendError, Clock, EventPair, Reader, Reading};
use warpline_core::clock::now_ns;
use warpline_core::record::{EndSource, Span};
use warpline_core::stream::ring::prefetch;

/// The shortest time in which a host thread can launch work. Between two points with a shorter distance there is no work.
const SHORTEST_LAUNCH_NS: i64 = 1_000;

/// If the time from the host's call for a begin to the begin on the device is longer than this, the begin was queued behind other work.
const QUEUED_NS: i64 = 20_000;

/// If a stream completes nothing for longer than this, it is queried for errors. Only `cuEventQuery` is guaranteed to return those of
/// pending work, and it makes launching threads wait.
const POLL_NS: i64 = 100_000_000;

/// The reader of one stream's zones.
pub(super) struct CudaReader {
    stream: Arc<CudaStream>,
    /// Begins in the order in which they were recorded, starting with the first that can still be the end of a zone.
    begins: VecDeque<PairId>,
    /// The position of the begin that ended the last zone. It avoids a second query when that begin's own zone is read.
    known: Option<KnownBegin>,
    /// The ends that events have timed.
    timed_ends: TimedEnds,
    look: Look,
    /// Whether markers are queried in this pass.
    asks: bool,
    /// The last time at which the stream had completed something, had nothing to complete, or was queried for errors.
    moved_ns: i64,
    /// Whether the next incomplete zone is queried for errors.
    polls: bool,
    /// The look that found complete zones without a following begin; these are read at the next look. `deferred_begin` is the begin of the
    /// first of them, if it is known.
    deferred: Option<Look>,
    deferred_begin: Option<KnownBegin>,
    /// Pairs of zones that were read in this pass, and begins at which no further zone can end.
    released: Vec<PairId>,
}

/// An observation of which zones of a stream are complete.
#[derive(Clone, Copy, Default)]
struct Look {
    /// When this look and the one before it began.
    began_ns: i64,
    last_ns: i64,
    /// How many of the oldest zones had markers that were also queried at the previous look and were not complete then.
    waited: usize,
    /// When completion had been determined, and the point count at the end of the newest complete zone.
    seen_ns: i64,
    upto: u64,
}

/// The time of a begin on the device, derived from the distance to the preceding begin.
#[derive(Clone, Copy)]
struct KnownBegin {
    pair: PairId,
    device_ns: i64,
    /// The same by the host's clock, once a zone has ended there.
    host_ns: Option<i64>,
    /// The number of distances that were added since a begin was last compared with the anchor.
    links: u32,
}

impl KnownBegin {
    /// Returns whether `device_ns` is the same time up to rounding of floats. Adjacent zones have the same time at their border.
    fn is_at(&self, device_ns: i64) -> bool {
        (self.device_ns - device_ns).abs() <= LOST_NS
    }
}

/// The most short distances that are added before a begin is compared with the anchor again. Each distance has an error of less than 1 ns.
const MOST_LINKS: u32 = 64;

/// The longest distance that is added. Longer ones have larger errors in the driver's 32-bit floats.
const LONGEST_LINK_NS: i64 = 8_000_000;

/// The number of pairs that are given back at once.
const RELEASED: usize = 64;

impl CudaReader {
    pub(super) fn new(stream: Arc<CudaStream>) -> CudaReader {
        CudaReader {
            stream,
            begins: VecDeque::new(),
            known: None,
            timed_ends: TimedEnds::default(),
            look: Look::default(),
            asks: true,
            moved_ns: 0,
            polls: false,
            deferred: None,
            deferred_begin: None,
            released: Vec::new(),
        }
    }

    /// Returns the position of a begin if it ended the last zone. The reader still owns that begin, so it has not been reused.
    fn known(&self, pair: PairId) -> Option<KnownBegin> {
        self.known.filter(|known| known.pair == pair && self.begins.front() == Some(&pair))
    }

    /// Returns the first begin that is certainly after a point. Discards the begins before it.
    fn next_begin(&mut self, after: u64) -> Option<PairId> {
        let pool = &self.stream.context.pool;
        while let Some(&id) = self.begins.front() {
            if pool.get(id).is_some_and(|next| next.before_begin.load(Ordering::Relaxed) > after) {
                return Some(id);
            }
            self.begins.pop_front();
            // The pair may have been reused when it is read again.
            self.known = self.known.filter(|known| known.pair != id);
            self.released.push(id);
        }
        None
    }

    /// Returns the first begin that is certainly after a point, and keeps the begins before it.
    fn first_begin_after(&self, after: u64) -> Option<&Pair> {
        let pool = &self.stream.context.pool;
        let order = |id: &PairId| pool.get(*id).map_or(0, |pair| pair.before_begin.load(Ordering::Relaxed));
        let at = self.begins.partition_point(|id| order(id) <= after);
        self.begins.get(at).and_then(|id| pool.get(*id))
    }

    /// Returns whether a lazy zone has ended: a later begin has executed, or the zone's marker is complete.
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

    /// Queries a zone that is incomplete, as far as the times of events show. Returns whether it is complete.
    #[cold]
    fn poll(&self, zone: &Pair, is_lazy: bool) -> Result<bool, CudaError> {
        let Context { driver, pool, .. } = &*self.stream.context;
        driver.is_complete(pool.end(zone, is_lazy)?)
    }

    fn let_begins_go(&mut self) {
        self.known = None;
        self.stream.context.pool.give_all(self.begins.drain(..));
    }

    /// Returns the end of a lazy zone in the device's time, how it was determined, and how much earlier it may have been.
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
        let seen_ns = clock.correlation().device_ns(look.seen_ns);
        let uncertainty_ns = clock.correlation().uncertainty_at(seen_ns);
        let observed_ns = seen_ns + uncertainty_ns;
        let mut earliest_ns = begin_ns;
        if look.waited > 0 {
            earliest_ns = earliest_ns.max(clock.correlation().device_ns(look.last_ns) - uncertainty_ns);
        }
        let context = &self.stream.context;
        // Nested zones that end at one point have the same end time.
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
                    // No work is between the two points, and the stream did not wait. The difference is only the cost of the points.
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
        // The previous look does not show the state of a zone whose marker was not queried.
        let waited = if self.asks { waiting } else { 0 };
        self.look = Look { began_ns: now_ns(), last_ns: self.look.began_ns, waited, ..Look::default() };
        self.asks = asks || !self.stream.context.driver.reads_beside_launches();
        if waiting == 0 {
            self.moved_ns = self.look.began_ns;
        }
        // By the look before, because this one may find something complete.
        self.polls |= self.look.last_ns - self.moved_ns >= POLL_NS;
        let pool = &self.stream.context.pool;
        let order = |id: PairId| pool.get(id).map_or(0, |pair| pair.before_begin.load(Ordering::Relaxed));
        let known = self.begins.len();
        let begins = &mut self.begins;
        pool.collect_from(&self.stream.begins, |id| begins.push_back(id));
        // Two threads on one stream can add begins in a different order from that in which they recorded them.
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
        let mut asked = if zone.is_lazy {
            self.is_past(pair)
        } else {
            pool.end(pair, false).and_then(|end| driver.has_passed(end))
        };
        if self.polls && asked == Ok(false) {
            asked = self.poll(pair, zone.is_lazy);
            (self.polls, self.moved_ns) = (false, self.look.began_ns);
        }
        if asked == Ok(true) {
            self.moved_ns = self.look.began_ns;
        }
        asked.map_err(|error| self.stream.context.failed(error))
    }

    fn drain(&mut self) {
        self.polls = true;
    }

    fn prefetch(&self, points: &EventPair) {
        if let Some(pair) = points.of_device().and_then(|zone| self.stream.pair(zone)) {
            prefetch(pair);
        }
    }

    fn release(&mut self, points: &mut EventPair) {
        match points.take_number() {
            Some(id) => self.released.push(PairId(id)),
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
        // An eager end is not counted, so the pair's count would be that of an earlier zone.
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
        let id = zone.id.map(PairId);
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
                // A thread may be about to record a begin there, which gives the end more accurately than this look.
                None if next.is_none() => {
                    self.deferred = Some(Look { upto: look.upto.max(after_end), ..look });
                    // The begin must be compared with the anchor then, because the pair may have been reused by the next look.
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
            // These begins are from before the ends became eager, and are no longer needed.
            self.let_begins_go();
            (begin_ns + length.max(0), EndSource::Event, 0)
        };
        self.look.waited = self.look.waited.saturating_sub(1);
        if let Some(deferred) = &mut self.deferred {
            deferred.waited = deferred.waited.saturating_sub(1);
        }
        if found == EndSource::Event {
            let neighbors = self.timed_ends.around(host);
            let on_device = neighbors.order(begin_ns, end_ns);
            // Both points are converted, so that what has one time on the device has one in the record. The length is then that of the host's
            // clock: it differs by the drift, which is less than one in a thousand.
            let placed = (clock.place(on_device.0), clock.place(on_device.1));
            let (begin_ns, end_ns) = neighbors.place(on_device, placed);
            self.timed_ends.add(on_device.1, end_ns, host);
            return Ok(Some(Reading::exact(Span { begin_ns, end_ns })));
        }
        let begin_host_ns = begin.host_ns.unwrap_or_else(|| clock.place(begin_ns));
        // A zone that ends at the next begin has that begin's time. This can lengthen it slightly, and `early_by_ns` includes that.
        let length_ns = end_ns - begin_ns;
        let placed_ns = match (found, &mut self.known) {
            (EndSource::Boundary, Some(known)) => *known.host_ns.get_or_insert_with(|| clock.place(end_ns)),
            _ => clock.place(end_ns),
        };
        let end_host_ns = placed_ns.max(begin_host_ns);
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
