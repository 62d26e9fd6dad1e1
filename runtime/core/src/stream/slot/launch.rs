//! The begin and end of the zone in a slot: its times, its points on the stream, and what observers hear of it.
//!
//! `zone/guard.rs` calls this on the launching thread: the hot path.

use std::panic::Location;
use std::thread::panicking;

use super::{Lost, Slot, Start};
use crate::backend::{Call, Ended, EndedZone, EventPair};
use crate::catalog::RangeSpec;
use crate::clock::now_ns;
use crate::fields::Fields;
use crate::observer::{self, Active, MIRRORS, Position, Token, ZoneEnd, ZoneLaunch};
use crate::record::Status;
use crate::windows::RootKind;

/// The properties of a zone at its begin: whether a session records it, its stream, and its observers.
#[derive(Clone, Copy)]
pub(crate) struct Launch {
    pub(crate) is_of_session: bool,
    /// The number of the zone's stream in the session.
    pub(crate) stream: u32,
    pub(crate) observed: Active,
}

/// The tools to which a zone is mirrored, and what they know it by.
pub(crate) struct Mirrors {
    tokens: [Option<Token>; MIRRORS.len()],
    range: Option<&'static RangeSpec>,
    nests: bool,
}

impl Mirrors {
    /// Ends the zone in each tool, in the reverse order of the begins.
    #[inline(never)]
    pub(crate) fn end(self) {
        let Some(range) = self.range else { return };
        let zone = ZoneEnd { range, nests: self.nests, fields: &Fields::NONE, message: None };
        for (mirror, token) in MIRRORS.into_iter().zip(self.tokens).rev() {
            if let Some(token) = token {
                observer::zone_ends(mirror, token, &zone);
            }
        }
    }
}

impl Slot {
    /// Notes whether the zone nests on its thread, starts its root if it is one, and tells tools that it begins.
    #[inline]
    pub(crate) fn start(
        &mut self,
        nests: bool,
        launch: Launch,
        root: impl FnOnce(&'static RangeSpec, bool) -> RootKind,
    ) {
        self.nests = nests;
        if self.root != RootKind::None {
            let is_followed = self.root == RootKind::ToFollow;
            self.root = self.range.map_or(RootKind::None, |range| root(range, is_followed));
        }
        if launch.observed.has_mirror() {
            MIRRORS.into_iter().for_each(|mirror| self.notify(mirror, launch));
        }
    }

    /// Returns whether anything is left to do at the zone's end.
    #[inline]
    pub(crate) fn must_end(&self) -> bool {
        self.waiting.has_mirror() || self.has_begun() || self.root != RootKind::None
    }

    /// Returns whether the zone is part of the nesting of the thread that began it.
    #[inline]
    pub(crate) fn nests(&self) -> bool {
        self.nests
    }

    /// Returns the range of the zone; none for a wait.
    #[inline]
    pub fn range(&self) -> Option<&'static RangeSpec> {
        self.range
    }

    /// Returns the tools that see the zone, which must be told of its end last.
    #[inline]
    pub(crate) fn take_mirrors(&mut self) -> Option<Mirrors> {
        if self.waiting.has_mirror() { Some(self.mirrors()) } else { None }
    }

    #[inline(never)]
    fn mirrors(&mut self) -> Mirrors {
        let tokens = MIRRORS.map(|mirror| self.waiting.take(mirror, &self.tokens));
        Mirrors { tokens, range: self.range, nests: self.nests }
    }

    /// Ends the root that the zone may be. `root` gets none if it never started.
    #[inline]
    pub(crate) fn end_root(&self, root: impl FnOnce(Option<&'static RangeSpec>, RootKind, u32)) {
        if self.root != RootKind::None {
            // It never started if one of its fields panicked: the root that it would be in goes on.
            let has_started = !matches!(self.root, RootKind::ToRecord | RootKind::ToFollow);
            root(self.range.filter(|_| has_started), self.root, self.sampled.window());
        }
    }

    /// Begins a recorded zone on this thread, at this depth of its nesting.
    #[inline]
    pub(crate) fn begin(&mut self, launch: Launch, (thread, depth): (u64, u32), place: &'static Location<'static>) {
        (self.thread, self.depth) = (thread, depth);
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
        if self.snapshot.is_some() {
            self.begin_snapshot(place);
        }
        if launch.observed.has(Position::Begun) && !self.is_captured() {
            self.notify_begin(Position::Begun, launch);
        }
    }

    /// Tells the observer of launches of the end of a recorded zone.
    #[inline]
    pub(crate) fn end_launch(&mut self) {
        self.notify_end(Position::Launch);
    }

    /// Ends a recorded zone on this thread. An error is the reason why the zone is lost.
    #[inline]
    pub(crate) fn end(&mut self, thread: u64, is_closed: bool) -> Result<(), Lost> {
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
        if let Some(snapshot) = &self.snapshot {
            snapshot.launched(self.host.end_ns);
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

    /// Puts the events of requests on the stream, behind the zone's end.
    #[inline]
    fn signal_end(&mut self) {
        if self.has_extras
            && let Some(ticket) = &mut self.extras.ticket
        {
            ticket.ended();
        }
    }

    /// Adds a zone that ended on a capturing stream to the graph. Returns false if its place in the graph is unknown.
    pub(in crate::stream) fn add_to_capture(&mut self) -> bool {
        let Some(mut points) = self.points.take() else { return false };
        let is_added = self.ended().is_some_and(|zone| points.add_to_capture(zone));
        self.points = Some(points);
        is_added
    }

    /// Adds a zone with times to the graphs that were captured on its stream while it was open.
    #[cold]
    fn add_to_past_captures(&self) {
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
    fn is_captured(&self) -> bool {
        matches!(self.points, Some(EventPair::Captured(_)))
    }

    /// Publishes the zone, which began at this place, in the snapshot.
    #[cold]
    fn begin_snapshot(&self, place: &'static Location<'static>) {
        if let Some(snapshot) = &self.snapshot {
            snapshot.begin(self, place);
        }
    }
}
