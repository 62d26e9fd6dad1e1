//! One context a stream and session: its ring, its backend and its counts.
//!
//! Zones take their slots here and the collector reads them; the recorder (`recorder.rs`) finds the context of a stream.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::drain_barrier::{DrainBarrier, DrainBarriers};
use super::ring::{Ring, Taken, Token};
use super::slot::{Lost, Slot};
use super::snapshot::OpenZoneSnapshot;
use super::wait_stats::WaitStats;
use super::waker::Waker;
use crate::backend::{Backend, BackendError, StreamKey};
use crate::fork::Home;
use crate::lock::lock;
use crate::record::StreamInfo;
use crate::report::Dropped;
use crate::report::counts::WaitCounts;
use crate::switch;

/// One stream in one session.
pub struct StreamContext {
    pub(crate) key: Option<StreamKey>,
    /// None for the ring of the host zones.
    pub info: Option<Arc<StreamInfo>>,
    /// None for the ring of the host zones.
    pub backend: Option<Arc<dyn Backend>>,
    pub(super) owner: Owner,
    /// The process whose collector reads it.
    home: Home,
    /// How many zones had begun on the stream before the session met it anew.
    first: u64,
    pub(super) ring: Ring<Slot>,
    ring_full: AtomicU64,
    event_failed: AtomicU64,
    /// Zones that were captured into a graph, and those of which the driver did not tell where.
    captured: AtomicU64,
    capture_failed: AtomicU64,
    /// Zones that found no event left; they count as those that found the ring full.
    events_full: AtomicU64,
    /// Zones that took a slot and never started; they count as unfinished.
    abandoned: AtomicU64,
    /// Slots that were taken and given back unread, and who waits for what began before a moment.
    cuts: DrainBarriers,
    /// Entries of batches, each of which counts as a zone.
    entries: AtomicU64,
    /// What becomes of waits, which take slots as zones do.
    waits: WaitStats,
    /// Zones that got no slot because the stream's events could not be made.
    not_made: AtomicU64,
    /// Written by the collector alone, like the next one.
    pub recorded: AtomicU64,
    pub stream_failed: AtomicU64,
    /// The application has let go of the stream: no zone will begin on it any more.
    pub forgotten: AtomicBool,
    /// The collector has taken it in. Written by the collector alone.
    pub is_met: AtomicBool,
    /// The session has let go of the stream: the next zone on it meets it anew.
    pub(super) retired: AtomicBool,
    waker: Arc<Waker>,
    /// The notes of all slots, in a session that watches open zones.
    notes: Option<Mutex<Vec<Arc<OpenZoneSnapshot>>>>,
}

/// Who has a stream's zones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A session.
    Session,
    /// They were asked for one by one, and no session has them.
    Profile,
    /// They are only mirrored, and no collector reads the ring.
    Nobody,
}

impl Owner {
    pub(super) fn from_epoch(epoch: NonZeroU32) -> Owner {
        if epoch == switch::REQUESTS_EPOCH { Owner::Profile } else { Owner::Session }
    }
}

/// A slot in use: the one handle on its zone, until it is published or dropped.
pub struct SlotGuard {
    context: Arc<StreamContext>,
    token: Token,
}

/// Why a zone gets no slot.
pub enum NoSlot {
    /// There is no context; where a session knows why, it has counted the zone.
    None,
    /// The session is over.
    Closed,
    /// The ring is full; the zone is counted.
    Full,
    /// The stream's events could not be made; the zone is counted.
    NotMade,
    /// The session has let go of the stream: it has to be met anew.
    Retired,
}

