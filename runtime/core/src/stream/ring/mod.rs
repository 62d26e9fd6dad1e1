//! The bounded ring of zones that wait for their events.
//!
//! A zone takes a slot when it begins and publishes it when it ends, and the collector gives it back when the zone is recorded. Slots are
//! reused in no fixed order: a zone that stays open for a whole run holds one slot and blocks no other. Any number of threads take and
//! publish slots, and one collector takes the published slots in order. No thread waits: if no slot is free, the newest zone is not
//! recorded.
//!
//! [`Links`] is the lock-free part and is checked by loom. [`Ring`] adds the storage of the slots and gives access to them through tokens:
//! only the holder of its token may access a slot.

use std::cell::UnsafeCell;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use crate::reentrancy::Inside;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The most slots a ring can have.
pub const MAX_CAPACITY: usize = (1 << INDEX_BITS) - 1;

/// The number of slots that are created at a time. A program may create many streams with one or two zones each, and the first chunk is
/// most of the memory of such a stream.
const CHUNK: usize = 16;

const INDEX_BITS: u32 = 20;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
const CLOSED: u64 = 1 << 63;
const ONE_TAKEN: u64 = 1 << INDEX_BITS;
/// The count of taken slots in the word. It goes round: `Links::base` says how often.
const COUNT_BITS: u32 = 63 - INDEX_BITS;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
/// The base moves on when the count is so far from it. It has to be looked at before the count has gone round.
const BASE_STEP: u64 = 1 << (COUNT_BITS - 2);
/// No slot: the end of a list.
const NONE: u32 = INDEX_MASK as u32;

/// The result of taking a slot.
#[derive(Debug, PartialEq, Eq)]
pub enum Take {
    /// A slot, the number of slots that were taken before, and the slot that comes next.
    Taken { index: u32, sequence: u64, next: u32 },
    /// Every slot is in use.
    Empty,
    /// The session is over.
    Closed,
}

/// Two lists over the same links: the free slots and the published ones.
///
/// `free` holds in one word the first free slot, the number of slots taken so far, and whether the ring is closed. The count makes every
/// take unique, which prevents the ABA problem, and it makes the counts exact: after `close`, no further zone begins.
///
/// What is ordered by what: `take` acquires what the `give` before it released, the collector's clearing of the slot; `collect` acquires what
/// `publish` released, the zone's writes; `is_closed` acquires what `close` released. A link is written only by the holder of its slot, before
/// the release that hands the slot over. The switch needs no order of its own for that: a zone that reads it too early finds a closed ring or
/// none.
pub struct Links {
    next: Box<[AtomicU32]>,
    /// A number of taken slots that the word's count has reached. It is written so rarely that reading it costs nothing.
    base: AtomicU64,
    heads: Line<Heads>,
}

/// Launching threads write both heads with every zone.
struct Heads {
    free: AtomicU64,
    published: List,
}

/// A value on cache lines of its own. It prevents false sharing between what launching threads write with every zone and what the collector
/// reads.
#[repr(align(64))]
pub struct Line<T>(pub T);

impl<T> Deref for Line<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// The head of a list of published slots.
pub struct List(AtomicU32);

impl List {
    pub fn new() -> List {
        List(AtomicU32::new(NONE))
    }
}

impl Links {
    pub fn new(capacity: usize) -> Links {
        Links {
            next: (0..capacity.min(MAX_CAPACITY)).map(|_| AtomicU32::new(NONE)).collect(),
            base: AtomicU64::new(0),
            heads: Line(Heads { free: AtomicU64::new(u64::from(NONE)), published: List::new() }),
        }
    }

    /// Returns the greatest possible number of slots.
    pub fn capacity(&self) -> usize {
        self.next.len()
    }

