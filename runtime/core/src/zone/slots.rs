//! Takes the slot of a zone: from the ring of its stream, of the host zones, of a capture, or of its thread.
//!
//! Without a session or an NVTX tool, a zone costs one relaxed load and two branches. Everything that only a recording needs is in
//! functions that are not inlined, so that it uses neither registers nor stack of the marked function. `asked.rs` handles zones for which a
//! request waits. A zone that only an NVTX tool sees takes a slot of its own thread, and gives it back.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread::panicking;

use super::builder::ZoneBuilder;
use super::guard::Guard;
use crate::backend::{AsStream, NoKey, StreamRef};
use crate::catalog::RangeSpec;
use crate::inside::{self, Inside};
use crate::observer;
use crate::profile;
use crate::sample::{Chance, Sampled, may_be_sampled};
use crate::stream::context::{MOST_MIRRORED, NoSlot, StreamContext};
use crate::stream::current;
use crate::stream::thread::{self, Thread};
use crate::switch::{self, SwitchState};
use crate::windows::{self, Admission, RootKind};

/// See [`ZoneRequest`](super::ZoneRequest).
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) range: &'static RangeSpec,
    /// What the zone is for, and above it the chance with which the session records it: in one word, so that a request is in two registers.
    word_and_chance: u64,
}

/// See [`begin`](super::begin).
#[inline(always)]
pub(super) fn wanted(range: &'static RangeSpec) -> Option<Wanted> {
    switch::word().and_then(|word| Wanted::by(range, word))
}

impl Wanted {
    #[inline]
    fn new(range: &'static RangeSpec, word: SwitchState, chance: Chance) -> Wanted {
        Wanted { range, word_and_chance: u64::from(chance.bits()) << 32 | u64::from(word.bits()) }
    }

    #[inline]
    pub(super) fn word(self) -> SwitchState {
        SwitchState::of_bits(self.word_and_chance as u32)
    }

    #[inline]
    fn chance(self) -> Chance {
        Chance::of_bits((self.word_and_chance >> 32) as u32)
    }

    /// Returns the same request for what another word says.
    #[inline]
    pub(super) fn with(self, word: SwitchState) -> Wanted {
        Wanted::new(self.range, word, self.chance())
    }

    /// Returns a request for a zone of this range. Returns none if the range is excluded, or if the switch is set only because no tool was
    /// looked for yet.
    #[inline(never)]
    fn by(range: &'static RangeSpec, mut word: SwitchState) -> Option<Wanted> {
        if inside::refuses() {
            return None;
        }
        word = word.acquire();
        if word.is_unknown() {
            observer::first_zone();
            word = switch::word()?.acquire();
        }
        let is_asked = word.is_armed() && profile::is_asked(range);
        if word.is_windowed() {
            return Wanted::in_window(range, word, is_asked);
        }
        let taken = word.epoch().and_then(|_| range.chance().take());
        let mut of_zone = word.of_zone(taken.is_some(), is_asked);
        if taken.is_none() && windows::takes_captures() && word.epoch().is_some() && !range.chance().is_left_out() {
            of_zone = word.of_captures(of_zone);
        }
        of_zone.map(|word| Wanted::new(range, word, taken.unwrap_or(Chance::ALWAYS)))
    }

    /// Returns a request in a session that records windows of its time, and all collectives.
    #[cold]
    #[inline(never)]
    fn in_window(range: &'static RangeSpec, word: SwitchState, is_asked: bool) -> Option<Wanted> {
        let is_wanted = word.epoch().is_some() && !range.chance().is_left_out();
        let mut chance = Chance::ALWAYS;
        let word = match may_be_sampled(range) {
            _ if !is_wanted => word.of_zone(false, is_asked),
            false => word.of_zone(true, is_asked),
            true => match windows::admit(range) {
                Admission::Refused => Wanted::or_captured(word, word.of_zone(false, is_asked)),
                Admission::Followed => Wanted::or_captured(word, word.of_followed(is_asked)),
                Admission::Recorded => match range.chance().take() {
                    Some(taken) => {
                        chance = taken;
                        word.of_zone(true, is_asked).map(SwitchState::in_window)
                    }
                    None => {
                        windows::lose();
                        Wanted::or_captured(word, word.of_zone(false, is_asked))
                    }
                },
            },
        };
        word.map(|word| Wanted::new(range, word, chance))
    }

    /// Adds to what a zone outside of a window, or of a sample, is for that it is recorded if it is captured.
    fn or_captured(word: SwitchState, otherwise: Option<SwitchState>) -> Option<SwitchState> {
        if windows::takes_captures() { word.of_captures(otherwise) } else { otherwise }
    }