impl StreamContext {
    pub(super) fn new(
        key: Option<StreamKey>,
        info: Option<Arc<StreamInfo>>,
        backend: Option<Arc<dyn Backend>>,
        capacity: usize,
        waker: Arc<Waker>,
        is_watched: bool,
    ) -> StreamContext {
        let context = StreamContext {
            key,
            info,
            backend,
            owner: Owner::Session,
            home: Home::here(),
            first: 0,
            ring: Ring::new(capacity),
            ring_full: AtomicU64::new(0),
            event_failed: AtomicU64::new(0),
            captured: AtomicU64::new(0),
            capture_failed: AtomicU64::new(0),
            events_full: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            cuts: DrainBarriers::default(),
            entries: AtomicU64::new(0),
            waits: WaitStats::default(),
            not_made: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            stream_failed: AtomicU64::new(0),
            forgotten: AtomicBool::new(false),
            is_met: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            waker,
            notes: is_watched.then(Mutex::default),
        };
        // A failure here comes again, and is counted, when the first zone asks for a slot.
        let _ = context.ring.grow(|| context.new_slot());
        context
    }

    /// Whose it is, and how many zones had begun on its stream before.
    pub(super) fn owned_by(self, owner: Owner, first: u64) -> StreamContext {
        StreamContext { owner, first, ..self }
    }

    /// For one thread's zones that are mirrored and not recorded.
    pub(crate) fn mirror() -> Arc<StreamContext> {
        Arc::new(StreamContext::new(None, None, None, MOST_MIRRORED, Arc::default(), false).owned_by(Owner::Nobody, 0))
    }