    /// Takes a free slot.
    #[inline]
    pub fn take(&self) -> Take {
        let base = self.base.load(Ordering::Acquire);
        let mut free = self.heads.free.load(Ordering::Acquire);
        loop {
            if free & CLOSED != 0 {
                return Take::Closed;
            }
            let index = (free & INDEX_MASK) as u32;
            if index == NONE {
                return Take::Empty;
            }
            let next = u64::from(self.next[index as usize].load(Ordering::Relaxed));
            // The count goes round below the flag.
            let taken = (((free & !INDEX_MASK) + ONE_TAKEN) & !CLOSED) | next;
            match self.heads.free.compare_exchange_weak(free, taken, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let next = next as u32;
                    if let Some(link) = self.next.get(next as usize) {
                        prefetch(link);
                    }
                    return Take::Taken { index, sequence: self.whole_count(base, free), next };
                }
                Err(now) => free = now,
            }
        }
    }

    /// Gives a slot back. The index `NONE` is ignored.
    pub fn give(&self, index: u32) {
        if index != NONE {
            self.give_all(&[index]);
        }
    }

    /// Gives several slots back at once.
    pub fn give_all(&self, indices: &[u32]) {
        let (Some(first), Some(last)) = (indices.first(), indices.last()) else { return };
        for pair in indices.windows(2) {
            self.next[pair[0] as usize].store(pair[1], Ordering::Relaxed);
        }
        let Some(link) = self.next.get(*last as usize) else { return };
        let mut free = self.heads.free.load(Ordering::Relaxed);
        loop {
            link.store((free & INDEX_MASK) as u32, Ordering::Relaxed);
            let given = (free & !INDEX_MASK) | u64::from(*first);
            match self.heads.free.compare_exchange_weak(free, given, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => free = now,
            }
        }
    }

    /// Passes a slot to the collector.
    #[inline]
    pub(crate) fn publish(&self, index: u32) {
        self.publish_to(&self.heads.published, index);
    }

    /// Takes all published slots, oldest first. Only one thread may call this.
    pub(crate) fn collect(&self, each: impl FnMut(u32)) {
        self.collect_from(&self.heads.published, each);
    }

    /// Publishes a slot to another list over the same links.
    #[inline]
    pub fn publish_to(&self, List(list): &List, index: u32) {
        let Some(link) = self.next.get(index as usize) else { return };
        let mut first = list.load(Ordering::Relaxed);
        loop {
            link.store(first, Ordering::Relaxed);
            match list.compare_exchange_weak(first, index, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Takes all slots of another list over the same links, oldest first.
    pub fn collect_from(&self, List(list): &List, mut each: impl FnMut(u32)) {
        let mut index = list.swap(NONE, Ordering::Acquire);
        let mut oldest = NONE;
        while index != NONE {
            let next = self.next[index as usize].load(Ordering::Relaxed);
            self.next[index as usize].store(oldest, Ordering::Relaxed);
            oldest = index;
            index = next;
        }
        while oldest != NONE {
            let next = self.next[oldest as usize].load(Ordering::Relaxed);
            each(oldest);
            oldest = next;
        }
    }

    /// Returns the number of slots taken so far.
    pub fn taken(&self) -> u64 {
        let base = self.base.load(Ordering::Acquire);
        self.whole_count(base, self.heads.free.load(Ordering::Acquire))
    }

    /// Returns the number of slots taken as of this word. `base` was loaded before the word, so the count had reached it.
    #[inline]
    fn whole_count(&self, base: u64, word: u64) -> u64 {
        let further = (word >> INDEX_BITS).wrapping_sub(base) & COUNT_MASK;
        let count = base + further;
        if further >= BASE_STEP {
            self.move_base(count);
        }
        count
    }

    #[cold]
    fn move_base(&self, count: u64) {
        self.base.fetch_max(count, Ordering::AcqRel);
    }

    /// Closes the ring, so that no more zones begin. Returns how many have begun.
    pub(crate) fn close(&self) -> u64 {
        let base = self.base.load(Ordering::Acquire);
        self.whole_count(base, self.heads.free.fetch_or(CLOSED, Ordering::AcqRel))
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        // Acquire makes visible what was written before the ring was closed.
        self.heads.free.load(Ordering::Acquire) & CLOSED != 0
    }
}

/// Prefetches the first two cache lines of a value, on processors that support it. The collector accessed them last, on another core. The
/// prefetch completes before the next zone needs them.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let place = std::ptr::from_ref(place).cast::<i8>();
        // SAFETY: a prefetch reads nothing and faults on no address.
        #[allow(unsafe_code)]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(place);
            if size_of::<T>() > 64 {
                _mm_prefetch::<_MM_HINT_T0>(place.wrapping_add(64));
            }
        }
    }
    let _ = place;
}

type Chunk<T> = Box<[UnsafeCell<T>]>;

/// The links and the slots themselves.
pub struct Ring<T> {
    links: Links,
    chunks: Box<[OnceLock<Chunk<T>>]>,
    capacity: usize,
    /// Tells the tokens of this ring from those of others.
    id: u32,
    /// The number of chunks that a thread has created, or is about to put into their places.
    claimed: AtomicUsize,
    /// The number of slots that exist.
    grown: AtomicUsize,
}

