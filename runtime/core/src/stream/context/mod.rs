//! The context of one stream in one session: its ring, its backend and its counts.
//!
//! Zones take their slots here, and the collector reads them. The recorder (`recorder`) finds the context of a stream.

mod waits;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::drain_barrier::{DrainBarrier, DrainBarriers};
use super::ring::{Ring, Taken, Token};
use super::slot::{Lost, Slot};
use super::snapshot::OpenZoneSnapshot;
use super::waits::WaitStats;
use super::waker::Waker;
use crate::backend::{Backend, BackendError, StreamKey};
use crate::counts::Dropped;
use crate::counts::WaitCounts;
use crate::fork::Home;
use crate::lock::lock;
use crate::record::StreamInfo;
use crate::switch;

/// One stream in one session.
pub struct StreamContext {
    pub(crate) key: Option<StreamKey>,
    /// None for the ring of the host zones.
    pub info: Option<Arc<StreamInfo>>,
    /// None for the ring of the host zones.
    pub backend: Option<Arc<dyn Backend>>,
    pub(super) owner: Owner,
    /// The process whose collector reads the ring.
    home: Home,
    /// How many zones had begun on the stream before the session added it again.
    first: u64,
    pub(super) ring: Ring<Slot>,
    ring_full: AtomicU64,
    event_failed: AtomicU64,
    /// Zones that were captured into a graph. `capture_failed` counts those whose place in the graph is unknown.
    captured: AtomicU64,
    capture_failed: AtomicU64,
    /// Zones for which no event was left; reported together with `ring_full`.
    events_full: AtomicU64,
    /// Zones that took a slot and never started; reported as unfinished.
    abandoned: AtomicU64,
    /// Slots that were given back unread, and the drain barriers in use.
    cuts: DrainBarriers,
    /// Entries of batches. Each counts as a zone.
    entries: AtomicU64,
    /// The counts of waits, which take slots as zones do.
    waits: WaitStats,
    /// Zones without a slot because the stream's events could not be created.
    not_made: AtomicU64,
    /// Written only by the collector, like `stream_failed`.
    pub recorded: AtomicU64,
    pub stream_failed: AtomicU64,
    /// The application has dropped the stream: no more zones begin on it.
    pub forgotten: AtomicBool,
    /// The collector has read the context from the recorder. Written only by the collector.
    pub is_met: AtomicBool,
    /// The session has evicted the stream: the next zone on it adds the stream again.
    pub(super) retired: AtomicBool,
    waker: Arc<Waker>,
    /// The snapshots of all slots, in a session that observes open zones.
    snapshots: Option<Mutex<Vec<Arc<OpenZoneSnapshot>>>>,
}

/// Who requested the zones of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A session.
    Session,
    /// They were requested individually, and no session records them.
    Profile,
    /// They are only mirrored to a tool, and no collector reads the ring.
    Nobody,
}

impl Owner {
    pub(super) fn from_epoch(epoch: NonZeroU32) -> Owner {
        if epoch == switch::REQUESTS_EPOCH { Owner::Profile } else { Owner::Session }
    }
}

/// A slot in use: the only handle on its zone until the zone is published or dropped.
pub struct SlotGuard {
    context: Arc<StreamContext>,
    token: Token,
}

