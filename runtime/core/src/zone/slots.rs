//! How a zone that somebody wants gets its slot: in the ring of its stream, of the host zones, of a capture, or of its thread.
//!
//! With no session and no NVTX tool a zone is one relaxed load and two branches: whatever only a recording needs is called out
//! of line, so that it takes neither registers nor stack from the marked function. Zones that a request is waiting for are in
//! `asked.rs`. A zone that only an NVTX tool sees takes a slot of its thread's own, and gives it back.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread::panicking;

use super::guard::Guard;
use super::request::{ZoneBuilder, ZoneRequest};
use crate::backend::{AsStream, NoKey, StreamRef};
use crate::catalog::RangeSpec;
use crate::inside::{self, Inside};
use crate::observer;
use crate::profile;
use crate::stream::context::{MOST_MIRRORED, NoSlot, StreamContext};
use crate::stream::current;
use crate::stream::thread::{self, Thread};
use crate::switch::{self, SwitchState};

impl ZoneRequest {
    /// A zone of this range, unless all that the switch says is that nobody has looked for a tool, or the range is left out.
    #[inline(never)]
    pub(super) fn wanted(range: &'static RangeSpec, mut word: SwitchState) -> Option<ZoneRequest> {
        if inside::refuses() {
            return None;
        }
        if word.is_unknown() {
            observer::first_zone();
            word = switch::word()?;
        }
        let is_taken = word.epoch().is_some() && range.chance().take();
        let is_asked = word.is_armed() && profile::is_asked(range);
        word.of_zone(is_taken, is_asked).map(|word| ZoneRequest { range, word })
    }

    /// See [`ZoneRequest::on`].
    #[inline]
    pub(super) fn opened_on(self, stream: &(impl AsStream + ?Sized)) -> Option<ZoneBuilder> {
        if self.word.is_only_mirrored() { self.mirrored() } else { self.on_stream(&stream.as_stream()) }
    }

    #[inline(never)]
    pub(super) fn on_stream(self, stream: &StreamRef<'_>) -> Option<ZoneBuilder> {
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
        let builder = match context().and_then(|context| self.open(context)) {
            Err(NoSlot::Retired) => context().and_then(|context| self.open(context)),
            builder => builder,
        };
        builder.ok().map(|builder| builder.owning(stream)).or_else(|| self.mirrored())
    }

    /// Takes a slot for a zone that is captured into a graph with its stream.
    #[cold]
    fn in_capture(self, epoch: NonZeroU32, stream: &StreamRef<'_>) -> Option<ZoneBuilder> {
        let _inside = Inside::enter();
        let captures = Arc::clone(current::recorder(epoch)?.captures());
        let mut builder = self.open(captures).ok()?;
        if let Some(slot) = builder.0.slot() {
            slot.points = stream.capture_points();
        }
        Some(builder.owning(stream))
    }

    /// See [`ZoneRequest::on_host`].
    #[inline(never)]
    pub(super) fn opened_on_host(self) -> Option<ZoneBuilder> {
        if self.word.is_armed() {
            return self.asked(None);
        }
        let context = self.word.epoch().and_then(|epoch| thread::with(|thread| thread.host_context(epoch)));
        context.and_then(|context| self.open(context).ok()).or_else(|| self.mirrored())
    }

    /// Takes a slot of the thread's own for a zone that no session records, if a tool is to be told of it.
    #[inline(never)]
    pub(super) fn mirrored(self) -> Option<ZoneBuilder> {
        if !switch::is_mirrored() {
            return None;
        }
        let _inside = Inside::enter();
        self.open(thread::with(Thread::mirror)).inspect_err(|_| observer::zone_lost(MOST_MIRRORED)).ok()
    }

    #[inline]
    fn open(self, context: Arc<StreamContext>) -> Result<ZoneBuilder, NoSlot> {
        ZoneBuilder::in_ring(self.range, context)
    }
}

impl ZoneBuilder {
    /// A zone with a slot of its own.
    #[inline]
    pub(super) fn in_ring(range: &'static RangeSpec, context: Arc<StreamContext>) -> Result<ZoneBuilder, NoSlot> {
        let mut claim = context.claim()?;
        if let Some(slot) = claim.slot() {
            slot.range = Some(range);
            slot.sampled = range.chance().now();
            slot.was_panicking = panicking();
        }
        Ok(ZoneBuilder(Guard(Some(claim))))
    }

    /// The zone owns a handle on its stream until it ends: the application may drop the stream before.
    #[inline]
    pub(super) fn owning(mut self, stream: &StreamRef<'_>) -> ZoneBuilder {
        if let Some(owner) = stream.keep_alive()
            && let Some(slot) = self.0.slot()
        {
            slot.owner = Some(owner);
        }
        self
    }
}
