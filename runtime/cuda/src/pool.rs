//! The events of one CUDA context in one session. They are created in small steps, reused, and limited in number.
//!
//! Events are in pairs, a begin with the end of its zone, so that a zone takes and gives back one item. A pair counts its owners. One owner
//! is its zone. Another may be the preceding zone on the stream, whose end is this begin. When the last owner releases the pair, it is free
//! again.

use std::num::NonZeroU32;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::driver::{ContextPtr, CudaError, Driver, EventPtr};
use warpline_core::stream::ring::{Links, List, Take, prefetch};

/// The number of pairs that are created at a time, and the size of a chunk of memory.
const STEP: usize = 32;

/// The collector creates up to `STEPS` steps at a time, until `AHEAD` pairs are free.
const STEPS: usize = 8;
const AHEAD: usize = 256;

/// The position of a pair in the pool, starting at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PairId(pub(super) NonZeroU32);

impl PairId {
    #[inline]
    fn at(index: u32) -> PairId {
        PairId(NonZeroU32::MIN.saturating_add(index))
    }

    /// Returns the position, starting at 0.
    #[inline]
    fn index(self) -> u32 {
        self.0.get() - 1
    }
}

/// A begin and an end, with data about their last recording. It occupies one cache line.
#[repr(align(64))]
pub(super) struct Pair {
    begin: EventPtr,
    /// The end with a time and the end without one. A pair has the one that its last zone needed; the other is null.
    ends: [AtomicPtr<std::ffi::c_void>; 2],
    owners: AtomicU32,
    /// The stream's point count before the call for the begin, and after the call for the end. If a begin has a greater count than an end,
    /// it is certainly after that end on the stream.
    pub(super) before_begin: AtomicU64,
    pub(super) after_end: AtomicU64,
    /// The host's time before the call for the begin, and the calling thread.
    pub(super) host_ns: AtomicI64,
    pub(super) thread: AtomicU64,
}

// SAFETY: the driver takes an event from any thread; everything else is atomic.
#[allow(unsafe_code)]
unsafe impl Send for Pair {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Pair {}

impl Pair {
    fn new(begin: EventPtr) -> Pair {
        Pair {
            begin,
            ends: [AtomicPtr::new(null_mut()), AtomicPtr::new(null_mut())],
            owners: AtomicU32::new(0),
            before_begin: AtomicU64::new(0),
            after_end: AtomicU64::new(0),
            host_ns: AtomicI64::new(0),
            thread: AtomicU64::new(0),
        }
    }

    pub(super) fn begin(&self) -> EventPtr {
        self.begin
    }

    fn events(&self) -> impl Iterator<Item = EventPtr> {
        let ends = self.ends.each_ref().map(|end| end.load(Ordering::Relaxed));
        [self.begin, ends[0], ends[1]].into_iter().filter(|event| !event.is_null())
    }
}

/// The pairs of a context.
pub(super) struct Pool {
    driver: &'static Driver,
    context: ContextPtr,
    context_id: u64,
    /// The maximum number of events.
    budget: usize,
    events: AtomicUsize,
    links: Links,
    chunks: Box<[OnceLock<Box<[Pair]>>]>,
    /// The number of chunks that a thread has created, or is about to put into their places.
    claimed: AtomicUsize,
    /// The number of pairs that exist.
    made: AtomicUsize,
    given: AtomicU64,
    closed: AtomicBool,
    /// Whether the context was destroyed, so that its handles must not be used.
    gone: AtomicBool,
}

// SAFETY: the driver takes a context from any thread; everything else is `Send` and `Sync`.
#[allow(unsafe_code)]
unsafe impl Send for Pool {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Pool {}

impl Pool {
    pub(super) fn new(driver: &'static Driver, context: ContextPtr, context_id: u64, budget: usize) -> Pool {
        let pairs = (budget / 2).max(1);
        Pool {
            driver,
            context,
            context_id,
            budget,
            events: AtomicUsize::new(0),
            links: Links::new(pairs),
            chunks: (0..pairs.div_ceil(STEP)).map(|_| OnceLock::new()).collect(),
            claimed: AtomicUsize::new(0),
            made: AtomicUsize::new(0),
            given: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        }
    }

