//! The events of one CUDA context in one session: made in small steps, used again and again, bounded.
//!
//! An event has an owner count: a zone holds its begin, and so may the zone before it on the stream, whose end that begin
//! is. The last one to let go puts it back. Two stocks, with times and without, share one budget.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::driver::{ContextPtr, CudaError, Driver, EventPtr};
use crate::stream::ring::{Links, List, Take};

/// Events come into being in steps of this many, and in chunks of memory of as many.
const STEP: usize = 64;

/// The collector makes at most so many steps at a time, until so many events are free.
const STEPS: usize = 8;
const AHEAD: usize = 512;

/// An event by its place in its stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventId(u32);

/// One event, and what is known of where it was recorded last.
pub(super) struct Event {
    ptr: EventPtr,
    owners: AtomicU32,
    /// The stream's count of points before and after the call that recorded it: of two events whose counts do not
    /// overlap, the order on the stream is sure.
    pub(super) before: AtomicU64,
    pub(super) after: AtomicU64,
    /// The host's time before that call, and the thread that made it.
    pub(super) host_ns: AtomicI64,
    pub(super) thread: AtomicU64,
}

// SAFETY: the driver takes an event from any thread; everything else is atomic.
#[allow(unsafe_code)]
unsafe impl Send for Event {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Event {}

impl Event {
    pub(super) fn ptr(&self) -> EventPtr {
        self.ptr
    }
}

/// All events of one kind.
pub(super) struct Stock {
    timed: bool,
    links: Links,
    chunks: Box<[OnceLock<Box<[Event]>>]>,
    made: Mutex<usize>,
    given: AtomicU64,
}

/// Both stocks of a context.
pub(super) struct Pool {
    driver: &'static Driver,
    context: ContextPtr,
    context_id: u64,
    budget: usize,
    made: AtomicUsize,
    closed: AtomicBool,
    /// The context's handles must not be touched any more.
    gone: AtomicBool,
    pub(super) timed: Stock,
    pub(super) markers: Stock,
}

// SAFETY: the driver takes a context from any thread; everything else is `Send` and `Sync`.
#[allow(unsafe_code)]
unsafe impl Send for Pool {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Pool {}

impl Stock {
    fn new(timed: bool, budget: usize) -> Stock {
        Stock {
            timed,
            links: Links::new(budget),
            chunks: (0..budget.div_ceil(STEP)).map(|_| OnceLock::new()).collect(),
            made: Mutex::new(0),
            given: AtomicU64::new(0),
        }
    }

    /// The event of an id; none for an id of another stock.
    #[inline]
    pub(super) fn get(&self, EventId(index): EventId) -> Option<&Event> {
        self.chunks.get(index as usize / STEP)?.get()?.get(index as usize % STEP)
    }

    /// Hands an event, which its zone keeps too, to the collector.
    #[inline]
    pub(super) fn publish_to(&self, list: &List, id: EventId) {
        if let Some(event) = self.get(id) {
            event.owners.fetch_add(1, Ordering::Relaxed);
            self.links.publish_to(list, id.0);
        }
    }

    /// Takes everything out of a list, oldest first; whoever takes it owns it.
    pub(super) fn collect_from(&self, list: &List, mut each: impl FnMut(EventId)) {
        self.links.collect_from(list, |index| each(EventId(index)));
    }

    /// How many events are free, about.
    fn free(&self, made: usize) -> usize {
        made.saturating_sub(self.links.taken().saturating_sub(self.given.load(Ordering::Relaxed)) as usize)
    }
}

impl Pool {
    pub(super) fn new(driver: &'static Driver, context: ContextPtr, context_id: u64, budget: usize) -> Pool {
        Pool {
            driver,
            context,
            context_id,
            budget,
            made: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            timed: Stock::new(true, budget),
            markers: Stock::new(false, budget),
        }
    }

