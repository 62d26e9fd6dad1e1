//! Begin and end of a zone: the hot path. Nothing else lives here.
//!
//! A mark asks [`begin`] whether anything records; if so, [`Begin`] finds the stream and takes a slot, [`Opening`] fills it
//! in and starts the zone, and [`Guard`] ends it. With no session and no NVTX tool a zone is one relaxed load and two
//! branches: whatever only a recording needs is called out of line, so that it takes neither registers nor stack from the
//! function. Zones that a request is waiting for are in `asked.rs`. A zone that only an NVTX tool sees takes a slot of its
//! thread's own, and gives it back.

use std::fmt;
use std::num::NonZeroU32;
use std::panic::Location;
use std::sync::Arc;
use std::thread::panicking;

use super::Opening;
use crate::backend::{Call, Ended, Points};
use crate::catalog::RangeSpec;
use crate::clock::now_ns;
use crate::collective::Message;
use crate::fields::Fields;
use crate::inside::{self, Inside};
use crate::nvtx;
use crate::profile;
use crate::record::Status;
use crate::stream::context::{Claim, MOST_MIRRORED, NoSlot, StreamContext};
use crate::stream::slot::{Lost, MAX_ENTRIES, Slot, Start};
use crate::stream::thread::{self, Thread};
use crate::stream::{AsStream, NoKey, StreamRef, current};
use crate::switch::{self, Word};

/// A zone whose stream is not known yet, and that a session records, that somebody asked for, or that an NVTX tool is told of.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Begin {
    pub(super) range: &'static RangeSpec,
    /// Who wants it.
    pub(super) word: Word,
}

/// Ends its zone when it is dropped; none where nothing records.
///
/// Two words, the first never null: a zone that does not record is a zero and travels in registers. Everything else that a
/// zone has to remember until its end is in its slot.
pub(super) struct Guard(pub(super) Option<Claim>);

const _: () = assert!(size_of::<Guard>() == 16);
/// It comes back in registers, too.
const _: () = assert!(size_of::<Option<Begin>>() == 16);

/// All that a program pays while nobody records: the switch, and a branch.
#[doc(hidden)]
#[inline(always)]
pub fn begin(range: &'static RangeSpec) -> Option<Begin> {
    switch::word().and_then(|word| Begin::wanted(range, word))
}

impl Begin {
    /// A zone of this range, unless all that the switch says is that nobody has looked for a tool, or the range is left out.
    #[inline(never)]
    fn wanted(range: &'static RangeSpec, mut word: Word) -> Option<Begin> {
        if inside::refuses() {
            return None;
        }
        if word.is_unknown() {
            nvtx::look(None);
            word = switch::word()?;
        }
        let is_taken = word.epoch().is_some() && range.chance().take();
        let is_asked = word.is_armed() && profile::is_asked(range);
        word.of_zone(is_taken, is_asked).map(|word| Begin { range, word })
    }

    /// See [`Begin::on`].
    #[inline]
    pub(super) fn opened_on(self, stream: &(impl AsStream + ?Sized)) -> Option<Opening> {
        if self.word.is_only_mirrored() { self.mirrored() } else { self.on_stream(&stream.as_stream()) }
    }

    #[inline(never)]
    pub(super) fn on_stream(self, stream: &StreamRef<'_>) -> Option<Opening> {
        if self.word.is_armed() {
            return self.asked(Some(stream));
        }
        let Some(epoch) = self.word.epoch() else { return self.mirrored() };
        match stream.key {
            Err(NoKey::Captured) => return self.in_capture(epoch, stream).or_else(|| self.mirrored()),
            Err(NoKey::NoStream) => return self.on_host(),
            _ => {}
        }
        let context = || thread::with(|thread| thread.context(epoch, stream)).ok_or(NoSlot::None);
        let opening = match context().and_then(|context| self.open(context)) {
            Err(NoSlot::Retired) => context().and_then(|context| self.open(context)),
            opening => opening,
        };
        opening.ok().map(|opening| opening.owning(stream)).or_else(|| self.mirrored())
    }

    /// Takes a slot for a zone that is captured into a graph with its stream.
    #[cold]
    fn in_capture(self, epoch: NonZeroU32, stream: &StreamRef<'_>) -> Option<Opening> {
        let _inside = Inside::enter();
        let captures = Arc::clone(current::recorder(epoch)?.captures());
        let mut opening = self.open(captures).ok()?;
        if let Some(slot) = opening.0.0.as_mut().and_then(Claim::slot) {
            slot.points = stream.capture_points();
        }
        Some(opening.owning(stream))
    }