    /// See [`ZoneRequest::on`](super::ZoneRequest::on).
    #[inline]
    pub(super) fn on(self, stream: &(impl AsStream + ?Sized)) -> Option<ZoneBuilder> {
        if self.word().is_only_mirrored() { self.mirrored() } else { self.on_stream(&stream.as_stream()) }
    }

    #[inline(never)]
    pub(super) fn on_stream(self, stream: &StreamRef<'_>) -> Option<ZoneBuilder> {
        if self.word().is_armed() {
            return self.asked(Some(stream));
        }
        let Some(epoch) = self.word().epoch() else { return self.mirrored() };
        match stream.key {
            Err(NoKey::Captured) => return self.in_capture(epoch, stream).or_else(|| self.mirrored()),
            _ if self.word().is_for_captures() => return self.mirrored(),
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

    /// Takes a slot for a zone that is captured into a graph on its stream.
    #[cold]
    fn in_capture(self, epoch: NonZeroU32, stream: &StreamRef<'_>) -> Option<ZoneBuilder> {
        let _inside = Inside::enter();
        let captures = Arc::clone(current::recorder(epoch)?.captures());
        // If captured zones are recorded, all of them are, also those that were not drawn.
        let mut builder = Wanted::new(self.range, self.word(), Chance::ALWAYS).open(captures).ok()?;
        if let Some(slot) = builder.0.slot() {
            slot.points = stream.capture_points();
        }
        if self.word().is_for_captures() && !switch::word().is_some_and(SwitchState::is_windowed) {
            self.range.chance().choose_after_all();
        }
        builder.follow(self.word());
        Some(builder.owning(stream))
    }

    /// See [`ZoneRequest::on_host`](super::ZoneRequest::on_host).
    #[inline(never)]
    pub(super) fn on_host(self) -> Option<ZoneBuilder> {
        if self.word().is_armed() {
            return self.asked(None);
        }
        if self.word().is_for_captures() {
            return self.mirrored();
        }
        let context = self.word().epoch().and_then(|epoch| thread::with(|thread| thread.host_context(epoch)));
        context.and_then(|context| self.open(context).ok()).or_else(|| self.mirrored())
    }

    /// Takes a slot of the thread for a zone that no session records, if a tool observes zones or the zone is followed.
    #[inline(never)]
    pub(super) fn mirrored(self) -> Option<ZoneBuilder> {
        if !switch::is_mirrored() && !self.word().is_followed() {
            return None;
        }
        let _inside = Inside::enter();
        let mirror = thread::with(Thread::mirror)?;
        let mut builder = self.open(mirror).inspect_err(|_| observer::zone_lost(MOST_MIRRORED)).ok()?;
        builder.follow(self.word());
        Some(builder)
    }

    #[inline]
    fn open(self, context: Arc<StreamContext>) -> Result<ZoneBuilder, NoSlot> {
        let builder = ZoneBuilder::in_ring(self.range, self.chance(), context);
        if self.word().is_windowed() { Wanted::place_in_window(builder) } else { builder }
    }

    #[cold]
    fn place_in_window(mut builder: Result<ZoneBuilder, NoSlot>) -> Result<ZoneBuilder, NoSlot> {
        match builder.as_mut().map(|builder| builder.0.slot()) {
            Ok(Some(slot)) => {
                slot.sampled = windows::sampled(slot.sampled);
                slot.root = RootKind::ToRecord;
            }
            Ok(None) => {}
            Err(_) => windows::lose(),
        }
        builder
    }
}

impl ZoneBuilder {
    /// Creates a zone with a slot of this context's ring.
    #[inline]
    pub(super) fn in_ring(
        range: &'static RangeSpec,
        chance: Chance,
        context: Arc<StreamContext>,
    ) -> Result<ZoneBuilder, NoSlot> {
        let claim = context.claim(|slot| {
            slot.range = Some(range);
            slot.sampled = Sampled::by(chance);
            slot.was_panicking = panicking();
        })?;
        Ok(ZoneBuilder(Guard(Some(claim))))
    }

    /// Follows a root that no session records until it ends.
    #[inline]
    pub(super) fn follow(&mut self, word: SwitchState) {
        if let Some(slot) = self.0.slot().filter(|_| word.is_followed()) {
            slot.root = RootKind::ToFollow;
        }
    }

    /// Makes the zone own a handle on its stream until it ends, because the application may drop the stream earlier.
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
