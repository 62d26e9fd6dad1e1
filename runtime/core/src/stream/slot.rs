//! A slot of a ring: one zone from its begin until the collector has read it.

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

// The points stand before everything else that every zone writes.
const _: () = assert!(size_of::<Option<EventPair>>() <= 32);

/// What a zone writes down while it is open, and the collector reads when it is over.
///
/// What every zone writes comes first, in two cache lines: the ring brings those near before a zone needs them.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Slot {
    /// Begin and end on the stream; none in the ring of the host zones.
    pub points: Option<EventPair>,
    pub range: Option<&'static RangeSpec>,
    pub thread: u64,
    pub host: Span,
    /// Keeps the stream alive from the zone's begin until its end. Only the thread that ends the zone takes it out.
    pub(crate) owner: Option<Arc<dyn KeepAlive>>,
    pub sequence: u64,
    /// What others see of the zone while it is open, in a session with a flight recorder.
    pub(crate) note: Option<Arc<OpenZoneSnapshot>>,
    pub depth: u32,
    pub sampled: Sampled,
    /// In a session with windows: whether the zone is a root.
    pub(crate) root: RootKind,
    pub(crate) start: Start,
    /// The launch observers that wait for the zone's end.
    pub(crate) waiting: Waiting,
    /// The zone nests on the thread that began it, and ends there.
    pub(crate) nests: bool,
    /// The thread was unwinding before the zone began, so its end says nothing of a panic.
    pub(crate) was_panicking: bool,
    /// Where the stream waits for the launch, the zone begins with it.
    pub begin_at_launch: bool,
    pub status: Status,
    /// The zone is a batch that has `entries`. Those lie further off, where the collector writes after each zone.
    pub(crate) has_entries: bool,
    /// What launch observers keep with the zone until its end.
    pub(crate) tokens: Tokens,
    /// The span that the zone was begun in.
    pub parent: Option<SpanRef>,
    pub fields: Fields,
    pub error: Option<Box<str>>,
    /// What a collective moves.
    pub message: Option<Message>,
    /// The entries of a batch of collectives.
    pub entries: Vec<(&'static RangeSpec, Message)>,
    /// Somebody has asked for this zone.
    pub ticket: Option<Box<dyn Completion>>,
    /// It is a wait, and no zone.
    pub wait: Option<Box<Waited>>,
}

// What every zone writes and reads lies in two cache lines.
const _: () = assert!(std::mem::offset_of!(Slot, has_entries) < 128);
// A ring has thousands of them, and the collector touches each.
const _: () = assert!(size_of::<Slot>() <= 448);

/// Room for so many entries stays with the slot.
const FEW_ENTRIES: usize = 256;

/// The most entries of one batch.
pub(crate) const MAX_ENTRIES: usize = 1 << 16;

/// Who waits for one zone. Dropped, it says that the zone did not come to its end.
pub trait Completion: Send + Sync {
    /// Whether somebody still waits.
    fn is_wanted(&self) -> bool;

    /// The zone is complete.
    fn complete(self: Box<Self>, record: &ZoneRecord);

    /// The zone is lost.
    fn lose(self: Box<Self>, why: Lost);

    /// The zone's stream has failed.
    fn fail_stream(self: Box<Self>, error: &str);
}

/// How far a zone's begin came.
#[derive(Clone, Copy, Default)]
pub(crate) enum Start {
    /// The marked function left while it filled in the fields.
    #[default]
    Never,
    /// The begin is on the stream.
    Begun,
    /// The stream did not take the begin.
    Lost(Lost),
}

/// Why a zone that has a slot is not recorded.
#[derive(Clone, Copy, Debug)]
pub enum Lost {
    /// The stream did not take an event.
    EventFailed,
    /// The stream is being captured: the zone belongs to a graph.
    Captured,
    /// It is, and the driver does not say where the zone stands in it.
    CaptureFailed,
    /// There was no event left.
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
    /// Whether the zone nests on the thread that began it, and ends there.
    pub fn nests(&self) -> bool {
        self.nests
    }

    /// Whether it is a wait, and no zone.
    #[inline]
    pub fn is_wait(&self) -> bool {
        self.wait.is_some()
    }

    /// Hands a zone that ended on a capturing stream to the graph. False if its place in the graph is not known.
    pub(crate) fn add_to_capture(&mut self) -> bool {
        let Slot { points: Some(points), range: Some(range), .. } = self else { return false };
        points.add_to_capture(EndedZone {
            range,
            begin_ns: self.host.begin_ns,
            fields: &self.fields,
            entries: &self.entries,
            message: self.message.as_ref(),
            status: self.status,
        })
    }

    /// Hands a zone with times to the graphs that were captured on its stream while it was open.
    #[cold]
    pub(crate) fn add_to_past_captures(&self) {
        let (Some(points), Some(range)) = (&self.points, self.range) else { return };
        points.add_to_past_captures(EndedZone {
            range,
            begin_ns: self.host.begin_ns,
            fields: &self.fields,
            entries: &self.entries,
            message: self.message.as_ref(),
            status: self.status,
        });
    }

    /// Whether the zone began on a capturing stream.
    pub(crate) fn is_captured(&self) -> bool {
        matches!(self.points, Some(EventPair::Captured(_)))
    }

    /// Lets others see the zone, which began at this place.
    #[cold]
    pub(crate) fn begin_note(&self, place: &'static Location<'static>) {
        if let Some(note) = &self.note {
            note.begin(self, place);
        }
    }

    /// Lets others see the zone as it is now.
    #[cold]
    pub(crate) fn write_note(&self) {
        if let Some(note) = &self.note {
            note.write(self);
        }
    }

    /// Forgets the zone.
    pub(crate) fn clear(&mut self) {
        if let Some(note) = &self.note {
            note.clear();
        }
        if let Some(points) = &mut self.points {
            points.release();
        }
        self.fields.clear();
        self.error = None;
        self.message = None;
        if self.entries.capacity() > FEW_ENTRIES {
            self.entries = Vec::new();
        }
        self.entries.clear();
        self.has_entries = false;
        self.ticket = None;
        self.wait = None;
        self.status = Status::Complete;
        self.nests = false;
        self.parent = None;
        self.begin_at_launch = false;
        self.start = Start::Never;
        self.root = RootKind::None;
    }
}

impl<'a> From<&'a Slot> for ZoneContent<'a> {
    fn from(slot: &'a Slot) -> ZoneContent<'a> {
        let Slot { range, thread, sequence, fields, .. } = slot;
        ZoneContent { range: *range, thread: *thread, begin_ns: slot.host.begin_ns, sequence: *sequence, fields }
    }
}