    /// See [`Begin::on_host`].
    #[inline(never)]
    pub(super) fn opened_on_host(self) -> Option<Opening> {
        if self.word.is_armed() {
            return self.asked(None);
        }
        let context = self.word.epoch().and_then(|epoch| thread::with(|thread| thread.host_context(epoch)));
        context.and_then(|context| self.open(context).ok()).or_else(|| self.mirrored())
    }

    /// Takes a slot of the thread's own for a zone that no session records, if a tool is to be told of it.
    #[inline(never)]
    pub(super) fn mirrored(self) -> Option<Opening> {
        if !switch::is_mirrored() {
            return None;
        }
        let _inside = Inside::enter();
        self.open(thread::with(Thread::mirror)).inspect_err(|_| nvtx::lose(MOST_MIRRORED)).ok()
    }

    #[inline]
    fn open(self, context: Arc<StreamContext>) -> Result<Opening, NoSlot> {
        Opening::of(self.range, context)
    }
}

impl Opening {
    /// A zone with a slot of its own.
    #[inline]
    pub(super) fn of(range: &'static RangeSpec, context: Arc<StreamContext>) -> Result<Opening, NoSlot> {
        let mut claim = context.claim()?;
        if let Some(slot) = claim.slot() {
            slot.range = Some(range);
            slot.sampled = range.chance().now();
            slot.was_panicking = panicking();
        }
        Ok(Opening(Guard(Some(claim))))
    }

    /// The zone owns a handle on its stream until it ends: the application may drop the stream before.
    #[inline]
    pub(super) fn owning(mut self, stream: &StreamRef<'_>) -> Opening {
        if let Some(owner) = stream.keep_alive()
            && let Some(slot) = self.0.0.as_mut().and_then(Claim::slot)
        {
            slot.owner = Some(owner);
        }
        self
    }
}

impl Guard {
    pub(super) const NONE: Guard = Guard(None);

    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.0.as_ref().is_some_and(Claim::is_recorded)
    }

    #[inline]
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Fields)) {
        if let Some(slot) = self.0.as_mut().and_then(Claim::slot) {
            let _inside = Inside::enter();
            change(&mut slot.fields);
            if slot.note.is_some() && matches!(slot.start, Start::Begun) {
                slot.write_note();
            }
        }
    }

    pub(super) fn set_message(&mut self, mut message: Message) {
        let Some(claim) = self.0.as_mut().filter(|claim| claim.is_recorded()) else { return };
        let _inside = Inside::enter();
        // A group counts what sessions record.
        if claim.is_of_session() {
            message.begin();
        }
        if let Some(slot) = claim.slot() {
            slot.message = Some(message);
        }
    }

    pub(super) fn add_entry(&mut self, range: &'static RangeSpec, mut message: Message) {
        let Some(claim) = self.0.as_mut().filter(|claim| claim.is_recorded()) else { return };
        let _inside = Inside::enter();
        let is_of_session = claim.is_of_session();
        let Some(slot) = claim.slot().filter(|slot| matches!(slot.start, Start::Begun)) else { return };
        if !range.chance().take() {
            return;
        }
        if slot.entries.len() == MAX_ENTRIES {
            return claim.lose_entry();
        }
        if is_of_session {
            message.begin();
        }
        slot.entries.push((range, message));
    }

    #[inline]
    pub(super) fn begin_at_launch(&mut self) {
        if let Some(slot) = self.0.as_mut().and_then(Claim::slot) {
            slot.begin_at_launch = true;
        }
    }

    #[inline]
    pub(super) fn note_error(&mut self, text: Option<String>) {
        if let (Some(slot), Some(text)) = (self.0.as_mut().and_then(Claim::slot), text) {
            slot.status = Status::Error;
            slot.error = Some(text.into());
        }
    }

    #[inline]
    pub(super) fn start(mut self, nested: bool, place: &'static Location<'static>) -> Guard {
        let Some(claim) = &mut self.0 else { return Guard::NONE };
        let _inside = Inside::enter();
        let (is_recorded, is_of_session) = (claim.is_recorded(), claim.is_of_session());
        #[cfg(feature = "cupti")]
        let stream = if crate::cupti::is_on() { claim.stream_id() } else { 0 };
        let Some(slot) = claim.slot() else { return Guard::NONE };
        if let Some(range) = slot.range.filter(|_| switch::is_mirrored()) {
            slot.mirror = thread::with(|thread| nvtx::begin(range, &slot.fields, thread, nested));
        }
        if is_recorded {
            slot.begin(nested, is_of_session, place);
            // A zone that may end on another thread, and let others run on this one meanwhile, says nothing of launches; one that
            // is captured has none.
            #[cfg(feature = "cupti")]
            if nested && is_of_session && matches!(slot.start, Start::Begun) && !slot.is_captured() {
                slot.in_cupti = crate::cupti::enter(slot.range, stream, slot.sequence);
            }
        }
        // What has nothing to end ends here.
        if slot.mirror.is_some() || matches!(slot.start, Start::Begun) { self } else { Guard::NONE }
    }
}