// SAFETY: a slot is only reached through its token; `Links` hands an index to one holder at a time, with release and
// acquire between holders, so slots move between threads but are never shared.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Ring<T> {}

/// Exclusive access to one slot, until the slot is given back or published.
///
/// Only a ring makes tokens, one at a time for each of its slots, and takes only its own.
#[derive(Debug)]
#[must_use = "a token that is dropped loses its slot: give it back or publish it"]
pub struct Token(
    /// The number of the ring in the upper half, and the index of the slot in the lower half. They are one word because a processor stalls when
    /// it loads a word that was stored in two parts.
    u64,
);

impl Token {
    #[inline]
    fn new(ring: u32, index: u32) -> Token {
        Token(u64::from(ring) << 32 | u64::from(index))
    }

    #[inline]
    fn index(&self) -> u32 {
        self.0 as u32
    }

    #[inline]
    fn ring(&self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Moves the access out. What remains is a token of no slot.
    #[inline]
    pub(crate) fn take(&mut self) -> Token {
        let none = Token::new(self.ring(), NONE);
        std::mem::replace(self, none)
    }
}

/// Returns an id that no other ring of the process has; none when there have been 2³² rings.
fn new_id() -> Option<u32> {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| id.checked_add(1)).ok()
}

/// The result of taking a slot, with its token.
pub(crate) enum Taken {
    Slot { token: Token, sequence: u64 },
    Full,
    Closed,
}

impl<T: Send> Ring<T> {
    /// Creates a ring of at most `capacity` slots. It has no slots yet.
    pub(crate) fn new(capacity: usize) -> Ring<T> {
        let id = new_id();
        // Without an id there is no slot, and each zone is counted as one that has none.
        let capacity = id.map_or(0, |_| capacity.clamp(1, MAX_CAPACITY));
        Ring {
            links: Links::new(capacity),
            chunks: (0..capacity.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            capacity,
            id: id.unwrap_or(u32::MAX),
            claimed: AtomicUsize::new(0),
            grown: AtomicUsize::new(0),
        }
    }

    /// Takes a free slot; `make` creates slots if the ring has not reached its capacity.
    #[inline]
    pub(crate) fn take<E>(&self, make: impl FnMut() -> Result<T, E>) -> Result<Taken, E> {
        match self.links.take() {
            Take::Taken { index, sequence, next } => {
                if let Some(slot) = self.cell(next) {
                    prefetch(slot);
                }
                Ok(Taken::Slot { token: self.token(index), sequence })
            }
            Take::Closed => Ok(Taken::Closed),
            Take::Empty => self.grow_and_take(make),
        }
    }

    #[cold]
    fn grow_and_take<E>(&self, mut make: impl FnMut() -> Result<T, E>) -> Result<Taken, E> {
        loop {
            let grew = self.grow(&mut make)?;
            match self.links.take() {
                Take::Taken { index, sequence, .. } => return Ok(Taken::Slot { token: self.token(index), sequence }),
                Take::Closed => return Ok(Taken::Closed),
                Take::Empty if grew == 0 => return Ok(Taken::Full),
                Take::Empty => {}
            }
        }
    }

    /// Adds a chunk of slots if the capacity allows, and returns their number.
    ///
    /// It takes no lock, because `make` may call a driver: a launching thread would wait for the collector. Threads that grow the ring at one
    /// time each add a chunk.
    ///
    /// # Errors
    /// The first error of `make`. Then no slot is added.
    pub(crate) fn grow<E>(&self, mut make: impl FnMut() -> Result<T, E>) -> Result<usize, E> {
        if self.claimed.load(Ordering::Relaxed) >= self.chunks.len() {
            return Ok(0);
        }
        let _inside = Inside::enter();
        let wanted = CHUNK.min(self.capacity);
        let mut chunk = (0..wanted).map(|_| make().map(UnsafeCell::new)).collect::<Result<Vec<_>, E>>()?;
        // The chunk is created before its place is claimed, so that an error leaves no gap.
        let claim = |claimed| (claimed < self.chunks.len()).then_some(claimed + 1);
        let Ok(place) = self.claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim) else { return Ok(0) };
        let first = place * CHUNK;
        chunk.truncate(self.capacity - first);
        let added = chunk.len();
        // Only the thread that claimed the place fills it. The slots are given below, which releases it.
        let _ = self.chunks[place].set(chunk.into_boxed_slice());
        self.grown.fetch_add(added, Ordering::Relaxed);
        (first..first + added).for_each(|index| self.links.give(index as u32));
        Ok(added)
    }

