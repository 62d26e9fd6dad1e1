//! The begin and end of a zone. This is the hot path and contains nothing else.
//!
//! `guard.rs` calls [`start`] when a mark has filled in the slot, and [`end`] when the guard is dropped.

use std::panic::Location;
use std::thread::panicking;

use crate::backend::{Call, Ended, EventPair};
use crate::catalog::RangeSpec;
use crate::clock::now_ns;
use crate::fields::Fields;
use crate::inside::Inside;
use crate::observer::{self, Active, MIRRORS, Position, Token, ZoneEnd, ZoneLaunch};
use crate::record::Status;
pub(super) use crate::stream::context::SlotGuard;
use crate::stream::slot::{Lost, Slot, Start};
use crate::stream::thread::{self, Thread};
use crate::windows::RootKind;

/// The properties of a zone at its begin: whether a session records it, its stream, and its observers.
#[derive(Clone, Copy)]
struct Launch {
    is_of_session: bool,
    /// The number of the zone's stream in the session.
    stream: u32,
    observed: Active,
}

/// Starts a zone on this thread. Returns whether there is anything to end.
#[inline]
pub(super) fn start(claim: &mut SlotGuard, nests: bool, place: &'static Location<'static>) -> bool {
    let _inside = Inside::enter();
    let (is_recorded, observed) = (claim.is_recorded(), observer::active());
    let stream = if observed.any() { claim.stream_id() } else { 0 };
    let launch = Launch { is_of_session: claim.is_of_session(), stream, observed };
    let Some(slot) = claim.slot() else { return false };
    slot.nests = nests;
    if slot.root != RootKind::None {
        slot.start_root();
    }
    if observed.has_mirror() {
        MIRRORS.into_iter().for_each(|mirror| slot.notify(mirror, launch));
    }
    if is_recorded {
        slot.begin(launch, place);
    }
    slot.waiting.has_mirror() || matches!(slot.start, Start::Begun) || slot.root != RootKind::None
}

/// Ends a zone, or gives back the slot of a zone that never started.
#[inline(never)]
pub(super) fn end(claim: SlotGuard) {
    if claim.is_inherited() {
        return leave_to_parent(claim);
    }
    let _inside = Inside::enter();
    // Dropped inside: it may be the last that holds the stream's slots.
    let mut claim = claim;
    let (is_recorded, is_of_session) = (claim.is_recorded(), claim.is_of_session());
    let is_closed = is_recorded && claim.is_closed();
    let Some(slot) = claim.slot() else { return };
    let mirrors = slot.waiting.has_mirror().then(|| slot.mirrors());
    let owner = slot.owner.take();
    let has_entries = slot.extras().is_some_and(|extras| !extras.entries.is_empty());
    if slot.root != RootKind::None {
        slot.end_root();
    }
    if is_recorded {
        match slot.end(is_of_session, is_closed) {
            Ok(()) => {
                if has_entries {
                    claim.count_entries();
                }
                claim.publish()
            }
            Err(why) => claim.give_up(why),
        }
    } else {
        claim.give_back()
    }
    if let Some(mirrors) = mirrors {
        mirrors.end();
    }
    // This comes last, because it may destroy the stream.
    if let Some(owner) = owner {
        owner.release_owner();
    }
}

/// The tools to which a zone is mirrored, and what they know it by.
struct Mirrors {
    tokens: [Option<Token>; MIRRORS.len()],
    range: Option<&'static RangeSpec>,
    nests: bool,
}

impl Mirrors {
    /// Ends the zone in each tool, in the reverse order of the begins.
    #[inline(never)]
    fn end(self) {
        let Some(range) = self.range else { return };
        let zone = ZoneEnd { range, nests: self.nests, fields: &Fields::NONE, message: None };
        for (mirror, token) in MIRRORS.into_iter().zip(self.tokens).rev() {
            if let Some(token) = token {
                observer::zone_ends(mirror, token, &zone);
            }
        }
    }
}

/// Ends a zone in a forked child of the process that began it. The parent ends the zone itself; here only the nesting depth changes.
#[cold]
fn leave_to_parent(mut claim: SlotGuard) {
    let is_of_session = claim.is_of_session();
    if claim.slot().is_some_and(|slot| slot.nests && is_of_session) {
        thread::with(Thread::pop);
    }
    // The slot belongs to the parent's stream, which this process must not drop.
    std::mem::forget(claim);
}