impl Slot {
    #[inline]
    fn begin(&mut self, nested: bool, is_of_session: bool, place: &'static Location<'static>) {
        // What no session has is not between zones that one has.
        let nested = nested && is_of_session;
        self.nested = nested;
        (self.thread, self.depth) = thread::with(|thread| (thread.id(), if nested { thread.push() } else { 0 }));
        #[cfg(feature = "tracing")]
        {
            self.parent = crate::spans::innermost();
        }
        #[cfg(feature = "tracy")]
        {
            let range = self.range.filter(|_| is_of_session);
            self.in_tracy = crate::tracy::launch::begin(range, nested, is_of_session && self.points.is_none());
        }
        self.host.begin_ns = now_ns();
        let call = Call { thread: self.thread, host_ns: self.host.begin_ns };
        self.start = match self.points.as_mut().map_or(Ok(()), |points| points.begin(call)) {
            Ok(()) => Start::Begun,
            Err(refused) => Start::Lost(refused.into()),
        };
        if self.note.is_some() && matches!(self.start, Start::Begun) {
            self.begin_note(place);
        }
    }
}

impl Drop for Guard {
    /// No more than the call, so that it is inlined where most zones do not record.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(claim) = self.0.take() {
            end(claim);
        }
    }
}

#[inline(never)]
fn end(mut claim: Claim) {
    if claim.is_inherited() {
        return leave_to_parent(claim);
    }
    let _inside = Inside::enter();
    let is_recorded = claim.is_recorded();
    let is_closed = is_recorded && claim.is_closed();
    let Some(slot) = claim.slot() else { return };
    let mirror = slot.mirror.take();
    let owner = slot.owner.take();
    if is_recorded {
        match slot.end(is_closed) {
            Ok(()) => claim.publish(),
            Err(why) => claim.give_up(why),
        }
    } else {
        claim.give_back()
    }
    if let Some(open) = mirror {
        nvtx::end(open);
    }
    // Last of all: the stream may go with it.
    if let Some(owner) = owner {
        owner.let_go();
    }
}

/// The end of a zone in a child of the process that began it, where it ends as well. Here it only counts no more as open.
#[cold]
fn leave_to_parent(mut claim: Claim) {
    if claim.slot().is_some_and(|slot| slot.nested) {
        thread::with(Thread::pop);
    }
    // It holds what makes up the stream, which is not this process's to drop.
    std::mem::forget(claim);
}

impl Slot {
    /// The end of a zone that is recorded; an error is why it is lost.
    #[inline]
    fn end(&mut self, is_closed: bool) -> Result<(), Lost> {
        #[cfg(feature = "tracy")]
        crate::tracy::launch::end(self.in_tracy.take(), self.fields.label());
        let thread = thread::with(|thread| {
            if self.nested {
                thread.pop();
            }
            thread.id()
        });
        #[cfg(feature = "cupti")]
        crate::cupti::leave(self.in_cupti.take());
        if !self.was_panicking && panicking() {
            self.status = Status::Panicked;
        }
        match self.start {
            Start::Never => return Err(Lost::Abandoned),
            Start::Lost(why) => return Err(why),
            Start::Begun => {}
        }
        // What the end itself takes is no part of the launch.
        let launched_ns = self.begin_at_launch.then(now_ns);
        // After the session's end nothing more is put on the stream for it.
        let ended = match &mut self.points {
            points if is_closed && !points.as_ref().is_some_and(Points::must_restore_capture) => Err(Lost::Abandoned),
            Some(points) => points.end(thread).map_err(Lost::from),
            None => Ok(Ended::Done),
        };
        self.host.end_ns = launched_ns.unwrap_or_else(now_ns);
        if let Some(note) = &self.note {
            note.launched(self.host.end_ns);
        }
        if ended? == Ended::AfterCapture {
            self.add_to_past_captures();
        }
        Ok(())
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.is_active()).finish()
    }
}
