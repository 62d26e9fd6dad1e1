//! The guard of a zone: the handle on the zone's slot, through which the zone begins on its thread, gets values while it is open, and ends
//! when the guard is dropped.
//!
//! The begin and the end are the hot path; `stream/slot/launch.rs` is the part of the slot. Without the feature `enable`, `no_guard`
//! replaces this module.

use std::fmt;
use std::panic::Location;

use crate::catalog::RangeSpec;
use crate::collective::Message;
use crate::fields::Fields;
use crate::observer::{self, MIRRORS};
use crate::panics::caught;
use crate::reentrancy::Inside;
use crate::stream::context::SlotGuard;
use crate::stream::slot::Slot;
use crate::stream::slot::launch::Launch;
use crate::stream::thread::{self, Thread};

/// Ends its zone when it is dropped; none if the zone is not recorded.
///
/// It has two words, and the first is never null. A zone that is not recorded is therefore a zero and stays in registers. All other data of
/// a zone is in its slot.
pub(super) struct Guard(pub(super) Option<SlotGuard>);

const _: () = assert!(size_of::<Guard>() == 16);

impl Guard {
    pub(super) const NONE: Guard = Guard(None);

    /// Returns whether the zone is recorded.
    #[inline(always)]
    pub(super) fn is_recorded(&self) -> bool {
        self.0.as_ref().is_some_and(SlotGuard::is_recorded)
    }

    /// Returns whether the zone is recorded or a tool sees it.
    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.0.as_ref().is_some_and(|claim| claim.is_recorded() || claim.is_mirrored())
    }

    #[inline]
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Fields)) {
        if let Some(slot) = self.slot() {
            let _inside = Inside::enter();
            slot.change_fields(change);
        }
    }

    pub(super) fn set_message(&mut self, mut message: Message) {
        // A zone that only a tool sees has a message too.
        if let Some(claim) = self.0.as_mut() {
            let _inside = Inside::enter();
            // A process group counts only the collectives that sessions record.
            if claim.is_of_session() {
                message.begin();
            }
            if let Some(slot) = claim.slot() {
                slot.set_message(message);
            }
        }
    }

    pub(super) fn add_entry(&mut self, range: &'static RangeSpec, mut message: Message) {
        if let Some(claim) = self.0.as_mut() {
            let _inside = Inside::enter();
            let (is_recorded, is_of_session) = (claim.is_recorded(), claim.is_of_session());
            let Some(slot) = claim.slot() else { return };
            let is_taken = is_recorded && slot.has_begun() && range.chance().take().is_some();
            let has_room = is_taken && slot.has_room();
            // Before the observer gets the message, so that the number that ranks match by is in it.
            if has_room && is_of_session {
                message.begin();
            }
            for mirror in MIRRORS.into_iter().filter(|mirror| slot.is_seen_at(*mirror)) {
                observer::entry_added(mirror, range, &message);
            }
            if has_room {
                slot.add_entry(range, message);
            } else if is_taken {
                claim.lose_entry();
            }
        }
    }

    #[inline]
    pub(super) fn begin_at_launch(&mut self) {
        if let Some(slot) = self.slot() {
            slot.begin_at_launch();
        }
    }

    /// Gives a zone that is recorded the text of an error, if there is one. If its `Display` panics, only the text is lost.
    #[inline]
    pub(super) fn fail(&mut self, text: impl FnOnce() -> Option<String>) {
        if !self.is_recorded() {
            return;
        }
        let text = caught(text).unwrap_or_else(|| Some("its `Display` panicked".to_owned()));
        if let (Some(slot), Some(text)) = (self.slot(), text) {
            slot.fail(text);
        }
    }

    /// Starts the zone on this thread. If `nests` is set, the zone also ends on this thread.
    #[inline]
    pub(super) fn start(mut self, nests: bool, place: &'static Location<'static>) -> Guard {
        if self.0.as_mut().is_some_and(|claim| start_zone(claim, nests, place)) {
            return self;
        }
        // There is nothing to end later: dropping `self` gives the slot back.
        Guard::NONE
    }

    #[inline]
    pub(super) fn slot(&mut self) -> Option<&mut Slot> {
        self.0.as_mut().and_then(SlotGuard::slot)
    }
}

impl Drop for Guard {
    /// This is only a call, so that it is inlined where most zones are not recorded. It exists without feature `enable` as well, so that a
    /// zone is borrowed until the same place.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(claim) = self.0.take() {
            end_zone(claim);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.is_active()).finish()
    }
}

/// Starts a zone on this thread. Returns whether there is anything to end.
#[inline]
fn start_zone(claim: &mut SlotGuard, nests: bool, place: &'static Location<'static>) -> bool {
    let _inside = Inside::enter();
    let (is_recorded, observed) = (claim.is_recorded(), observer::active());
    let stream = if observed.any() { claim.stream_id() } else { 0 };
    let launch = Launch { is_of_session: claim.is_of_session(), stream, observed };
    let Some(slot) = claim.slot() else { return false };
    slot.start(nests, launch, |range, is_followed| thread::start_root(range, nests, is_followed));
    if is_recorded {
        // Only zones of a session count for the nesting depth.
        let counts = nests && launch.is_of_session;
        let at = thread::with(|thread| (thread.id(), if counts { thread.push(slot.range()) } else { 0 }));
        slot.begin(launch, at, place);
    }
    slot.must_end()
}

/// Ends a zone, or gives back the slot of a zone that never started.
#[inline(never)]
fn end_zone(claim: SlotGuard) {
    if claim.is_inherited() {
        return leave_to_parent(claim);
    }
    let _inside = Inside::enter();
    // Dropped inside: it may be the last that holds the stream's slots.
    let mut claim = claim;
    let (is_recorded, is_of_session) = (claim.is_recorded(), claim.is_of_session());
    let is_closed = is_recorded && claim.is_closed();
    let Some(slot) = claim.slot() else { return };
    let (mirrors, owner) = (slot.take_mirrors(), slot.take_owner());
    let has_entries = slot.entries() > 0;
    slot.end_root(thread::end_root);
    if is_recorded {
        slot.end_launch();
        let thread = thread::with(|thread| {
            if slot.nests() && is_of_session {
                thread.pop();
            }
            thread.id()
        });
        match slot.end(thread, is_closed) {
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

/// Ends a zone in a forked child of the process that began it. The parent ends the zone itself; here only the nesting depth changes.
#[cold]
fn leave_to_parent(mut claim: SlotGuard) {
    let is_of_session = claim.is_of_session();
    if claim.slot().is_some_and(|slot| slot.nests() && is_of_session) {
        thread::with(Thread::pop);
    }
    // The slot belongs to the parent's stream, which this process must not drop.
    std::mem::forget(claim);
}
