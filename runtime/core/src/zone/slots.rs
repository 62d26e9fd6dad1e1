//! Decides what a zone is for, and takes its slot by that: from the ring of its stream, of the host zones, of a capture, or of its thread.
//!
//! A mark asks the switch, which says what is on in the process. The answer for its zone is a [`Purpose`]: the session that records it, a
//! request for it, a tool that sees it.
//!
//! Without a session or an NVTX tool, a zone costs one relaxed load and two branches. Everything that only a recording needs is in
//! functions that are not inlined, so that it uses neither registers nor stack of the marked function. A zone that was requested
//! carries in its slot the ticket that answers the request; if no session records it, it takes a slot only for the request. A zone
//! that only an NVTX tool sees takes a slot of its own thread, and gives it back.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread::panicking;

use super::Zone;
use super::builder::ZoneBuilder;
use super::guard::Guard;
use super::request::ZoneRequest;
use crate::backend::{AsStream, NoKey, StreamRef};
use crate::catalog::RangeSpec;
use crate::observer;
use crate::profile::{self, answers::Shared, error::ProfileError, requests::PendingAnswers};
use crate::reentrancy::{self, Inside};
use crate::sample::{Chance, may_be_sampled};
use crate::stream::context::{MOST_MIRRORED, NoSlot, StreamContext};
use crate::stream::recorder;
use crate::stream::thread::{self, Thread};
use crate::switch::{self, ARMED, EPOCH, EPOCH_SHIFT, MIRRORED, SwitchState};
use crate::windows::Admission;

/// The session records the zone only if it is captured.
const IF_CAPTURED: u32 = 1;
/// A tool sees the zone. The same bit as in the switch, as is the next.
const OBSERVED: u32 = MIRRORED;
/// The zone was requested.
const REQUESTED: u32 = ARMED;
/// The session records the zone in a window.
const IN_WINDOW: u32 = 8;
/// The zone is a root that is followed to its end and not recorded.
const FOLLOWED: u32 = 16;

/// What a zone is for. It is never for nothing.
#[derive(Clone, Copy, Debug)]
struct Purpose(NonZeroU32);

impl ZoneRequest {
    #[inline]
    fn new(range: &'static RangeSpec, purpose: Purpose, chance: Chance) -> ZoneRequest {
        ZoneRequest { range, purpose_and_chance: u64::from(chance.bits()) << 32 | u64::from(purpose.bits()) }
    }

    #[inline]
    fn purpose(self) -> Purpose {
        Purpose::of_bits(self.purpose_and_chance as u32)
    }

    #[inline]
    fn chance(self) -> Chance {
        Chance::of_bits((self.purpose_and_chance >> 32) as u32)
    }

    /// Returns a request for a zone of this range. Returns none if the range is excluded, or if the switch is set only because no tool was
    /// looked for yet.
    #[inline(never)]
    pub(super) fn by(range: &'static RangeSpec, mut word: SwitchState) -> Option<ZoneRequest> {
        if reentrancy::refuses() {
            return None;
        }
        word = word.acquire();
        if word.is_unknown() {
            observer::first_zone();
            word = switch::word()?.acquire();
        }
        let is_requested = word.is_armed() && profile::is_asked(range);
        if word.is_windowed() {
            return ZoneRequest::in_window(range, word, is_requested);
        }
        let taken = word.epoch().and_then(|_| range.chance().take());
        let mut purpose = Purpose::new(word, taken.is_some(), is_requested);
        if taken.is_none() && word.takes_captures() && !range.chance().is_left_out() {
            purpose = Purpose::if_captured(word, purpose);
        }
        purpose.map(|purpose| ZoneRequest::new(range, purpose, taken.unwrap_or(Chance::ALWAYS)))
    }

    /// Returns a request in a session that records windows of its time, and all collectives.
    #[cold]
    #[inline(never)]
    fn in_window(range: &'static RangeSpec, word: SwitchState, is_requested: bool) -> Option<ZoneRequest> {
        let zone = |is_taken| Purpose::new(word, is_taken, is_requested);
        // A zone outside of a window, or of its sample, is recorded if it is captured.
        let or_captured = |otherwise| {
            if word.takes_captures() { Purpose::if_captured(word, otherwise) } else { otherwise }
        };
        let mut chance = Chance::ALWAYS;
        let epoch = word.epoch().filter(|_| !range.chance().is_left_out());
        let purpose = match epoch {
            None => zone(false),
            Some(_) if !may_be_sampled(range) => zone(true),
            Some(epoch) => match thread::admit(range, epoch) {
                Admission::Refused => or_captured(zone(false)),
                Admission::Followed => or_captured(Purpose::followed(word, is_requested)),
                Admission::Recorded => match range.chance().take() {
                    Some(taken) => {
                        chance = taken;
                        zone(true).map(Purpose::in_window)
                    }
                    None => {
                        thread::lose_admitted();
                        or_captured(zone(false))
                    }
                },
            },
        };
        purpose.map(|purpose| ZoneRequest::new(range, purpose, chance))
    }

