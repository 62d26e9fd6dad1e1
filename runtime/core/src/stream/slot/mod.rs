//! A slot of a ring: the data of one zone, or of one wait, from its begin until the collector has read it.
//!
//! Only the methods of [`Slot`] touch its fields: those here while a zone takes its slot and gets its values, `launch.rs` at its
//! begin and end, `wait.rs` for waits, and `read.rs` for the collector. The ring says whose turn it is.

pub(crate) mod launch;
mod read;
mod wait;

pub use read::ReadZone;

use std::sync::Arc;

use super::snapshot::{OpenZoneSnapshot, ZoneContent};
use super::waits::Waited;
use crate::backend::device::KeepAlive;
use crate::backend::{EventPair, Refused};
use crate::catalog::RangeSpec;
use crate::collective::Message;
use crate::fields::Fields;
use crate::observer::{Position, Tokens, Waiting};
use crate::record::{Span, SpanRef, Status, ZoneRecord};
use crate::sample::{Chance, Sampled};
use crate::windows::RootKind;

// The points come before the other fields that every zone writes.
const _: () = assert!(size_of::<Option<EventPair>>() <= 32);

/// The data that a zone writes while it is open and the collector reads afterwards.
///
/// The fields that every zone writes come first, in two cache lines. The ring prefetches these before a zone needs them.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Slot {
    /// The begin and end on the stream; none in the ring of the host zones.
    points: Option<EventPair>,
    range: Option<&'static RangeSpec>,
    thread: u64,
    host: Span,
    /// Keeps the stream alive from the zone's begin to its end. Only the thread that ends the zone takes it.
    owner: Option<Arc<dyn KeepAlive>>,
    sequence: u64,
    /// What other threads can see of the open zone, in a session with a flight recorder.
    snapshot: Option<Arc<OpenZoneSnapshot>>,
    depth: u32,
    sampled: Sampled,
    /// Whether the zone is a root, in a session with windows.
    root: RootKind,
    start: Start,
    /// The launch observers that must be notified of the zone's end.
    waiting: Waiting,
    /// The zone is part of the nesting of the thread that began it, and ends on that thread.
    nests: bool,
    /// The thread was already unwinding when the zone began, so a panic at its end is not the zone's.
    was_panicking: bool,
    /// If the stream waits for the launch, the zone begins with the launch.
    begin_at_launch: bool,
    status: Status,
    /// Something is in `extras`.
    has_extras: bool,
    /// Tokens that launch observers keep with the zone until its end.
    tokens: Tokens,
    extras: Extras,
}

/// What only some zones have. It lies behind the slot's first two cache lines. Neither a launching thread nor the collector touches it for
/// a zone without any of it.
#[derive(Default)]
struct Extras {
    /// The span in which the zone began.
    parent: Option<SpanRef>,
    fields: Fields,
    error: Option<Box<str>>,
    /// The message of a collective.
    message: Option<Message>,
    /// The entries of a batch of collectives.
    entries: Entries,
    /// A request for this zone.
    ticket: Option<Ticket>,
    /// A wait, which takes a slot as a zone does.
    wait: Option<Box<Waited>>,
}

/// A request that waits for the zone of a slot.
pub type Ticket = Box<dyn Completion>;