    /// Returns the pair of an id; none for an id of another pool.
    #[inline]
    pub(super) fn get(&self, id: PairId) -> Option<&Pair> {
        let index = id.index() as usize;
        self.chunks.get(index / STEP)?.get()?.get(index % STEP)
    }

    /// Takes a free pair for a zone with a lazy or an eager end; none if the budget is spent.
    ///
    /// # Errors
    /// No pair is free, and none could be created.
    #[inline]
    pub(super) fn take(&self, lazy: bool) -> Result<Option<PairId>, CudaError> {
        loop {
            if let Take::Taken { index, next, .. } = self.links.take() {
                let id = PairId::at(index);
                if let Some(next) = self.get(PairId::at(next)) {
                    prefetch(next);
                }
                if let Some(pair) = self.get(id) {
                    pair.owners.store(1, Ordering::Relaxed);
                }
                return Ok(Some(id));
            }
            if self.make(lazy)? == 0 {
                return Ok(None);
            }
        }
    }

    /// Returns the event that ends the zone of a pair.
    #[inline]
    pub(super) fn end(&self, pair: &Pair, lazy: bool) -> Result<EventPtr, CudaError> {
        let end = pair.ends[usize::from(lazy)].load(Ordering::Acquire);
        if end.is_null() { self.make_end(pair, lazy) } else { Ok(end) }
    }

    /// Creates the end of a pair whose last zone had the other kind of end, in place of that end: a pair never has more than two events.
    /// Only the thread that ends the pair's zone calls this, so nothing uses the other end any more.
    #[cold]
    fn make_end(&self, pair: &Pair, lazy: bool) -> Result<EventPtr, CudaError> {
        let other = pair.ends[usize::from(!lazy)].swap(null_mut(), Ordering::AcqRel);
        if !other.is_null() {
            self.driver.destroy_event(other);
            self.events.fetch_sub(1, Ordering::Relaxed);
        }
        let end = self.in_context(|| self.driver.create_event(!lazy))?;
        self.events.fetch_add(1, Ordering::Relaxed);
        pair.ends[usize::from(lazy)].store(end, Ordering::Release);
        Ok(end)
    }

    /// Adds a pair to a list for the collector. The pair's zone remains an owner.
    #[inline]
    pub(super) fn publish_to(&self, list: &List, id: PairId) {
        self.hold(id);
        self.links.publish_to(list, id.index());
    }

    /// Takes all pairs from a list, oldest first. The caller becomes their owner.
    pub(super) fn collect_from(&self, list: &List, mut each: impl FnMut(PairId)) {
        self.links.collect_from(list, |index| each(PairId::at(index)));
    }

