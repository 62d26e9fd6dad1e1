//! The events of one CUDA context in one session: made in small steps, used again and again, bounded.
//!
//! They come in pairs, a begin with what ends its zone, so that a zone takes and gives back one thing. A pair counts its
//! owners: its zone is one, and so may be the zone before it on the stream, whose end that begin is. The last one to let
//! go puts it back.

use std::num::NonZeroU32;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::driver::{ContextPtr, CudaError, Driver, EventPtr};
use warpline_core::stream::ring::{Links, List, Take, prefetch};

/// Pairs come into being in steps of this many, and in chunks of memory of as many.
const STEP: usize = 32;

/// The collector makes at most so many steps at a time, until so many pairs are free.
const STEPS: usize = 8;
const AHEAD: usize = 256;

/// A pair by its place in the pool, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PairId(NonZeroU32);

impl PairId {
    #[inline]
    fn at(index: u32) -> PairId {
        PairId(NonZeroU32::MIN.saturating_add(index))
    }

    /// The place, counted from 0.
    #[inline]
    fn index(self) -> u32 {
        self.0.get() - 1
    }
}

impl From<NonZeroU32> for PairId {
    #[inline]
    fn from(number: NonZeroU32) -> PairId {
        PairId(number)
    }
}

impl From<PairId> for NonZeroU32 {
    #[inline]
    fn from(PairId(number): PairId) -> NonZeroU32 {
        number
    }
}