    #[inline]
    pub(super) fn on_any(self, stream: &(impl AsStream + ?Sized)) -> Option<ZoneBuilder> {
        if self.purpose().is_only_observed() { self.mirrored() } else { self.on_stream(&stream.as_stream()) }
    }

    #[inline(never)]
    fn on_stream(self, stream: &StreamRef<'_>) -> Option<ZoneBuilder> {
        if self.purpose().is_requested() {
            return self.requested(Some(stream));
        }
        let Some(epoch) = self.purpose().epoch() else { return self.mirrored() };
        match stream.key {
            Err(NoKey::Captured) => return self.in_capture(epoch, stream).or_else(|| self.mirrored()),
            _ if self.purpose().is_if_captured() => return self.mirrored(),
            Err(NoKey::NoStream) => return self.on_no_stream(),
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
        let captures = Arc::clone(recorder::current(epoch)?.captures());
        // If captured zones are recorded, all of them are, also those that were not drawn.
        let mut builder = ZoneRequest::new(self.range, self.purpose(), Chance::ALWAYS).open(captures).ok()?;
        if let Some(slot) = builder.0.slot() {
            slot.set_points(stream.capture_points());
        }
        if self.purpose().is_if_captured() && !switch::word().is_some_and(SwitchState::is_windowed) {
            self.range.chance().choose_after_all();
        }
        builder.follow(self.purpose());
        Some(builder.owning(stream))
    }

    #[inline(never)]
    pub(super) fn on_no_stream(self) -> Option<ZoneBuilder> {
        if self.purpose().is_requested() {
            return self.requested(None);
        }
        if self.purpose().is_if_captured() {
            return self.mirrored();
        }
        let context = self.purpose().epoch().and_then(|epoch| thread::with(|thread| thread.host_context(epoch)));
        context.and_then(|context| self.open(context).ok()).or_else(|| self.mirrored())
    }

    /// Takes a slot of the thread for a zone that no session records, if a tool observes zones or the zone is followed.
    #[inline(never)]
    fn mirrored(self) -> Option<ZoneBuilder> {
        if !switch::is_mirrored() && !self.purpose().is_followed() {
            return None;
        }
        let _inside = Inside::enter();
        let mirror = thread::with(Thread::mirror)?;
        let mut builder = self.open(mirror).inspect_err(|_| observer::zone_lost(MOST_MIRRORED)).ok()?;
        builder.follow(self.purpose());
        Some(builder)
    }

    #[inline]
    fn open(self, context: Arc<StreamContext>) -> Result<ZoneBuilder, NoSlot> {
        let builder = ZoneBuilder::in_ring(self.range, self.chance(), context);
        if self.purpose().is_in_window() { ZoneRequest::place_in_window(builder) } else { builder }
    }

    #[cold]
    fn place_in_window(mut builder: Result<ZoneBuilder, NoSlot>) -> Result<ZoneBuilder, NoSlot> {
        match builder.as_mut().map(|builder| builder.0.slot()) {
            Ok(Some(slot)) => {
                slot.place_in_window(thread::sampled_in_window);
            }
            Ok(None) => {}
            Err(_) => thread::lose_admitted(),
        }
        builder
    }

    /// Takes a slot for a zone on a stream or on the host while there are requests. A zone that was requested gets a ticket.
    #[cold]
    #[inline(never)]
    fn requested(self, stream: Option<&StreamRef<'_>>) -> Option<ZoneBuilder> {
        let _inside = Inside::enter();
        let stream = stream.filter(|stream| stream.is_some());
        let others = self.purpose().without_request();
        let others = others.map(|purpose| ZoneRequest::new(self.range, purpose, self.chance()));
        let builder = others
            .and_then(|request| stream.map_or_else(|| request.on_no_stream(), |stream| request.on_stream(stream)));
        let Some(ticket) = profile::take(self.range, stream) else { return builder };
        // A builder that is only mirrored is given back, because the recorded zone is mirrored as well.
        match builder.filter(|builder| builder.0.is_recorded()) {
            Some(builder) => Some(builder.with(ticket)),
            None => {
                let followed = |mut builder: ZoneBuilder| {
                    builder.follow(self.purpose());
                    builder
                };
                open(self.range, ticket, stream).map(followed).or_else(|| self.mirrored())
            }
        }
    }
}

/// Begins a zone that no session records.
pub fn timed(range: &'static RangeSpec, stream: &StreamRef<'_>) -> (Zone, Arc<Shared>) {
    let (ticket, shared) = profile::ask_now();
    let stream = Some(stream).filter(|stream| stream.is_some());
    (open(range, ticket, stream).map_or_else(Zone::none, ZoneBuilder::start), shared)
}

/// Takes a slot only for the ticket; none if the ticket was answered with an error.
fn open(range: &'static RangeSpec, ticket: PendingAnswers, stream: Option<&StreamRef<'_>>) -> Option<ZoneBuilder> {
    let context = || stream.map_or_else(profile::host_context, profile::context);
    let open = |context| ZoneBuilder::in_ring(range, Chance::ALWAYS, context);
    let opened = match context().map(open) {
        Ok(Err(NoSlot::Retired)) => context().map(open),
        opened => opened,
    };
    match opened.and_then(|opened| opened.map_err(ProfileError::from)) {
        Ok(builder) => {
            let builder = match stream {
                Some(stream) => builder.owning(stream),
                None => builder,
            };
            Some(builder.with(ticket))
        }
        Err(error) => {
            ticket.fail(&error);
            None
        }
    }
}

impl ZoneBuilder {
    /// Creates a zone with a slot of this context's ring.
    #[inline]
    fn in_ring(range: &'static RangeSpec, chance: Chance, context: Arc<StreamContext>) -> Result<ZoneBuilder, NoSlot> {
        let claim = context.claim(|slot| slot.open(range, chance, panicking()))?;
        Ok(ZoneBuilder(Guard(Some(claim))))
    }