    /// Adds an owner to a pair that has at least one.
    #[inline]
    pub(super) fn hold(&self, id: PairId) {
        if let Some(pair) = self.get(id) {
            pair.owners.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes an owner.
    #[inline]
    pub(super) fn give(&self, id: PairId) {
        self.give_all([id]);
    }

    /// Removes an owner from each pair. Pairs without owners become free, in groups of up to 64, with one write per group to the word from
    /// which launching threads take pairs.
    pub(super) fn give_all(&self, ids: impl IntoIterator<Item = PairId>) {
        let (mut free, mut count) = ([0; 64], 0);
        for id in ids {
            let Some(pair) = self.get(id) else { continue };
            if pair.owners.fetch_sub(1, Ordering::AcqRel) != 1 {
                continue;
            }
            if count == free.len() {
                self.give_free(&free);
                count = 0;
            }
            free[count] = id.index();
            count += 1;
        }
        self.give_free(&free[..count]);
    }

    fn give_free(&self, free: &[u32]) {
        if free.is_empty() {
            return;
        }
        self.given.fetch_add(free.len() as u64, Ordering::Relaxed);
        self.links.give_all(free);
        if self.closed.load(Ordering::Acquire) {
            self.destroy_free();
        }
    }

    fn in_use(&self) -> usize {
        self.links.taken().saturating_sub(self.given.load(Ordering::Relaxed)) as usize
    }

    /// Creates pairs in advance. A launching thread that creates them itself waits for the driver.
    pub(super) fn provide(&self, lazy: bool) {
        for _ in 0..STEPS {
            let made = self.made.load(Ordering::Relaxed);
            let free = made.saturating_sub(self.in_use());
            // A failure recurs, and is counted, when a zone takes a pair.
            if made == 0 || free >= (made / 2).max(AHEAD) || self.make(lazy).unwrap_or(0) == 0 {
                break;
            }
        }
    }

    /// Creates one step of pairs, limited by the budget, and returns their number.
    ///
    /// It takes no lock, because a launching thread would wait for the driver's calls of the collector. Threads that create pairs at one time
    /// each add a step.
    #[cold]
    fn make(&self, lazy: bool) -> Result<usize, CudaError> {
        if self.claimed.load(Ordering::Relaxed) >= self.chunks.len()
            || self.closed.load(Ordering::Acquire)
            || self.is_gone()
        {
            return Ok(0);
        }
        let wanted = self.reserve();
        if wanted == 0 {
            return Ok(0);
        }
        let mut pairs: Vec<Pair> = Vec::with_capacity(STEP);
        let outcome = self.in_context(|| {
            for _ in 0..wanted {
                pairs.push(Pair::new(self.driver.create_event(true)?));
                let end = self.driver.create_event(!lazy)?;
                if let Some(pair) = pairs.last() {
                    pair.ends[usize::from(lazy)].store(end, Ordering::Relaxed);
                }
            }
            Ok(())
        });
        if let Err(error) = outcome {
            // A chunk is added completely or not at all.
            self.give_up(wanted, pairs);
            return Err(error);
        }
        // The budget may have shortened the chunk. It is not filled later.
        let claim = |claimed| (claimed < self.chunks.len()).then_some(claimed + 1);
        let Ok(place) = self.claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim) else {
            self.give_up(wanted, pairs);
            return Ok(0);
        };
        let first = place * STEP;
        let surplus = pairs.split_off(wanted.min(self.links.capacity() - first));
        self.give_up(surplus.len(), surplus);
        let added = pairs.len();
        // Only the thread that claimed the place fills it. The pairs are given below, which releases it.
        let _ = self.chunks[place].set(pairs.into());
        self.made.fetch_add(added, Ordering::Relaxed);
        (first..first + added).for_each(|index| self.links.give(index as u32));
        if self.closed.load(Ordering::Acquire) {
            self.destroy_free();
        }
        Ok(added)
    }

    /// Takes the events of up to one step of pairs from the budget. Returns the number of pairs.
    fn reserve(&self) -> usize {
        let pairs = |events: usize| (self.budget.saturating_sub(events) / 2).min(STEP);
        let reserve = |events| Some(pairs(events)).filter(|pairs| *pairs > 0).map(|pairs| events + 2 * pairs);
        self.events.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve).map_or(0, pairs)
    }

    /// Destroys the events of pairs that are not added, and gives back what was reserved for so many.
    fn give_up(&self, reserved: usize, pairs: Vec<Pair>) {
        pairs.iter().flat_map(Pair::events).for_each(|event| self.driver.destroy_event(event));
        self.events.fetch_sub(2 * reserved, Ordering::Relaxed);
    }

    /// Calls `work` with the context current, and without breaking captures.
    ///
    /// # Errors
    /// The context was destroyed. The driver would still make it current, and then corrupt memory.
    pub(super) fn in_context<T>(&self, work: impl FnOnce() -> Result<T, CudaError>) -> Result<T, CudaError> {
        if !self.check_alive() {
            return Err(CudaError::CONTEXT_IS_GONE);
        }
        self.driver.outside_captures(|| self.driver.with_context(self.context, work))
    }

    /// Closes the pool: no more pairs are taken. Free pairs are destroyed now, and others when they are given back.
    pub(super) fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.destroy_free();
        }
    }

    /// Notes that the context was destroyed, and its events with it.
    pub(super) fn abandon(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Checks with the driver whether the context still exists.
    pub(super) fn check_alive(&self) -> bool {
        if self.driver.context_id(self.context) != Ok(self.context_id) {
            self.abandon();
        }
        !self.is_gone()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    fn destroy_free(&self) {
        // A destroyed context destroys its events, and their handles may have been reused.
        self.check_alive();
        while let Take::Taken { index, .. } = self.links.take() {
            if let Some(pair) = self.get(PairId::at(index)).filter(|_| !self.is_gone()) {
                pair.events().for_each(|event| self.driver.destroy_event(event));
            }
        }
    }
}