/// The entries of a batch of collectives.
type Entries = Vec<(&'static RangeSpec, Message)>;

// The fields that every zone writes and reads are in two cache lines.
const _: () = assert!(std::mem::offset_of!(Slot, has_extras) < 128);
// A ring has thousands of them.
const _: () = assert!(size_of::<Slot>() <= 448);

/// Capacity for up to this many entries stays allocated in the slot.
const FEW_ENTRIES: usize = 256;

/// The most entries of one batch.
const MAX_ENTRIES: usize = 1 << 16;

/// A request that waits for one zone. Dropping it reports that the zone did not end.
pub trait Completion: Send + Sync {
    /// Returns whether the request still waits.
    fn is_wanted(&self) -> bool;

    /// Runs on the thread that ends the zone, right after the zone's end was put on its stream.
    fn ended(&mut self);

    /// Reports that the zone is complete.
    fn complete(self: Box<Self>, record: &ZoneRecord);

    /// Reports that the zone is lost.
    fn lose(self: Box<Self>, why: Lost);

    /// Reports that the zone's stream has failed.
    fn fail_stream(self: Box<Self>, error: &str);
}

/// How far the begin of a zone has come.
#[derive(Clone, Copy, Default)]
enum Start {
    /// The zone did not start, because the marked function was left while the fields were evaluated.
    #[default]
    Never,
    /// The begin is on the stream.
    Begun,
    /// The stream refused the begin.
    Lost(Lost),
}

/// Why a zone that has a slot is not recorded.
#[derive(Clone, Copy, Debug)]
pub enum Lost {
    /// The stream refused an event.
    EventFailed,
    /// The stream is being captured, so the zone belongs to a graph.
    Captured,
    /// The stream is being captured, and the driver does not tell the zone's place in the graph.
    CaptureFailed,
    /// No event was left.
    Full,
    /// The zone never started: it counts as unfinished.
    Abandoned,
}

impl From<Refused> for Lost {
    fn from(refused: Refused) -> Lost {
        match refused {
            Refused::Captured => Lost::Captured,
            Refused::CaptureFailed => Lost::CaptureFailed,
            Refused::Full => Lost::Full,
            Refused::Failed(_) => Lost::EventFailed,
        }
    }
}

impl Slot {
    /// Creates a slot for zones with these points. Other threads see its open zone through `snapshot`.
    pub(super) fn new(points: Option<EventPair>, snapshot: Option<Arc<OpenZoneSnapshot>>) -> Slot {
        Slot { points, snapshot, ..Slot::default() }
    }

    /// Sets the number of the zone on its stream.
    #[inline]
    pub(super) fn set_sequence(&mut self, sequence: u64) {
        self.sequence = sequence;
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Gives the slot to a zone that has not started.
    #[inline]
    pub(crate) fn open(&mut self, range: &'static RangeSpec, chance: Chance, was_panicking: bool) {
        self.range = Some(range);
        self.sampled = Sampled::by(chance);
        self.was_panicking = was_panicking;
    }

    /// Sets the points of a zone that begins in a capture.
    pub(crate) fn set_points(&mut self, points: Option<EventPair>) {
        self.points = points;
    }

    /// Keeps the stream alive from the zone's begin to its end.
    #[inline]
    pub(crate) fn keep(&mut self, owner: Arc<dyn KeepAlive>) {
        self.owner = Some(owner);
    }

    /// Returns what keeps the stream alive. Only the thread that ends the zone takes it.
    #[inline]
    pub(crate) fn take_owner(&mut self) -> Option<Arc<dyn KeepAlive>> {
        self.owner.take()
    }

    /// Marks the zone as one that is recorded in a window and may be a root. `sampled` adds the window to its chance.
    #[cold]
    pub(crate) fn place_in_window(&mut self, sampled: impl FnOnce(Sampled) -> Sampled) {
        self.sampled = sampled(self.sampled);
        self.root = RootKind::ToRecord;
    }

    /// Says that the zone is a root that is followed to its end and not recorded.
    pub(crate) fn follow(&mut self) {
        self.root = RootKind::ToFollow;
    }

    /// Gives the zone the request that waits for it.
    pub(crate) fn set_ticket(&mut self, ticket: Ticket) {
        self.extras_to_fill().ticket = Some(ticket);
    }

    /// Makes the zone begin with the launch, if the stream waits for that.
    #[inline]
    pub(crate) fn begin_at_launch(&mut self) {
        self.begin_at_launch = true;
    }

    /// Changes the fields and the label of the zone.
    #[inline]
    pub(crate) fn change_fields(&mut self, change: impl FnOnce(&mut Fields)) {
        change(&mut self.extras_to_fill().fields);
        self.update_snapshot();
    }

    pub(crate) fn set_message(&mut self, message: Message) {
        self.extras_to_fill().message = Some(message);
        self.update_snapshot();
    }

    /// Gives the zone the text of an error.
    pub(crate) fn fail(&mut self, text: String) {
        self.status = Status::Error;
        self.extras_to_fill().error = Some(text.into());
    }

    /// Returns whether the begin of the zone is on its stream.
    pub(crate) fn has_begun(&self) -> bool {
        matches!(self.start, Start::Begun)
    }

    /// Returns whether the batch has room for another entry.
    pub(crate) fn has_room(&self) -> bool {
        self.entries() < MAX_ENTRIES
    }

    /// Adds an entry to a batch that has room.
    pub(crate) fn add_entry(&mut self, range: &'static RangeSpec, message: Message) {
        self.extras_to_fill().entries.push((range, message));
    }

    /// Returns the number of entries of a batch.
    pub(crate) fn entries(&self) -> usize {
        self.extras().map_or(0, |extras| extras.entries.len())
    }

    /// Returns whether the observer at this position has a token for the zone.
    pub(crate) fn is_seen_at(&self, position: Position) -> bool {
        self.waiting.has(position)
    }

    /// Returns whether a tool sees the zone.
    pub(crate) fn is_mirrored(&self) -> bool {
        self.waiting.has_mirror()
    }

    /// Returns the request for the zone.
    pub(super) fn ticket(&self) -> Option<&dyn Completion> {
        self.extras()?.ticket.as_deref()
    }

    /// Returns the request for the zone, and takes it out.
    pub fn take_ticket(&mut self) -> Option<Ticket> {
        self.extras_to_take()?.ticket.take()
    }

    /// Returns what only some zones have, if this zone has any of it.
    #[inline]
    fn extras(&self) -> Option<&Extras> {
        self.has_extras.then_some(&self.extras)
    }

    /// Returns the same, for the collector, which takes it out.
    #[inline]
    fn extras_to_take(&mut self) -> Option<&mut Extras> {
        self.has_extras.then_some(&mut self.extras)
    }

    /// Returns the same for a writer. From now on, this zone has some of it.
    #[inline]
    fn extras_to_fill(&mut self) -> &mut Extras {
        self.has_extras = true;
        &mut self.extras
    }

    /// Returns the fields and the label of the zone.
    #[inline]
    fn fields(&self) -> &Fields {
        self.extras().map_or(&Fields::NONE, |extras| &extras.fields)
    }

    /// Updates the snapshot to the state of an open zone.
    #[inline]
    fn update_snapshot(&self) {
        if let Some(snapshot) = self.snapshot.as_ref().filter(|_| self.has_begun()) {
            snapshot.write(self);
        }
    }

    /// Fills in a zone that has begun, without a stream.
    #[cfg(test)]
    pub(super) fn set_for_test(&mut self, range: &'static RangeSpec, number: u64, begin_ns: i64) {
        (self.range, self.thread, self.sequence) = (Some(range), number, number);
        self.host.begin_ns = begin_ns;
    }

    /// Clears the slot.
    pub(super) fn clear(&mut self) {
        if let Some(snapshot) = &self.snapshot {
            snapshot.clear();
        }
        if let Some(points) = &mut self.points {
            points.release();
        }
        if self.has_extras {
            self.extras.clear();
            self.has_extras = false;
        }
        self.status = Status::Complete;
        self.nests = false;
        self.begin_at_launch = false;
        self.start = Start::Never;
        self.root = RootKind::None;
    }
}

impl Extras {
    fn clear(&mut self) {
        self.parent = None;
        self.fields.clear();
        self.error = None;
        self.message = None;
        if self.entries.capacity() > FEW_ENTRIES {
            self.entries = Vec::new();
        }
        self.entries.clear();
        self.ticket = None;
        self.wait = None;
    }
}

impl<'a> From<&'a Slot> for ZoneContent<'a> {
    fn from(slot: &'a Slot) -> ZoneContent<'a> {
        let Slot { range, thread, sequence, .. } = *slot;
        ZoneContent {
            range,
            thread,
            begin_ns: slot.host.begin_ns,
            sequence,
            fields: slot.fields(),
            message: slot.extras().and_then(|extras| extras.message.as_ref()),
        }
    }
}