impl Slot {
    /// Takes the tokens of the tools to which the zone is mirrored.
    #[inline(never)]
    fn mirrors(&mut self) -> Mirrors {
        let tokens = MIRRORS.map(|mirror| self.waiting.take(mirror, &self.tokens));
        Mirrors { tokens, range: self.range, nests: self.nests }
    }

    /// Begins a recorded zone.
    #[inline]
    fn begin(&mut self, launch: Launch, place: &'static Location<'static>) {
        // Only zones of a session count for the nesting depth.
        let counts = self.nests && launch.is_of_session;
        (self.thread, self.depth) =
            thread::with(|thread| (thread.id(), if counts { thread.push(self.range) } else { 0 }));
        self.notify(Position::Spans, launch);
        self.notify(Position::Launch, launch);
        self.host.begin_ns = now_ns();
        let call = Call { thread: self.thread, begin_ns: self.host.begin_ns };
        self.start = match self.points.as_mut().map_or(Ok(()), |points| points.begin(call)) {
            Ok(()) => Start::Begun,
            Err(refused) => Start::Lost(refused.into()),
        };
        if !matches!(self.start, Start::Begun) {
            return;
        }
        if self.note.is_some() {
            self.begin_note(place);
        }
        if launch.observed.has(Position::Begun) && !self.is_captured() {
            self.notify_begin(Position::Begun, launch);
        }
    }

    /// Ends a recorded zone. An error is the reason why the zone is lost.
    #[inline]
    fn end(&mut self, is_of_session: bool, is_closed: bool) -> Result<(), Lost> {
        self.notify_end(Position::Launch);
        let thread = thread::with(|thread| {
            if self.nests && is_of_session {
                thread.pop();
            }
            thread.id()
        });
        self.notify_end(Position::Begun);
        if !self.was_panicking && panicking() {
            self.status = Status::Panicked;
        }
        match self.start {
            Start::Never => return Err(Lost::Abandoned),
            Start::Lost(why) => return Err(why),
            Start::Begun => {}
        }
        // The launch does not include the time that the end itself takes.
        let launched_ns = self.begin_at_launch.then(now_ns);
        // After the session has ended, nothing more is put on the stream for the zone.
        let ended = match &mut self.points {
            points if is_closed && !points.as_ref().is_some_and(EventPair::must_restore_capture) => {
                Err(Lost::Abandoned)
            }
            Some(points) => points.end(Call { thread, begin_ns: self.host.begin_ns }).map_err(Lost::from),
            None => Ok(Ended::Done),
        };
        self.host.end_ns = launched_ns.unwrap_or_else(now_ns).max(self.host.begin_ns);
        if let Some(note) = &self.note {
            note.launched(self.host.end_ns);
        }
        let ended = ended?;
        self.signal_end();
        if ended == Ended::AfterCapture {
            self.add_to_past_captures();
        }
        Ok(())
    }

    /// Notifies an observer of the zone's begin, if there is one.
    #[inline]
    fn notify(&mut self, position: Position, launch: Launch) {
        if launch.observed.has(position) {
            self.notify_begin(position, launch);
        }
    }

    #[inline(never)]
    fn notify_begin(&mut self, position: Position, launch: Launch) {
        let Some(range) = self.range else { return };
        let Launch { is_of_session, stream, .. } = launch;
        let (nests, sequence, is_host) = (self.nests, self.sequence, self.points.is_none());
        let (fields, extras) = (self.fields(), self.extras());
        let (before, message) =
            (extras.and_then(|extras| extras.parent), extras.and_then(|extras| extras.message.as_ref()));
        let mut zone =
            ZoneLaunch { range, fields, message, nests, is_of_session, is_host, stream, sequence, parent: before };
        let token = observer::zone_begins(position, &mut zone);
        let parent = zone.parent;
        if parent != before {
            self.extras_to_fill().parent = parent;
        }
        if let Some(token) = token {
            self.waiting.put(position, token, &mut self.tokens);
        }
    }

    /// Notifies an observer of the zone's end, if it has a token for the zone.
    #[inline]
    fn notify_end(&mut self, position: Position) {
        if let (Some(token), Some(range)) = (self.waiting.take(position, &self.tokens), self.range) {
            let message = self.extras().and_then(|extras| extras.message.as_ref());
            observer::zone_ends(position, token, &ZoneEnd { range, nests: self.nests, fields: self.fields(), message });
        }
    }
}