    /// An event that nobody uses; none when the budget is spent.
    ///
    /// # Errors
    /// None is free, and none could be made.
    #[inline]
    pub(super) fn take(&self, stock: &Stock) -> Result<Option<EventId>, CudaError> {
        loop {
            if let Take::Taken { index, .. } = stock.links.take() {
                let id = EventId(index);
                if let Some(event) = stock.get(id) {
                    event.owners.store(1, Ordering::Relaxed);
                }
                return Ok(Some(id));
            }
            if self.make(stock)? == 0 {
                return Ok(None);
            }
        }
    }

    /// One owner more of an event that has one.
    pub(super) fn hold(&self, stock: &Stock, id: EventId) {
        if let Some(event) = stock.get(id) {
            event.owners.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One owner fewer.
    #[inline]
    pub(super) fn give(&self, stock: &Stock, id: EventId) {
        let Some(event) = stock.get(id) else { return };
        if event.owners.fetch_sub(1, Ordering::AcqRel) == 1 {
            stock.given.fetch_add(1, Ordering::Relaxed);
            stock.links.give(id.0);
            if self.closed.load(Ordering::Acquire) {
                self.destroy_free();
            }
        }
    }

    /// Makes events ahead of need: a launching thread that has to make them itself waits for the driver.
    pub(super) fn provide(&self) {
        for stock in [&self.timed, &self.markers] {
            for _ in 0..STEPS {
                let made = *stock.made.lock().unwrap_or_else(PoisonError::into_inner);
                // A stock that nobody has asked for stays empty. A failure comes again, and is counted, when a zone asks.
                if made == 0 || stock.free(made) >= (made / 2).max(AHEAD) || self.make(stock).unwrap_or(0) == 0 {
                    break;
                }
            }
        }
    }

    /// Whether half of the budget is in use.
    pub(super) fn is_short(&self) -> bool {
        let in_use = |stock: &Stock| stock.links.taken().saturating_sub(stock.given.load(Ordering::Relaxed)) as usize;
        (in_use(&self.timed) + in_use(&self.markers)) * 2 > self.budget
    }

    /// Makes a step of events, as far as the budget goes, and says how many.
    #[cold]
    fn make(&self, stock: &Stock) -> Result<usize, CudaError> {
        let mut made = stock.made.lock().unwrap_or_else(PoisonError::into_inner);
        let room = self.budget.saturating_sub(self.made.load(Ordering::Relaxed)).min(stock.links.capacity() - *made);
        let wanted = room.min(STEP);
        // A context that was destroyed can still be made current, and breaks whoever makes an event in it.
        if wanted == 0 || self.closed.load(Ordering::Acquire) || !self.look() {
            return Ok(0);
        }
        let mut events: Vec<Event> = Vec::with_capacity(wanted);
        let outcome = self.driver.outside_captures(|| {
            self.driver.with_context(self.context, || {
                for _ in 0..wanted {
                    events.push(Event {
                        ptr: self.driver.create_event(stock.timed)?,
                        owners: AtomicU32::new(0),
                        before: AtomicU64::new(0),
                        after: AtomicU64::new(0),
                        host_ns: AtomicI64::new(0),
                        thread: AtomicU64::new(0),
                    });
                }
                Ok(())
            })
        });
        let short = events.len() < wanted;
        if short {
            // Chunks are whole but for the last one, which the budget cuts: what there is goes.
            for event in events.drain(..) {
                self.driver.destroy_event(event.ptr);
            }
        }
        outcome?;
        if short {
            return Ok(0);
        }
        let first = *made;
        if stock.chunks.get(first / STEP).is_some_and(|chunk| chunk.set(events.into()).is_ok()) {
            *made += wanted;
            self.made.fetch_add(wanted, Ordering::Relaxed);
            for index in first..first + wanted {
                stock.links.give(index as u32);
            }
        }
        Ok(wanted)
    }

    /// From now on no event is handed out, and those that are free are destroyed; the others when they come back.
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
        for stock in [&self.timed, &self.markers] {
            while let Take::Taken { index, .. } = stock.links.take() {
                if let Some(event) = stock.get(EventId(index)).filter(|_| !self.is_gone()) {
                    self.driver.destroy_event(event.ptr);
                }
            }
        }
    }
}