    /// A slot for a new zone.
    #[inline]
    pub fn claim(self: Arc<Self>) -> Result<SlotGuard, NoSlot> {
        self.claim_counted(|context, why| match why {
            NoSlot::Full => drop(context.ring_full.fetch_add(1, Ordering::Relaxed)),
            NoSlot::NotMade => drop(context.not_made.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        })
    }

    /// The same, where `lose` counts what gets none because the ring is full or events cannot be made.
    #[inline]
    pub(super) fn claim_counted(
        self: Arc<Self>,
        lose: impl FnOnce(&StreamContext, &NoSlot),
    ) -> Result<SlotGuard, NoSlot> {
        match self.ring.take(|| self.new_slot()) {
            Ok(Taken::Slot { token, sequence }) => {
                self.waker.on_publish(sequence);
                let mut claim = SlotGuard { context: self, token };
                let first = claim.context.first;
                claim.slot().ok_or(NoSlot::None)?.sequence = first + sequence;
                Ok(claim)
            }
            Ok(Taken::Closed) if self.is_retired() => Err(NoSlot::Retired),
            Ok(Taken::Closed) => Err(NoSlot::Closed),
            Ok(Taken::Full) => {
                lose(&self, &NoSlot::Full);
                Err(NoSlot::Full)
            }
            Err(_) => {
                lose(&self, &NoSlot::NotMade);
                Err(NoSlot::NotMade)
            }
        }
    }

    /// How many zones have begun on the stream, also before the session let go of it and met it anew.
    pub fn begun(&self) -> u64 {
        self.first + self.ring.taken()
    }

    /// Whether the session has let go of the stream.
    #[inline]
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Makes at least so many slots, as far as the ring goes.
    pub fn provide(&self, slots: usize) {
        while self.ring.grown() < slots.min(self.ring.capacity()) {
            // A failure here comes again, and is counted, when a zone asks for a slot.
            if self.ring.grow(|| self.new_slot()).unwrap_or(0) == 0 {
                break;
            }
        }
    }

    /// Slots that are done with, where so many were given back by the collector.
    pub(crate) fn done(&self, given_back: u64) -> u64 {
        given_back + self.cuts.given_up()
    }

    /// What has begun until now, where so many slots were given back by the collector, which alone may call it.
    pub fn cut(&self, given_back: u64) -> Arc<DrainBarrier> {
        self.cuts.make(self.first, given_back, || self.ring.taken())
    }

    /// Slots in use, where so many were given back by the collector.
    pub fn in_use(&self, given_back: u64) -> usize {
        self.ring.taken().saturating_sub(self.done(given_back)) as usize
    }

    /// Makes slots ahead of need, so that no launching thread has to.
    pub fn grow_ahead(&self, given_back: u64) {
        let grown = self.ring.grown();
        let in_use = self.in_use(given_back);
        if in_use * 2 > grown {
            self.provide(grown * 2);
        }
    }

    /// Zones begun, recorded and dropped until now; what is still on its way counts as unfinished.
    pub(crate) fn account(&self) -> Account {
        let ring_full = self.ring_full.load(Ordering::Relaxed);
        let not_made = self.not_made.load(Ordering::Relaxed);
        let dropped = Dropped {
            ring_full: ring_full + self.events_full.load(Ordering::Relaxed),
            event_failed: not_made + self.event_failed.load(Ordering::Relaxed),
            stream_failed: self.stream_failed.load(Ordering::Relaxed),
            capture_failed: self.capture_failed.load(Ordering::Relaxed),
            unfinished: 0,
        };
        let recorded = self.recorded.load(Ordering::Relaxed);
        let captured = self.captured.load(Ordering::Relaxed);
        let (zones, waits) = self.zones_and_waits();
        let begun = zones + self.entries.load(Ordering::Relaxed) + ring_full + not_made;
        // While zones begin, the counts are of slightly different moments.
        let unfinished = begun.saturating_sub(recorded + captured + dropped.total());
        Account { begun, recorded, captured, dropped: Dropped { unfinished, ..dropped }, waits }
    }

    /// Its account, and whether nothing is on its way any more: what was abandoned never will be finished.
    pub fn settled(&self) -> (Account, bool) {
        let account = self.account();
        let waits = self.waits.slots_abandoned();
        let is_settled = account.dropped.unfinished <= self.abandoned.load(Ordering::Relaxed)
            && account.waits.dropped.unfinished <= waits;
        (account, is_settled)
    }

    /// How many zones took slots, and what became of waits.
    fn zones_and_waits(&self) -> (u64, WaitCounts) {
        // First, so that a wait that begins now is no zone.
        let taken = self.ring.taken();
        (taken.saturating_sub(self.waits.slots_taken()), self.waits.counts())
    }

    /// The collector is done with a slot, and gives it back later, with others.
    #[inline]
    pub fn clear(&self, token: &mut Token) {
        if let Some(slot) = self.ring.slot(token) {
            let sequence = slot.sequence;
            slot.clear();
            self.cuts.give_back(sequence);
        }
    }

    /// The collector gives back slots that it has cleared.
    pub fn give_back(&self, cleared: impl IntoIterator<Item = Token>) {
        self.ring.give_all(cleared);
    }

    /// The account of the waits.
    pub fn waits(&self) -> &WaitStats {
        &self.waits
    }

    pub fn ring(&self) -> &Ring<Slot> {
        &self.ring
    }

    fn new_slot(&self) -> Result<Slot, BackendError> {
        let points = self.backend.as_ref().map(|backend| backend.points()).transpose()?;
        let note = self.notes.as_ref().map(|notes| {
            let note = Arc::new(OpenZoneSnapshot::default());
            lock(notes).push(Arc::clone(&note));
            note
        });
        Ok(Slot { points, note, ..Slot::default() })
    }

    /// Adds to `known` the notes of the slots that came since.
    pub fn add_notes(&self, known: &mut Vec<Arc<OpenZoneSnapshot>>) {
        if let Some(notes) = &self.notes {
            let notes = lock(notes);
            known.extend(notes.iter().skip(known.len()).cloned());
        }
    }
}

impl SlotGuard {
    #[inline]
    pub fn slot(&mut self) -> Option<&mut Slot> {
        self.context.ring.slot(&mut self.token)
    }

    /// Whether nothing more is to be recorded on the stream for it: the session is over, or nobody wants the zone any more.
    #[inline]
    pub fn is_closed(&mut self) -> bool {
        // A zone of a stream that was let go of meanwhile ends as any other.
        (self.context.ring.is_closed() && !self.context.is_retired())
            || (self.context.owner == Owner::Profile && !self.is_wanted())
    }

