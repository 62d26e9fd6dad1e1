//! A slot of a ring: the data of one zone from its begin until the collector has read it.

use std::panic::Location;
use std::sync::Arc;

use super::snapshot::{OpenZoneSnapshot, ZoneContent};
use super::waited::Waited;
use crate::backend::device::KeepAlive;
use crate::backend::{EndedZone, EventPair, Refused};
use crate::catalog::RangeSpec;
use crate::collective::Message;
use crate::fields::Fields;
use crate::observer::{Tokens, Waiting};
use crate::record::{Span, SpanRef, Status, ZoneRecord};
use crate::sample::Sampled;
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
    pub points: Option<EventPair>,
    pub range: Option<&'static RangeSpec>,
    pub thread: u64,
    pub host: Span,
    /// Keeps the stream alive from the zone's begin to its end. Only the thread that ends the zone takes it.
    pub(crate) owner: Option<Arc<dyn KeepAlive>>,
    pub sequence: u64,
    /// What other threads can see of the open zone, in a session with a flight recorder.
    pub(crate) note: Option<Arc<OpenZoneSnapshot>>,
    pub depth: u32,
    pub sampled: Sampled,
    /// Whether the zone is a root, in a session with windows.
    pub(crate) root: RootKind,
    pub(crate) start: Start,
    /// The launch observers that must be notified of the zone's end.
    pub(crate) waiting: Waiting,
    /// The zone is part of the nesting of the thread that began it, and ends on that thread.
    pub(crate) nests: bool,
    /// The thread was already unwinding when the zone began, so a panic at its end is not the zone's.
    pub(crate) was_panicking: bool,
    /// If the stream waits for the launch, the zone begins with the launch.
    pub begin_at_launch: bool,
    pub status: Status,
    /// Something is in `extras`.
    has_extras: bool,
    /// Tokens that launch observers keep with the zone until its end.
    pub(crate) tokens: Tokens,
    extras: Extras,
}

/// What only some zones have. It lies behind the slot's first two cache lines. Neither a launching thread nor the collector touches it for
/// a zone without any of it.
#[derive(Default)]
pub struct Extras {
    /// The span in which the zone began.
    pub parent: Option<SpanRef>,
    pub fields: Fields,
    pub error: Option<Box<str>>,
    /// The message of a collective.
    pub message: Option<Message>,
    /// The entries of a batch of collectives.
    pub entries: Vec<(&'static RangeSpec, Message)>,
    /// A request for this zone.
    pub ticket: Option<Box<dyn Completion>>,
    /// A wait, which takes a slot as a zone does.
    pub wait: Option<Box<Waited>>,
}

// The fields that every zone writes and reads are in two cache lines.
const _: () = assert!(std::mem::offset_of!(Slot, has_extras) < 128);
// A ring has thousands of them.
const _: () = assert!(size_of::<Slot>() <= 448);

/// Capacity for up to this many entries stays allocated in the slot.
const FEW_ENTRIES: usize = 256;

/// The most entries of one batch.
pub(crate) const MAX_ENTRIES: usize = 1 << 16;

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
pub(crate) enum Start {
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
    /// Creates a slot for zones with these points. Other threads see its open zone through `note`.
    pub(super) fn new(points: Option<EventPair>, note: Option<Arc<OpenZoneSnapshot>>) -> Slot {
        Slot { points, note, ..Slot::default() }
    }

    /// Returns whether the zone is part of the nesting of the thread that began it.
    pub fn nests(&self) -> bool {
        self.nests
    }

    /// Returns what only some zones have, if this zone has any of it.
    #[inline]
    pub fn extras(&self) -> Option<&Extras> {
        self.has_extras.then_some(&self.extras)
    }

    /// Returns the same, for the collector, which takes it out.
    #[inline]
    pub fn extras_to_take(&mut self) -> Option<&mut Extras> {
        self.has_extras.then_some(&mut self.extras)
    }

    /// Returns the same for a writer. From now on, this zone has some of it.
    #[inline]
    pub fn extras_to_fill(&mut self) -> &mut Extras {
        self.has_extras = true;
        &mut self.extras
    }

    /// Returns the fields and the label of the zone.
    #[inline]
    pub(crate) fn fields(&self) -> &Fields {
        self.extras().map_or(&Fields::NONE, |extras| &extras.fields)
    }

    /// Puts the events of requests on the stream, behind the zone's end.
    #[inline]
    pub(crate) fn signal_end(&mut self) {
        if self.has_extras
            && let Some(ticket) = &mut self.extras.ticket
        {
            ticket.ended();
        }
    }

    /// Returns whether the slot holds a wait.
    #[inline]
    pub fn is_wait(&self) -> bool {
        self.extras().is_some_and(|extras| extras.wait.is_some())
    }

    /// Adds a zone that ended on a capturing stream to the graph. Returns false if its place in the graph is unknown.
    pub(crate) fn add_to_capture(&mut self) -> bool {
        let Some(mut points) = self.points.take() else { return false };
        let is_added = self.ended().is_some_and(|zone| points.add_to_capture(zone));
        self.points = Some(points);
        is_added
    }

    /// Adds a zone with times to the graphs that were captured on its stream while it was open.
    #[cold]
    pub(crate) fn add_to_past_captures(&self) {
        if let (Some(points), Some(zone)) = (&self.points, self.ended()) {
            points.add_to_past_captures(zone);
        }
    }

    /// Returns the facts that a graph receives about a zone that has ended on its thread.
    fn ended(&self) -> Option<EndedZone<'_>> {
        let extras = self.extras();
        Some(EndedZone {
            range: self.range?,
            begin_ns: self.host.begin_ns,
            fields: self.fields(),
            entries: extras.map_or(&[], |extras| &extras.entries),
            message: extras.and_then(|extras| extras.message.as_ref()),
            status: self.status,
        })
    }

    /// Returns whether the zone began on a capturing stream.
    pub(crate) fn is_captured(&self) -> bool {
        matches!(self.points, Some(EventPair::Captured(_)))
    }

    /// Publishes the zone, which began at this place, in the snapshot.
    #[cold]
    pub(crate) fn begin_note(&self, place: &'static Location<'static>) {
        if let Some(note) = &self.note {
            note.begin(self, place);
        }
    }

    /// Updates the snapshot to the zone's current state.
    #[cold]
    pub(crate) fn write_note(&self) {
        if let Some(note) = &self.note {
            note.write(self);
        }
    }

    /// Clears the slot.
    pub(crate) fn clear(&mut self) {
        if let Some(note) = &self.note {
            note.clear();
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
