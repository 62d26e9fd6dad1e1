//! The handle on a zone's slot, through which values are added while the zone is open. Dropping it ends the zone.
//!
//! Without the feature `enable`, `no_guard` replaces it.

use std::fmt;
use std::panic::Location;

use super::launch::{self, SlotGuard};
use crate::catalog::RangeSpec;
use crate::collective::Message;
use crate::fields::Fields;
use crate::observer::{self, MIRRORS};
use crate::panics::caught;
use crate::reentrancy::Inside;
use crate::stream::slot::Slot;

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
        if self.0.as_mut().is_some_and(|claim| launch::start(claim, nests, place)) {
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
            launch::end(claim);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.is_active()).finish()
    }
}
