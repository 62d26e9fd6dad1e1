//! The handle on a zone's slot: what a zone can be given while it is open. Its drop ends the zone.
//!
//! Without feature `enable` a guard has no size, and its methods do nothing.
#![cfg_attr(not(feature = "enable"), allow(unused_variables, unused_mut))]

use std::fmt;
use std::panic::Location;

use crate::catalog::RangeSpec;
use crate::collective::Message;
use crate::fields::Fields;
#[cfg(feature = "enable")]
use crate::{
    inside::Inside,
    record::Status,
    stream::context::SlotGuard,
    stream::slot::{MAX_ENTRIES, Slot, Start},
};

/// Ends its zone when it is dropped; none where nothing records.
///
/// Two words, the first never null: a zone that does not record is a zero and travels in registers. Everything else that a
/// zone has to remember until its end is in its slot.
pub(super) struct Guard(#[cfg(feature = "enable")] pub(super) Option<SlotGuard>);

#[cfg(feature = "enable")]
const _: () = assert!(size_of::<Guard>() == 16);
#[cfg(not(feature = "enable"))]
const _: () = assert!(size_of::<Guard>() == 0);

impl Guard {
    pub(super) const NONE: Guard = Guard(
        #[cfg(feature = "enable")]
        None,
    );

    /// Whether the zone is recorded.
    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        #[cfg(feature = "enable")]
        return self.0.as_ref().is_some_and(SlotGuard::is_recorded);
        #[cfg(not(feature = "enable"))]
        false
    }

    #[inline]
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Fields)) {
        #[cfg(feature = "enable")]
        if let Some(slot) = self.slot() {
            let _inside = Inside::enter();
            change(&mut slot.fields);
            if slot.note.is_some() && matches!(slot.start, Start::Begun) {
                slot.write_note();
            }
        }
    }

    #[cfg_attr(not(feature = "enable"), inline(always))]
    pub(super) fn set_message(&mut self, mut message: Message) {
        #[cfg(feature = "enable")]
        if let Some(claim) = self.0.as_mut().filter(|claim| claim.is_recorded()) {
            let _inside = Inside::enter();
            // A group counts what sessions record.
            if claim.is_of_session() {
                message.begin();
            }
            if let Some(slot) = claim.slot() {
                slot.message = Some(message);
            }
        }
    }

    #[cfg_attr(not(feature = "enable"), inline(always))]
    pub(super) fn add_entry(&mut self, range: &'static RangeSpec, mut message: Message) {
        #[cfg(feature = "enable")]
        if let Some(claim) = self.0.as_mut().filter(|claim| claim.is_recorded()) {
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
    }

    #[inline]
    pub(super) fn begin_at_launch(&mut self) {
        #[cfg(feature = "enable")]
        if let Some(slot) = self.slot() {
            slot.begin_at_launch = true;
        }
    }

    #[inline]
    pub(super) fn note_error(&mut self, text: Option<String>) {
        #[cfg(feature = "enable")]
        if let (Some(slot), Some(text)) = (self.slot(), text) {
            slot.status = Status::Error;
            slot.error = Some(text.into());
        }
    }

    /// Starts the zone on this thread. `nests`: it ends there, too.
    #[inline]
    pub(super) fn start(mut self, nests: bool, place: &'static Location<'static>) -> Guard {
        #[cfg(feature = "enable")]
        if self.0.as_mut().is_some_and(|claim| super::launch::start(claim, nests, place)) {
            return self;
        }
        // A zone that has nothing to end ends here.
        Guard::NONE
    }

    #[cfg(feature = "enable")]
    #[inline]
    pub(super) fn slot(&mut self) -> Option<&mut Slot> {
        self.0.as_mut().and_then(SlotGuard::slot)
    }
}

impl Drop for Guard {
    /// No more than the call, so that it is inlined where most zones do not record. It is there without feature `enable`, too, so
    /// that a zone is borrowed until the same place.
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(feature = "enable")]
        if let Some(claim) = self.0.take() {
            super::launch::end(claim);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.is_active()).finish()
    }
}