    /// Whether somebody waits for the zone.
    #[cold]
    fn is_wanted(&mut self) -> bool {
        self.slot().and_then(|slot| slot.ticket.as_ref()).is_some_and(|ticket| ticket.is_wanted())
    }

    /// Whether the zone began in a process that this one was forked from: then its slot and its stream are that one's.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        !self.context.home.is_here()
    }

    /// Whether the zone is recorded: otherwise it is only mirrored.
    #[inline]
    pub(crate) fn is_recorded(&self) -> bool {
        self.context.owner != Owner::Nobody
    }

    /// Whether a session has the zone: what counts zones and their nesting counts those.
    #[inline]
    pub(crate) fn is_of_session(&self) -> bool {
        self.context.owner == Owner::Session
    }

    /// The number of the zone's stream in the session; 0 for a host zone.
    #[inline]
    pub(crate) fn stream_id(&self) -> u32 {
        self.context.info.as_ref().map_or(0, |info| info.id)
    }

    /// Hands the zone to the collector.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.count_entries();
        self.context.ring.publish(self.token.take());
        if self.context.owner == Owner::Profile {
            self.context.waker.wake_now();
        }
    }

    /// The stream.
    pub(super) fn context(&self) -> &StreamContext {
        &self.context
    }

    /// Counts a slot that is given back unread.
    pub(super) fn count_given_up(&mut self) {
        if let Some(sequence) = self.slot().map(|slot| slot.sequence) {
            self.context.cuts.give_up(sequence);
        }
    }

    /// Counts an entry for which its batch has no room.
    #[cold]
    pub(crate) fn lose_entry(&self) {
        self.context.ring_full.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the entries of a batch as begun, and says how many there are.
    #[inline]
    fn count_entries(&mut self) -> u64 {
        let entries = self.slot().filter(|slot| slot.has_entries).map_or(0, |slot| slot.entries.len() as u64);
        if entries > 0 {
            self.context.entries.fetch_add(entries, Ordering::Relaxed);
        }
        entries
    }

    /// Hands a captured zone to its graph, drops any other, and counts it.
    #[cold]
    pub fn give_up(&mut self, why: Lost) {
        let entries = self.count_entries();
        if let Some(ticket) = self.slot().and_then(|slot| slot.ticket.take()) {
            ticket.lose(why);
        }
        let is_captured = matches!(why, Lost::Captured) && self.slot().is_some_and(Slot::add_to_capture);
        let counter = match why {
            Lost::EventFailed => &self.context.event_failed,
            Lost::Captured if is_captured => &self.context.captured,
            Lost::Captured | Lost::CaptureFailed => &self.context.capture_failed,
            Lost::Full => &self.context.events_full,
            Lost::Abandoned => &self.context.abandoned,
        };
        counter.fetch_add(1 + entries, Ordering::Relaxed);
        self.count_given_up();
        self.give_back();
    }

    /// Frees the slot of a zone that nobody counts.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        if let Some(slot) = self.slot() {
            slot.clear();
        }
        self.context.ring.give(self.token.take());
    }
}

/// The most zones of one thread that can be open at once and only mirrored.
pub(crate) const MOST_MIRRORED: usize = 16_384;

/// `begun == recorded + captured + dropped.total()`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub begun: u64,
    pub recorded: u64,
    pub captured: u64,
    pub dropped: Dropped,
    pub waits: WaitCounts,
}

impl Account {
    pub(super) fn add(&mut self, other: Account) {
        self.begun += other.begun;
        self.recorded += other.recorded;
        self.captured += other.captured;
        self.dropped.add(other.dropped);
        self.waits.begun += other.waits.begun;
        self.waits.recorded += other.waits.recorded;
        self.waits.dropped.add(other.waits.dropped);
    }
}
