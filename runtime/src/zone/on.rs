//! Begin and end of a zone: the hot path. Nothing else lives here.
//!
//! A mark asks [`begin`] whether anything records; if so, [`Begin`] finds the stream and takes a slot, [`Opening`] fills it
//! in and starts the zone, and [`Guard`] ends it. With no session a zone is one relaxed load and two branches: whatever
//! only a recording needs is called out of line, so that it takes neither registers nor stack from the function.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread::panicking;

use super::{AsyncZone, Zone};
use crate::backend::Call;
use crate::catalog::RangeSpec;
use crate::clock::now_ns;
use crate::fields::{Fields, IntoValue};
use crate::record::Status;
use crate::stream::context::{Claim, NoSlot, StreamContext};
use crate::stream::slot::{Lost, Start};
use crate::stream::thread;
use crate::stream::{AsStream, StreamRef};
use crate::switch;

/// A zone whose stream is not known yet: a session is on.
#[doc(hidden)]
#[derive(Debug)]
pub struct Begin {
    range: &'static RangeSpec,
    epoch: NonZeroU32,
}

/// A zone that has its slot and has not started. Dropped, it counts as unfinished.
#[doc(hidden)]
#[derive(Debug)]
pub struct Opening(Guard);

/// Ends its zone when it is dropped; none where nothing records.
///
/// Two words, the first never null: a zone that does not record is a zero and travels in registers. Everything else that a
/// zone has to remember until its end is in its slot.
pub(super) struct Guard(Option<Claim>);

const _: () = assert!(size_of::<Guard>() == 16);

/// All that a program pays while nobody records: the switch, and a branch.
#[doc(hidden)]
#[inline(always)]
pub fn begin(range: &'static RangeSpec) -> Option<Begin> {
    switch::epoch().map(|epoch| Begin { range, epoch })
}

impl Begin {
    /// Takes a slot of the stream's ring; none when the range is left out, or the zone is dropped and counted.
    #[inline]
    pub fn on(self, stream: &(impl AsStream + ?Sized)) -> Option<Opening> {
        if self.range.chance().take() { self.on_stream(&stream.as_stream()) } else { None }
    }

    /// Takes a slot of the ring of the host zones.
    #[inline(never)]
    pub fn on_host(self) -> Option<Opening> {
        if !self.range.chance().take() {
            return None;
        }
        self.open(thread::with(|thread| thread.host_context(self.epoch))?).ok()
    }

    #[inline(never)]
    fn on_stream(self, stream: &StreamRef<'_>) -> Option<Opening> {
        let context = || thread::with(|thread| thread.context(self.epoch, stream));
        match self.open(context()?) {
            Err(NoSlot::Retired) => self.open(context()?).ok(),
            opening => opening.ok(),
        }
    }

    #[inline]
    fn open(&self, context: Arc<StreamContext>) -> Result<Opening, NoSlot> {
        let mut claim = context.claim()?;
        if let Some(slot) = claim.slot() {
            slot.range = Some(self.range);
            slot.sampled = self.range.chance().now();
            slot.was_panicking = panicking();
        }
        Ok(Opening(Guard(Some(claim))))
    }
}

impl Opening {
    /// Adds a field. The user's expressions run before anything is timed: they may take long, and they may panic.
    #[inline(never)]
    pub fn field(mut self, name: &'static str, value: impl IntoValue) -> Opening {
        self.0.change(|fields| fields.push(name, value));
        self
    }

    /// Sets the zone's own label.
    #[inline(never)]
    pub fn label(mut self, label: impl Display) -> Opening {
        self.0.change(|fields| fields.set_label(label));
        self
    }

    /// Starts the zone on this thread.
    #[inline(never)]
    pub fn start(self) -> Zone {
        Zone { guard: self.0.start(true), _not_send: PhantomData }
    }

    /// Starts the zone; any thread may end it.
    #[inline(never)]
    pub fn start_async(self) -> AsyncZone {
        AsyncZone { guard: self.0.start(false) }
    }
}

impl Guard {
    pub(super) const NONE: Guard = Guard(None);

    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.0.is_some()
    }

    #[inline]
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Fields)) {
        if let Some(slot) = self.0.as_mut().and_then(Claim::slot) {
            change(&mut slot.fields);
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
    fn start(mut self, nested: bool) -> Guard {
        let Some(slot) = self.0.as_mut().and_then(Claim::slot) else { return Guard::NONE };
        slot.nested = nested;
        (slot.thread, slot.depth) = thread::with(|thread| (thread.id, if nested { thread.push() } else { 0 }));
        #[cfg(feature = "tracy")]
        {
            slot.in_tracy = crate::tracy::launch::begin(slot.range, nested, slot.points.is_none());
        }
        slot.host.begin_ns = now_ns();
        let call = Call { thread: slot.thread, host_ns: slot.host.begin_ns };
        slot.start = match slot.points.as_mut().map_or(Ok(()), |points| points.begin(call)) {
            Ok(()) => Start::Begun,
            Err(refused) => Start::Lost(refused.into()),
        };
        if matches!(slot.start, Start::Begun) { self } else { Guard::NONE }
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
    let is_closed = claim.is_closed();
    let Some(slot) = claim.slot() else { return };
    #[cfg(feature = "tracy")]
    crate::tracy::launch::end(slot.in_tracy.take(), slot.fields.label());
    let thread = thread::with(|thread| {
        if slot.nested {
            thread.pop();
        }
        thread.id
    });
    if !slot.was_panicking && panicking() {
        slot.status = Status::Panicked;
    }
    match slot.start {
        Start::Never => return claim.give_up(Lost::Abandoned),
        Start::Lost(why) => return claim.give_up(why),
        Start::Begun => {}
    }
    // After the session's end nothing more is put on the stream for it.
    let ended = match &mut slot.points {
        _ if is_closed => Err(Lost::Abandoned),
        Some(points) => points.end(thread).map_err(Lost::from),
        None => Ok(()),
    };
    slot.host.end_ns = now_ns();
    match ended {
        Ok(()) => claim.publish(),
        Err(why) => claim.give_up(why),
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.is_active()).finish()
    }
}