/// Why a zone has no slot.
pub enum NoSlot {
    /// There is no context. The zone is counted if a session knows the reason.
    None,
    /// The session is over.
    Closed,
    /// The ring is full; the zone is counted.
    Full,
    /// The stream's events could not be created; the zone is counted.
    NotMade,
    /// The session has evicted the stream: it must be added again.
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
            snapshots: is_watched.then(Mutex::default),
        };
        // A failure recurs, and is counted, when the first zone takes a slot.
        let _ = context.ring.grow(|| context.new_slot());
        context
    }

    /// Sets the owner, and how many zones had begun on the stream before.
    pub(super) fn owned_by(self, owner: Owner, first: u64) -> StreamContext {
        StreamContext { owner, first, ..self }
    }

    /// Sets what records say of the stream.
    pub(super) fn known_as(self, info: Arc<StreamInfo>) -> StreamContext {
        StreamContext { info: Some(info), ..self }
    }

    /// Creates a context for zones of one thread that are only mirrored.
    pub(crate) fn mirror() -> Arc<StreamContext> {
        Arc::new(StreamContext::new(None, None, None, MOST_MIRRORED, Arc::default(), false).owned_by(Owner::Nobody, 0))
    }

    /// Takes a slot for a new zone, and fills it.
    #[inline]
    pub fn claim(self: Arc<Self>, fill: impl FnOnce(&mut Slot)) -> Result<SlotGuard, NoSlot> {
        let lose = |context: &StreamContext, why: &NoSlot| match why {
            NoSlot::Full => drop(context.ring_full.fetch_add(1, Ordering::Relaxed)),
            NoSlot::NotMade => drop(context.not_made.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        };
        self.claim_counted(lose, fill)
    }

    /// Takes a slot and fills it. `lose` counts a zone that has none because the ring is full or events cannot be created.
    #[inline]
    pub(super) fn claim_counted(
        self: Arc<Self>,
        lose: impl FnOnce(&StreamContext, &NoSlot),
        fill: impl FnOnce(&mut Slot),
    ) -> Result<SlotGuard, NoSlot> {
        match self.ring.take(|| self.new_slot()) {
            Ok(Taken::Slot { token, sequence }) => {
                self.waker.on_publish(sequence);
                let mut claim = SlotGuard { context: self, token };
                let first = claim.context.first;
                let slot = claim.slot().ok_or(NoSlot::None)?;
                slot.set_sequence(first + sequence);
                fill(slot);
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

    /// Returns how many zones have begun on the stream, including those before it was evicted and added again.
    pub fn begun(&self) -> u64 {
        self.first + self.ring.taken()
    }

    /// Returns whether the context was created in a process from which this one was forked.
    #[inline]
    pub(crate) fn is_inherited(&self) -> bool {
        !self.home.is_here()
    }

    /// Returns whether the session has evicted the stream.
    #[inline]
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Creates slots up to this number, limited by the ring's capacity.
    pub fn provide(&self, slots: usize) {
        while self.ring.grown() < slots.min(self.ring.capacity()) {
            // A failure recurs, and is counted, when a zone takes a slot.
            if self.ring.grow(|| self.new_slot()).unwrap_or(0) == 0 {
                break;
            }
        }
    }

    /// Returns the number of slots that are no longer in use. The collector has given back `given_back` of them.
    pub(crate) fn done(&self, given_back: u64) -> u64 {
        given_back + self.cuts.given_up()
    }

    /// Creates a drain barrier after everything that has begun. Only the collector may call this; it has given back `given_back` slots.
    pub fn cut(&self, given_back: u64) -> Arc<DrainBarrier> {
        self.cuts.make(self.first, given_back, || self.ring.taken())
    }

    /// Returns the number of slots in use. The collector has given back `given_back` slots.
    pub fn in_use(&self, given_back: u64) -> usize {
        self.ring.taken().saturating_sub(self.done(given_back)) as usize
    }

    /// Creates slots in advance, so that launching threads need not.
    pub fn grow_ahead(&self, given_back: u64) {
        let grown = self.ring.grown();
        let in_use = self.in_use(given_back);
        if in_use * 2 > grown {
            self.provide(grown * 2);
        }
    }

    /// Returns the zones begun, recorded and dropped so far. A zone that is still in the ring counts as unfinished.
    ///
    /// What became of zones is read before how many have begun. Each of those counters is raised with release after the zone took its slot, and read
    /// with acquire, so the begin of every zone in it is seen.
    pub(crate) fn account(&self) -> Account {
        let ring_full = self.ring_full.load(Ordering::Acquire);
        let not_made = self.not_made.load(Ordering::Acquire);
        let dropped = Dropped {
            ring_full: ring_full + self.events_full.load(Ordering::Acquire),
            event_failed: not_made + self.event_failed.load(Ordering::Acquire),
            stream_failed: self.stream_failed.load(Ordering::Acquire),
            capture_failed: self.capture_failed.load(Ordering::Acquire),
            unfinished: 0,
        };
        let recorded = self.recorded.load(Ordering::Acquire);
        let captured = self.captured.load(Ordering::Acquire);
        let (zones, waits) = self.zones_and_waits();
        let begun = zones + self.entries.load(Ordering::Relaxed) + ring_full + not_made;
        // The counters are read at slightly different times while zones begin.
        let unfinished = begun.saturating_sub(recorded + captured + dropped.total());
        Account { begun, recorded, captured, dropped: Dropped { unfinished, ..dropped }, waits }
    }

    /// Returns the counts, and whether nothing is pending. Abandoned zones and waits stay unfinished for ever.
    pub fn settled(&self) -> (Account, bool) {
        let account = self.account();
        let waits = self.waits.abandoned.load(Ordering::Relaxed);
        let is_settled = account.dropped.unfinished <= self.abandoned.load(Ordering::Relaxed)
            && account.waits.dropped.unfinished <= waits;
        (account, is_settled)
    }

    /// Returns how many zones took slots, and the counts of waits.
    fn zones_and_waits(&self) -> (u64, WaitCounts) {
        // A wait takes its slot and is counted then. Read in the other order, a wait that begins now counts as an unfinished zone for a moment; as
        // written, it would take a zone from those begun, and more would be recorded than have begun.
        let of_waits = self.waits.taken.load(Ordering::Acquire);
        (self.ring.taken().saturating_sub(of_waits), self.waits.counts())
    }

    /// Clears a slot that the collector has read. The collector gives it back later, together with others.
    #[inline]
    pub fn clear(&self, token: &mut Token) {
        if let Some(slot) = self.ring.slot(token) {
            let sequence = slot.sequence();
            slot.clear();
            self.cuts.give_back(sequence);
        }
    }

    /// Gives back slots that the collector has cleared.
    pub fn give_back(&self, cleared: impl IntoIterator<Item = Token>) {
        self.ring.give_all(cleared);
    }

    /// The counts of waits.
    pub fn waits(&self) -> &WaitStats {
        &self.waits
    }

    pub fn ring(&self) -> &Ring<Slot> {
        &self.ring
    }

    fn new_slot(&self) -> Result<Slot, BackendError> {
        let points = self.backend.as_ref().map(|backend| backend.points()).transpose()?;
        let snapshot = self.snapshots.as_ref().map(|snapshots| {
            let snapshot = Arc::new(OpenZoneSnapshot::default());
            lock(snapshots).push(Arc::clone(&snapshot));
            snapshot
        });
        Ok(Slot::new(points, snapshot))
    }

    /// Adds to `known` the snapshots of slots that were created since the last call.
    pub fn add_snapshots(&self, known: &mut Vec<Arc<OpenZoneSnapshot>>) {
        if let Some(snapshots) = &self.snapshots {
            let snapshots = lock(snapshots);
            known.extend(snapshots.iter().skip(known.len()).cloned());
        }
    }
}

impl SlotGuard {
    #[inline]
    pub fn slot(&mut self) -> Option<&mut Slot> {
        // SAFETY: the token is of the context's ring: `claim_counted` puts them together.
        #[allow(unsafe_code)]
        unsafe {
            self.context.ring.own_slot(&mut self.token)
        }
    }

    /// Returns whether an observer waits for the zone's end that also sees zones which are not recorded.
    #[cold]
    pub fn is_mirrored(&self) -> bool {
        self.context.ring.peek(&self.token).is_some_and(Slot::is_mirrored)
    }

    /// Returns whether nothing more may be put on the stream for the zone: the session has ended, or the zone was requested individually
    /// and no request waits for it any more.
    #[inline]
    pub fn is_closed(&mut self) -> bool {
        // A zone whose stream was evicted in the meantime ends normally.
        (self.context.ring.is_closed() && !self.context.is_retired())
            || (self.context.owner == Owner::Profile && !self.is_wanted())
    }

    /// Returns whether a request waits for the zone.
    #[cold]
    fn is_wanted(&mut self) -> bool {
        self.slot().and_then(|slot| slot.ticket()).is_some_and(|ticket| ticket.is_wanted())
    }

    /// Returns whether the zone began in a process from which this one was forked. Then its slot and its stream belong to that process.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.context.is_inherited()
    }

    /// Returns whether the zone is recorded; otherwise it is only mirrored.
    #[inline]
    pub(crate) fn is_recorded(&self) -> bool {
        self.context.owner != Owner::Nobody
    }

    /// Returns whether a session records the zone. Only such zones count in nesting depths and in process groups.
    #[inline]
    pub(crate) fn is_of_session(&self) -> bool {
        self.context.owner == Owner::Session
    }

    /// Returns the stream's number in the session; 0 for a host zone.
    #[inline]
    pub(crate) fn stream_id(&self) -> u32 {
        self.context.info.as_ref().map_or(0, |info| info.id)
    }

    /// Passes the zone to the collector. The entries of a batch are counted before, by [`Self::count_entries`].
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.context.ring.publish(self.token.take());
        if self.context.owner == Owner::Profile {
            self.context.waker.wake_now();
        }
    }

    /// Returns the context of the stream.
    pub(super) fn context(&self) -> &StreamContext {
        &self.context
    }

    /// Counts a slot that is given back unread.
    pub(super) fn count_given_up(&mut self) {
        if let Some(sequence) = self.slot().map(|slot| slot.sequence()) {
            self.context.cuts.give_up(sequence);
        }
    }

    /// Counts an entry that exceeds its batch's capacity.
    #[cold]
    pub(crate) fn lose_entry(&self) {
        self.context.ring_full.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the entries of a batch as begun, and returns their number.
    #[cold]
    pub(crate) fn count_entries(&mut self) -> u64 {
        let entries = self.slot().map_or(0, |slot| slot.entries() as u64);
        if entries > 0 {
            self.context.entries.fetch_add(entries, Ordering::Relaxed);
        }
        entries
    }

    /// Adds a captured zone to its graph, or drops the zone, and counts it.
    #[cold]
    pub fn give_up(&mut self, why: Lost) {
        let entries = self.count_entries();
        if let Some(ticket) = self.slot().and_then(Slot::take_ticket) {
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
        counter.fetch_add(1 + entries, Ordering::Release);
        self.count_given_up();
        self.give_back();
    }

    /// Frees the slot of a zone that is not counted.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        if let Some(slot) = self.slot() {
            slot.clear();
        }
        self.context.ring.give(self.token.take());
    }
}

/// The most mirrored zones of one thread that can be open at once.
pub(crate) const MOST_MIRRORED: usize = 16_384;

/// The counts of zones. `begun == recorded + captured + dropped.total()` always holds.
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