    /// Returns the number of slots that exist.
    pub(crate) fn grown(&self) -> usize {
        self.grown.load(Ordering::Relaxed)
    }

    #[inline]
    fn token(&self, index: u32) -> Token {
        Token::new(self.id, index)
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    fn cell(&self, index: u32) -> Option<&UnsafeCell<T>> {
        let index = index as usize;
        self.chunks.get(index / CHUNK)?.get()?.get(index % CHUNK)
    }

    /// Returns the cell of a token; none for a token of another ring, and for one of no slot.
    #[inline]
    fn cell_of(&self, token: &Token) -> Option<&UnsafeCell<T>> {
        if token.ring() == self.id { self.cell(token.index()) } else { None }
    }

    /// Returns the index of a token that is given up; that of no slot for a token of another ring.
    #[inline]
    fn index_of(&self, token: &Token) -> u32 {
        if token.ring() == self.id { token.index() } else { NONE }
    }

    /// Returns the slot of a token.
    #[inline]
    pub fn slot<'a>(&'a self, token: &'a mut Token) -> Option<&'a mut T> {
        if token.ring() != self.id {
            return None;
        }
        // SAFETY: the token is of this ring.
        #[allow(unsafe_code)]
        unsafe {
            self.own_slot(token)
        }
    }

    /// Returns the slot of a token, for a caller that keeps it beside its ring.
    ///
    /// # Safety
    /// The token is of this ring.
    #[inline]
    #[allow(unsafe_code)]
    pub(crate) unsafe fn own_slot<'a>(&'a self, token: &'a mut Token) -> Option<&'a mut T> {
        if token.index() == NONE {
            return None;
        }
        let index = token.index() as usize;
        // SAFETY: the token of a slot is made when the slot exists. It is borrowed mutably, and is the only one of its slot (see `Sync` above).
        unsafe {
            let chunk = self.chunks.get_unchecked(index / CHUNK).get()?;
            Some(&mut *chunk.get_unchecked(index % CHUNK).get())
        }
    }

    /// Returns the slot of a token for reading.
    #[inline]
    pub fn peek<'a>(&'a self, token: &'a Token) -> Option<&'a T>
    where
        T: Sync,
    {
        let cell = self.cell_of(token)?;
        // SAFETY: the token is of this ring and the only one of its slot (see `Sync` above), and a mutable borrow of the slot needs one of the token.
        #[allow(unsafe_code)]
        unsafe {
            Some(&*cell.get())
        }
    }

    /// Prefetches a slot that will be read soon and that another core wrote.
    #[inline]
    pub fn prefetch(&self, token: &Token) {
        if let Some(cell) = self.cell_of(token) {
            prefetch(cell);
        }
    }

    /// Passes a slot to the collector.
    #[inline]
    pub(crate) fn publish(&self, token: Token) {
        self.links.publish(self.index_of(&token));
    }

    /// Gives a slot back.
    pub(crate) fn give(&self, token: Token) {
        self.links.give(self.index_of(&token));
    }

    /// Gives slots back in groups of up to 64, with one write per group to the word from which launching threads take slots.
    pub(crate) fn give_all(&self, tokens: impl IntoIterator<Item = Token>) {
        let (mut indices, mut count) = ([NONE; 64], 0);
        for index in tokens.into_iter().map(|token| self.index_of(&token)).filter(|index| *index != NONE) {
            if count == indices.len() {
                self.links.give_all(&indices);
                count = 0;
            }
            indices[count] = index;
            count += 1;
        }
        self.links.give_all(&indices[..count]);
    }

    /// Takes all published slots, oldest first. Only the collector may call this.
    pub fn collect(&self, mut each: impl FnMut(Token)) {
        self.links.collect(|index| each(self.token(index)));
    }

    /// Returns the number of slots taken so far.
    pub fn taken(&self) -> u64 {
        self.links.taken()
    }

    /// Closes the ring, so that no more zones begin. Returns how many have begun.
    pub(crate) fn close(&self) -> u64 {
        self.links.close()
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.links.is_closed()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