    /// Follows a root that no session records until it ends.
    #[inline]
    fn follow(&mut self, purpose: Purpose) {
        if let Some(slot) = self.0.slot().filter(|_| purpose.is_followed()) {
            slot.follow();
        }
    }

    /// Makes the zone own a handle on its stream until it ends, because the application may drop the stream earlier.
    #[inline]
    fn owning(mut self, stream: &StreamRef<'_>) -> ZoneBuilder {
        if let Some(owner) = stream.keep_alive()
            && let Some(slot) = self.0.slot()
        {
            slot.keep(owner);
        }
        self
    }

    fn with(mut self, ticket: PendingAnswers) -> ZoneBuilder {
        if let Some(slot) = self.0.slot() {
            slot.set_ticket(Box::new(ticket));
        }
        self
    }
}

impl Purpose {
    /// Returns the purpose of a zone, by whether a session takes it and whether it was requested; none if nothing needs it.
    #[inline]
    fn new(switch: SwitchState, is_taken: bool, is_requested: bool) -> Option<Purpose> {
        let epoch = if is_taken { EPOCH } else { 0 };
        let requested = if is_requested { REQUESTED } else { 0 };
        NonZeroU32::new(switch.bits() & (OBSERVED | epoch) | requested).map(Purpose)
    }

    /// Returns the purpose of a root that is followed to its end and not recorded.
    #[cold]
    fn followed(switch: SwitchState, is_requested: bool) -> Option<Purpose> {
        let other = Purpose::new(switch, false, is_requested).map_or(0, Purpose::bits);
        NonZeroU32::new(other | FOLLOWED).map(Purpose)
    }

    /// Returns the purpose of a zone that the session records only if it is captured. `otherwise` applies if it is not.
    #[cold]
    fn if_captured(switch: SwitchState, otherwise: Option<Purpose>) -> Option<Purpose> {
        NonZeroU32::new(switch.bits() & EPOCH | IF_CAPTURED | otherwise.map_or(0, Purpose::bits)).map(Purpose)
    }

    /// Adds that the session records the zone in a window.
    fn in_window(self) -> Purpose {
        Purpose(self.0 | IN_WINDOW)
    }

    /// Returns the purpose without the request; none if there is no other.
    fn without_request(self) -> Option<Purpose> {
        NonZeroU32::new(self.bits() & !REQUESTED).map(Purpose)
    }

    #[inline]
    fn bits(self) -> u32 {
        self.0.get()
    }

    /// Returns the purpose that had these bits.
    #[inline]
    fn of_bits(bits: u32) -> Purpose {
        Purpose(NonZeroU32::new(bits).unwrap_or(NonZeroU32::MIN))
    }

    /// Returns the epoch of the session that records the zone.
    #[inline]
    fn epoch(self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.bits() >> EPOCH_SHIFT)
    }

    #[inline]
    fn is_if_captured(self) -> bool {
        self.bits() & IF_CAPTURED != 0
    }

    #[inline]
    fn is_requested(self) -> bool {
        self.bits() & REQUESTED != 0
    }

    #[inline]
    fn is_in_window(self) -> bool {
        self.bits() & IN_WINDOW != 0
    }

    #[inline]
    fn is_followed(self) -> bool {
        self.bits() & FOLLOWED != 0
    }

    /// Returns whether a tool is all that gets the zone.
    #[inline]
    fn is_only_observed(self) -> bool {
        self.bits() == OBSERVED
    }
}