/// A begin and an end, and what is known of where they were recorded last. One cache line.
#[repr(align(64))]
pub(super) struct Pair {
    begin: EventPtr,
    /// The end with a time and the end without one; null until a zone needs it.
    ends: [AtomicPtr<std::ffi::c_void>; 2],
    owners: AtomicU32,
    /// The stream's count of points before the begin's call, and after the end's: of a begin that counted more than an end,
    /// it is sure that it is behind it on the stream.
    pub(super) before_begin: AtomicU64,
    pub(super) after_end: AtomicU64,
    /// The host's time before the begin's call, and the thread that made it.
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
    /// In events.
    budget: usize,
    events: AtomicUsize,
    links: Links,
    chunks: Box<[OnceLock<Box<[Pair]>>]>,
    /// How many pairs there are.
    made: Mutex<usize>,
    given: AtomicU64,
    /// For how many pairs and which ends [`complete`](Self::complete) has been called.
    completed: AtomicUsize,
    closed: AtomicBool,
    /// The context's handles must not be touched any more.
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
            made: Mutex::new(0),
            given: AtomicU64::new(0),
            completed: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        }
    }

    /// The pair of an id; none for an id of another pool.
    #[inline]
    pub(super) fn get(&self, id: PairId) -> Option<&Pair> {
        let index = id.index() as usize;
        self.chunks.get(index / STEP)?.get()?.get(index % STEP)
    }

    /// A pair that nobody uses, for a zone with a lazy end or an eager one; none when the budget is spent.
    ///
    /// # Errors
    /// None is free, and none could be made.
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

    /// What ends the zone of a pair.
    #[inline]
    pub(super) fn end(&self, pair: &Pair, lazy: bool) -> Result<EventPtr, CudaError> {
        let end = pair.ends[usize::from(lazy)].load(Ordering::Acquire);
        if end.is_null() { self.make_end(pair, lazy) } else { Ok(end) }
    }

    /// A pair was made for zones of the other kind.
    #[cold]
    fn make_end(&self, pair: &Pair, lazy: bool) -> Result<EventPtr, CudaError> {
        let end = self.in_context(|| self.driver.create_event(!lazy))?;
        let place = &pair.ends[usize::from(lazy)];
        match place.compare_exchange(null_mut(), end, Ordering::Release, Ordering::Acquire) {
            Ok(_) => {
                self.events.fetch_add(1, Ordering::Relaxed);
                Ok(end)
            }
            Err(others) => {
                self.driver.destroy_event(end);
                Ok(others)
            }
        }
    }

    /// Hands a pair, which its zone keeps too, to the collector.
    #[inline]
    pub(super) fn publish_to(&self, list: &List, id: PairId) {
        self.hold(id);
        self.links.publish_to(list, id.index());
    }

    /// Takes everything out of a list, oldest first; whoever takes it owns it.
    pub(super) fn collect_from(&self, list: &List, mut each: impl FnMut(PairId)) {
        self.links.collect_from(list, |index| each(PairId::at(index)));
    }

    /// One owner more of a pair that has one.
    #[inline]
    pub(super) fn hold(&self, id: PairId) {
        if let Some(pair) = self.get(id) {
            pair.owners.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One owner fewer.
    #[inline]
    pub(super) fn give(&self, id: PairId) {
        self.give_all([id]);
    }

    /// One owner fewer of each. Of those without an owner, up to 64 become free with one change of the word that launching threads take
    /// pairs from.
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

    /// Gives every pair the end that zones need from now on, so that no launching thread has to make it.
    pub(super) fn complete(&self, lazy: bool) {
        let made = *self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let now = made << 1 | usize::from(lazy);
        if self.is_gone() || self.completed.swap(now, Ordering::Relaxed) == now {
            return;
        }
        for pair in self.chunks.iter().filter_map(OnceLock::get).flatten() {
            // A failure comes again, and is counted, when a zone needs the end.
            if self.end(pair, lazy).is_err() {
                return;
            }
        }
    }

    fn in_use(&self) -> usize {
        self.links.taken().saturating_sub(self.given.load(Ordering::Relaxed)) as usize
    }

    /// Makes pairs ahead of need: a launching thread that has to make them itself waits for the driver.
    pub(super) fn provide(&self, lazy: bool) {
        self.complete(lazy);
        for _ in 0..STEPS {
            let made = *self.made.lock().unwrap_or_else(PoisonError::into_inner);
            let free = made.saturating_sub(self.in_use());
            // A failure comes again, and is counted, when a zone asks.
            if made == 0 || free >= (made / 2).max(AHEAD) || self.make(lazy).unwrap_or(0) == 0 {
                break;
            }
        }
    }

    /// Makes a step of pairs, as far as the budget goes, and says how many.
    #[cold]
    fn make(&self, lazy: bool) -> Result<usize, CudaError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let room = self.budget.saturating_sub(self.events.load(Ordering::Relaxed)) / 2;
        let wanted = room.min(self.links.capacity() - *made).min(STEP);
        if wanted == 0 || self.closed.load(Ordering::Acquire) || self.is_gone() {
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
            // A chunk is whole or not there.
            pairs.iter().flat_map(Pair::events).for_each(|event| self.driver.destroy_event(event));
            return Err(error);
        }
        // The last chunk may be cut short by the budget: it stays so.
        let first = made.next_multiple_of(STEP);
        if self.chunks.get(first / STEP).is_some_and(|chunk| chunk.set(pairs.into()).is_ok()) {
            *made = first + wanted;
            self.events.fetch_add(2 * wanted, Ordering::Relaxed);
            for index in first..first + wanted {
                self.links.give(index as u32);
            }
        }
        Ok(wanted)
    }

    /// Calls `work` with the context current, so that it breaks no capture.
    ///
    /// # Errors
    /// The context was destroyed. The driver would make it current all the same, and corrupt memory then.
    pub(super) fn in_context<T>(&self, work: impl FnOnce() -> Result<T, CudaError>) -> Result<T, CudaError> {
        if !self.look() {
            return Err(CudaError::CONTEXT_IS_GONE);
        }
        self.driver.outside_captures(|| self.driver.with_context(self.context, work))
    }

    /// From now on no pair is handed out, and those that are free are destroyed; the others when they come back.
    pub(super) fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.destroy_free();
        }
    }

    /// The context is gone: its events are gone with it.
    pub(super) fn abandon(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Asks the driver whether the context still is what it was.
    pub(super) fn look(&self) -> bool {
        if self.driver.context_id(self.context) != Ok(self.context_id) {
            self.abandon();
        }
        !self.is_gone()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    fn destroy_free(&self) {
        // A context that was destroyed took its events with it: their handles may be anybody's by now.
        self.look();
        while let Take::Taken { index, .. } = self.links.take() {
            if let Some(pair) = self.get(PairId::at(index)).filter(|_| !self.is_gone()) {
                pair.events().for_each(|event| self.driver.destroy_event(event));
            }
        }
    }
}
